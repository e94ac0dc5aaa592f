/* gather and scatter: chunks from their places to one piece each, and back; a thread block a chunk.
 * Replicas are read from the first and all written. Chunks in one piece are copied by the widest
 * words that both sides' addresses allow. */
#include "backend/cuda/cuda_launch.cuh"
#include "backend/cuda/cuda_places.cuh"

#define THREADS 128u

template <typename Word>
static __device__ __forceinline__ void d_copy_as(uint8_t *to, const uint8_t *from, uint32_t bytes) {
    const uint32_t words = bytes / sizeof(Word);
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < words; i += THREADS)
        ((Word *)to)[i] = ((const Word *)from)[i];
    for (uint32_t i = words * sizeof(Word) + threadIdx.x; i < bytes; i += THREADS)
        to[i] = from[i];
}

static __device__ __forceinline__ void d_copy(uint8_t *to, const uint8_t *from, uint32_t bytes) {
    const uintptr_t both = (uintptr_t)to | (uintptr_t)from;
    if (both % 16 == 0)
        d_copy_as<uint4>(to, from, bytes);
    else if (both % 4 == 0)
        d_copy_as<uint32_t>(to, from, bytes);
    else
        d_copy_as<uint8_t>(to, from, bytes);
}

/* Word `word` of a piece. */
static __device__ __forceinline__ xci_cuda_spot d_piece_spot(const xci_cuda_place &place,
                                                             uint8_t *piece, uint32_t word) {
    const uint32_t left = place.bytes - word * 8;
    return {piece + word * 8, left < 8 ? left : 8};
}

static __global__ void __launch_bounds__(THREADS) k_gather_chunks(const xci_cuda_copy_call call) {
    const uint64_t chunk = call.first + blockIdx.x;
    uint8_t *const piece = call.pieces[blockIdx.x];
    xci_cuda_place place = d_place_of(call.places, chunk, call.grid.chunks[chunk].bytes);
    if (place.direct != nullptr) {
        d_copy(piece, place.direct, place.bytes);
        return;
    }
    for (uint32_t word = threadIdx.x; word * 8 < place.bytes; word += THREADS)
        d_store_spot(d_piece_spot(place, piece, word), d_load_spot(d_first_spot(&place, word)));
}

static __global__ void __launch_bounds__(THREADS) k_scatter_chunks(const xci_cuda_copy_call call) {
    const uint64_t chunk = call.first + blockIdx.x;
    uint8_t *const piece = call.pieces[blockIdx.x];
    xci_cuda_place place = d_place_of(call.places, chunk, call.grid.chunks[chunk].bytes);
    if (place.direct != nullptr) {
        d_copy(place.direct, piece, place.bytes);
        return;
    }
    for (uint32_t word = threadIdx.x; word * 8 < place.bytes; word += THREADS) {
        const uint64_t bytes = d_load_spot(d_piece_spot(place, piece, word));
        d_visit_rows(&place, word, [=](xci_cuda_spot spot) {
            d_store_spot(d_one_word(spot), bytes);
            return true;
        });
    }
}

extern "C" int xci_cuda_gather(const xci_cuda_copy_call *call, void *stream) {
    return d_launch(k_gather_chunks, *call, call->count, 1, THREADS, stream);
}

extern "C" int xci_cuda_scatter(const xci_cuda_copy_call *call, void *stream) {
    return d_launch(k_scatter_chunks, *call, call->count, 1, THREADS, stream);
}
