/* Scratch of the gap encoder, and how it is divided:
 *
 *     counters | units | words for each chunk | room of each group | lists
 *
 * A unit is a stretch of a chunk. Its changed words are listed, or, where they are many or there is
 * no room left, not: then they are found again in old and new. So every call ends well, whatever
 * changes and however little scratch there is. */
#ifndef XCI_CUDA_GAP_SCRATCH_CUH
#define XCI_CUDA_GAP_SCRATCH_CUH

#include "backend/cuda/cuda_kernels.h"
#include "codec/gap_cost.h"
#include "codec/prefix_code.h"

#define XCI_UNIT_BYTES (32u << 10)
#define XCI_LISTED_ENTRY 12u /* number of a word in its chunk, 4 bytes; its mask, 8 bytes */
#define XCI_LISTED_MOST 682u /* of a unit; more are not listed */
#define XCI_NOT_LISTED UINT32_MAX

typedef struct xci_gap_unit {
    const uint32_t *entries;
    uint32_t count; /* or XCI_NOT_LISTED */
    uint32_t reserved;
} xci_gap_unit;

/* Tables of a group's drafts: two for each width of a dtype, if they have no classes. */
#define XCI_PLAIN_TABLES 8u
__host__ __device__ static inline uint32_t xci_gap_tables(uint32_t beside) {
    return beside != 0 ? XCI_GAP_TABLES : XCI_PLAIN_TABLES;
}
#define XCI_TABLE_ROOM (XCI_PREFIX_BYTES + 8u)

typedef struct xci_gap_scratch {
    /* Units that are taken; words of 4 bytes of lists; whether there were too few of them. */
    unsigned long long *counters;
    uint64_t *ranks; /* where each chunk's begin among the lists */
    xci_gap_unit *units;
    uint32_t *drafts, *nibbles; /* of each chunk: its draft; nibbles that change */
    uint32_t *sizes;            /* of each group: distinct ones of its chunks */
    uint8_t *rooms;
    uint32_t *lists;
    uint64_t list_words, unit_count;
    uint32_t units_per_chunk;
} xci_gap_scratch;

/* A group's room: descriptions of tables, then the parameters; these grow with its chunks. */
__host__ __device__ static inline uint64_t xci_gap_room(uint64_t groups, uint64_t chunks,
                                                        uint32_t beside) {
    const uint64_t tables = 2 * (uint64_t)xci_gap_tables(beside) * XCI_TABLE_ROOM;
    return groups * (tables + XCI_GAP_SHAPES * 128 + 64) + chunks * 8;
}

__host__ static inline uint64_t xci_gap_aligned(uint64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

/* Returns where lists begin. */
__host__ static inline uint64_t xci_gap_divide(uint8_t *at, uint64_t count, uint64_t group_count,
                                               uint32_t chunk_bytes, xci_gap_scratch *scratch) {
    uint8_t *const begin = at;
    scratch->units_per_chunk = (chunk_bytes + XCI_UNIT_BYTES - 1) / XCI_UNIT_BYTES;
    scratch->unit_count = count * scratch->units_per_chunk;
    scratch->counters = (unsigned long long *)at;
    at += 256;
    scratch->units = (xci_gap_unit *)at;
    at += xci_gap_aligned(scratch->unit_count * sizeof(xci_gap_unit));
    scratch->ranks = (uint64_t *)at;
    at += xci_gap_aligned(count * sizeof(uint64_t));
    scratch->drafts = (uint32_t *)at;
    at += xci_gap_aligned(count * sizeof(uint32_t));
    scratch->nibbles = (uint32_t *)at;
    at += xci_gap_aligned(count * sizeof(uint32_t));
    scratch->sizes = (uint32_t *)at;
    at += xci_gap_aligned(count * sizeof(uint32_t));
    scratch->rooms = at;
    at += xci_gap_aligned(xci_gap_room(group_count, count, 1));
    scratch->lists = (uint32_t *)at;
    return (uint64_t)(at - begin);
}

#endif
