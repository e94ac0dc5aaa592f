/* A group at work, by a block of threads; and its changed words in any order. A warp takes several
 * units at a time, whose words it puts behind each other: most chunks have few, and what waits for
 * memory is to wait for much. */
#ifndef XCI_CUDA_GAP_WORDS_CUH
#define XCI_CUDA_GAP_WORDS_CUH

#include "backend/cuda/cuda_gap_changes.cuh"

#define XCI_PLAN_THREADS 256u
#define XCI_PLAN_WARPS (XCI_PLAN_THREADS / XCI_WARP)

/* A group at work. */
typedef struct xci_gap_work {
    const xci_cuda_gap_encode_call *call;
    const xci_gap_scratch *scratch;
    uint64_t first;        /* chunk, counted from the call's first */
    uint32_t group, count; /* chunks */
} xci_gap_work;

__device__ __forceinline__ xci_gap_work d_work_of(const xci_cuda_gap_encode_call *call,
                                                  const xci_gap_scratch *scratch, uint32_t group) {
    xci_gap_work work;
    work.call = call;
    work.scratch = scratch;
    work.group = group;
    work.first = call->group_first[group] - call->first;
    work.count = (uint32_t)(call->group_first[group + 1] - call->group_first[group]);
    return work;
}

__device__ __forceinline__ uint32_t d_warp(void) {
    return threadIdx.x / XCI_WARP;
}

__device__ __forceinline__ void d_add64(unsigned long long *sum, uint64_t value) {
    atomicAdd(sum, (unsigned long long)value);
}

__device__ __forceinline__ const xci_cuda_chunk *d_chunk_of(const xci_gap_work *work, uint32_t c) {
    return &work->call->grid.chunks[work->call->first + work->first + c];
}

__device__ __forceinline__ xci_cuda_result *d_result_of(const xci_gap_work *work, uint32_t c) {
    return &work->call->results[work->first + c];
}

__device__ __forceinline__ xci_gap_source d_source_in(const xci_gap_work *work, uint32_t c) {
    return d_source_of(work->call, work->scratch, work->first + c);
}

__device__ __forceinline__ uint32_t d_draft_mark(const xci_gap_work *work, uint32_t d) {
    return work->group << XCI_DRAFT_BITS | d;
}

__device__ __forceinline__ bool d_is_of_draft(const xci_gap_work *work, uint32_t c, uint32_t d) {
    return work->scratch->drafts[work->first + c] == d_draft_mark(work, d);
}

/* Bytes of the room, aligned to 16; one thread. NULL: there is too little, and the call fails. */
__device__ __forceinline__ uint8_t *d_take_room(const xci_gap_scratch *scratch, uint32_t bytes) {
    const unsigned long long whole = (bytes + 15) / 16 * 16;
    const unsigned long long at = atomicAdd(&scratch->counters[3], whole);
    if (at + whole <= scratch->room_bytes)
        return scratch->room + at;
    scratch->counters[2] = 1;
    return NULL;
}

/* Whether the chunk has changed, and has elements of 1 << kind bytes. */
__device__ __forceinline__ bool d_is_of_kind(const xci_gap_work *work, uint32_t c, uint32_t kind) {
    return d_result_of(work, c)->bytes_changed != 0 &&
           d_chunk_of(work, c)->element_bytes == 1u << kind;
}

/* ---- Pieces behind each other ---- */

/* The last lane below 16 whose `begin` is not above `at`; they rise, and the first is 0. */
__device__ __forceinline__ uint32_t d_owner_of(uint32_t begin, uint32_t at) {
    uint32_t owner = 0;
#pragma unroll
    for (uint32_t step = 8; step > 0; step /= 2)
        owner += __shfl_sync(XCI_ALL, begin, owner + step) <= at ? step : 0;
    return owner;
}

/* ---- Words ---- */

#define XCI_UNITS_AT_ONCE 16u
#define XCI_WORDS_AHEAD 4u /* of a lane, on their way */

/* A warp's units: a lane's among the first. Units that are not listed have no words here. */
typedef struct xci_gap_units {
    const uint32_t *entries;
    uint32_t chunk, begin, total; /* words before the lane's; of all */
    uint32_t others;              /* lanes whose unit is not listed */
} xci_gap_units;

