/* Writes blocks and parameters, when it is known where each group begins: a warp a chunk, and one a
 * group's parameters. */
#ifndef XCI_CUDA_GAP_WRITE_CUH
#define XCI_CUDA_GAP_WRITE_CUH

#include "backend/cuda/cuda_gap_size.cuh"

/* ---- Bits ---- */

/* A batch of values takes 32 x (41 + 12 + 63) bits at most. */
#define XCI_BIT_WORDS (XCI_WARP * 116u / 32u + 4u)

/* A warp's stream: bits that are not in memory yet, from the lowest of `words` up. */
typedef struct xci_gap_bit_sink {
    uint32_t *words; /* XCI_BIT_WORDS in shared memory */
    uint8_t *at;     /* where words[0] goes, 4-byte aligned */
    uint32_t skip;   /* bytes of words[0] that are not the stream's */
    uint32_t held;   /* bits in `words`, those skipped too */
} xci_gap_bit_sink;

__device__ __forceinline__ xci_gap_bit_sink d_begin_stream(uint32_t *words, uint8_t *at) {
    xci_gap_bit_sink sink;
    sink.words = words;
    sink.skip = (uint32_t)((uintptr_t)at % 4);
    sink.at = at - sink.skip;
    sink.held = sink.skip * 8;
    __syncwarp();
    for (uint32_t i = d_lane(); i < XCI_BIT_WORDS; i += XCI_WARP)
        words[i] = 0;
    __syncwarp();
    return sink;
}

/* `count` bits, up to 64, at bit `at`. */
__device__ __forceinline__ void d_or_bits(uint32_t *words, uint32_t at, uint64_t value) {
    uint32_t *to = words + at / 32;
    const uint32_t shift = at % 32;
    const uint32_t low = (uint32_t)(value << shift);
    const uint32_t middle = (uint32_t)(value << shift >> 32);
    const uint32_t high = shift != 0 ? (uint32_t)(value >> 32 >> (32 - shift)) : 0;
    if (low != 0)
        atomicOr(to, low);
    if (middle != 0)
        atomicOr(to + 1, middle);
    if (high != 0)
        atomicOr(to + 2, high);
}

/* Bytes [skip, end) of a word. */
__device__ __forceinline__ void d_store_bytes(uint8_t *at, uint32_t word, uint32_t skip,
                                              uint32_t end) {
    for (uint32_t i = skip; i < end; ++i)
        at[i] = (uint8_t)(word >> (8 * i));
}

/* Moves whole words to memory. */
__device__ __forceinline__ void d_flush_words(xci_gap_bit_sink *sink) {
    const uint32_t full = sink->held / 32;
    __syncwarp();
    for (uint32_t i = d_lane(); i < full; i += XCI_WARP) {
        if (i == 0 && sink->skip != 0)
            d_store_bytes(sink->at, sink->words[0], sink->skip, 4);
        else
            ((uint32_t *)sink->at)[i] = sink->words[i];
    }
    const uint32_t rest = sink->words[full];
    __syncwarp();
    if (full == 0)
        return;
    for (uint32_t i = d_lane(); i <= full; i += XCI_WARP)
        sink->words[i] = i == 0 ? rest : 0;
    __syncwarp();
    sink->at += full * 4;
    sink->held -= full * 32;
    sink->skip = 0;
}

/* Fills the last byte with ones, writes what is left; returns where the stream ends. */
__device__ __forceinline__ uint8_t *d_end_stream(xci_gap_bit_sink *sink) {
    const uint32_t fill = (0u - sink->held) % 8;
    if (d_lane() == 0)
        d_or_bits(sink->words, sink->held, (1u << fill) - 1);
    sink->held += fill;
    d_flush_words(sink);
    if (d_lane() == 0)
        d_store_bytes(sink->at, sink->words[0], sink->skip, sink->held / 8);
    return sink->at + sink->held / 8;
}

/* A lane's part of a batch: a gap, then a value; no bits if it is not active. */
__device__ __forceinline__ void d_put_change(xci_gap_bit_sink *sink, bool active, uint64_t gap,
                                             uint32_t gap_bits, uint64_t value,
                                             const xci_gap_code *code) {
    xci_gap_coded coded = {};
    if (active)
        coded = d_code_value(code, value);
    const uint32_t bits = gap_bits + coded.code_bits + coded.tail_bits;
    const uint32_t sum = d_scan(bits);
    const uint32_t at = sink->held + sum - bits;
    if (active) {
        /* A gap takes 41 bits at most, a code 12. */
        d_or_bits(sink->words, at, gap | (uint64_t)coded.code << gap_bits);
        if (coded.tail_bits != 0)
            d_or_bits(sink->words, at + gap_bits + coded.code_bits,
                      xci_low_bits(value, coded.tail_bits));
    }
    sink->held += __shfl_sync(XCI_ALL, sum, XCI_WARP - 1);
    d_flush_words(sink);
}

