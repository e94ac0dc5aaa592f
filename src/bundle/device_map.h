/* A bundle as its device knows it: the description of every chunk, and where its bytes are, in
 * device memory. Made once when a bundle is sealed, and for each twin that lies on the device; a
 * twin borrows the description. Owns these tables, not the weights. */
#ifndef XCI_DEVICE_MAP_H
#define XCI_DEVICE_MAP_H

#include "backend/device.h"
#include "bundle/bundle.h"

typedef struct xci_device_map {
    xorcast_context *context;
    xci_device_memory memory; /* of all tables below */
    xci_cuda_grid grid;       /* device addresses */
    xci_cuda_places places;   /* likewise */
    /* On the host: for each chunk, its device address if its bytes lie there in one piece. */
    uint8_t **direct;
} xci_device_map;

/* `described`: `bundle` itself, or the bundle whose twin it is. All regions have addresses: of
 * device memory, or of pinned host memory. */
xorcast_status xci_device_map_open(xorcast_bundle *bundle, const xorcast_bundle *described,
                                   xci_device_map **map_out);
/* Only of the chunks that are at home in share `index` of `whole` (bundle/shares.h), one behind the
 * other: they have places in `bundle`, which describes them. */
xorcast_status xci_device_map_open_home(xorcast_bundle *bundle, const xorcast_bundle *whole,
                                        uint32_t index, xci_device_map **map_out);
void xci_device_map_close(xci_device_map *map); /* NULL is allowed */

#endif
