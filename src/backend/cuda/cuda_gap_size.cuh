/* Sizes of blocks, when their groups are planned: a warp a chunk. They are those of
 * codec/gap_write.c. */
#ifndef XCI_CUDA_GAP_SIZE_CUH
#define XCI_CUDA_GAP_SIZE_CUH

#include "backend/cuda/cuda_gap_rival.cuh"

/* ---- Values ---- */

/* A value as bits of a stream: its code, and how many bits of it follow as they are. */
typedef struct xci_gap_coded {
    uint32_t code, code_bits, tail_bits;
} xci_gap_coded;

__device__ __forceinline__ xci_gap_coded d_code_value(const xci_gap_code *code, uint64_t value) {
    xci_gap_coded coded;
    const uint32_t entry = code->codes[d_symbol(value, code->head, &coded.tail_bits)];
    coded.code = entry >> 4;
    coded.code_bits = entry & 15;
    return coded;
}

__device__ __forceinline__ uint32_t d_value_bits(const xci_gap_code *code, uint64_t value) {
    const xci_gap_coded coded = d_code_value(code, value);
    return coded.code_bits + coded.tail_bits;
}

__device__ __forceinline__ uint32_t d_change_bits(const xci_gap_code *code, uint32_t prior,
                                                  const xci_gap_change &change) {
    uint32_t gap_bits;
    (void)d_gap_bits(change.position - change.last_end, d_parameter_of(&change, prior), &gap_bits);
    return gap_bits + d_value_bits(code, change.value);
}

/* The value of any element of a dense chunk, and its code. */
template <bool BESIDE>
__device__ __forceinline__ uint64_t d_dense_value(const xci_gap_piece *piece, uint32_t position,
                                                  const xci_gap_code **code_out) {
    const xci_gap_draft *draft = piece->draft;
    const uint32_t width = draft->width;
    const uint64_t mask = d_element_at(&piece->source, position, width);
    *code_out = &piece->plan->codes[draft->tables[0]];
    if (!BESIDE)
        return mask;
    const uint32_t shift = (position & ((1u << (4 - width)) - 1)) << (2 + width);
    const uint64_t word =
        d_word_at(piece->source.old_at, position >> (4 - width), piece->source.bytes);
    const uint64_t element = word >> shift & d_element_ones(width);
    *code_out = &piece->plan->codes[draft->tables[d_class_of(draft, xci_gap_key(element, width))]];
    return xci_gap_step(element, element ^ mask, width);
}

/* ---- Sparse blocks ---- */

#define XCI_STREAM_LENGTH 3u /* bytes of a stream's length at most */

/* Bytes of a block of one stream, or XCI_GAP_CHUNK_MAX, which is never below a limit, where the
 * host's writer gives up, which leaves room for a length beside the old weights. */
template <bool BESIDE>
__device__ __forceinline__ uint64_t d_stream_bytes(const xci_gap_piece *piece, xci_gap_batch *batch,
                                                   uint32_t limit) {
    const xci_gap_draft *draft = piece->draft;
    const xci_gap_code code = piece->plan->codes[draft->tables[0]];
    const uint32_t prior = draft->priors[0];
    uint64_t bits = 0;
    const auto add = [&](bool active, const xci_gap_change &change) {
        bits += active ? d_change_bits(&code, prior, change) : 0;
    };
    if (BESIDE)
        d_each_step(&piece->source, batch, draft->width, add);
    else
        d_each_change(piece->source, batch, draft->width, add);
    const uint64_t bytes = (d_sum64(bits) + 7) / 8;
    return BESIDE && bytes + XCI_STREAM_LENGTH >= limit ? XCI_GAP_CHUNK_MAX : bytes;
}

/* Bytes of the stream of a class. */
__device__ __forceinline__ uint64_t d_class_bytes(const xci_gap_piece *piece,
                                                  xci_gap_records records, uint32_t c) {
    const xci_gap_code code = piece->plan->codes[piece->draft->tables[c]];
    const uint32_t prior = piece->draft->priors[c];
    uint64_t bits = 0;
    d_each_record(records, c, piece->draft->width, [&](bool active, const xci_gap_change &change) {
        bits += active ? d_change_bits(&code, prior, change) : 0;
    });
    return (d_sum64(bits) + 7) / 8;
}

