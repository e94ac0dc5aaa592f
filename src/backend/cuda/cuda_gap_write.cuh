/* Writes groups: their blocks and parameters, when it is known where each group begins. A block of
 * threads has a group: its first warp reads the parameters back, then each warp writes blocks. */
#ifndef XCI_CUDA_GAP_WRITE_CUH
#define XCI_CUDA_GAP_WRITE_CUH

#include "backend/cuda/cuda_gap_params.cuh"
#include "backend/cuda/cuda_gap_group.cuh"

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

/* A number before a stream; returns where the stream begins. A whole warp. */
__device__ __forceinline__ uint8_t *d_put_length(uint8_t *at, uint32_t bytes) {
    uint8_t number[XCI_VARINT_BYTES];
    const uint32_t count = xci_varint_put(number, bytes);
    for (uint32_t i = 0; i < count; ++i)
        if (d_lane() == 0)
            at[i] = number[i];
    return at + count;
}

/* A value and the code for it. */
typedef struct xci_gap_coded {
    const xci_gap_coder *coder;
    uint64_t value;
} xci_gap_coded;

__device__ __forceinline__ uint32_t d_coded_bits(const xci_gap_coder *coder, uint64_t value) {
    uint32_t tail_bits;
    const uint32_t symbol = xci_gap_symbol(value, coder->head, &tail_bits);
    return (coder->codes[symbol] & 15) + tail_bits;
}

