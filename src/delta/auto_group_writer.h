/* A group's changed chunks in the codec `auto`: each in the codec that is cheapest for it, and
 * the whole group through the second pass where that is. One for each group writer. */
#ifndef XCI_AUTO_GROUP_WRITER_H
#define XCI_AUTO_GROUP_WRITER_H

#include "codec/second_pass.h"
#include "delta/choice.h"
#include "delta/gap_group_writer.h"

typedef struct xci_auto_group_writer xci_auto_group_writer;

xorcast_status xci_auto_group_writer_open(xorcast_context *context, const xci_prices *prices,
                                          xci_auto_group_writer **writer_out);
void xci_auto_group_writer_close(xorcast_context *context, xci_auto_group_writer *writer);

/* As xci_gap_group_write. The second pass is tried with `zstd` unless that is NULL; the record
 * says whether it was taken. */
xorcast_status xci_auto_group_write(xorcast_context *context, xci_auto_group_writer *writer,
                                    xci_zstd_encoder *zstd, const xci_record *listed,
                                    const uint8_t *const *old, xci_record *record_out);

/* The same in two steps: each block in the codec that is cheapest for it, then the second pass of
 * that or of each codec alone. A device does the first. `mixed` is of either form, `plain` the
 * group's plain form, after the first step too. */
xorcast_status xci_auto_group_mix(xorcast_context *context, xci_auto_group_writer *writer,
                                  const xci_record *listed, const uint8_t *const *old,
                                  xci_record *record_out);
xorcast_status xci_auto_group_pack(xorcast_context *context, xci_auto_group_writer *writer,
                                   xci_zstd_encoder *zstd, const xci_record *mixed,
                                   const xci_record *plain, xci_record *record_out);

#endif
