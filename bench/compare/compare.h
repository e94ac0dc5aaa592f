/* Codecs and layouts to compare the library's with: general compressors over the same chunks, and
 * what other systems send for a step. All bytes of a step at once, one thread; for measuring only:
 * nothing that these write is meant to be kept, and nothing but they reads it.
 *
 *     encode   old and new weights -> bytes, the size that is compared
 *     stage    bytes -> what a commit can use as it is
 *     commit   weights ^= mask, or weights[index] = value
 *
 * Owns the buffers of compare_work. What it leaves out favours the others: no digests, no names,
 * no container, no snapshot of the weights. Knows nothing of xorcast and of files. */
#ifndef COMPARE_H
#define COMPARE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct compare_tensor {
    uint32_t element_bytes; /* 1, 2, 4 or 8; anything else is seen as 1 */
    uint64_t bytes;
    uint64_t columns; /* elements in a row; at least 1 */
    const uint8_t *from, *to;
    uint8_t *weights; /* what commit changes: `from` before, `to` after */
} compare_tensor;

typedef struct compare_step {
    const compare_tensor *tensors;
    uint64_t count;
} compare_step;

typedef enum compare_result {
    COMPARE_OK,
    COMPARE_NO_MEMORY,
    COMPARE_NO_ROOM, /* the layout has no place for a tensor of this size */
    COMPARE_FAILED   /* the compressor did */
} compare_result;

#define COMPARE_TRY(call)                                                                          \
    do {                                                                                           \
        const compare_result compare_try_ = (call);                                                \
        if (compare_try_ != COMPARE_OK)                                                            \
            return compare_try_;                                                                   \
    } while (0)

/* Grows, never shrinks. */
typedef struct compare_bytes {
    uint8_t *at;
    uint64_t count, room;
} compare_bytes;

/* Zeroed before first use. Buffers keep their room between calls, so that only the first of
 * several pays for memory. */
typedef struct compare_work {
    compare_bytes encoded, ready, scratch;
    void *zstd_encoder, *zstd_decoder;
} compare_work;

void compare_work_free(compare_work *work);

typedef enum compare_method {
    COMPARE_ZSTD,
    COMPARE_LZ4,
    COMPARE_LZ4HC,
    COMPARE_DEFLATE
} compare_method;

typedef struct compare_codec compare_codec;
struct compare_codec {
    const char *name, *text;
    compare_method method;
    int level;
    uint64_t chunk_bytes; /* 0: whole tensors */
    /* work->encoded; from that work->ready; from that the weights. */
    compare_result (*encode)(const compare_codec *codec, const compare_step *step,
                             compare_work *work);
    compare_result (*stage)(const compare_codec *codec, const compare_step *step,
                            compare_work *work);
    compare_result (*commit)(const compare_codec *codec, const compare_step *step,
                             compare_work *work);
};

/* Number `index` of those that this build has; NULL after the last. */
const compare_codec *compare_codec_at(uint32_t index);

/* ---- What runs of zeros cost ------------------------------------------------------------------*/

/* Runs of zeros in the XOR of changed chunks of 64 KiB, as LZ4 and Snappy write them: one literal
 * zero and then copies of the byte before, if these are 4 bytes or more. Literals themselves cost
 * the same in both and are not counted. */
typedef struct compare_runs {
    uint64_t changed_chunks, runs, zero_bytes;
    /* a token with both lengths, 2 bytes of offset, 1 byte more for each 255 copied */
    uint64_t lz4_bytes;
    /* a tag for the literals; 3 bytes for each 64 copied, 2 for the last 4 to 11 */
    uint64_t snappy_bytes;
} compare_runs;

/* Adds those of a step. */
void compare_runs_add(compare_runs *runs, const compare_step *step);

#endif
