/* Old becomes new, when all that is encoded from both is written: a warp a chunk. Words that are
 * listed are XORed where they lie, as apply does it; of other units, new is copied where it
 * differs. */
#ifndef XCI_CUDA_GAP_MOVE_CUH
#define XCI_CUDA_GAP_MOVE_CUH

#include "backend/cuda/cuda_gap_chunk.cuh"

/* The bytes of a word of which a bit of `mask` is set, at an address or beyond the chunk's end. */
__device__ __forceinline__ void d_xor_mask_bytes(uint8_t *at, uint64_t mask) {
    for (uint32_t i = 0; mask != 0; ++i, mask >>= 8)
        if ((mask & 0xff) != 0)
            at[i] ^= (uint8_t)mask;
}

/* Memory does the XOR where it can: nothing waits for the old word. */
__device__ __forceinline__ void d_xor_listed(uint8_t *old_at, uint32_t bytes, uint32_t word,
                                             uint64_t mask) {
    uint8_t *const at = old_at + word * 8;
    if (XCI_RARE((uintptr_t)at % 4 != 0 || word * 8 + 8 > bytes)) {
        d_xor_mask_bytes(at, mask);
        return;
    }
    uint32_t *const halves = (uint32_t *)at;
    if ((uint32_t)mask != 0)
        atomicXor(halves, (uint32_t)mask);
    if (mask >> 32 != 0)
        atomicXor(halves + 1, (uint32_t)(mask >> 32));
}

__device__ __forceinline__ void d_move_chunk(const xci_cuda_gap_encode_call *call,
                                             const xci_gap_scratch *scratch, uint64_t index) {
    xci_gap_source source = d_source_of(call, scratch, index);
    uint8_t *const old_at = call->old_at[call->first + index];
    uint32_t word;
    uint64_t mask;
    while (d_next_words(&source, &word, &mask))
        if (mask != 0)
            d_xor_listed(old_at, source.bytes, word, mask);
}

/* Whether the chunk has changed, and its group was written, in the other form too. */
__device__ __forceinline__ bool d_is_to_move(const xci_cuda_gap_encode_call *call, uint64_t index) {
    return index < call->count && call->results[index].bytes_changed != 0 &&
           call->results[index].status == XORCAST_OK &&
           (call->other == nullptr || call->other[index].status == XORCAST_OK);
}

__global__ void __launch_bounds__(XCI_CHUNK_THREADS)
    k_gap_move(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    const uint64_t index = d_chunk_index();
    if (!d_is_to_move(&call, index))
        return;
    d_move_chunk(&call, &scratch, index);
    if (d_lane() == 0)
        call.results[index].moved = 1;
}

#endif
