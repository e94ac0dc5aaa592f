/* digest: the sum of the terms of all words that the segments of a chunk count, a thread block a
 * chunk. A segment that lies in one stretch of memory, as nearly all do, is read at the speed of
 * memory: by the whole thread block if it is the only one, else by a warp. */
#include "backend/cuda/cuda_launch.cuh"
#include "backend/cuda/cuda_tally.cuh"

#define THREADS 128u
#define WARP 32u
#define AHEAD 8u /* loads of 16 bytes that a thread has in flight */

/* The threads that scan a segment together. */
typedef struct xci_cuda_team {
    uint32_t rank, size;
} xci_cuda_team;

/* The terms of two words. */
static __device__ __forceinline__ void d_add_pair(xorcast_digest *sum, ulonglong2 words,
                                                  uint64_t key) {
    d_add(sum, d_term(words.x, key));
    d_add(sum, d_term(words.y, key + XCI_DIGEST_STRIDE));
}

/* Pairs [0, count) of 16 bytes, the key of the first word being `key`. */
static __device__ __forceinline__ void d_scan_pairs(xorcast_digest *sum, xci_cuda_team team,
                                                    const ulonglong2 *pairs, uint32_t count,
                                                    uint64_t key) {
    const uint64_t step = 2 * team.size * XCI_DIGEST_STRIDE;
    uint32_t at = team.rank;
    key += 2 * at * XCI_DIGEST_STRIDE;
    for (; at + (AHEAD - 1) * team.size < count; at += AHEAD * team.size) {
        ulonglong2 words[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; ++i)
            words[i] = pairs[at + i * team.size];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; ++i, key += step)
            d_add_pair(sum, words[i], key);
    }
    for (; at < count; at += team.size, key += step)
        d_add_pair(sum, pairs[at], key);
}

/* Words of a segment from number `first` on, wherever each lies. */
static __device__ __forceinline__ void d_scan_words(xorcast_digest *sum, xci_cuda_team team,
                                                    xci_cuda_place place,
                                                    const xci_cuda_segment &segment,
                                                    uint32_t first) {
    for (uint32_t word = first + team.rank; word * 8 < segment.bytes; word += team.size) {
        const uint32_t left = segment.bytes - word * 8;
        xci_cuda_spot spot = d_first_spot(&place, segment.offset / 8 + word);
        spot.bytes = spot.bytes < left ? spot.bytes : left;
        if (spot.bytes != 0)
            d_add(sum, d_term(d_load_spot(spot), segment.key + word * XCI_DIGEST_STRIDE));
    }
}

/* Segments of a chunk are asked for in rising order: `place` leaves windows behind. */
static __device__ __forceinline__ void d_scan_segment(xorcast_digest *sum, xci_cuda_team team,
                                                      xci_cuda_place *place,
                                                      const xci_cuda_segment &segment) {
    const xci_cuda_spot stretch = d_stretch(place, segment.offset / 8);
    uint32_t pairs = 0;
    if (stretch.bytes >= segment.bytes && d_aligned(stretch.at, 16)) {
        pairs = segment.bytes / 16;
        d_scan_pairs(sum, team, (const ulonglong2 *)stretch.at, pairs, segment.key);
    }
    d_scan_words(sum, team, *place, segment, pairs * 2);
}

static __device__ __forceinline__ xorcast_digest d_scan_chunk(const xci_cuda_digest_call &call,
                                                              uint64_t index) {
    const xci_cuda_chunk chunk = call.grid.chunks[index];
    const xci_cuda_segment *const segments = call.grid.segments + chunk.segment_first;
    xci_cuda_place place = d_place_of(call.places, index, chunk.bytes);
    xorcast_digest sum = {};
    if (chunk.segment_count == 1)
        d_scan_segment(&sum, {threadIdx.x, THREADS}, &place, segments[0]);
    else
        for (uint32_t i = threadIdx.x / WARP; i < chunk.segment_count; i += THREADS / WARP)
            d_scan_segment(&sum, {threadIdx.x % WARP, WARP}, &place, segments[i]);
    return sum;
}

static __global__ void __launch_bounds__(THREADS) k_digest_chunks(const xci_cuda_digest_call call) {
    __shared__ xorcast_digest parts[THREADS / WARP];
    xorcast_digest sum = d_scan_chunk(call, call.first + blockIdx.x);
    d_sum_digest(&sum, WARP);
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = sum;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (uint32_t warp = 1; warp < THREADS / WARP; ++warp)
        d_add(&sum, parts[warp]);
    call.digests[blockIdx.x] = sum;
}

extern "C" int xci_cuda_digest(const xci_cuda_digest_call *call, void *stream) {
    return d_launch(k_digest_chunks, *call, call->count, 1, THREADS, stream);
}
