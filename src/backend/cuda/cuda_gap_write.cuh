/* Writes groups: their blocks and parameters, when it is known where each group begins. A block of
 * threads has a group: its first warp reads the parameters back, then each warp writes blocks. */
#ifndef XCI_CUDA_GAP_WRITE_CUH
#define XCI_CUDA_GAP_WRITE_CUH

#include "backend/cuda/cuda_gap_params.cuh"
#include "backend/cuda/cuda_gap_plan.cuh"

/* ---- Codes ---- */

/* For writing: bits of the stream << 4 | their number. */
typedef struct xci_gap_coder {
    uint16_t codes[XCI_PREFIX_SYMBOLS];
    uint32_t limits[XCI_PREFIX_LONGEST + 1], starts[XCI_PREFIX_LONGEST + 1];
    uint32_t width, head;
} xci_gap_coder;

__device__ __forceinline__ void d_make_table(xci_gap_coder *coder, const uint8_t *lengths,
                                             uint32_t count) {
    d_lay_out_codes(lengths, count, coder->limits, coder->starts);
    d_each_code(lengths, count, [&](uint32_t symbol, uint32_t length, uint32_t rank) {
        const uint32_t code = coder->limits[length - 1] + (rank << (XCI_PREFIX_LONGEST - length));
        coder->codes[symbol] = (uint16_t)(d_reverse(code, XCI_PREFIX_LONGEST) << 4 | length);
    });
}

__device__ __forceinline__ void d_make_single(xci_gap_coder *coder, uint32_t symbol) {
    if (symbol < XCI_PREFIX_SYMBOLS)
        coder->codes[symbol] = 0;
    __syncwarp();
}

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
__device__ __forceinline__ void d_put_change(xci_gap_bit_sink *sink, const xci_gap_coder *coder,
                                             bool active, uint64_t gap, uint32_t gap_bits,
                                             uint64_t value) {
    uint32_t tail_bits;
    const uint32_t symbol = xci_gap_symbol(value, coder->head, &tail_bits);
    const uint32_t code = active ? coder->codes[symbol] : 0;
    const uint32_t bits = active ? gap_bits + (code & 15) + tail_bits : 0;
    const uint32_t sum = d_scan(bits);
    uint32_t at = sink->held + sum - bits;
    if (active) {
        d_or_bits(sink->words, at, gap);
        d_or_bits(sink->words, at + gap_bits, code >> 4);
        d_or_bits(sink->words, at + gap_bits + (code & 15), xci_low_bits(value, tail_bits));
    }
    sink->held += __shfl_sync(XCI_ALL, sum, XCI_WARP - 1);
    d_flush_words(sink);
}

/* ---- Blocks ---- */

__device__ __forceinline__ void d_write_sparse_block(const xci_gap_source *source,
                                                     xci_gap_batch *batch,
                                                     const xci_gap_coder *coder, uint32_t prior,
                                                     uint32_t *words, uint8_t *at) {
    xci_gap_bit_sink sink = d_begin_stream(words, at);
    d_each_change(*source, batch, coder->width, [&](bool active, const xci_gap_change &change) {
        uint32_t gap_bits = 0;
        const uint64_t gap = d_gap_bits(change.position - change.last_end,
                                        d_parameter_of(&change, prior), &gap_bits);
        d_put_change(&sink, coder, active, gap, gap_bits, change.value);
    });
    d_end_stream(&sink);
}

__device__ __forceinline__ uint32_t d_segment_bits(const xci_gap_source *source,
                                                   const xci_gap_coder *coder, uint32_t first,
                                                   uint32_t end) {
    uint32_t bits = 0;
    for (uint32_t i = first + d_lane(); i < end; i += XCI_WARP) {
        uint32_t tail_bits;
        const uint64_t value = d_element_at(source, i, coder->width);
        const uint32_t symbol = xci_gap_symbol(value, coder->head, &tail_bits);
        bits += (coder->codes[symbol] & 15) + tail_bits;
    }
    return d_sum(bits);
}