/* Bytes of a block of several streams, whose own are noted, or XCI_GAP_CHUNK_MAX as soon as one is
 * known to be too long. */
__device__ __forceinline__ uint32_t d_classes_bytes(const xci_gap_piece *piece,
                                                    xci_gap_records records, uint32_t limit) {
    const uint32_t class_count = piece->draft->class_count;
    uint32_t at = 0;
#pragma unroll 1
    for (uint32_t c = 0; c < class_count; ++c) {
        const uint64_t bytes = d_class_bytes(piece, records, c);
        if (bytes + at + XCI_STREAM_LENGTH >= limit)
            return XCI_GAP_CHUNK_MAX;
        if (d_lane() == 0)
            records.bytes[c] = (uint32_t)bytes;
        at += (uint32_t)bytes + (c + 1 == class_count ? 0 : d_varint_bytes((uint32_t)bytes));
    }
    return at;
}

/* ---- Dense blocks ---- */

/* Bytes of a dense block, or XCI_GAP_CHUNK_MAX as above. */
template <bool BESIDE>
__device__ __forceinline__ uint32_t d_dense_bytes(const xci_gap_piece *piece, uint32_t limit) {
    const uint32_t count = xci_gap_element_count(piece->draft->width, piece->source.bytes);
    uint32_t at = 0;
#pragma unroll 1
    for (uint32_t first = 0; first < count; first += XCI_GAP_SEGMENT) {
        const uint32_t end = min(count, first + XCI_GAP_SEGMENT);
        uint32_t bits = 0;
#pragma unroll 1
        for (uint32_t i = first + d_lane(); i < end; i += XCI_WARP) {
            const xci_gap_code *code;
            const uint64_t value = d_dense_value<BESIDE>(piece, i, &code);
            bits += d_value_bits(code, value);
        }
        bits = d_sum(bits);
        if (at + XCI_STREAM_LENGTH + bits / 8 >= limit)
            return XCI_GAP_CHUNK_MAX;
        at += (bits + 7) / 8 + (end == count ? 0 : d_varint_bytes((bits + 7) / 8));
    }
    return at;
}

/* ---- Blocks ---- */

template <bool BESIDE>
__device__ __forceinline__ uint64_t d_block_bytes(const xci_gap_piece *piece, xci_gap_batch *batch,
                                                  uint32_t limit) {
    if (limit == 0)
        return XCI_GAP_CHUNK_MAX;
    if (piece->draft->dense)
        return d_dense_bytes<BESIDE>(piece, limit);
    if (BESIDE && d_has_records(piece))
        return d_classes_bytes(piece, d_records_of(piece), limit);
    return d_stream_bytes<BESIDE>(piece, batch, limit);
}

/* A block of so many bytes, or the chunk's rival if that is cheaper. */
__device__ __forceinline__ void d_keep_block(const xci_gap_piece *piece, uint64_t bytes,
                                             uint32_t limit) {
    xci_cuda_result *result = &piece->call->results[piece->index];
    if (d_lane() != 0)
        return;
    if (bytes < limit) {
        result->block_codec = XORCAST_CODEC_GAP;
        result->block_bytes = (uint32_t)bytes;
    } else {
        d_take_rival(piece->call, piece->scratch, piece->index);
    }
}

template <bool BESIDE>
__global__ void __launch_bounds__(XCI_CHUNK_THREADS, 8)
    k_gap_size(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    XCI_SHARED_MEMORY(shared);
    xci_gap_piece piece;
    if (scratch.counters[2] != 0 || !d_take_piece(&call, &scratch, d_chunk_index(), &piece))
        return;
    xci_gap_batch *batch = (xci_gap_batch *)shared + d_chunk_warp();
    const uint32_t limit = d_limit_of(&piece);
    d_keep_block(&piece, d_block_bytes<BESIDE>(&piece, batch, limit), limit);
}

#endif
