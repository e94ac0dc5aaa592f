/* The second pass: zstd over the encoded chunks of a group. Owns one encoder or decoder of a
 * worker, with memory that is allocated once and then bounded. Does not own the choice of when
 * the pass is worth it, nor buffers. */
#ifndef XCI_SECOND_PASS_H
#define XCI_SECOND_PASS_H

#include "base/context.h"

typedef struct xci_zstd_encoder xci_zstd_encoder; /* compresses */
typedef struct xci_zstd_decoder xci_zstd_decoder; /* decompresses */

/* The highest level taken; beyond it one encoder needs hundreds of megabytes. */
#define XCI_ZSTD_MAX_LEVEL 19

/* BAD_ARGUMENT: `level` is not 1 .. XCI_ZSTD_MAX_LEVEL. */
xorcast_status xci_zstd_encoder_create(xorcast_context *context, int32_t level,
                                       xci_zstd_encoder **encoder_out);
void xci_zstd_encoder_destroy(xorcast_context *context,
                              xci_zstd_encoder *encoder); /* NULL is allowed */

/* Compresses to one frame of fewer than `bytes` bytes; `out` has room for `bytes`. `*bytes_out`
 * is 0 if the frame would not be smaller. */
xorcast_status xci_zstd_encode(xorcast_context *context, xci_zstd_encoder *encoder, const void *in,
                               uint64_t bytes, void *out, uint64_t *bytes_out);

xorcast_status xci_zstd_decoder_create(xorcast_context *context, xci_zstd_decoder **decoder_out);
void xci_zstd_decoder_destroy(xorcast_context *context, xci_zstd_decoder *decoder);

/* Decompresses exactly one frame, which must fill `in` and say itself that it holds `bytes` (at
 * least 1). DATA_CORRUPT otherwise (`place` names the group's first chunk); `out` is rubbish
 * then. */
xorcast_status xci_zstd_decode(xorcast_context *context, xci_place place, xci_zstd_decoder *decoder,
                               const void *in, uint64_t in_bytes, void *out, uint64_t bytes);

#endif