/* ---- Blocks ---- */

/* A stream of changes. */
typedef struct xci_gap_stream_writer {
    xci_gap_bit_sink sink;
    xci_gap_code code;
    uint32_t prior;
} xci_gap_stream_writer;

__device__ __forceinline__ xci_gap_stream_writer d_begin_class(const xci_gap_piece *piece,
                                                               uint32_t c, uint32_t *words,
                                                               uint8_t *at) {
    xci_gap_stream_writer writer;
    writer.sink = d_begin_stream(words, at);
    writer.code = piece->plan->codes[piece->draft->tables[c]];
    writer.prior = piece->draft->priors[c];
    return writer;
}

__device__ __forceinline__ void d_write_change(xci_gap_stream_writer *writer, bool active,
                                               const xci_gap_change &change) {
    uint32_t gap_bits = 0;
    uint64_t gap = 0;
    if (active)
        gap = d_gap_bits(change.position - change.last_end, d_parameter_of(&change, writer->prior),
                         &gap_bits);
    d_put_change(&writer->sink, active, gap, gap_bits, change.value, &writer->code);
}

template <bool BESIDE>
__device__ __forceinline__ void d_write_stream(const xci_gap_piece *piece, xci_gap_batch *batch,
                                               uint32_t *words, uint8_t *at) {
    xci_gap_stream_writer writer = d_begin_class(piece, 0, words, at);
    const auto write = [&](bool active, const xci_gap_change &change) {
        d_write_change(&writer, active, change);
    };
    if (BESIDE)
        d_each_step(&piece->source, batch, piece->draft->width, write);
    else
        d_each_change(piece->source, batch, piece->draft->width, write);
    d_end_stream(&writer.sink);
}

/* A number before a stream; returns where the stream begins. A whole warp. */
__device__ __forceinline__ uint8_t *d_put_length(uint8_t *at, uint32_t bytes) {
    uint8_t number[XCI_VARINT_BYTES];
    const uint32_t count = xci_varint_put(number, bytes);
    for (uint32_t i = 0; i < count; ++i)
        if (d_lane() == 0)
            at[i] = number[i];
    return at + count;
}

__device__ __forceinline__ void d_write_raw_block(xci_gap_source source, uint8_t *at) {
    for (uint32_t i = d_lane(); i < source.bytes; i += XCI_WARP)
        at[i] = 0;
    __syncwarp();
    uint32_t word;
    uint64_t mask;
    while (d_next_words(&source, &word, &mask))
        for (uint32_t i = word * 8; mask != 0; ++i, mask >>= 8)
            at[i] = (uint8_t)mask;
}

/* The streams of a chunk with several classes. */
__device__ __forceinline__ void d_write_classes(const xci_gap_piece *piece, uint32_t *words,
                                                uint8_t *at) {
    const xci_gap_records records = d_records_of(piece);
    const uint32_t class_count = piece->draft->class_count;
#pragma unroll 1
    for (uint32_t c = 0; c < class_count; ++c) {
        if (c + 1 < class_count)
            at = d_put_length(at, records.bytes[c]);
        xci_gap_stream_writer writer = d_begin_class(piece, c, words, at);
        d_each_record(records, c, piece->draft->width,
                      [&](bool active, const xci_gap_change &change) {
                          d_write_change(&writer, active, change);
                      });
        at = d_end_stream(&writer.sink);
    }
}

/* Bits of elements [first, end) of a dense chunk. */
template <bool BESIDE>
__device__ __forceinline__ uint32_t d_segment_bits(const xci_gap_piece *piece, uint32_t first,
                                                   uint32_t end) {
    uint32_t bits = 0;
#pragma unroll 1
    for (uint32_t i = first + d_lane(); i < end; i += XCI_WARP) {
        const xci_gap_code *code;
        const uint64_t value = d_dense_value<BESIDE>(piece, i, &code);
        bits += d_value_bits(code, value);
    }
    return d_sum(bits);
}

