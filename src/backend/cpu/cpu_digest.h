/* digest() of one instruction set: a full scan, bound by its one multiplication a word if memory
 * keeps up. */
#ifndef XCI_CPU_DIGEST_H
#define XCI_CPU_DIGEST_H

#include "backend/cpu/cpu_tally.h"

#define XCI_DIGEST_LINE_WORDS 8u
/* Bytes between prefetch and use: alone, the hardware's prefetcher brings one stream too late. */
#define XCI_DIGEST_AHEAD 3072u

XCI_CPU_INLINE xorcast_digest xci_digest_segment(const uint8_t *at, uint32_t bytes, uint64_t key) {
    xorcast_digest digest = {{0, 0}};
    const uint32_t words = bytes / 8;
    uint32_t word = 0;
    for (; word + XCI_DIGEST_LINE_WORDS <= words; word += XCI_DIGEST_LINE_WORDS) {
        __builtin_prefetch((const void *)((uintptr_t)at + (size_t)word * 8 + XCI_DIGEST_AHEAD));
#pragma GCC unroll 8
        for (uint32_t i = 0; i < XCI_DIGEST_LINE_WORDS; ++i, key += XCI_DIGEST_STRIDE)
            xci_digest_add(&digest, xci_load64(at + (size_t)(word + i) * 8), key);
    }
    for (; word < words; ++word, key += XCI_DIGEST_STRIDE)
        xci_digest_add(&digest, xci_load64(at + (size_t)word * 8), key);
    if (bytes % 8 != 0)
        xci_digest_add(&digest, xci_load_part(at + (size_t)words * 8, bytes % 8), key);
    return digest;
}

static void digest(xci_digest_job *jobs, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        jobs[i].digest = (xorcast_digest){{0, 0}};
        for (uint32_t k = 0; k < jobs[i].segment_count; ++k) {
            const xci_segment *segment = &jobs[i].segments[k];
            const xorcast_digest part = xci_digest_segment(jobs[i].bytes_at + segment->offset,
                                                           segment->bytes, segment->key);
            xci_digest_merge(&jobs[i].digest, &part);
        }
    }
}

#endif
