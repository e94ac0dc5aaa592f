/* The kernels of the CUDA backend, as C functions that put work on a stream: one .cu file for each
 * operation. Everything they touch is in device memory (or in pinned host memory where the text
 * says so) and is prepared by others; launchers allocate nothing, wait for nothing and give the
 * launch's cudaError_t as an int, 0 for success.
 *
 * A grid is described once, when a bundle is sealed: one xci_cuda_chunk for each chunk, in the
 * order of the bundle. Where the bytes of chunk i are is said by a separate table of addresses,
 * so that old, new and live weights share the description. */
#ifndef XCI_CUDA_KERNELS_H
#define XCI_CUDA_KERNELS_H

#include <stdint.h>

#include "xorcast.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Consecutive words of a chunk that belong to one tensor: as xci_segment. */
typedef struct xci_cuda_segment {
    uint64_t key; /* digest key of the segment's first word; the next word's is STRIDE more */
    uint32_t offset, bytes;
} xci_cuda_segment;

typedef struct xci_cuda_chunk {
    uint32_t bytes, element_bytes;
    /* in the grid's table of segments; rising, none overlap, may be 0 in number */
    uint32_t segment_first, segment_count;
} xci_cuda_chunk;

/* A rectangle of a chunk's bytes that lies in memory of its own: row r (r < row_count) is the
 * bytes [offset + r * stride, + width) of the chunk, at `at` + r * pitch. There is at least one
 * row. Rows begin at multiples of 8 and end at one, or where nothing else of that word has a
 * place: at the end of the chunk or of a small tensor. One contiguous chunk is one window of one
 * row. */
typedef struct xci_cuda_window {
    uint8_t *at;
    uint64_t pitch;
    uint32_t offset, stride, width, row_count;
} xci_cuda_window;

/* Where the bytes of each chunk are: `direct[i]` if they lie in one piece, else NULL, and then in
 * windows [window_first[i - b], window_first[i - b + 1]), b the first chunk that the table has, in
 * rising order of `offset`. Bytes in no window
 * are nowhere: skipped. Bytes in several (replicas) are the same in all; they are read from the
 * first and written to all. */
typedef struct xci_cuda_places {
    uint8_t *const *direct;
    const uint32_t *window_first; /* NULL: every chunk is direct */
    const xci_cuda_window *windows;
    uint64_t window_base; /* chunks before it are direct, and not in window_first */
} xci_cuda_places;

typedef struct xci_cuda_grid {
    const xci_cuda_chunk *chunks;
    const xci_cuda_segment *segments;
    uint64_t chunk_count;
    uint32_t chunk_bytes; /* the largest chunk */
} xci_cuda_grid;

/* What encoding or checking a chunk came to. */
typedef struct xci_cuda_result {
    uint32_t block_bytes;  /* 0: nothing changed */
    uint32_t block_codec;  /* XORCAST_CODEC_RAW or XORCAST_CODEC_LZ4 */
    uint32_t bytes_changed, elements_changed;
    uint64_t bits_changed;
    xorcast_digest change; /* terms of new minus terms of old */
    uint64_t block_offset; /* of encode: in the output */
    int32_t status;        /* XORCAST_OK, DATA_CORRUPT; of encode: BUFFER_TOO_SMALL */
    union {
        uint32_t list_bytes; /* of check: as a list (xci_cuda_prepare); 0: it becomes none */
        uint32_t moved;      /* of encode: 1: old has become new */
    };
} xci_cuda_result;

/* ---- Encode: old and new to LZ4 blocks, byte for byte those of the CPU backend ------------------
 * Chunks [first, first + count) of the grid. Old and new are direct everywhere (packed chunks are
 * gathered before), of any alignment, and each byte is read once, unless a block has to be raw
 * in spite of zero runs or is larger than a warp's part of the scratch (that holds blocks of chunks
 * of 64 KiB), and nothing outside the chunk. Fastest where both are aligned to 16 bytes; else it
 * takes half as long again.
 * Blocks are written one behind the other in the order of the chunks, from `blocks` on; *used_bytes
 * is where they end. If they need more than `capacity`, *used_bytes says how much that is, blocks
 * that end behind `capacity` are not written and their status is BUFFER_TOO_SMALL; all else in the
 * results holds.
 * With `move`, old becomes new while both are on the chip, which costs a fraction of doing it by
 * the blocks afterwards. What the results call `moved` is new, all other chunks are as they were:
 * those whose blocks are not written, those that must be read twice (above), and those whose blocks
 * might need more than a warp's part of the scratch. */