template <bool BESIDE>
__device__ __forceinline__ void d_write_dense_block(const xci_gap_piece *piece, uint32_t *words,
                                                    uint8_t *at) {
    const uint32_t count = xci_gap_element_count(piece->draft->width, piece->source.bytes);
#pragma unroll 1
    for (uint32_t first = 0; first < count; first += XCI_GAP_SEGMENT) {
        const uint32_t end = min(count, first + XCI_GAP_SEGMENT);
        if (end != count)
            at = d_put_length(at, (d_segment_bits<BESIDE>(piece, first, end) + 7) / 8);
        xci_gap_bit_sink sink = d_begin_stream(words, at);
#pragma unroll 1
        for (uint32_t i = first; i < end; i += XCI_WARP) {
            const bool active = i + d_lane() < end;
            const xci_gap_code *code;
            const uint64_t value =
                d_dense_value<BESIDE>(piece, active ? i + d_lane() : first, &code);
            d_put_change(&sink, active, 0, 0, value, code);
        }
        at = d_end_stream(&sink);
    }
}

template <bool BESIDE>
__device__ __forceinline__ void d_write_block(const xci_gap_piece *piece, xci_gap_batch *batch,
                                              uint32_t *words, uint8_t *at) {
    const xci_cuda_result *result = &piece->call->results[piece->index];
    at += result->block_offset;
    if (result->block_codec == XORCAST_CODEC_RAW)
        d_write_raw_block(piece->source, at);
    else if (result->block_codec != XORCAST_CODEC_GAP)
        return; /* k_gap_write_rivals */
    else if (piece->draft->dense)
        d_write_dense_block<BESIDE>(piece, words, at);
    else if (BESIDE && d_has_records(piece))
        d_write_classes(piece, words, at);
    else
        d_write_stream<BESIDE>(piece, batch, words, at);
}

/* ---- Groups ---- */

/* Whether a group's payload is written. */
__device__ __forceinline__ bool d_fits(const xci_cuda_gap_encode_call *call,
                                       const xci_gap_scratch *scratch,
                                       const xci_cuda_gap_group *group) {
    return scratch->counters[2] == 0 && group->offset + group->bytes <= call->capacity;
}

__device__ __forceinline__ void d_write_group(const xci_cuda_gap_encode_call *call,
                                              const xci_gap_scratch *scratch, uint64_t number) {
    const xci_cuda_gap_group group = call->groups[number];
    if (group.params_bytes == 0 || !d_fits(call, scratch, &group))
        return;
    uint8_t *const at = call->blocks + group.offset + group.bytes - group.params_bytes;
    const uint8_t *params = scratch->plans[number].params;
    for (uint32_t i = d_lane(); i < group.params_bytes; i += XCI_WARP)
        at[i] = params[i];
}

/* A warp's, in shared memory. */
typedef struct xci_gap_block_memory {
    xci_gap_batch batch;
    uint32_t words[XCI_BIT_WORDS];
} xci_gap_block_memory;

template <bool BESIDE>
__device__ __forceinline__ void d_write_chunk(const xci_cuda_gap_encode_call *call,
                                              const xci_gap_scratch *scratch, uint64_t index,
                                              xci_gap_block_memory *memory) {
    const xci_cuda_gap_group *group = &call->groups[scratch->drafts[index] >> XCI_DRAFT_BITS];
    const bool fits = d_fits(call, scratch, group);
    if (d_lane() == 0)
        call->results[index].status = fits ? XORCAST_OK : XORCAST_BUFFER_TOO_SMALL;
    xci_gap_piece piece;
    if (fits && d_take_piece(call, scratch, index, &piece))
        d_write_block<BESIDE>(&piece, &memory->batch, memory->words, call->blocks + group->offset);
}

template <bool BESIDE>
__global__ void __launch_bounds__(XCI_CHUNK_THREADS, 8)
    k_gap_write(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    XCI_SHARED_MEMORY(shared);
    const uint64_t index = d_chunk_index();
    if (index < call.count)
        d_write_chunk<BESIDE>(&call, &scratch, index,
                              (xci_gap_block_memory *)shared + d_chunk_warp());
    else if (index - call.count < call.group_count)
        d_write_group(&call, &scratch, index - call.count);
}

/* LZ4 and Snappy blocks, when k_gap_write has set what became of each chunk. A kernel of its own,
 * whose registers the other need not have. */
__global__ void __launch_bounds__(XCI_CHUNK_THREADS)
    k_gap_write_rivals(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    xci_gap_piece piece;
    if (!d_take_piece(&call, &scratch, d_chunk_index(), &piece))
        return;
    const xci_cuda_result *result = &call.results[piece.index];
    if (result->status != XORCAST_OK || result->block_codec == XORCAST_CODEC_RAW ||
        result->block_codec == XORCAST_CODEC_GAP)
        return;
    const uint32_t group = scratch.drafts[piece.index] >> XCI_DRAFT_BITS;
    d_write_runs(&piece.source, result->block_codec,
                 call.blocks + call.groups[group].offset + result->block_offset,
                 result->block_bytes);
}

#endif
