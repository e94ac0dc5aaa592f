/* A loader's records on their way to the device: blocks to a slot's payload, aligned and
 * device-ready, and their entries to its table. Called from the pool, for different records at a
 * time. */
#ifndef XCI_DEVICE_LOAD_RECORD_H
#define XCI_DEVICE_LOAD_RECORD_H

#include "delta/device_load.h"

/* Of blocks; and as much may be read behind the last one. */
#define XCI_LOAD_ALIGNMENT XCI_RECORD_ALIGNMENT
#define XCI_LOAD_SKIPPED UINT64_MAX /* in place of an entry's chunk: nothing to do */

/* What a block takes at most once it is device-ready, and the blocks of a record. `loose`: they may
 * take less, which is known once they are loaded. */
uint64_t xci_load_block_room(const xorcast_bundle *bundle);
uint64_t xci_load_record_room(const xci_device_loader *loader, const xci_record *record,
                              bool *loose_out);

/* The item's record: its blocks to their places, or, if they come from another device, only their
 * entries. */
xorcast_status xci_load_record(xci_device_loader *loader, xci_load_slot *slot,
                               const xci_load_item *item, uint32_t worker_index);

/* Makes an LZ4 block that no device takes device-ready in the worker's memory; 0 bytes if it
 * changes nothing. */
xorcast_status xci_load_make_ready(xci_load_worker *worker, xorcast_bundle *bundle,
                                   const xci_chunk *chunk, uint32_t codec, const uint8_t *bytes,
                                   uint32_t count, uint32_t *ready_bytes, uint32_t *ready_codec);
/* There is nothing to do for a chunk. */
xorcast_status xci_load_skip(xci_load_slot *slot, xci_cuda_block *entry);
/* DATA_CORRUPT that names the chunk. */
xorcast_status xci_load_bad_chunk(xorcast_bundle *bundle, uint64_t chunk, const char *what);

#endif