typedef struct xci_cuda_encode_call {
    xci_cuda_grid grid;
    uint8_t *const *old_at; /* device or pinned host memory */
    const uint8_t *const *new_at;
    uint64_t first, count;
    uint32_t codec;         /* XORCAST_CODEC_RAW or XORCAST_CODEC_LZ4 */
    uint32_t move;          /* 1: old becomes new */
    uint8_t *blocks;
    uint64_t capacity;
    xci_cuda_result *results; /* `count` */
    uint64_t *used_bytes;
    uint8_t *scratch;         /* xci_cuda_encode_scratch bytes */
    uint64_t scratch_bytes;
} xci_cuda_encode_call;
/* For calls of up to `count` chunks of up to `chunk_bytes`. At most 192 MiB; aligned to 256. With
 * less, down to some 32 KiB and 8 bytes a chunk, a call gives the same and takes longer. */
uint64_t xci_cuda_encode_scratch(uint64_t count, uint32_t chunk_bytes);
int xci_cuda_encode(const xci_cuda_encode_call *call, void *stream);

/* ---- Check, prepare and apply: LZ4 blocks of the zero-run profile, or raw, to weights -----------
 * A block is one chunk's. check reads foreign bytes: it walks the block with every bounds check
 * and, where the chunk has a place, reads the old words at changed positions. A damaged block has
 * status DATA_CORRUPT and counts of 0. prepare makes lists of checked LZ4 blocks where they lie,
 * which apply takes two to four times faster; it may be left out. apply XORs in place; blocks have
 * passed check. It is its own inverse. If `gate` is not NULL and *gate is not 0 on the device when
 * the work begins, apply does nothing. *progress (device, may be NULL) grows by the number of
 * blocks when apply has finished them.
 *
 * Whatever a block holds, checked or not, nothing outside its chunk's places is written. */
typedef struct xci_cuda_block {
    const uint8_t *bytes;
    uint32_t block_bytes, block_codec;
    uint64_t chunk; /* of the grid */
} xci_cuda_block;

typedef struct xci_cuda_block_call {
    xci_cuda_grid grid;
    xci_cuda_places places;
    const xci_cuda_block *blocks; /* device memory; what they point to is 16-byte aligned and may
                                     be read up to 16 bytes beyond each block's end */
    uint64_t count;
    xci_cuda_result *results; /* of check: `count`, in device or pinned host memory */
    /* What check notes for prepare, `count`, in device memory; NULL: there will be no prepare. */
    uint32_t *notes;
    uint32_t *any_bad; /* device or pinned: check makes it 1 if a block is damaged; or NULL */
    const uint32_t *gate;
    uint64_t *progress;
} xci_cuda_block_call;
/* A list holds the changed bytes one by one, 4 bytes each: position << 8 | mask, positions
 * rising. It has never more bytes than the LZ4 block that it replaces. Only prepare makes one:
 * check refuses them, so none comes from elsewhere. */
#define XCI_CUDA_CODEC_LIST 0x100u

int xci_cuda_check(const xci_cuda_block_call *call, void *stream);
/* For blocks that check was given: rewrites bytes, size and codec of those that have list_bytes, in
 * `blocks` and in what they point to; leaves the others, lists and damaged ones too. */
int xci_cuda_prepare(const xci_cuda_block_call *call, void *stream);
/* check and prepare of LZ4 blocks that something else has decoded: of block i of the call, which is
 * any LZ4 block and was walked to its end before, the mask lies at masks + i * stride, 16-byte
 * aligned, and decoded[2 * i] says how many bytes of it were written. Another number than the
 * chunk's is DATA_CORRUPT. The others become lists where these have no more bytes than the block;
 * what does not stays as it is. `gate` and `progress` do not matter. */
