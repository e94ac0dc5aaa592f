/* Decoding of blocks from anywhere. Every length and offset is checked before a byte is copied,
 * and no byte of the mask is read before it was written; nothing is clamped. */
#include "codec/codec.h"

#include "codec/copy.h"
#include "codec/lz4_block.h"
#include "codec/snappy_block.h"
#include "codec/words_block.h"

static const struct {
    uint32_t codec;
    const char *name;
} codecs[] = {
    {XORCAST_CODEC_RAW, "raw"}, {XORCAST_CODEC_LZ4, "lz4"},   {XORCAST_CODEC_SNAPPY, "snappy"},
    {XORCAST_CODEC_GAP, "gap"}, {XORCAST_CODEC_AUTO, "auto"},
};
#define CODEC_COUNT (sizeof codecs / sizeof codecs[0])

const char *xci_codec_name(uint32_t codec) {
    for (size_t i = 0; i < CODEC_COUNT; ++i)
        if (codecs[i].codec == codec)
            return codecs[i].name;
    return NULL;
}

bool xci_codec_find(const char *name, uint32_t *codec_out) {
    for (size_t i = 0; i < CODEC_COUNT; ++i) {
        if (strcmp(codecs[i].name, name) == 0) {
            *codec_out = codecs[i].codec;
            return true;
        }
    }
    return false;
}

bool xci_codec_is_ready(uint32_t codec, const uint8_t *block, uint64_t block_bytes,
                        uint32_t bytes) {
    if (codec == XORCAST_CODEC_RAW)
        return block_bytes == bytes;
    if (codec != XORCAST_CODEC_LZ4 || block_bytes >= bytes)
        return false;
    xci_lz4_walk walk = xci_lz4_begin(block, (uint32_t)block_bytes, bytes);
    xci_lz4_sequence sequence;
    while (xci_lz4_next(&walk, &sequence))
        if (!xci_lz4_repeats_zero(&sequence))
            return false;
    return walk.state == XCI_LZ4_DONE;
}

static bool decode_lz4(const uint8_t *block, uint32_t block_bytes, uint8_t *out, uint32_t bytes) {
    xci_lz4_walk walk = xci_lz4_begin(block, block_bytes, bytes);
    xci_lz4_sequence sequence;
    while (xci_lz4_next(&walk, &sequence)) {
        uint8_t *at = out + sequence.position;
        memcpy(at, sequence.literals, sequence.literal_count);
        xci_copy_back(at + sequence.literal_count, sequence.offset, sequence.match_count);
    }
    return walk.state == XCI_LZ4_DONE;
}

xorcast_status xci_codec_decode(xorcast_context *context, xci_place place, uint32_t codec,
                                const uint8_t *block, uint64_t block_bytes, uint8_t *mask_out,
                                uint32_t bytes) {
    bool good = false;
    if (block_bytes > UINT32_MAX)
        FAIL_AT(context, XORCAST_DATA_CORRUPT, place,
                "An encoded chunk of %u bytes claims to be %llu bytes "
                "long; fetch the delta again.",
                bytes, (unsigned long long)block_bytes);
    switch (codec) {
    case XORCAST_CODEC_RAW:
        good = block_bytes == bytes;
        if (good)
            memcpy(mask_out, block, bytes);
        break;
    case XORCAST_CODEC_LZ4:
        good = decode_lz4(block, (uint32_t)block_bytes, mask_out, bytes);
        break;
    case XORCAST_CODEC_SNAPPY:
        good = xci_snappy_decode(block, block_bytes, mask_out, bytes);
        break;
    case XCI_CODEC_WORDS:
        good = xci_words_decode(block, block_bytes, mask_out, bytes);
        break;
    default:
        FAIL_AT(context, XORCAST_DATA_VERSION, place,
                "A chunk is encoded with codec %u, which this library "
                "does not know; use a newer xorcast.",
                codec);
    }
    if (!good)
        FAIL_AT(context, XORCAST_DATA_CORRUPT, place,
                "An encoded chunk (%s, %llu bytes) does not decode to "
                "%u bytes; fetch the delta again.",
                xci_codec_name(codec), (unsigned long long)block_bytes, bytes);
    return XORCAST_OK;
}
