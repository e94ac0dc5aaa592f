/* General compressors over the XOR of a step, chunk by chunk, or tensor by tensor as most other
 * systems do. Chunks without a change are left out.
 *
 *     encoded = (chunks left out before, size of the block or 0 for raw, block)...; or all of it as
 *               one zstd frame behind its size
 *     ready   = (tensor, offset, count, XOR bytes)...
 */
#include "compare/layout_parts.h"

#include <lz4.h>
#include <lz4hc.h>
#include <string.h>
#ifdef COMPARE_ZLIB
#include <zlib.h>
#endif

/* The chunks of a step in order, numbered through. */
typedef struct walk {
    const compare_step *step;
    uint64_t chunk_bytes; /* 0: whole tensors */
    uint64_t tensor, offset, count, number;
} walk;

static uint64_t chunk_count(const walk *w) {
    const uint64_t left = w->step->tensors[w->tensor].bytes - w->offset;
    return w->chunk_bytes == 0 || left < w->chunk_bytes ? left : w->chunk_bytes;
}

/* False: there is no chunk at or after this place. */
static bool settle(walk *w) {
    while (w->tensor < w->step->count && w->offset == w->step->tensors[w->tensor].bytes) {
        w->tensor++;
        w->offset = 0;
    }
    if (w->tensor == w->step->count)
        return false;
    w->count = chunk_count(w);
    return true;
}

static bool next(walk *w) {
    w->offset += w->count;
    w->number++;
    return settle(w);
}

/* ---- Compressors ------------------------------------------------------------------------------*/

#ifdef COMPARE_ZLIB
/* Raw deflate, as decompression engines take it. */
static uint64_t deflate_chunk(int level, const uint8_t *bytes, uint64_t count, uint8_t *out) {
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)bytes,
                       .avail_in = (uInt)count,
                       .next_out = out,
                       .avail_out = (uInt)count};
    if (deflateInit2(&stream, level, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return 0;
    const bool whole = deflate(&stream, Z_FINISH) == Z_STREAM_END;
    const uint64_t size = stream.total_out;
    deflateEnd(&stream);
    return whole ? size : 0;
}

static bool inflate_chunk(const uint8_t *block, uint64_t block_bytes, uint8_t *out,
                          uint64_t count) {
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)block,
                       .avail_in = (uInt)block_bytes,
                       .next_out = out,
                       .avail_out = (uInt)count};
    if (inflateInit2(&stream, -15) != Z_OK)
        return false;
    const bool whole = inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.total_out == count;
    inflateEnd(&stream);
    return whole;
}
#else
static uint64_t deflate_chunk(int level, const uint8_t *bytes, uint64_t count, uint8_t *out) {
    (void)level, (void)bytes, (void)count, (void)out;
    return 0;
}
static bool inflate_chunk(const uint8_t *block, uint64_t block_bytes, uint8_t *out,
                          uint64_t count) {
    (void)block, (void)block_bytes, (void)out, (void)count;
    return false;
}
#endif

/* Adds the block to work->ready, which is free during encoding; 0 bytes where raw is not larger. */
static compare_result pack(const compare_codec *codec, compare_work *work, const uint8_t *bytes,
                           uint64_t count) {
    compare_bytes *block = &work->ready;
    block->count = 0;
    if (codec->method == COMPARE_ZSTD)
        COMPARE_TRY(compare_zstd(work, codec->level, bytes, count, block));
    else if (!compare_reserve(block, count))
        return COMPARE_NO_MEMORY;
    else if (codec->method == COMPARE_LZ4)
        block->count = (uint64_t)LZ4_compress_default((const char *)bytes, (char *)block->at,
                                                      (int)count, (int)count);
    else if (codec->method == COMPARE_DEFLATE)
        block->count = deflate_chunk(codec->level, bytes, count, block->at);
    else
        block->count = (uint64_t)LZ4_compress_HC((const char *)bytes, (char *)block->at, (int)count,
                                                 (int)count, codec->level);
    if (block->count >= count)
        block->count = 0;
    return COMPARE_OK;
}

