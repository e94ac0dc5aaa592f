/* The operation table of a backend, and the jobs it works on. CPU and CUDA fill the same table and
 * must give the same bytes; tests run one list of cases on both.
 *
 * A job is one chunk. Jobs of a batch are independent. Operations never allocate.
 * Status of a job is set for each; the call itself fails only for the device. */
#ifndef XCI_BACKEND_H
#define XCI_BACKEND_H

#include "base/context.h"

/* Consecutive words of a chunk that belong to one tensor. A whole chunk has one segment; a packed
 * chunk one for each small tensor, beginning at a multiple of 8. A job's segments rise and
 * do not overlap; there may be none. Bytes in none of them are encoded and counted, but have no
 * digest. */
typedef struct xci_segment {
    uint32_t offset, bytes; /* in the chunk */
    /* digest key of the segment's first word; the next word's is STRIDE more */
    uint64_t key;
} xci_segment;

typedef struct xci_encode_job {
    const uint8_t *old_bytes, *new_bytes; /* `bytes` each, any alignment */
    uint32_t bytes;                       /* 1 .. 1 MiB */
    uint32_t element_bytes;               /* 1, 2, 4 or 8 */
    uint32_t codec;                       /* wanted: XORCAST_CODEC_... */
    uint32_t segment_count;
    const xci_segment *segments;
    uint8_t *block;                       /* room for `bytes` + XCI_BLOCK_SLACK */
    /* NULL, or the memory of old_bytes: it becomes new while both are in the cache */
    uint8_t *move;
    /* results */
    uint32_t block_bytes;                 /* 0: nothing changed */
    /* raw where the wanted codec is not smaller; for gap, whose blocks need the whole group, the
     * list of changed words (codec/words_block.h) or raw */
    uint32_t block_codec;
    uint32_t bytes_changed, elements_changed;
    uint64_t bits_changed;
    xorcast_digest change;                /* terms of new minus terms of old */
} xci_encode_job;
#define XCI_BLOCK_SLACK 64u

/* A block in device-ready form: raw, or LZ4 of the zero-run profile; of apply also a list that
 * check has made of one (codec/list_block.h). */
typedef struct xci_block_job {
    const uint8_t *block;
    uint32_t block_bytes, block_codec;
    uint32_t bytes;                       /* of the chunk */
    uint32_t segment_count;
    const xci_segment *segments;
    /* the chunk's live bytes: read by check, changed by apply */
    uint8_t *weights;
    /* of check: NULL, or XCI_LIST_ROOM(block_bytes) entries for the list of an LZ4 block. Of apply:
     * the list, if that is the block's codec; `block` is not looked at */
    uint32_t *list;
    uint32_t list_bytes; /* likewise; 0 after check: there is no list */
    /* results of check */
    xorcast_digest change;
    uint32_t bytes_changed, elements_changed;
    uint64_t bits_changed;
    uint32_t element_bytes;               /* in */
    xorcast_status status;                /* OK, DATA_CORRUPT */
} xci_block_job;

typedef struct xci_digest_job {
    const uint8_t *bytes_at;
    uint32_t segment_count;
    const xci_segment *segments;
    xorcast_digest digest;                /* result: sum of all terms */
} xci_digest_job;

typedef struct xci_backend {
    const char *name;
    /* Diff and encode: old and new to block, counts and digest change. */
    void (*encode)(xci_encode_job *jobs, uint64_t count);
    /* Walks a ready block with every bounds check and, if `weights` is not NULL, computes what
     * applying it would do to the digest. Changes nothing. */
    void (*check)(xci_block_job *jobs, uint64_t count);
    /* weights ^= mask. The block must have passed check: no status. Also its own inverse. */
    void (*apply)(const xci_block_job *jobs, uint64_t count);
    void (*digest)(xci_digest_job *jobs, uint64_t count);
} xci_backend;

/* By name; NULL for the best there is. NULL result: no such backend. */
const xci_backend *xci_backend_find(const char *name);

extern const xci_backend xci_backend_cpu;

#endif