__device__ __forceinline__ void d_write_dense_block(const xci_gap_source *source,
                                                    const xci_gap_coder *coder, uint32_t *words,
                                                    uint8_t *at) {
    const uint32_t count = xci_gap_element_count(coder->width, source->bytes);
    for (uint32_t first = 0; first < count; first += XCI_GAP_SEGMENT) {
        const uint32_t end = min(count, first + XCI_GAP_SEGMENT);
        if (end != count) {
            const uint32_t bytes = (d_segment_bits(source, coder, first, end) + 7) / 8;
            uint8_t number[XCI_VARINT_BYTES];
            const uint32_t number_bytes = xci_varint_put(number, bytes);
            for (uint32_t i = 0; i < number_bytes; ++i)
                if (d_lane() == 0)
                    at[i] = number[i];
            at += number_bytes;
        }
        xci_gap_bit_sink sink = d_begin_stream(words, at);
        for (uint32_t i = first; i < end; i += XCI_WARP) {
            const bool active = i + d_lane() < end;
            const uint64_t value = active ? d_element_at(source, i + d_lane(), coder->width) : 0;
            d_put_change(&sink, coder, active, 0, 0, value);
        }
        at = d_end_stream(&sink);
    }
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

/* ---- Groups ---- */

typedef struct xci_gap_writer {
    xci_gap_record record;
    xci_gap_coder coders[XCI_PLAIN_TABLES];
    xci_gap_batch batches[XCI_PLAN_WARPS];
    uint32_t bits[XCI_PLAN_WARPS][XCI_BIT_WORDS];
} xci_gap_writer;

/* The block with this number among the group's gap blocks, or a raw one. */
__device__ __forceinline__ void d_write_block(const xci_gap_work *work, xci_gap_writer *writer,
                                              uint32_t c, uint32_t ordinal, uint8_t *group_at) {
    const xci_gap_source source = d_source_of(work->call, work->scratch, work->first + c);
    const xci_cuda_result *result = d_result_of(work, c);
    uint8_t *at = group_at + result->block_offset;
    if (result->block_codec == XORCAST_CODEC_RAW) {
        d_write_raw_block(source, at);
        return;
    }
    const xci_gap_shape *shape = &writer->record.shapes[d_spot_of(&writer->record, ordinal).shape];
    const xci_gap_coder *coder = &writer->coders[shape->classes[0].table];
    uint32_t *words = writer->bits[d_warp()];
    if (shape->dense)
        d_write_dense_block(&source, coder, words, at);
    else
        d_write_sparse_block(&source, &writer->batches[d_warp()], coder, shape->classes[0].prior,
                             words, at);
}

__device__ __forceinline__ uint32_t d_count_kept(const xci_gap_work *work) {
    uint32_t count = 0;
    for (uint32_t c = threadIdx.x % XCI_WARP; c < work->count; c += XCI_WARP)
        count += d_is_kept(work, c);
    return d_sum(count);
}

__device__ __forceinline__ void d_set_statuses(const xci_gap_work *work, int32_t status) {
    for (uint32_t c = threadIdx.x; c < work->count; c += XCI_PLAN_THREADS)
        d_result_of(work, c)->status = status;
}

__device__ __forceinline__ void d_write_group(const xci_gap_work *work, xci_gap_writer *writer,
                                              const xci_cuda_gap_group &group) {
    const uint8_t *params = work->room + XCI_PLAIN_TABLES * XCI_TABLE_ROOM;
    uint8_t *const at = work->call->blocks + group.offset;
    if (group.params_bytes != 0 && d_warp() == 0)
        d_read_record(&writer->record, writer->coders, XCI_PLAIN_TABLES, params, group.params_bytes,
                      d_count_kept(work));
    __syncthreads();
    uint32_t ordinal = 0;
    for (uint32_t c = 0, turn = 0; c < work->count; ++c) {
        if (d_result_of(work, c)->bytes_changed == 0)
            continue;
        const bool kept = d_is_kept(work, c);
        if (turn++ % XCI_PLAN_WARPS == d_warp())
            d_write_block(work, writer, c, ordinal, at);
        ordinal += kept;
    }
    for (uint32_t i = threadIdx.x; i < group.params_bytes; i += XCI_PLAN_THREADS)
        at[group.bytes - group.params_bytes + i] = params[i];
}

__global__ void __launch_bounds__(XCI_PLAN_THREADS)
    k_gap_write(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    XCI_SHARED_MEMORY(shared);
    const xci_gap_work work = d_work_of(&call, &scratch, blockIdx.x, NULL);
    const xci_cuda_gap_group group = call.groups[blockIdx.x];
    if (group.offset + group.bytes > call.capacity) {
        d_set_statuses(&work, XORCAST_BUFFER_TOO_SMALL);
        return;
    }
    d_write_group(&work, (xci_gap_writer *)shared, group);
}

/* ---- Places ---- */

#define XCI_PLACE_THREADS 1024u

/* Where each group's payload begins: one block of threads. */
__global__ void __launch_bounds__(XCI_PLACE_THREADS) k_gap_place(xci_cuda_gap_encode_call call) {
    XCI_SHARED_MEMORY(shared);
    uint64_t *sums = (uint64_t *)shared;
    uint64_t before = 0;
    for (uint64_t first = 0; first < call.group_count; first += blockDim.x) {
        const uint64_t g = first + threadIdx.x;
        const uint64_t bytes = g < call.group_count ? call.groups[g].bytes : 0;
        const uint64_t sum = d_scan64(bytes);
        if (d_lane() == XCI_WARP - 1)
            sums[threadIdx.x / XCI_WARP] = sum;
        __syncthreads();
        uint64_t at = before + sum - bytes;
        for (uint32_t warp = 0; warp < blockDim.x / XCI_WARP; ++warp) {
            at += warp < threadIdx.x / XCI_WARP ? sums[warp] : 0;
            before += sums[warp];
        }
        if (g < call.group_count)
            call.groups[g].offset = at;
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *call.used_bytes = before;
}

#endif
