/* Scratch of the gap encoder, and how it is divided:
 *
 *     counters | units | a word a chunk, twice | room of each group | pages of lists
 *
 * A unit is a stretch of a chunk. Its changed words are listed in a page, or, where they are many
 * or pages have run out, not at all: then they are found again in old and new. So every call
 * ends well, whatever changes and however little scratch there is. */
#ifndef XCI_CUDA_GAP_SCRATCH_CUH
#define XCI_CUDA_GAP_SCRATCH_CUH

#include "backend/cuda/cuda_kernels.h"
#include "codec/gap_cost.h"
#include "codec/prefix_code.h"

#define XCI_UNIT_BYTES (32u << 10)
#define XCI_PAGE_BYTES (32u << 10)
#define XCI_LISTED_ENTRY 12u /* number of a word in its chunk, 4 bytes; its mask, 8 bytes */
#define XCI_LISTED_MOST 682u /* of a unit; more are not listed */
#define XCI_NOT_LISTED UINT32_MAX

typedef struct xci_gap_unit {
    const uint32_t *entries;
    uint32_t count; /* or XCI_NOT_LISTED */
    uint32_t reserved;
} xci_gap_unit;

/* Tables of a group's drafts: two for each width of a dtype. */
#define XCI_PLAIN_TABLES 8u
#define XCI_TABLE_ROOM (XCI_PREFIX_BYTES + 8u)

typedef struct xci_gap_scratch {
    uint64_t *counters; /* units that are taken, pages that are taken */
    xci_gap_unit *units;
    uint32_t *drafts; /* of each chunk */
    uint32_t *sizes;  /* distinct ones of a group's chunks */
    uint8_t *rooms;
    uint8_t *pages;
    uint64_t page_count, unit_count;
    uint32_t units_per_chunk;
} xci_gap_scratch;

/* A group's room: descriptions of tables, then the parameters; these grow with its chunks. */
__host__ __device__ static inline uint64_t xci_gap_room(uint64_t groups, uint64_t chunks) {
    return groups * (2 * XCI_PLAIN_TABLES * XCI_TABLE_ROOM + XCI_GAP_SHAPES * 64 + 64) + chunks * 8;
}

__host__ static inline uint64_t xci_gap_aligned(uint64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

/* Returns where pages begin. */
__host__ static inline uint64_t xci_gap_divide(uint8_t *at, uint64_t count, uint64_t group_count,
                                               uint32_t chunk_bytes, xci_gap_scratch *scratch) {
    uint8_t *const begin = at;
    scratch->units_per_chunk = (chunk_bytes + XCI_UNIT_BYTES - 1) / XCI_UNIT_BYTES;
    scratch->unit_count = count * scratch->units_per_chunk;
    scratch->counters = (uint64_t *)at;
    at += 256;
    scratch->units = (xci_gap_unit *)at;
    at += xci_gap_aligned(scratch->unit_count * sizeof(xci_gap_unit));
    scratch->drafts = (uint32_t *)at;
    at += xci_gap_aligned(count * sizeof(uint32_t));
    scratch->sizes = (uint32_t *)at;
    at += xci_gap_aligned(count * sizeof(uint32_t));
    scratch->rooms = at;
    at += xci_gap_aligned(xci_gap_room(group_count, count));
    scratch->pages = at;
    return (uint64_t)(at - begin);
}

#endif
