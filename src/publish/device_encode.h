/* Encoding on a device: what put hands over, piece by piece, beside what is published, to blocks on
 * the host and a shadow that has moved along.
 *
 *     compute stream   encode A | encode B | encode C        | encode D ...
 *     sizes stream              | of A     | of B            | of C ...
 *     drain stream              |   blocks of A | blocks of B ...
 *     host                                 | records of A, parts (pool) | of B ...
 *     keep stream                                                | blocks of A, to stay ...
 *
 * Encode moves the shadow itself, while old and new are on the chip. What the host then does not
 * book goes back by its blocks, and what encode left as it was, which is rare, moves by them.
 *
 * A piece is as many groups as the output buffer is expected to take; if it takes fewer, the rest
 * is encoded again. pending.c owns the version; this owns device memory and streams.
 *
 * Device memory: three output buffers of 40 MiB (more where a group may need it; as many again for
 * groups in the gap codec), blocks that stay for subscribers of the process, and at most 256 MiB
 * for all else: scratch of encode, results, and where the chunks of up to 60 GB are. */
#ifndef XCI_DEVICE_ENCODE_H
#define XCI_DEVICE_ENCODE_H

#include "publish/pending.h"

/* `stream` is where the caller works: put reads what is written by work that is queued there.
 * `keep_blocks`: a version's blocks stay on the device, as far as a sixteenth of the weights takes
 * them, and its parts say where (backend/device_side.h). */
xorcast_status xci_device_encoder_open(xci_pending *pending, void *stream, bool keep_blocks,
                                       xci_device_encoder **encoder_out);
/* The next version begins. */
xorcast_status xci_device_encoder_begin(xci_device_encoder *encoder);
void xci_device_encoder_close(xci_device_encoder *encoder); /* NULL is allowed */

/* Before anything of a put is booked: BAD_ARGUMENT. */
xorcast_status xci_device_encoder_check(xci_device_encoder *encoder, uint64_t count,
                                        const uint64_t *indices, const void *const *data);
/* One tensor of the put: its new bytes, or NULL for the bundle's own memory. */
xorcast_status xci_device_encoder_take(xci_device_encoder *encoder, uint64_t tensor,
                                       const void *data);
/* Every tensor, from the bundle's own memory. */
xorcast_status xci_device_encoder_take_all(xci_device_encoder *encoder);
/* All tensors of the put are taken; `ranges` [first, end) of chunks are complete with it. `all`:
 * every tensor of the bundle was, from its own memory. When it returns, memory that was handed over
 * is not read any more. */
xorcast_status xci_device_encoder_run(xci_device_encoder *encoder, const xci_put_range *ranges,
                                      uint64_t first, uint64_t end, bool all);

/* Test hook: encoders that are opened from now on take this for the room of a piece's blocks (but
 * never less than a group needs); 0: as ever. */
void xci_device_encoder_limit(uint64_t bytes);

/* For codecs that the host writes from lists: those of a group's blocks, while its range is booked
 * or, `joined`, once all of its ranges are; and, if the encoding asks for it, the chunks before the
 * change, else `*old_out` is NULL. Valid until the worker's next call. */
xorcast_status xci_device_encoder_list(xci_device_encoder *encoder, uint32_t worker,
                                       const xci_record *record, bool joined,
                                       xci_record *listed_out, const uint8_t *const **old_out);
/* Of a group that the device has encoded in both forms, whose plain record is `plain`: the record
 * beside the old weights. Likewise. */
xorcast_status xci_device_encoder_beside(xci_device_encoder *encoder, uint32_t worker,
                                         const xci_record *plain, xci_record *beside_out);

#endif