/* value_of(position) gives an element's value and its code. */
template <typename ValueOf>
__device__ __forceinline__ void d_write_dense_block(const xci_gap_source *source, uint32_t width,
                                                    uint32_t *words, uint8_t *at,
                                                    ValueOf value_of) {
    const uint32_t count = xci_gap_element_count(width, source->bytes);
    for (uint32_t first = 0; first < count; first += XCI_GAP_SEGMENT) {
        const uint32_t end = min(count, first + XCI_GAP_SEGMENT);
        uint32_t bits = 0;
        for (uint32_t i = first + d_lane(); i < end && end != count; i += XCI_WARP) {
            const xci_gap_coded coded = value_of(i);
            bits += d_coded_bits(coded.coder, coded.value);
        }
        if (end != count)
            at = d_put_length(at, (d_sum(bits) + 7) / 8);
        xci_gap_bit_sink sink = d_begin_stream(words, at);
        for (uint32_t i = first; i < end; i += XCI_WARP) {
            const bool active = i + d_lane() < end;
            const xci_gap_coded coded = value_of(active ? i + d_lane() : first);
            d_put_change(&sink, coded.coder, active, 0, 0, coded.value);
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

/* ---- Blocks beside the old weights ---- */

/* Bits of each class's stream. */
__device__ __forceinline__ void d_count_class_bits(const xci_gap_source *source,
                                                   xci_gap_batch *batch, xci_gap_streams *streams,
                                                   const xci_gap_shape *shape,
                                                   const xci_gap_coder *coders,
                                                   const uint32_t *ranks, uint32_t *bits) {
#pragma unroll
    for (uint32_t k = 0; k < XCI_GAP_CLASSES; ++k)
        bits[k] = 0;
    d_each_ranked(source, batch, streams, shape->width, shape->class_count, ranks,
                  [&](bool active, const xci_gap_ranked &change) {
                      uint32_t mine = 0;
                      if (active) {
                          const xci_gap_class of = shape->classes[change.of];
                          (void)d_gap_bits(change.rank - change.last_end,
                                           d_ranked_parameter(&change, of.prior), &mine);
                          mine += d_coded_bits(&coders[of.table], change.value);
                      }
#pragma unroll
                      for (uint32_t k = 0; k < XCI_GAP_CLASSES; ++k)
                          bits[k] += active && change.of == k ? mine : 0;
                  });
#pragma unroll
    for (uint32_t k = 0; k < XCI_GAP_CLASSES; ++k)
        bits[k] = d_sum(bits[k]);
}

/* Each class's stream is written in a turn of its own. */
__device__ __forceinline__ void d_write_classes(const xci_gap_source *source, xci_gap_batch *batch,
                                                xci_gap_streams *streams,
                                                const xci_gap_shape *shape,
                                                const xci_gap_coder *coders, const uint32_t *ranks,
                                                uint32_t *words, uint8_t *at) {
    uint32_t bits[XCI_GAP_CLASSES] = {0};
    if (shape->class_count > 1)
        d_count_class_bits(source, batch, streams, shape, coders, ranks, bits);
#pragma unroll 1
    for (uint32_t c = 0; c < shape->class_count; ++c) {
        const xci_gap_coder *coder = &coders[shape->classes[c].table];
        const uint32_t prior = shape->classes[c].prior;
        uint32_t mine_bits = 0;
#pragma unroll
        for (uint32_t k = 0; k < XCI_GAP_CLASSES; ++k)
            mine_bits = k == c ? bits[k] : mine_bits;
        if (c + 1 < shape->class_count)
            at = d_put_length(at, (mine_bits + 7) / 8);
        xci_gap_bit_sink sink = d_begin_stream(words, at);
        /* A class without changes is an empty stream. */
        if (shape->class_count == 1 || mine_bits != 0)
            d_each_ranked(source, batch, streams, shape->width, shape->class_count, ranks,
                          [&](bool active, const xci_gap_ranked &change) {
                              const bool mine = active && change.of == c;
                              uint32_t gap_bits = 0;
                              uint64_t gap = 0;
                              if (mine)
                                  gap = d_gap_bits(change.rank - change.last_end,
                                                   d_ranked_parameter(&change, prior), &gap_bits);
                              if (__any_sync(XCI_ALL, mine))
                                  d_put_change(&sink, coder, mine, gap, gap_bits, change.value);
                          });
        at = d_end_stream(&sink);
    }
}

/* ---- Groups ---- */

/* What a block of threads has in shared memory. Coders are as many as the form may have, and behind
 * them, beside the old weights, are streams. */
typedef struct xci_gap_writer {
    xci_gap_record record;
    xci_gap_batch batches[XCI_PLAN_WARPS];
    uint32_t bits[XCI_PLAN_WARPS][XCI_BIT_WORDS];
    xci_gap_coder coders[1];
} xci_gap_writer;

__host__ __device__ static inline uint32_t xci_gap_writer_bytes(bool beside) {
    const uint32_t coders = xci_gap_tables(beside) - 1;
    return (uint32_t)(sizeof(xci_gap_writer) + coders * sizeof(xci_gap_coder) + 7) / 8 * 8;
}

/* The block with this number among the group's gap blocks. */
template <bool BESIDE>
__device__ __forceinline__ void d_write_block(const xci_gap_work *work, xci_gap_writer *writer,
                                              uint32_t c, uint32_t ordinal, uint8_t *at) {
    const xci_gap_source source = d_source_of(work->call, work->scratch, work->first + c);
    const xci_gap_shape *shape = &writer->record.shapes[d_spot_of(&writer->record, ordinal).shape];
    const xci_gap_coder *coder = &writer->coders[shape->classes[0].table];
    xci_gap_batch *batch = &writer->batches[d_warp()];
    uint32_t *words = writer->bits[d_warp()];
    if (BESIDE && shape->dense)
        d_write_dense_block(&source, shape->width, words, at, [&](uint32_t position) {
            uint32_t of;
            xci_gap_coded coded;
            coded.value = d_dense_step(&source, position, shape->width, shape->class_of, &of);
            coded.coder = &writer->coders[shape->classes[of].table];
            return coded;
        });
    else if (BESIDE)
        d_write_classes(
            &source, batch,
            (xci_gap_streams *)((uint8_t *)writer + xci_gap_writer_bytes(true)) + d_warp(), shape,
            writer->coders,
            shape->class_count > 1 ? work->scratch->lists + work->scratch->ranks[work->first + c]
                                   : NULL,
            words, at);
    else if (shape->dense)
        d_write_dense_block(&source, shape->width, words, at, [&](uint32_t position) {
            const xci_gap_coded coded = {coder, d_element_at(&source, position, shape->width)};
            return coded;
        });
    else
        d_write_sparse_block(&source, batch, coder, shape->classes[0].prior, words, at);
}

__device__ __forceinline__ void d_set_statuses(const xci_gap_work *work, int32_t status) {
    for (uint32_t c = threadIdx.x; c < work->count; c += XCI_PLAN_THREADS)
        d_result_of(work, c)->status = status;
}

__device__ __forceinline__ uint32_t d_count_kept(const xci_gap_work *work) {
    uint32_t count = 0;
    for (uint32_t first = 0; first < work->count; first += XCI_WARP)
        count += (uint32_t)__popc(__ballot_sync(XCI_ALL, d_look_at_chunk(work, first).kept));
    return count;
}

/* Changed chunks go round the warps. */
template <bool BESIDE>
__device__ __forceinline__ void d_write_blocks(const xci_gap_work *work, xci_gap_writer *writer,
                                               uint8_t *group_at) {
    uint32_t turn = 0, ordinal = 0;
    for (uint32_t first = 0; first < work->count; first += XCI_WARP) {
        const xci_gap_look look = d_look_at_chunk(work, first);
        const uint32_t kept = __ballot_sync(XCI_ALL, look.kept);
        uint32_t changed = __ballot_sync(XCI_ALL, look.changed);
        for (; changed != 0; changed &= changed - 1) {
            const uint32_t lane = (uint32_t)__ffs((int)changed) - 1, c = first + lane;
            uint8_t *at = group_at + d_result_of(work, c)->block_offset;
            if (turn++ % XCI_PLAN_WARPS != d_warp())
                continue;
            if ((kept >> lane & 1) != 0)
                d_write_block<BESIDE>(work, writer, c,
                                      ordinal + (uint32_t)__popc(kept & ((1u << lane) - 1)), at);
            else
                d_write_raw_block(d_source_of(work->call, work->scratch, work->first + c), at);
        }
        ordinal += (uint32_t)__popc(kept);
    }
}

template <bool BESIDE>
__global__ void __launch_bounds__(XCI_PLAN_THREADS, BESIDE ? 2 : XCI_PLAN_BLOCKS)
    k_gap_write(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    XCI_SHARED_MEMORY(shared);
    const xci_gap_work work = d_work_of(&call, &scratch, blockIdx.x, NULL);
    const xci_cuda_gap_group group = call.groups[blockIdx.x];
    xci_gap_writer *writer = (xci_gap_writer *)shared;
    const uint8_t *params = d_params_of(&work);
    uint8_t *const at = call.blocks + group.offset;
    const bool fits = scratch.counters[2] == 0 && group.offset + group.bytes <= call.capacity;
    d_set_statuses(&work, fits ? XORCAST_OK : XORCAST_BUFFER_TOO_SMALL);
    if (!fits)
        return;
    if (group.params_bytes != 0 && d_warp() == 0)
        d_read_record(&writer->record, writer->coders, xci_gap_tables(BESIDE), params,
                      group.params_bytes, d_count_kept(&work));
    __syncthreads();
    d_write_blocks<BESIDE>(&work, writer, at);
    for (uint32_t i = threadIdx.x; i < group.params_bytes; i += XCI_PLAN_THREADS)
        at[group.bytes - group.params_bytes + i] = params[i];
}

/* ---- Places ---- */

#define XCI_PLACE_THREADS 1024u

/* Where each group's payload begins: one block of threads. */
__global__ void __launch_bounds__(XCI_PLACE_THREADS)
    k_gap_place(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    XCI_SHARED_MEMORY(shared);
    uint64_t *sums = (uint64_t *)shared;
    const bool failed = scratch.counters[2] != 0;
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
        *call.used_bytes = failed ? UINT64_MAX : before;
}

#endif
