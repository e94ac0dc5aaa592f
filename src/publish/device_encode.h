/* Encoding on a device: what put hands over of the chunks at home there, piece by piece, beside
 * what is published, to blocks on the host and a shadow that has moved along.
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
 * In the gap codec and `auto` the device writes whole groups itself, from lists of what changes,
 * and then moves the shadow by these. Such pieces go on two streams by turns. What of them is not
 * booked goes back as when a version is dropped.
 *
 * A piece is as many groups as the output buffer is expected to take; if it takes fewer, the rest
 * is encoded again. pending.c owns the version, device_encoders.c drives the encoders of several
 * devices; this owns device memory and streams.
 *
 * Device memory: three output buffers of 40 MiB (more where a group may need it; three of 20 MiB
 * for the form beside the old weights), blocks that stay for subscribers of the process, and at
 * most 256 MiB for all else: scratch of encode, results, where the chunks of up to 60 GB are. */
#ifndef XCI_DEVICE_ENCODE_H
#define XCI_DEVICE_ENCODE_H

#include "publish/pending.h"

typedef struct xci_device_encoder xci_device_encoder;

/* For share `share` of the bundle. `siblings`: the encoders of all shares, this one too; the list
 * is read when a put has begun. */
xorcast_status xci_device_encoder_open(xci_pending *pending, uint32_t share,
                                       const xci_device_encoder *const *siblings,
                                       xci_device_encoder **encoder_out);
/* The next version begins: its blocks stay in `side`, as far as there is room, or nowhere (NULL).
 * */
void xci_device_encoder_begin(xci_device_encoder *encoder, xci_device_side *side);
/* The most that the blocks of one piece take. */
uint64_t xci_device_encoder_room(const xci_device_encoder *encoder);
void xci_device_encoder_close(xci_device_encoder *encoder); /* NULL is allowed */

/* One tensor of the put, of which the share has some or all: its new bytes, or NULL for the
 * bundle's own memory; `kept`: a small one that is as it was. */
xorcast_status xci_device_encoder_take(xci_device_encoder *encoder, uint64_t tensor,
                                       const void *data, bool kept);

/* Every tensor, from the bundle's own memory. */
xorcast_status xci_device_encoder_take_all(xci_device_encoder *encoder);

/* A put: start, then launch, await and book (device_book.h) while it is busy, then rest, whatever
 * failed.
 *
 * All tensors of the put are taken; `ranges` [first, end) of chunks, all of them at home here, are
 * complete with it. `all`: every tensor of the bundle was, from its own memory. Weights are read
 * after the event `ready`, and after what is on the default stream if the device is not the
 * bundle's context's. */
xorcast_status xci_device_encoder_start(xci_device_encoder *encoder, void *ready,
                                        const xci_put_range *ranges, uint64_t first, uint64_t end,
                                        bool all);
bool xci_device_encoder_busy(const xci_device_encoder *encoder);
/* Gives the device as many pieces as it may have at a time, and has the blocks of those that it has
 * encoded copied to the host. */
xorcast_status xci_device_encoder_launch(xci_device_encoder *encoder);
/* Until the device has encoded the oldest piece; its blocks, and those of pieces that are encoded
 * already, are on their way to the host then. */
xorcast_status xci_device_encoder_await(xci_device_encoder *encoder);
/* Until nothing that was handed over is read any more, and the shadow has moved: by what was
 * booked, if the put failed. */
xorcast_status xci_device_encoder_rest(xci_device_encoder *encoder, bool failed);

/* Test hook: encoders that are opened from now on take this for the room of a piece's blocks (but
 * never less than a group needs); 0: as ever. */
void xci_device_encoder_limit(uint64_t bytes);

#endif
