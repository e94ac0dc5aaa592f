/* zstd in memory of ours: contexts live in one block whose size zstd tells before, so that
 * nothing is allocated after create and the scratch limit covers all of it. */
#define ZSTD_STATIC_LINKING_ONLY
#include "codec/second_pass.h"

#include <zstd.h>
#include <zstd_errors.h>

struct xci_zstd_encoder {
    ZSTD_CCtx *zstd;
    int32_t level;
};

struct xci_zstd_decoder {
    ZSTD_DCtx *zstd;
};

/* The struct and, behind it, zstd's workspace, which must begin at a multiple of 8. */
#define HEAD_BYTES 64u

xorcast_status xci_zstd_encoder_create(xorcast_context *context, int32_t level,
                                       xci_zstd_encoder **encoder_out) {
    if (level < 1 || level > XCI_ZSTD_MAX_LEVEL)
        FAIL(context, XORCAST_BAD_ARGUMENT, "The zstd level is %d; it must be 1 to %d.", level,
             XCI_ZSTD_MAX_LEVEL);
    const size_t workspace_bytes = ZSTD_estimateCCtxSize(level);
    void *memory;
    TRY(xci_allocate(context, HEAD_BYTES + workspace_bytes, &memory));
    xci_zstd_encoder *encoder = memory;
    encoder->level = level;
    encoder->zstd = ZSTD_initStaticCCtx((uint8_t *)memory + HEAD_BYTES, workspace_bytes);
    if (encoder->zstd == NULL) {
        xci_release(context, memory);
        FAIL(context, XORCAST_INTERNAL, "zstd refused a workspace of the size it asked for.");
    }
    *encoder_out = encoder;
    return XORCAST_OK;
}

void xci_zstd_encoder_destroy(xorcast_context *context, xci_zstd_encoder *encoder) {
    xci_release(context, encoder);
}

xorcast_status xci_zstd_encode(xorcast_context *context, xci_zstd_encoder *encoder, const void *in,
                               uint64_t bytes, void *out, uint64_t *bytes_out) {
    *bytes_out = 0;
    if (bytes < 2)
        return XORCAST_OK;
    const size_t size = ZSTD_compressCCtx(encoder->zstd, out, bytes - 1, in, bytes, encoder->level);
    if (!ZSTD_isError(size)) {
        *bytes_out = size;
        return XORCAST_OK;
    }
    if (ZSTD_getErrorCode(size) == ZSTD_error_dstSize_tooSmall)
        return XORCAST_OK;
    FAIL(context, XORCAST_INTERNAL, "zstd could not compress %llu bytes: %s.",
         (unsigned long long)bytes, ZSTD_getErrorName(size));
}

xorcast_status xci_zstd_decoder_create(xorcast_context *context, xci_zstd_decoder **decoder_out) {
    const size_t workspace_bytes = ZSTD_estimateDCtxSize();
    void *memory;
    TRY(xci_allocate(context, HEAD_BYTES + workspace_bytes, &memory));
    xci_zstd_decoder *decoder = memory;
    decoder->zstd = ZSTD_initStaticDCtx((uint8_t *)memory + HEAD_BYTES, workspace_bytes);
    if (decoder->zstd == NULL) {
        xci_release(context, memory);
        FAIL(context, XORCAST_INTERNAL, "zstd refused a workspace of the size it asked for.");
    }
    *decoder_out = decoder;
    return XORCAST_OK;
}

void xci_zstd_decoder_destroy(xorcast_context *context, xci_zstd_decoder *decoder) {
    xci_release(context, decoder);
}

xorcast_status xci_zstd_decode(xorcast_context *context, xci_place place, xci_zstd_decoder *decoder,
                               const void *in, uint64_t in_bytes, void *out, uint64_t bytes) {
    const unsigned long long declared = ZSTD_getFrameContentSize(in, in_bytes);
    if (declared != bytes || bytes == 0)
        FAIL_AT(context, XORCAST_DATA_CORRUPT, place,
                "A group's zstd frame does not declare the "
                "%llu bytes that the delta does; fetch the delta again.",
                (unsigned long long)bytes);
    if (ZSTD_findFrameCompressedSize(in, in_bytes) != in_bytes)
        FAIL_AT(context, XORCAST_DATA_CORRUPT, place,
                "A group of %llu bytes is not one whole zstd "
                "frame; fetch the delta again.",
                (unsigned long long)in_bytes);
    const size_t size = ZSTD_decompressDCtx(decoder->zstd, out, bytes, in, in_bytes);
    if (ZSTD_isError(size))
        FAIL_AT(context, XORCAST_DATA_CORRUPT, place,
                "A group's zstd frame is damaged (%s); fetch "
                "the delta again.",
                ZSTD_getErrorName(size));
    if (size != bytes)
        FAIL_AT(context, XORCAST_DATA_CORRUPT, place,
                "A group's zstd frame holds %llu bytes instead "
                "of %llu; fetch the delta again.",
                (unsigned long long)size, (unsigned long long)bytes);
    return XORCAST_OK;
}
