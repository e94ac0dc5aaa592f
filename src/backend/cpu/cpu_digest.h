/* digest() of one instruction set: a full scan, bound by its one multiplication a word. */
#ifndef XCI_CPU_DIGEST_H
#define XCI_CPU_DIGEST_H

#include "backend/cpu/cpu_tally.h"

XCI_CPU_INLINE xorcast_digest xci_digest_segment(const uint8_t *at, uint32_t bytes, uint64_t key) {
    xorcast_digest digest = {{0, 0}};
    const uint32_t words = bytes / 8;
#pragma GCC unroll 4
    for (uint32_t word = 0; word < words; ++word, key += XCI_DIGEST_STRIDE)
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
