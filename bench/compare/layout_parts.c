/* See parts.h. */
#include "compare/layout_parts.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

bool compare_reserve(compare_bytes *bytes, uint64_t more) {
    if (more <= bytes->room - bytes->count)
        return true;
    const uint64_t room = 2 * bytes->room + more + 4096;
    uint8_t *moved = realloc(bytes->at, room);
    if (moved == NULL)
        return false;
    bytes->at = moved;
    bytes->room = room;
    return true;
}

bool compare_begin(compare_bytes *bytes) {
    bytes->count = 0;
    return compare_reserve(bytes, 1);
}

bool compare_put(compare_bytes *bytes, const void *data, uint64_t count) {
    if (!compare_reserve(bytes, count))
        return false;
    if (count > 0)
        memcpy(bytes->at + bytes->count, data, count);
    bytes->count += count;
    return true;
}

bool compare_put_number(compare_bytes *bytes, uint64_t number) {
    if (!compare_reserve(bytes, 10))
        return false;
    for (; number >= 128; number >>= 7)
        bytes->at[bytes->count++] = (uint8_t)(number | 128);
    bytes->at[bytes->count++] = (uint8_t)number;
    return true;
}

uint64_t compare_take_number(const uint8_t **at) {
    uint64_t number = 0;
    for (uint32_t shift = 0;; shift += 7) {
        const uint8_t byte = *(*at)++;
        number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return number;
    }
}

bool compare_xor(uint8_t *out, const uint8_t *a, const uint8_t *b, uint64_t count) {
    uint64_t any = 0, i = 0;
    for (; i + 8 <= count; i += 8) {
        uint64_t x, y;
        memcpy(&x, a + i, 8);
        memcpy(&y, b + i, 8);
        x ^= y;
        any |= x;
        memcpy(out + i, &x, 8);
    }
    for (; i < count; i++) {
        out[i] = a[i] ^ b[i];
        any |= out[i];
    }
    return any != 0;
}

compare_result compare_zstd(compare_work *work, int level, const uint8_t *bytes, uint64_t count,
                            compare_bytes *out) {
    const uint64_t bound = ZSTD_compressBound(count);
    if (work->zstd_encoder == NULL)
        work->zstd_encoder = ZSTD_createCCtx();
    if (work->zstd_encoder == NULL || !compare_reserve(out, bound))
        return COMPARE_NO_MEMORY;
    const size_t written =
        ZSTD_compressCCtx(work->zstd_encoder, out->at + out->count, bound, bytes, count, level);
    if (ZSTD_isError(written))
        return COMPARE_FAILED;
    out->count += written;
    return COMPARE_OK;
}

compare_result compare_unzstd(compare_work *work, const uint8_t *frame, uint64_t count,
                              uint8_t *out, uint64_t bytes) {
    if (work->zstd_decoder == NULL)
        work->zstd_decoder = ZSTD_createDCtx();
    if (work->zstd_decoder == NULL)
        return COMPARE_NO_MEMORY;
    return ZSTD_decompressDCtx(work->zstd_decoder, out, bytes, frame, count) == bytes
               ? COMPARE_OK
               : COMPARE_FAILED;
}

compare_result compare_put_frame(compare_work *work, int level, const compare_bytes *plain,
                                 compare_bytes *out) {
    if (!compare_put_number(out, plain->count))
        return COMPARE_NO_MEMORY;
    return compare_zstd(work, level, plain->at, plain->count, out);
}

compare_result compare_open_frame(compare_work *work) {
    const uint8_t *at = work->encoded.at, *end = at + work->encoded.count;
    const uint64_t plain = compare_take_number(&at);
    compare_bytes *out = &work->scratch;
    if (!compare_begin(out) || !compare_reserve(out, plain))
        return COMPARE_NO_MEMORY;
    out->count = plain;
    return compare_unzstd(work, at, (uint64_t)(end - at), out->at, plain);
}

void compare_free(compare_bytes *bytes) {
    free(bytes->at);
    memset(bytes, 0, sizeof *bytes);
}

void compare_work_free(compare_work *work) {
    ZSTD_freeCCtx(work->zstd_encoder);
    ZSTD_freeDCtx(work->zstd_decoder);
    compare_free(&work->encoded);
    compare_free(&work->ready);
    compare_free(&work->scratch);
    memset(work, 0, sizeof *work);
}