typedef struct xci_cuda_mask_call {
    xci_cuda_block_call of;
    const uint8_t *masks;
    uint64_t stride;
    const uint32_t *decoded;
} xci_cuda_mask_call;
int xci_cuda_check_masks(const xci_cuda_mask_call *call, void *stream);
int xci_cuda_apply(const xci_cuda_block_call *call, void *stream);

/* ---- Gap: groups of chunks to gap blocks and parameters, byte for byte those of the CPU ---------
 * Chunks [first, first + count) of the grid, which are whole groups: group_first has the first
 * chunk of each, and where the last one ends. Old and new as for encode; chunks that have to be
 * raw, and those of which more than one word in six changes, are read several times.
 *
 * A group's payload, blocks and then parameters, lies at its `offset` of the output, and groups
 * follow each other there. In results block_offset counts from the group's; a chunk has changed if
 * bytes_changed is not 0: a block may be empty. If all need more than `capacity`, `used` says how
 * much, and groups that end behind it are not written; all else holds. Beside the old weights it
 * says UINT64_MAX, and nothing else of the results but counts and digests holds, if the scratch is
 * too small for so many changes.
 *
 * With `prices` each chunk takes the codec that is cheapest for it, as delta/auto_group_writer.c
 * chooses without a second pass: raw, LZ4 and Snappy blocks stand among those of gap. */
typedef struct xci_cuda_gap_group {
    uint64_t offset;
    uint32_t bytes; /* of the payload, parameters included */
    uint32_t params_bytes;
    uint32_t lz4_bytes; /* of its changed chunks in LZ4, or raw; with prices */
    uint32_t reserved;
} xci_cuda_gap_group;

typedef struct xci_cuda_gap_used {
    uint64_t bytes;      /* of all payloads */
    uint64_t list_bytes; /* of the scratch, that would have taken all lists, and all records */
} xci_cuda_gap_used;

/* As xci_prices (delta/choice.h); `weights` of gap are those of the form that is made. */
typedef struct xci_cuda_prices {
    uint64_t wire; /* 0: gap alone, and raw where that is not smaller */
    uint64_t weights[5];
} xci_cuda_prices;

typedef struct xci_cuda_gap_encode_call {
    xci_cuda_grid grid;
    uint8_t *const *old_at; /* device or pinned host memory */
    const uint8_t *const *new_at;
    const uint64_t *group_first; /* device memory, group_count + 1 */
    uint64_t first, count, group_count;
    uint8_t *blocks;
    uint64_t capacity;
    xci_cuda_result *results;   /* `count` */
    xci_cuda_gap_group *groups; /* `group_count` */
    xci_cuda_gap_used *used;
    uint8_t *scratch; /* aligned to 256 */
    /* xci_cuda_gap_scratch, and what there is for lists of changed words, 12 bytes each, and beside
     * the old weights for records of changes, 8. What finds no room is looked for again. */
    uint64_t scratch_bytes;
    uint32_t beside; /* 1: the form beside the old weights */
    /* 1: scratch and results are those of a call for the same chunks before it, which had the same
     * prices but for those of gap */
    uint32_t listed;
    xci_cuda_prices prices;
    const xci_cuda_result *other; /* of xci_cuda_gap_move */
} xci_cuda_gap_encode_call;
uint64_t xci_cuda_gap_scratch(uint64_t count, uint64_t group_count, uint32_t chunk_bytes);
int xci_cuda_gap_encode(const xci_cuda_gap_encode_call *call, void *stream);
/* Old becomes new in the chunks of the groups that a call has written, of which these are the
 * scratch and the results; nothing has used the scratch since, but calls that were `listed`. Groups
 * that did not fit stay as they were, in the results of `other` too, which are those of another
 * form, or NULL. The results say of each changed chunk whether it was `moved`. */
