/* The parameters of a group in the gap codec, as they are read: shapes, tables, and which shape
 * each chunk has. Read once for a group, then any number of threads decode its chunks.
 *
 * Owns the checking of everything that foreign parameters say. */
#ifndef XCI_GAP_GROUP_H
#define XCI_GAP_GROUP_H

#include "codec/gap_format.h"

typedef struct xci_gap_place {
    uint32_t chunk_bytes; /* 0: the block is of another codec */
    uint32_t shape;
} xci_gap_place;

typedef struct xci_gap_table {
    uint32_t width, head;
    xci_prefix_table prefix;
} xci_gap_table;

typedef struct xci_gap_group {
    uint32_t table_count, shape_count;
    xci_gap_shape shapes[XCI_GAP_SHAPES];
    xci_gap_table tables[XCI_GAP_TABLES];
    xci_gap_place places[XCI_GAP_BLOCKS]; /* of each block of the record */
    uint32_t sizes[XCI_GAP_BLOCKS];       /* that chunks have, while places are read */
    uint8_t is_gap[XCI_GAP_BLOCKS];       /* set by the caller: which blocks are of this codec */
} xci_gap_group;

/* Reads `bytes` of parameters, all of them, of a record with `block_count` blocks, at most
 * XCI_GAP_BLOCKS. False: they are damaged. */
bool xci_gap_group_read(xci_gap_group *group, const uint8_t *at, uint64_t bytes,
                        uint32_t block_count);

static inline bool xci_gap_knows_old(const xci_gap_group *group, uint32_t index) {
    return group->shapes[group->places[index].shape].knows_old;
}

/* Decodes block `index` of the record into the mask of its chunk, places[index].chunk_bytes.
 * `old` is the chunk before the change, read only if the block's shape knows it. False: the
 * block is damaged; `mask` is rubbish then. */
bool xci_gap_decode(const xci_gap_group *group, uint32_t index, const uint8_t *block,
                    uint64_t block_bytes, const uint8_t *old, uint8_t *mask);

/* The same XORed into `bytes_at`: the mask if that is all zeros, or weights, which are rubbish
 * if the block is damaged. `old` must not overlap it. */
bool xci_gap_change_by(const xci_gap_group *group, uint32_t index, const uint8_t *block,
                       uint64_t block_bytes, const uint8_t *old, uint8_t *bytes_at);

/* The same for a block that knows the old weights (gap_old.c). */
bool xci_gap_decode_old(const xci_gap_group *group, const xci_gap_shape *shape, xci_reader *block,
                        const uint8_t *old, uint8_t *mask, uint32_t bytes);

#endif
