/* The list of codecs and layouts that the library's are compared with, a line each, and what runs
 * of zeros cost. See compare.h. */
#include "compare/layout_parts.h"

#include <string.h>

#define BLOCKS compare_blocks_encode, compare_blocks_stage, compare_blocks_commit

static const compare_codec codecs[] = {
    {"lz4hc", "LZ4 with a thorough search (level 9), chunks of 64 KiB", COMPARE_LZ4HC, 9,
     COMPARE_CHUNK, BLOCKS},
#ifdef COMPARE_ZLIB
    {"deflate", "raw deflate by zlib (level 6), chunks of 64 KiB", COMPARE_DEFLATE, 6,
     COMPARE_CHUNK, BLOCKS},
#endif
    {"zstd 1", "zstd level 1, chunks of 64 KiB", COMPARE_ZSTD, 1, COMPARE_CHUNK, BLOCKS},
    {"zstd 3", "zstd level 3, chunks of 64 KiB", COMPARE_ZSTD, 3, COMPARE_CHUNK, BLOCKS},
    {"zstd 19", "zstd level 19, chunks of 64 KiB", COMPARE_ZSTD, 19, COMPARE_CHUNK, BLOCKS},
    {"tensor zstd", "a zstd-1 frame of each changed tensor's whole XOR", COMPARE_ZSTD, 1, 0,
     BLOCKS},
    {"liblz4+zstd", "LZ4 by liblz4, chunks of 64 KiB, one zstd-1 frame of all", COMPARE_LZ4, 1,
     COMPARE_CHUNK, compare_packed_encode, compare_packed_stage, compare_blocks_commit},
    {"index+value", "int32 positions of elements, new values, not compressed", COMPARE_ZSTD, 0, 0,
     compare_index_encode, compare_index_stage, compare_elements_set},
    {"gaps zstd", "u16 gaps and XOR values of all tensors, one zstd-1 frame", COMPARE_ZSTD, 1, 0,
     compare_gaps_encode, compare_gaps_stage, compare_elements_xor},
    {"coo zstd", "rows, columns, new values of each tensor, one zstd-1 frame", COMPARE_ZSTD, 1, 0,
     compare_coo_encode, compare_coo_stage, compare_elements_set},
};

const compare_codec *compare_codec_at(uint32_t index) {
    return index < sizeof codecs / sizeof *codecs ? &codecs[index] : NULL;
}

/* ---- Runs of zeros ----------------------------------------------------------------------------*/

static uint64_t lz4_copy_bytes(uint64_t length) {
    return length < 19 ? 3 : 4 + (length - 19) / 255;
}

static uint64_t snappy_copy_bytes(uint64_t length) {
    const uint64_t rest = length % 64;
    return 3 * (length / 64) + (rest == 0 ? 0 : rest >= 4 && rest <= 11 ? 2 : 3);
}

static void add_run(compare_runs *runs, uint64_t length) {
    if (length < 5)
        return;
    runs->runs++;
    runs->zero_bytes += length;
    runs->lz4_bytes += lz4_copy_bytes(length - 1);
    runs->snappy_bytes += 1 + snappy_copy_bytes(length - 1);
}

static void add_chunk(compare_runs *runs, const uint8_t *from, const uint8_t *to, uint64_t count) {
    uint64_t length = 0;
    if (memcmp(from, to, count) == 0)
        return;
    runs->changed_chunks++;
    for (uint64_t i = 0; i < count; i++) {
        if (from[i] == to[i]) {
            length++;
            continue;
        }
        add_run(runs, length);
        length = 0;
    }
    add_run(runs, length);
}

void compare_runs_add(compare_runs *runs, const compare_step *step) {
    for (uint64_t i = 0; i < step->count; i++) {
        const compare_tensor *t = &step->tensors[i];
        for (uint64_t at = 0; at < t->bytes; at += COMPARE_CHUNK)
            add_chunk(runs, t->from + at, t->to + at,
                      t->bytes - at < COMPARE_CHUNK ? t->bytes - at : COMPARE_CHUNK);
    }
}
