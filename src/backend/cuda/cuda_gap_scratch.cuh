/* Scratch of the gap encoder, and how it is divided:
 *
 *     counters | units | rivals | words for each chunk | plans of groups | room | lists
 *
 * A unit is a stretch of a chunk. Its changed words are listed, or, where they are many or there is
 * no room left, not: then they are found again in old and new. So every call for the plain form
 * ends well, whatever changes and however little scratch there is. */
#ifndef XCI_CUDA_GAP_SCRATCH_CUH
#define XCI_CUDA_GAP_SCRATCH_CUH

#include "backend/cuda/cuda_kernels.h"
#include "codec/gap_cost.h"
#include "codec/prefix_code.h"

#define XCI_UNIT_BYTES (32u << 10)
#define XCI_LISTED_MOST 682u /* of a unit; more are not listed */
#define XCI_NOT_LISTED UINT32_MAX

typedef struct xci_gap_unit {
    const uint32_t *entries; /* 3 each: number of a word in its chunk; its mask, low half first */
    uint32_t count;          /* or XCI_NOT_LISTED */
    uint32_t reserved;
} xci_gap_unit;

/* A shape in the making; classes as in xci_gap_shape, with the first key of each. */
typedef struct xci_gap_draft {
    uint32_t width, dense, chunk_count, class_count;
    unsigned long long elements, changes;
    uint32_t priors[XCI_GAP_CLASSES], tables[XCI_GAP_CLASSES], first_keys[XCI_GAP_CLASSES];
} xci_gap_draft;

/* A code for writing: of each symbol that it has, bits of the stream << 4 | their number. */
typedef struct xci_gap_code {
    const uint16_t *codes;
    const uint8_t *description; /* as the parameters have it */
    uint32_t description_bytes, head;
} xci_gap_code;

/* What a group becomes. */
typedef struct xci_gap_plan {
    xci_gap_draft drafts[XCI_GAP_SHAPES];
    xci_gap_code codes[XCI_GAP_TABLES];
    uint8_t *params; /* when it is finished */
} xci_gap_plan;

/* What a chunk becomes if gap is not cheaper; and its size in LZ4, or raw where that is not
 * smaller. */
typedef struct xci_gap_rival {
    uint32_t codec, bytes, lz4_bytes;
} xci_gap_rival;

/* A chunk's group << XCI_DRAFT_BITS | its draft, or XCI_NO_DRAFT in its place. */
#define XCI_DRAFT_BITS 4u
#define XCI_NO_DRAFT 15u

typedef struct xci_gap_scratch {
    /* Units that are taken; words of 4 bytes of lists; whether there were too few of them, or too
     * little room; bytes of room that are taken. */
    unsigned long long *counters;
    uint64_t *records; /* where each chunk's begin among the lists */
    xci_gap_unit *units;
    xci_gap_rival *rivals;      /* of each chunk, where a call chooses; made once the plan is */
    uint32_t *drafts, *nibbles; /* of each chunk: group and draft; nibbles that change */
    uint32_t *sizes;            /* of each group: distinct ones of its chunks */
    xci_gap_plan *plans;
    uint8_t *room; /* for codes and parameters */
    uint32_t *lists;
    uint64_t room_bytes, list_words, unit_count;
    uint32_t units_per_chunk;
} xci_gap_scratch;

/* Room that groups without classes take at most: two codes for each width of a dtype, which are
 * described twice, shapes, and a chunk's size and place. */
#define XCI_PLAIN_CODES 8u
#define XCI_DESCRIPTION (XCI_PREFIX_BYTES + 8u)
#define XCI_SHAPES_ROOM (XCI_GAP_SHAPES * 128u + 64u)
#define XCI_CHUNK_ROOM 8u
__host__ __device__ static inline uint64_t xci_gap_room(uint64_t groups, uint64_t chunks) {
    const uint64_t code = 2 * XCI_DESCRIPTION + XCI_PREFIX_SYMBOLS * sizeof(uint16_t);
    return groups * (XCI_PLAIN_CODES * code + XCI_SHAPES_ROOM) + chunks * XCI_CHUNK_ROOM;
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
    scratch->records = (uint64_t *)at;
    at += xci_gap_aligned(count * sizeof(uint64_t));
    scratch->rivals = (xci_gap_rival *)at;
    at += xci_gap_aligned(count * sizeof(xci_gap_rival));
    scratch->drafts = (uint32_t *)at;
    at += xci_gap_aligned(count * sizeof(uint32_t));
    scratch->nibbles = (uint32_t *)at;
    at += xci_gap_aligned(count * sizeof(uint32_t));
    scratch->sizes = (uint32_t *)at;
    at += xci_gap_aligned(count * sizeof(uint32_t));
    scratch->plans = (xci_gap_plan *)at;
    at += xci_gap_aligned(group_count * sizeof(xci_gap_plan));
    scratch->room = at;
    scratch->room_bytes = xci_gap_aligned(xci_gap_room(group_count, count));
    at += scratch->room_bytes;
    scratch->lists = (uint32_t *)at;
    return (uint64_t)(at - begin);
}

#endif