static compare_result unpack(const compare_codec *codec, compare_work *work, const uint8_t *block,
                             uint64_t block_bytes, uint8_t *out, uint64_t count) {
    if (codec->method == COMPARE_ZSTD)
        return compare_unzstd(work, block, block_bytes, out, count);
    const bool good = codec->method == COMPARE_DEFLATE
                          ? inflate_chunk(block, block_bytes, out, count)
                          : LZ4_decompress_safe((const char *)block, (char *)out, (int)block_bytes,
                                                (int)count) == (int)count;
    return good ? COMPARE_OK : COMPARE_FAILED;
}

/* ---- Steps ------------------------------------------------------------------------------------*/

compare_result compare_blocks_encode(const compare_codec *codec, const compare_step *step,
                                     compare_work *work) {
    walk w = {.step = step, .chunk_bytes = codec->chunk_bytes};
    uint64_t due = 0;
    compare_bytes *out = &work->encoded, *mask = &work->scratch;
    mask->count = 0;
    if (!compare_begin(out))
        return COMPARE_NO_MEMORY;
    for (bool more = settle(&w); more; more = next(&w)) {
        const compare_tensor *t = &step->tensors[w.tensor];
        if (!compare_reserve(mask, w.count))
            return COMPARE_NO_MEMORY;
        if (!compare_xor(mask->at, t->from + w.offset, t->to + w.offset, w.count))
            continue;
        COMPARE_TRY(pack(codec, work, mask->at, w.count));
        const bool raw = work->ready.count == 0;
        if (!compare_put_number(out, w.number - due) ||
            !compare_put_number(out, work->ready.count) ||
            !compare_put(out, raw ? mask->at : work->ready.at, raw ? w.count : work->ready.count))
            return COMPARE_NO_MEMORY;
        due = w.number + 1;
    }
    return COMPARE_OK;
}

typedef struct ready_head {
    uint64_t tensor, offset, count;
} ready_head;

compare_result compare_blocks_stage(const compare_codec *codec, const compare_step *step,
                                    compare_work *work) {
    walk w = {.step = step, .chunk_bytes = codec->chunk_bytes};
    compare_bytes *out = &work->ready;
    const uint8_t *at = work->encoded.at, *end = at + work->encoded.count;
    if (!compare_begin(out))
        return COMPARE_NO_MEMORY;
    bool more = settle(&w);
    while (at < end) {
        for (uint64_t skip = compare_take_number(&at); skip > 0 && more; skip--)
            more = next(&w);
        if (!more)
            return COMPARE_FAILED;
        const uint64_t size = compare_take_number(&at), stored = size == 0 ? w.count : size;
        const ready_head head = {w.tensor, w.offset, w.count};
        if (!compare_put(out, &head, sizeof head) || !compare_reserve(out, w.count))
            return COMPARE_NO_MEMORY;
        if (size == 0)
            memcpy(out->at + out->count, at, w.count);
        else
            COMPARE_TRY(unpack(codec, work, at, size, out->at + out->count, w.count));
        out->count += w.count;
        at += stored;
        more = next(&w);
    }
    return COMPARE_OK;
}

static void swap(compare_bytes *a, compare_bytes *b) {
    const compare_bytes kept = *a;
    *a = *b;
    *b = kept;
}

compare_result compare_packed_encode(const compare_codec *codec, const compare_step *step,
                                     compare_work *work) {
    COMPARE_TRY(compare_blocks_encode(codec, step, work));
    swap(&work->encoded, &work->scratch);
    if (!compare_begin(&work->encoded))
        return COMPARE_NO_MEMORY;
    return compare_put_frame(work, codec->level, &work->scratch, &work->encoded);
}

compare_result compare_packed_stage(const compare_codec *codec, const compare_step *step,
                                    compare_work *work) {
    COMPARE_TRY(compare_open_frame(work));
    swap(&work->encoded, &work->scratch);
    const compare_result result = compare_blocks_stage(codec, step, work);
    swap(&work->encoded, &work->scratch);
    return result;
}

compare_result compare_blocks_commit(const compare_codec *codec, const compare_step *step,
                                     compare_work *work) {
    (void)codec;
    const uint8_t *at = work->ready.at, *end = at + work->ready.count;
    while (at < end) {
        ready_head head;
        memcpy(&head, at, sizeof head);
        at += sizeof head;
        uint8_t *weights = step->tensors[head.tensor].weights + head.offset;
        compare_xor(weights, weights, at, head.count);
        at += head.count;
    }
    return COMPARE_OK;
}
