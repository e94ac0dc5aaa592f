/* Reads a delta from a source: manifest first, then its parts, each checked against its hash, and
 * their records. Bounded memory: one part at a time. */
#ifndef XCI_DELTA_READER_H
#define XCI_DELTA_READER_H

#include "base/pool.h"
#include "frame/manifest.h"
#include "frame/record.h"

typedef struct xci_delta_reader {
    xorcast_context *context;
    const xorcast_source *source;
    xci_manifest manifest;
    uint8_t *manifest_bytes;
    uint8_t *part_bytes; /* of the part read last, unless the source is in memory */
    uint64_t part_capacity, next_part, next_offset;
} xci_delta_reader;

/* Reads and checks head, foot and manifest. The source must outlive the reader. */
xorcast_status xci_delta_reader_open(xorcast_context *context, const xorcast_source *source,
                                     xci_delta_reader *reader);
void xci_delta_reader_close(xci_delta_reader *reader);
/* The next part's bytes, not checked; valid until the next call. There must be one: next_part <
 * part_count. */
xorcast_status xci_delta_reader_part(xci_delta_reader *reader, const uint8_t **bytes_out,
                                     uint64_t *count_out);

/* Passes `status` on. A failure that is the fault of the source's bytes, and that this thread
 * recorded last, gets the source's name in front, unless it has it. */
xorcast_status xci_source_blame(const xorcast_source *source, xorcast_status status);

/* Checks a part's bytes against its entry in the manifest. */
xorcast_status xci_part_check(xorcast_context *context, const xci_manifest *manifest,
                              uint64_t index, const uint8_t *bytes, uint64_t count);

/* The same for bytes whose hash is known. */
xorcast_status xci_part_compare(xorcast_context *context, const xci_manifest *manifest,
                                uint64_t index, uint64_t count, const xci_hash *hash);

/* The records of a part, parsed. `after` is the last group of the part before; UINT64_MAX: there is
 * none, or it is not known yet and xci_part_follows is called once it is. Groups must ascend. */
typedef struct xci_part_records {
    xci_record *records;
    uint64_t count, capacity_bytes;
    /* after a failure: the group that was being read, as far as it is known */
    uint64_t failed_group;
    xci_record_space space;
} xci_part_records;
xorcast_status xci_part_list(xorcast_context *context, const xci_manifest *manifest, uint64_t index,
                             const uint8_t *bytes, uint64_t count, uint64_t after,
                             xci_part_records *records);
/* DATA_CORRUPT unless the part's first group comes after `after`. */
xorcast_status xci_part_follows(xorcast_context *context, const xci_part_records *records,
                                uint64_t after);
/* As xci_part_list, with the records' checksums checked. */
xorcast_status xci_part_parse(xorcast_context *context, const xci_manifest *manifest,
                              uint64_t index, const uint8_t *bytes, uint64_t count, uint64_t after,
                              xci_part_records *records);
void xci_part_records_free(xorcast_context *context, xci_part_records *records);

/* The next part of a reader, checked and parsed. The records are valid until the next call. */
xorcast_status xci_delta_reader_records(xci_delta_reader *reader, uint64_t after,
                                        xci_part_records *records);

#endif
