/* Records: the changed chunks of one group, encoded, with which they are, a checksum and perhaps a
 * second pass. The unit of checksum and of parallel decoding. docs/format.md, "Group record", is
 * the law.
 *
 * Knows bytes and limits. Does not know tensors: it checks what can be checked without a bundle. */
#ifndef XCI_RECORD_H
#define XCI_RECORD_H

#include "base/bytes.h"
#include "base/context.h"

#define XCI_RECORD_CHUNKS_MAX 32768u /* a 64 MiB group of 4 KiB tensors has 16,640 */

typedef struct xci_block {
    uint32_t chunk; /* within its group */
    uint32_t codec, element_bytes;
    uint32_t bytes; /* encoded */
    uint32_t chunk_bytes; /* where it is known: by writers, and of gap blocks that were read */
} xci_block;

typedef struct xci_record {
    uint64_t group;
    bool second_pass;
    uint32_t block_count;
    xci_block *blocks;      /* ascending chunks */
    uint64_t raw_bytes;     /* of all blocks, and of the parameters behind them */
    uint64_t params_bytes;  /* of the gap codec; 0: no block is of it */
    bool encoded; /* listed for a group writer: already as it is written, but for the pass */
    uint64_t lz4_bytes; /* so encoded in `auto`: of all blocks in LZ4 */
    /* of the payload as it stands: after the second pass if there was one */
    uint64_t stored_bytes;
    const uint8_t *payload;
    /* of a record that was read */
    const uint8_t *head;
    uint32_t head_bytes, checksum;
    uint32_t codecs; /* of the blocks: 1 << codec for each that occurs */
    uint64_t aligned_bytes; /* of the blocks, each rounded up to XCI_RECORD_ALIGNMENT */
} xci_record;

#define XCI_RECORD_ALIGNMENT 16u /* of blocks on a device */

/* Room for blocks: records that are read append theirs. Set `used` to 0 to begin anew. */
typedef struct xci_record_space {
    xci_block *blocks;
    uint64_t capacity_bytes, used;
} xci_record_space;
void xci_record_space_free(xorcast_context *context, xci_record_space *space);

/* What a foreign record may not exceed. */
typedef struct xci_record_limits {
    uint64_t group_count;
    uint64_t chunk_bytes;
    uint64_t raw_bytes; /* of one group */
} xci_record_limits;

/* Reads one record; advances the reader. DATA_TRUNCATED, DATA_CORRUPT, DATA_LIMIT. Its checksum is
 * not looked at: that can be done by many threads. `record_out` points into the reader's bytes and
 * into `space`, whose blocks may move when the next record is read. */
xorcast_status xci_record_read(xorcast_context *context, xci_reader *reader,
                               const xci_record_limits *limits, xci_record_space *space,
                               xci_record *record_out);

/* DATA_CORRUPT if the checksum of a record that was read does not fit. */
xorcast_status xci_record_check(xorcast_context *context, xci_place place,
                                const xci_record *record);

/* Most bytes that the head of a record with so many blocks can take. */
uint64_t xci_record_head_bound(uint64_t block_count);
/* Writes the head of `record`, checksum included; returns its bytes. The payload follows it. */
uint64_t xci_record_write_head(const xci_record *record, uint8_t *out);
/* The same in two steps, for a payload that is not at its place yet: a head without its checksum,
 * of the same size, and the checksum. */
uint64_t xci_record_write_open(const xci_record *record, uint8_t *out);
void xci_record_close(uint8_t *head, uint64_t head_bytes, const uint8_t *payload,
                      uint64_t payload_bytes);

#endif
