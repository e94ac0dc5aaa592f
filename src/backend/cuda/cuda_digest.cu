/* digest: the sum of the terms of all words that the segments of a chunk count, a thread block a
 * chunk. Chunks that lie in one piece, 16-byte aligned and all of one segment, which is nearly all,
 * are read at the speed of memory; all others word by word. */
#include "backend/cuda/cuda_launch.cuh"
#include "backend/cuda/cuda_tally.cuh"

#define THREADS 128u
#define AHEAD 8u /* loads of 16 bytes that a thread has in flight */

/* The terms of two words. */
static __device__ __forceinline__ void d_add_pair(xorcast_digest *sum, ulonglong2 words,
                                                  uint64_t key) {
    d_add(sum, d_term(words.x, key));
    d_add(sum, d_term(words.y, key + XCI_DIGEST_STRIDE));
}

/* Pairs [0, pair_count) of 16 bytes, the key of the first word being `key`. */
static __device__ __forceinline__ xorcast_digest d_scan_pairs(const ulonglong2 *pairs,
                                                              uint32_t pair_count, uint64_t key) {
    xorcast_digest sum = {};
    uint32_t at = threadIdx.x;
    key += 2 * at * XCI_DIGEST_STRIDE;
    for (; at + (AHEAD - 1) * THREADS < pair_count; at += AHEAD * THREADS) {
        ulonglong2 words[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; ++i)
            words[i] = pairs[at + i * THREADS];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; ++i, key += 2 * THREADS * XCI_DIGEST_STRIDE)
            d_add_pair(&sum, words[i], key);
    }
    for (; at < pair_count; at += THREADS, key += 2 * THREADS * XCI_DIGEST_STRIDE)
        d_add_pair(&sum, pairs[at], key);
    return sum;
}

/* Words [first, end), wherever they lie. */
static __device__ xorcast_digest d_scan_words(xci_cuda_place place, xci_cuda_segments segments,
                                              uint32_t first, uint32_t end) {
    xorcast_digest sum = {};
    for (uint32_t word = first + threadIdx.x; word < end; word += THREADS) {
        uint64_t kept, key;
        const xci_cuda_spot spot = d_first_spot(&place, word);
        if (spot.bytes != 0 && d_find_key(&segments, word, &kept, &key))
            d_add(&sum, d_term(d_load_spot(spot) & kept, key));
    }
    return sum;
}

static __device__ __forceinline__ xorcast_digest d_scan_chunk(const xci_cuda_digest_call &call,
                                                              uint64_t index) {
    const xci_cuda_chunk chunk = call.grid.chunks[index];
    const xci_cuda_place place = d_place_of(call.places, index, chunk.bytes);
    const xci_cuda_segments segments = d_segments_of(call.grid, chunk);
    const uint32_t words = (chunk.bytes + 7) / 8;
    if (place.direct == nullptr || !d_aligned(place.direct, 16) || segments.count != 1 ||
        segments.first->offset != 0 || segments.first->bytes != chunk.bytes)
        return d_scan_words(place, segments, 0, words);
    const uint32_t pairs = chunk.bytes / 16;
    xorcast_digest sum =
        d_scan_pairs((const ulonglong2 *)place.direct, pairs, segments.first->key);
    if (chunk.bytes % 16 != 0)
        d_add(&sum, d_scan_words(place, segments, pairs * 2, words));
    return sum;
}

static __global__ void __launch_bounds__(THREADS) k_digest_chunks(const xci_cuda_digest_call call) {
    __shared__ xorcast_digest parts[THREADS / 32];
    xorcast_digest sum = d_scan_chunk(call, call.first + blockIdx.x);
    d_sum_digest(&sum, 32);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (uint32_t warp = 1; warp < THREADS / 32; ++warp)
        d_add(&sum, parts[warp]);
    call.digests[blockIdx.x] = sum;
}

extern "C" int xci_cuda_digest(const xci_cuda_digest_call *call, void *stream) {
    return d_launch(k_digest_chunks, *call, call->count, 1, THREADS, stream);
}
