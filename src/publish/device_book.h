/* Pieces that were received become records of the version, those of all devices side by side in the
 * pool; then the shadow follows, and blocks go to where they stay for subscribers of the process.
 */
#ifndef XCI_DEVICE_BOOK_H
#define XCI_DEVICE_BOOK_H

#include "publish/device_encode.h"
#include "publish/device_lists.h"

/* Books the oldest piece of each of the encoders, all of which were awaited, then takes records to
 * their parts; the slots are free afterwards. */
xorcast_status xci_device_book(xci_pending *pending, xci_device_encoder *const *encoders,
                               uint32_t count);

/* While groups are booked, for codecs that the host writes: which of an encoder's chunks the shadow
 * has as they were. `joined`: the group's ranges have all been booked. */
xci_local_span xci_device_unmoved(const xci_device_encoder *encoder, bool joined);
/* Makes the plain record of a group that the device has encoded in both forms the one beside the
 * old weights; its blocks are changed in place. */
void xci_device_take_beside(const xci_device_encoder *encoder, xci_record *record);

#endif
