/* Encoders of all devices that a bundle lies on, for the version that is put together: each takes
 * the chunks that are at home on its device (bundle/shares.h). The devices work side by side; one
 * host thread gives them work, and the pool books a piece of each at a time. What a version holds
 * does not depend on who encoded it, or when. */
#ifndef XCI_DEVICE_ENCODERS_H
#define XCI_DEVICE_ENCODERS_H

#include "publish/device_encode.h"

/* `stream`, of the context's device, is where the caller works: put reads what is written by work
 * that is queued there, or on the default streams of the other devices. `keep_blocks`: a
 * version's blocks stay on the devices, as far as a sixteenth of the weights takes them, and its
 * parts say where (backend/device_side.h). */
xorcast_status xci_device_encoders_open(xci_pending *pending, void *stream, bool keep_blocks,
                                        xci_device_encoders **encoders_out);
void xci_device_encoders_close(xci_device_encoders *encoders); /* NULL is allowed */
/* The next version begins. */
xorcast_status xci_device_encoders_begin(xci_device_encoders *encoders);

/* Before anything of a put is booked: BAD_ARGUMENT. */
xorcast_status xci_device_encoders_check(xci_device_encoders *encoders, uint64_t count,
                                         const uint64_t *indices, const void *const *data);
/* One tensor of the put: its new bytes, or NULL for the bundle's own memory; `kept`: a small one
 * that is as it was. */
xorcast_status xci_device_encoders_take(xci_device_encoders *encoders, uint64_t tensor,
                                        const void *data, bool kept);
/* Every tensor, from the bundle's own memory. */
xorcast_status xci_device_encoders_take_all(xci_device_encoders *encoders);
/* All tensors of the put are taken; `ranges` [first, end) of chunks are complete with it, in order.
 * `all`: every tensor of the bundle was, from its own memory. When it returns, memory that was
 * handed over is not read any more. */
xorcast_status xci_device_encoders_run(xci_device_encoders *encoders, const xci_put_range *ranges,
                                       uint64_t first, uint64_t end, bool all);
/* For codecs that the host writes from lists: those of a group's blocks, while its range is booked
 * or, `joined`, once all of its ranges are; and, if the encoding asks for it, the chunks before the
 * change, else `*old_out` is NULL. Valid until the worker's next call. */
xorcast_status xci_device_encoders_list(xci_device_encoders *encoders, uint32_t worker,
                                        const xci_record *record, bool joined,
                                        xci_record *listed_out, const uint8_t *const **old_out);
/* Of a group that the device has encoded in both forms, whose plain record is `plain`: the record
 * beside the old weights. Likewise. */
xorcast_status xci_device_encoders_beside(xci_device_encoders *encoders, uint32_t worker,
                                          const xci_record *plain, xci_record *beside_out);

#endif
