/* Where the words of a chunk lie, and reading, XORing and writing one of them there. A word is 8
 * bytes at a multiple of 8 of the chunk; its last may be shorter, and of a window's row too. Owns
 * what alignments need. Never touches a byte that is not in a place of the chunk. */
#ifndef XCI_CUDA_PLACES_CUH
#define XCI_CUDA_PLACES_CUH

#include "backend/cuda/cuda_kernels.h"

typedef struct xci_cuda_place {
    uint8_t *direct;
    /* Of a chunk in windows: those that may hold words from the last one asked for on. */
    const xci_cuda_window *window, *window_end;
    uint32_t bytes; /* of the chunk */
} xci_cuda_place;

/* Some bytes from the first of a word on. */
typedef struct xci_cuda_spot {
    uint8_t *at;
    uint32_t bytes; /* of a word: 1 .. 8; 0: there are none */
} xci_cuda_spot;

static __device__ __forceinline__ xci_cuda_place d_place_of(const xci_cuda_places &places,
                                                            uint64_t chunk, uint32_t bytes) {
    xci_cuda_place place = {};
    place.direct = places.direct[chunk];
    place.bytes = bytes;
    if (place.direct == nullptr && places.window_first != nullptr) {
        const uint32_t *const first = places.window_first + (chunk - places.window_base);
        place.window = places.windows + first[0];
        place.window_end = places.windows + first[1];
    }
    return place;
}

static __device__ __forceinline__ xci_cuda_spot d_one_word(xci_cuda_spot spot) {
    return {spot.at, spot.bytes < 8 ? spot.bytes : 8};
}

static __device__ __forceinline__ uint32_t d_window_end(const xci_cuda_window &window) {
    return window.offset + (window.row_count - 1) * window.stride + window.width;
}

/* From a word on to the end of the window's row that it lies in; the window begins at or before
 * it. */
static __device__ __forceinline__ xci_cuda_spot d_row_spot(const xci_cuda_window &window,
                                                           uint32_t offset) {
    const uint32_t inside = offset - window.offset;
    const uint32_t row = window.row_count > 1 ? inside / window.stride : 0;
    const uint32_t column = inside - row * window.stride;
    if (row >= window.row_count || column >= window.width)
        return {nullptr, 0};
    return {window.at + row * window.pitch + column, window.width - column};
}

/* Calls visit(spot) for the rows that a word lies in, in order, until it says false. One thread
 * asks for words in rising order: windows that end before this one are left behind. */
template <typename Visit>
static __device__ __forceinline__ void d_visit_rows(xci_cuda_place *place, uint32_t word,
                                                    Visit visit) {
    const uint32_t offset = word * 8;
    while (place->window != place->window_end && d_window_end(*place->window) <= offset)
        ++place->window;
    for (const xci_cuda_window *window = place->window;
         window != place->window_end && window->offset <= offset; ++window) {
        const xci_cuda_spot spot = d_row_spot(*window, offset);
        if (spot.bytes != 0 && !visit(spot))
            return;
    }
}

/* The first place of a word, and all that follows it there without a gap. */
static __device__ __forceinline__ xci_cuda_spot d_stretch(xci_cuda_place *place, uint32_t word) {
    xci_cuda_spot first = {nullptr, 0};
    if (place->direct != nullptr)
        return {place->direct + word * 8, place->bytes - word * 8};
    d_visit_rows(place, word, [&](xci_cuda_spot spot) {
        first = spot;
        return false;
    });
    return first;
}

static __device__ __forceinline__ xci_cuda_spot d_first_spot(xci_cuda_place *place, uint32_t word) {
    return d_one_word(d_stretch(place, word));
}

static __device__ __forceinline__ bool d_aligned(const void *at, uint32_t power_of_two) {
    return ((uintptr_t)at & (power_of_two - 1)) == 0;
}

/* Bytes that are not there read as zero. */
static __device__ __forceinline__ uint64_t d_load_spot(xci_cuda_spot spot) {
    if (spot.bytes == 8 && d_aligned(spot.at, 8))
        return *(const uint64_t *)spot.at;
    uint64_t word = 0;
    for (uint32_t i = 0; i < spot.bytes; ++i)
        word |= (uint64_t)spot.at[i] << (8 * i);
    return word;
}

static __device__ __forceinline__ void d_store_spot(xci_cuda_spot spot, uint64_t word) {
    if (spot.bytes == 8 && d_aligned(spot.at, 8)) {
        *(uint64_t *)spot.at = word;
        return;
    }
    for (uint32_t i = 0; i < spot.bytes; ++i)
        spot.at[i] = (uint8_t)(word >> (8 * i));
}

static __device__ __forceinline__ void d_xor_bytes(xci_cuda_spot spot, uint64_t mask) {
    for (uint32_t i = 0; i < spot.bytes; ++i, mask >>= 8)
        if ((mask & 0xff) != 0)
            spot.at[i] ^= (uint8_t)mask;
}

/* Memory does the XOR where it can: nothing waits for the old word. */
static __device__ __forceinline__ void d_xor_spot(xci_cuda_spot spot, uint64_t mask) {
    if (spot.bytes < 8 || !d_aligned(spot.at, 4)) {
        d_xor_bytes(spot, mask);
        return;
    }
    uint32_t *const halves = (uint32_t *)spot.at;
    if ((uint32_t)mask != 0)
        atomicXor(halves, (uint32_t)mask);
    if ((uint32_t)(mask >> 32) != 0)
        atomicXor(halves + 1, (uint32_t)(mask >> 32));
}

/* XORs a word in all its places. */
static __device__ __forceinline__ void d_xor_word(xci_cuda_place *place, uint32_t word,
                                                  uint64_t mask) {
    if (place->direct != nullptr) {
        d_xor_spot(d_first_spot(place, word), mask);
        return;
    }
    d_visit_rows(place, word, [=](xci_cuda_spot spot) {
        d_xor_spot(d_one_word(spot), mask);
        return true;
    });
}

/* The same for one byte. Memory works on words of 4 bytes: those that are not wholly the chunk's
 * are left to all its threads as bytes. */
static __device__ __forceinline__ void d_xor_byte(xci_cuda_place *place, uint32_t position,
                                                  uint32_t mask) {
    if (place->direct == nullptr) {
        d_xor_word(place, position / 8, (uint64_t)mask << (8 * (position % 8)));
        return;
    }
    uint8_t *const at = place->direct + position;
    const uint32_t inside = (uint32_t)(uintptr_t)at % 4;
    if (position >= inside && position - inside + 4 <= place->bytes)
        atomicXor((uint32_t *)(at - inside), mask << (8 * inside));
    else
        *at ^= (uint8_t)mask;
}

#endif