__device__ __forceinline__ xci_gap_units d_take_units(const xci_gap_work *work, uint32_t d,
                                                      uint32_t first, uint32_t end) {
    const uint32_t per_chunk = work->scratch->units_per_chunk, mine = first + d_lane();
    xci_gap_units units = {NULL, mine / per_chunk, 0, 0, 0};
    uint32_t count = 0;
    if (d_lane() < XCI_UNITS_AT_ONCE && mine < end && d_is_of_draft(work, units.chunk, d)) {
        const xci_gap_unit *unit = &work->scratch->units[work->first * per_chunk + mine];
        units.entries = unit->entries;
        count = unit->count;
    }
    units.others = __ballot_sync(XCI_ALL, count == XCI_NOT_LISTED);
    count = count == XCI_NOT_LISTED ? 0 : count;
    const uint32_t sum = d_scan(count);
    units.begin = sum - count;
    units.total = __shfl_sync(XCI_ALL, sum, XCI_WARP - 1);
    return units;
}

/* A word of each lane, or none: its mask is 0 then. */
typedef struct xci_gap_word {
    uint32_t chunk, word;
    uint64_t mask, old_word;
} xci_gap_word;

__device__ __forceinline__ xci_gap_word d_listed_word(const xci_gap_units *units, uint32_t at) {
    const uint32_t owner = d_owner_of(units->begin, at);
    const uint32_t *entries =
        (const uint32_t *)__shfl_sync(XCI_ALL, (uint64_t)(uintptr_t)units->entries, owner);
    const uint32_t i = at - __shfl_sync(XCI_ALL, units->begin, owner);
    xci_gap_word word = {__shfl_sync(XCI_ALL, units->chunk, owner), 0, 0, 0};
    if (at < units->total) {
        word.word = entries[i * 3];
        word.mask = (uint64_t)entries[i * 3 + 2] << 32 | entries[i * 3 + 1];
    }
    return word;
}

__device__ __forceinline__ uint64_t d_old_word_of(const xci_gap_work *work,
                                                  const xci_gap_word *word) {
    return word->mask == 0
               ? 0
               : d_word_at(work->call->old_at[work->call->first + work->first + word->chunk],
                           word->word, d_chunk_of(work, word->chunk)->bytes);
}

/* Words of units that are listed. */
template <bool OLD, typename Visit>
__device__ __forceinline__ void d_each_listed(const xci_gap_work *work, const xci_gap_units *units,
                                              Visit visit) {
#pragma unroll 1
    for (uint32_t at = d_lane(); at - d_lane() < units->total; at += XCI_WARP * XCI_WORDS_AHEAD) {
        xci_gap_word words[XCI_WORDS_AHEAD];
#pragma unroll
        for (uint32_t k = 0; k < XCI_WORDS_AHEAD; ++k)
            words[k] = d_listed_word(units, at + k * XCI_WARP);
#pragma unroll
        for (uint32_t k = 0; OLD && k < XCI_WORDS_AHEAD; ++k)
            words[k].old_word = d_old_word_of(work, &words[k]);
#pragma unroll
        for (uint32_t k = 0; k < XCI_WORDS_AHEAD; ++k)
            if (at - d_lane() + k * XCI_WARP < units->total)
                visit(words[k].old_word, words[k].mask);
    }
}

/* Those of a unit that is not. */
template <typename Visit>
__device__ __forceinline__ void d_each_unlisted(const xci_gap_work *work, uint32_t unit,
                                                Visit visit) {
    const uint32_t per_chunk = work->scratch->units_per_chunk;
    const xci_gap_source source = d_source_in(work, unit / per_chunk);
    const uint32_t first = unit % per_chunk * (XCI_UNIT_BYTES / 8);
    const uint32_t end = min(first + XCI_UNIT_BYTES / 8, (source.bytes + 7) / 8);
#pragma unroll 1
    for (uint32_t at = first; at < end; at += XCI_WARP) {
        const uint32_t word = at + d_lane();
        const uint64_t old_word = word < end ? d_word_at(source.old_at, word, source.bytes) : 0;
        const uint64_t new_word = word < end ? d_word_at(source.new_at, word, source.bytes) : 0;
        visit(old_word, old_word ^ new_word);
    }
}

/* Calls visit(old word, mask), by whole warps, for all changed words of a draft; some of the masks
 * are 0. OLD: whether it is to be told the old words. */
template <bool OLD, typename Visit>
__device__ __forceinline__ void d_each_word_of(const xci_gap_work *work, uint32_t d, Visit visit) {
    const uint32_t end = work->count * work->scratch->units_per_chunk;
    for (uint32_t first = d_warp() * XCI_UNITS_AT_ONCE; first < end;
         first += XCI_PLAN_WARPS * XCI_UNITS_AT_ONCE) {
        const xci_gap_units units = d_take_units(work, d, first, end);
        d_each_listed<OLD>(work, &units, visit);
        for (uint32_t others = units.others; others != 0; others &= others - 1)
            d_each_unlisted(work, first + (uint32_t)__ffs((int)others) - 1, visit);
    }
}

#endif
