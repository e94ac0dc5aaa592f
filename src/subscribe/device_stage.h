/* Staging for weights in device memory: blocks go there as they are, the device checks them against
 * the old words, and the host only books the results. stage.h says what stage does; this is its
 * other half. */
#ifndef XCI_DEVICE_STAGE_H
#define XCI_DEVICE_STAGE_H

#include "delta/device_load.h"
#include "subscribe/stage.h"

xorcast_status xci_device_stage_open(xci_stage *stage);
void xci_device_stage_close(xci_stage *stage);
/* Drops what is staged. */
void xci_device_stage_reset(xci_stage *stage);
/* After what is queued on the device's default stream. */
xorcast_status xci_device_stage_begin(xci_stage *stage);
/* The records of the stage's present parts, and where another device has their blocks, or NULL.
 * Work goes on behind the call. */
xorcast_status xci_device_stage_records(xci_stage *stage, xci_device_side *side);
/* Whether a record's blocks came from there. */
bool xci_device_stage_elsewhere(const xci_stage *stage, const xci_record *record);
/* Until everything is checked and listed. */
xorcast_status xci_device_stage_finish(xci_stage *stage);
/* Who decoded what is staged, and why. */
void xci_device_stage_decoding(const xci_stage *stage, xorcast_decoding *decoding_out);

#endif