int xci_cuda_gap_move(const xci_cuda_gap_encode_call *call, void *stream);

/* ---- Gap blocks, when they are staged -----------------------------------------------------------
 * check decodes foreign blocks with every bounds check, reads the old words at changed positions
 * and says what device-ready form each takes: `list_bytes` of a list, or a raw mask where that is
 * not longer (block_codec says which). No such form for a block that changes nothing. ready decodes
 * them again and writes it. What a block needs beside its own bytes are its record's parameters.
 *
 * A damaged block, or one of a record with damaged parameters, has status DATA_CORRUPT; one that is
 * decoded beside the old weights has UNSUPPORTED if `beside` is 0 or its chunk is not direct. */
typedef struct xci_cuda_gap_block {
    const uint8_t
        *bytes;     /* of any alignment; nothing else is read but what shares 4 of its bytes */
    uint8_t *ready; /* where its form goes: 16-byte aligned, list_bytes rounded up to 16 */
    uint64_t chunk; /* of the grid */
    uint32_t block_bytes;
    uint32_t ordinal; /* among the record's gap blocks, in order, those not in the table too */
} xci_cuda_gap_block;

typedef struct xci_cuda_gap_record {
    const uint8_t *params;
    uint64_t first; /* of its blocks in the table */
    uint32_t params_bytes;
    uint32_t count;     /* of its blocks in the table */
    uint32_t gap_count; /* of its gap blocks */
    uint32_t reserved;
} xci_cuda_gap_record;

typedef struct xci_cuda_gap_call {
    xci_cuda_grid grid;
    xci_cuda_places places;
    const xci_cuda_gap_block *blocks; /* device memory, as all that follows */
    const xci_cuda_gap_record *records;
    xci_cuda_result *results; /* one a block */
    uint64_t record_count;
    uint32_t most_tables; /* of a record: the first byte of its parameters, at most 32 */
    uint32_t most_params; /* bytes of a record's */
    uint32_t beside;      /* 1: the bytes that places name are the base's */
} xci_cuda_gap_call;
int xci_cuda_gap_check(const xci_cuda_gap_call *call, void *stream);
/* For blocks that `results` of check call good and give a form. */
int xci_cuda_gap_ready(const xci_cuda_gap_call *call, void *stream);

/* ---- Digest: a full scan ------------------------------------------------------------------------
 * Sum of the terms of all segments' words of chunks [first, first + count), one digest a chunk. */
typedef struct xci_cuda_digest_call {
    xci_cuda_grid grid;
    xci_cuda_places places;
    uint64_t first, count;
    xorcast_digest *digests; /* `count` */
} xci_cuda_digest_call;
int xci_cuda_digest(const xci_cuda_digest_call *call, void *stream);

/* ---- Copies between places and one piece --------------------------------------------------------
 * Chunk i of [first, first + count) from its place to pieces[i - first], or back. Gathered bytes
 * that are nowhere are zero. */
typedef struct xci_cuda_copy_call {
    xci_cuda_grid grid;
    xci_cuda_places places;
    uint64_t first, count;
    uint8_t *const *pieces;
} xci_cuda_copy_call;
int xci_cuda_gather(const xci_cuda_copy_call *call, void *stream);
int xci_cuda_scatter(const xci_cuda_copy_call *call, void *stream);
/* Pieces of any length and alignment; sources and targets do not overlap. `moves` in device
 * memory. */
typedef struct xci_cuda_move {
    const uint8_t *from;
    uint8_t *to;
    uint64_t bytes;
} xci_cuda_move;
int xci_cuda_copy_many(const xci_cuda_move *moves, uint64_t count, void *stream);
/* The same where all addresses and sizes are multiples of 16; sources may be memory of a GPU that
 * this one reaches, `moves` pinned host memory. */
int xci_cuda_copy_aligned(const xci_cuda_move *moves, uint64_t count, void *stream);
/* The same, but that the targets become the XOR of both. */
int xci_cuda_join_aligned(const xci_cuda_move *moves, uint64_t count, void *stream);

#ifdef __cplusplus
}
#endif

#endif
