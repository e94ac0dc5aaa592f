/* Choosing a codec for each chunk, where a call asks for it: by the rule of
 * delta/auto_group_writer.c. What a chunk becomes if gap is not cheaper, its rival, is found when
 * its group is planned: raw, LZ4 or Snappy, whose blocks are sized from the changed words; it is
 * written when it is known where it goes. A warp has a chunk. */
#ifndef XCI_CUDA_GAP_RIVAL_CUH
#define XCI_CUDA_GAP_RIVAL_CUH

#include "backend/cuda/cuda_gap_runs.cuh"

__device__ __forceinline__ uint64_t d_price_of(const xci_cuda_prices *prices, uint32_t codec,
                                               uint32_t bytes, uint32_t chunk_bytes) {
    return prices->wire * bytes + prices->weights[codec] * chunk_bytes;
}

/* The first of the cheapest ones. */
__device__ __forceinline__ xci_gap_rival d_choose_rival(const xci_cuda_prices *prices,
                                                        const xci_gap_source *source) {
    const uint32_t bytes = source->bytes;
    xci_gap_rival rival = {XORCAST_CODEC_RAW, bytes, bytes};
    uint64_t least = d_price_of(prices, XORCAST_CODEC_RAW, bytes, bytes);
#pragma unroll 1
    for (uint32_t codec = XORCAST_CODEC_LZ4; codec <= XORCAST_CODEC_SNAPPY; ++codec) {
        const uint32_t size = d_runs_bytes(source, codec);
        if (size >= bytes)
            continue; /* raw */
        if (codec == XORCAST_CODEC_LZ4)
            rival.lz4_bytes = size;
        const uint64_t price = d_price_of(prices, codec, size, bytes);
        if (price >= least)
            continue;
        least = price;
        rival.codec = codec;
        rival.bytes = size;
    }
    return rival;
}

__global__ void __launch_bounds__(XCI_CHUNK_THREADS)
    k_gap_rival(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    xci_gap_piece piece;
    if (!d_take_piece(&call, &scratch, d_chunk_index(), &piece))
        return;
    const xci_gap_rival rival = d_choose_rival(&call.prices, &piece.source);
    if (d_lane() == 0)
        scratch.rivals[piece.index] = rival;
}

/* Makes the chunk's result that of its rival: raw, where the call does not choose. */
__device__ __forceinline__ void d_take_rival(const xci_cuda_gap_encode_call *call,
                                             const xci_gap_scratch *scratch, uint64_t index) {
    xci_cuda_result *result = &call->results[index];
    const bool chooses = call->prices.wire != 0;
    result->block_codec = chooses ? scratch->rivals[index].codec : (uint32_t)XORCAST_CODEC_RAW;
    result->block_bytes =
        chooses ? scratch->rivals[index].bytes : call->grid.chunks[call->first + index].bytes;
}

/* The size below which a gap block is cheaper. */
__device__ __forceinline__ uint32_t d_limit_of(const xci_gap_piece *piece) {
    const xci_cuda_prices *prices = &piece->call->prices;
    const uint32_t bytes = piece->source.bytes;
    if (prices->wire == 0)
        return bytes;
    const xci_gap_rival *rival = &piece->scratch->rivals[piece->index];
    const uint64_t least = d_price_of(prices, rival->codec, rival->bytes, bytes);
    const uint64_t fixed = prices->weights[XORCAST_CODEC_GAP] * bytes;
    const uint64_t below = least > fixed ? (least - fixed + prices->wire - 1) / prices->wire : 0;
    return below < bytes ? (uint32_t)below : bytes;
}

#endif
