/* What a keyframe does to weights in memory of one device, a share of a bundle: writes whole
 * groups, and applies blocks of the versions that appeared meanwhile. Keeps the digests of chunks
 * up to date, as the host's way does. One thread. */
#ifndef XCI_DEVICE_KEYFRAME_H
#define XCI_DEVICE_KEYFRAME_H

#include "delta/device_load.h"
#include "delta/device_scan.h"

typedef struct xci_device_keyframe {
    xorcast_context *context;
    xorcast_bundle *bundle;
    xorcast_digest *chunk_digests;
    xci_device_scanner scanner;
    xci_device_loader loader;
    void *stream;
    xci_device_memory pinned, device; /* of a group: its bytes, and where each chunk's are */
} xci_device_keyframe;

xorcast_status xci_device_keyframe_open(xci_device_keyframe *keyframe, xorcast_bundle *bundle,
                                        xorcast_digest *chunk_digests);
void xci_device_keyframe_close(xci_device_keyframe *keyframe);

/* The chunks of a group, one behind the other; the digests of what the share holds are added to
 * theirs. */
xorcast_status xci_device_keyframe_write(xci_device_keyframe *keyframe, uint64_t group,
                                         const uint8_t *bytes);
/* Records of one delta, all of a step that their groups have not seen. */
xorcast_status xci_device_keyframe_apply(xci_device_keyframe *keyframe, const xci_record *records,
                                         uint64_t count);

#endif
