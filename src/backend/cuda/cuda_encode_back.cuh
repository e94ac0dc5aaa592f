/* Old as it was: takes back that it became new, by the block, which is its own inverse. For blocks
 * that lie in a warp's slot and get no place; rare, so one byte after the other. */
#ifndef XCI_CUDA_ENCODE_BACK_CUH
#define XCI_CUDA_ENCODE_BACK_CUH

#include "backend/cuda/cuda_encode_warp.cuh"
#include "codec/lz4_block.h"

/* A block in a slot, which is a ring. */
typedef struct xci_slot_block {
    const uint8_t *slot;
    uint32_t slot_bytes, begin, bytes;
} xci_slot_block;

/* `end`: where in the slot the block ends. */
__device__ __forceinline__ xci_slot_block d_slot_block(const uint8_t *slot, uint32_t slot_bytes,
                                                       uint32_t end, uint32_t bytes) {
    return {slot, slot_bytes, end >= bytes ? end - bytes : slot_bytes + end - bytes, bytes};
}

__device__ __forceinline__ uint32_t d_slot_byte(const xci_slot_block &block, uint32_t i) {
    const uint32_t at = block.begin + i;
    return __ldcg(block.slot + (at < block.slot_bytes ? at : at - block.slot_bytes));
}

/* A length that begins in a token and goes on at `*at`. */
__device__ __forceinline__ uint32_t d_slot_length(const xci_slot_block &block, uint32_t nibble,
                                                  uint32_t *at) {
    uint32_t length = nibble, byte = nibble == XCI_LZ4_NIBBLE ? 255 : 0;
    while (byte == 255) {
        byte = d_slot_byte(block, (*at)++);
        length += byte;
    }
    return length;
}

/* `count` bytes of the block, from `from` on, to weights. */
__device__ __forceinline__ void d_xor_from_slot(const xci_slot_block &block, uint32_t from,
                                                uint32_t count, uint8_t *to) {
    for (uint32_t i = d_lane(); i < count; i += XCI_WARP)
        to[i] ^= (uint8_t)d_slot_byte(block, from + i);
}

/* A whole warp, which has written the block and the weights itself. */
static __device__ __noinline__ void d_take_back(xci_slot_block block, uint32_t codec,
                                                uint8_t *weights) {
    uint32_t at = 0;
    if (codec == XORCAST_CODEC_RAW)
        d_xor_from_slot(block, 0, block.bytes, weights);
    while (codec == XORCAST_CODEC_LZ4 && at < block.bytes) {
        const uint32_t token = d_slot_byte(block, at++);
        const uint32_t literals = d_slot_length(block, token >> 4, &at);
        d_xor_from_slot(block, at, literals, weights);
        at += literals;
        weights += literals;
        if (at == block.bytes)
            break;
        at += 2;
        weights += XCI_LZ4_MIN_MATCH + d_slot_length(block, token & XCI_LZ4_NIBBLE, &at);
    }
    __syncwarp();
}

#endif
