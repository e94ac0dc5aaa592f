/* Bundles: the weights as one ordered set of tensors, where their bytes live, and the chunk grid
 * over them.
 *
 * Order: by name. Grid: tensors of SMALL bytes or more are cut into chunks, in order ("whole"
 * chunks, all of one tensor); smaller ones are packed after them, by element width and then in
 * order, each at a multiple of 8 bytes ("packed" chunks). Neighbouring chunks of one kind form
 * groups of group_bytes or a little more. docs/format.md, "Grid", is the law.
 *
 * Owns names, shapes and the grid. Does not own the bytes of tensors, open files included. */
#ifndef XCI_BUNDLE_H
#define XCI_BUNDLE_H

#include "backend/backend.h"
#include "backend/device.h"
#include "base/context.h"

#define XCI_SMALL_BYTES 4096u
#define XCI_CHUNK_BYTES_DEFAULT (UINT64_C(64) << 10)
#define XCI_CHUNK_BYTES_MIN (UINT64_C(16) << 10)
#define XCI_CHUNK_BYTES_MAX (UINT64_C(1) << 20)
#define XCI_GROUP_BYTES_DEFAULT (UINT64_C(4) << 20)
#define XCI_GROUP_BYTES_MIN (UINT64_C(1) << 20)
#define XCI_GROUP_BYTES_MAX (UINT64_C(64) << 20)
#define XCI_NAME_MAX 1023u
#define XCI_DTYPE_MAX 15u
#define XCI_RANK_MAX 16u
#define XCI_TENSORS_MAX                                                                            \
    (UINT64_C(1) << 24) /* 80 times the largest model known; bounds foreign counts */

typedef enum xci_kind {
    /* The first two have addresses. */
    XCI_KIND_HOST,
    XCI_KIND_DEVICE, /* `data` is an address on `device` */
    XCI_KIND_FILE,   /* read in pieces with pread: no mapping to be cut under our feet */
    /* bytes that are all zero and stand nowhere: the base of a tensor that is sent whole */
    XCI_KIND_ZERO
} xci_kind;

/* A box of a tensor and where it lives. */
typedef struct xci_region {
    uint64_t row, row_count, column, column_bytes, pitch_bytes;
    xci_kind kind;
    bool replica;
    uint8_t *data;      /* HOST, DEVICE */
    struct xci_file *file; /* FILE: the caller's */
    uint64_t offset;    /* FILE: of the box's first byte */
    int32_t device;     /* DEVICE: its number */
} xci_region;

typedef struct xci_tensor {
    const char *name, *dtype;
    const uint64_t *shape;
    uint32_t rank, element_bytes;
    uint64_t bytes, row_bytes;
    uint64_t key;         /* digest key of word 0 */
    /* of a small tensor: the packed chunk it lies in; of an empty one: undefined */
    uint64_t first_chunk;
    xci_region *regions;
    uint32_t region_count;
    bool simple;          /* one region that holds the whole tensor without gaps */
    bool counted;         /* every byte is in a region that is no replica */
} xci_tensor;

typedef struct xci_alias { const char *name, *target; uint64_t tensor; } xci_alias;

struct xorcast_bundle {
    xorcast_context *context;
    struct xci_arena *arena;
    xci_tensor *tensors; /* by name once sealed */
    uint64_t tensor_count, tensors_capacity; /* the latter in bytes */
    xci_alias *aliases;  /* by name once sealed */
    uint64_t alias_count, aliases_capacity; /* likewise */
    bool sealed, complete; /* complete: every tensor is counted */
    bool on_device;        /* all tensors lie in device memory */
    xci_device_stretch owned;   /* where the tensor that was added last lies */
    /* Then, once sealed, what lies on each device (shares.h); */
    xorcast_bundle **shares;
    uint32_t share_count;
    uint8_t *homes;        /* for each chunk; NULL: there is one share */
    uint64_t *locals;      /* likewise: how many chunks before it have the same home */
    uint64_t *home_counts; /* for each share, how many chunks are at home there */
    /* of a share: the grid as the context's device has it, and where its chunks are */
    struct xci_device_map *map;
    uint32_t chunk_log2;
    uint64_t group_bytes;
    xorcast_layout layout;

    uint64_t *whole;       /* indices of tensors with whole chunks, ascending */
    uint64_t whole_count, whole_chunk_count;
    uint64_t *packed;      /* indices of small tensors in packing order, and for each */
    xci_segment *segments; /* its place in its chunk; `bytes` not padded */
    uint64_t packed_count;
    /* for each packed chunk, the first of its tensors in `packed`; one more at the end */
    uint64_t *packed_first;
    uint64_t *group_first;  /* for each group, its first chunk; one more at the end */
    uint64_t group_chunks_max, group_size_max; /* of the group with most */
    /* not NULL: a twin (twin.c), which borrows all but `tensors` and `regions` */
    const xorcast_bundle *twin;
    xci_region *regions;        /* of a twin, one for each tensor */
    /* Of a twin: packed chunks as deltas have them, padding included, each chunk_bytes after the
     * one before, so that they need not be gathered. */
    uint8_t *packed_data;
};

/* One chunk as work is done on it. `segments` are the words that this bundle counts; of a chunk
 * that is not covered by boxes there are none. Points into the bundle or to `own`: do not copy the
 * struct. */
typedef struct xci_chunk {
    uint64_t index, tensor, offset; /* packed: the first tensor, and 0 */
    uint32_t bytes, element_bytes;
    bool packed;
    uint32_t segment_count;
    const xci_segment *segments;
    const uint64_t *tensors; /* packed: one for each entry of the chunk */
    uint32_t tensor_count;   /* packed: how many */
    const xci_segment *places; /* packed: where each of `tensors` lies */
    xci_segment own;
    /* place of `tensor` in the bundle's list of whole tensors, for the next chunk */
    uint64_t whole;
} xci_chunk;

/* How many segments a chunk of this bundle can have: what `space` of xci_bundle_chunk must hold. 0
 * when every tensor is complete: `space` may be NULL then. */
uint64_t xci_bundle_segment_space(const xorcast_bundle *bundle);
void xci_bundle_chunk(const xorcast_bundle *bundle, uint64_t chunk, xci_segment *space,
                      xci_chunk *chunk_out);
/* As xci_bundle_chunk without the segments that are counted: for reading and writing its bytes
 * only. */
void xci_bundle_chunk_places(const xorcast_bundle *bundle, uint64_t chunk, xci_chunk *chunk_out);
/* The chunk after, without a search. There must be one. */
void xci_bundle_next_chunk(const xorcast_bundle *bundle, xci_segment *space, xci_chunk *chunk);
uint32_t xci_bundle_chunk_bytes(const xorcast_bundle *bundle, uint64_t chunk);
static inline uint64_t xci_packed_chunk_count(const xorcast_bundle *bundle) {
    return bundle->layout.chunk_count - bundle->whole_chunk_count;
}
/* The tensor of a whole chunk; the first of a packed one. */
uint64_t xci_bundle_tensor_of(const xorcast_bundle *bundle, uint64_t chunk);
uint64_t xci_bundle_group_of(const xorcast_bundle *bundle, uint64_t chunk);
/* Bytes of all chunks of a group, padding of packed ones included. */
uint64_t xci_bundle_group_size(const xorcast_bundle *bundle, uint64_t group);
/* Does this bundle hold any byte of the chunk? */
bool xci_bundle_holds(const xorcast_bundle *bundle, uint64_t chunk);

/* The chunk's bytes where they lie in one piece of host memory, or NULL. */
uint8_t *xci_chunk_direct(const xorcast_bundle *bundle, const xci_chunk *chunk);
/* The chunk's bytes, where they lie or gathered into `scratch` (chunk->bytes); what no region
 * holds is zero. Bytes in device memory are fetched, a copy for each piece: whoever reads many of
 * them works on the device instead. */
xorcast_status xci_chunk_read(xorcast_bundle *bundle, const xci_chunk *chunk, uint8_t *scratch,
                              const uint8_t **bytes_out);
/* Writes the chunk's bytes to all regions, replicas too. Host memory only. */
void xci_chunk_write(xorcast_bundle *bundle, const xci_chunk *chunk, const uint8_t *bytes);
/* Part of one tensor into `out`. */
xorcast_status xci_tensor_read(xorcast_bundle *bundle, uint64_t tensor, uint64_t offset,
                               uint64_t count, uint8_t *out);
/* Tensor and chunk in words, for messages: "tensor model.norm.weight, chunk 7". Returns `text`. */
const char *xci_chunk_words(const xorcast_bundle *bundle, uint64_t chunk, char *text,
                            size_t text_bytes);

/* As xorcast_bundle_add for bytes that lie in a file from `offset` on, or nowhere (NULL: zeros).
 * The file must outlive the bundle. */
xorcast_status xci_bundle_add_file(xorcast_bundle *bundle, const xorcast_tensor *tensor,
                                   struct xci_file *file, uint64_t offset);

/* A sealed bundle of the same layout over other host memory: each tensor simple, its bytes at
 * regions[t].data, NULL at first. It must not outlive `bundle`. */
xorcast_status xci_bundle_twin(xorcast_bundle *bundle, xorcast_bundle **twin_out);
/* Gives every tensor of a twin, or only the small ones, its place in one new block of memory,
 * zeroed; the caller's to release. */
xorcast_status xci_twin_allocate(xorcast_bundle *twin, bool only_small, void **memory_out);
/* The same in two steps: how much memory it takes, and the places in memory that is there. */
uint64_t xci_twin_bytes(const xorcast_bundle *twin, bool only_small);
void xci_twin_place(xorcast_bundle *twin, bool only_small, uint8_t *memory);

/* LAYOUT_MISMATCH that names the first difference, unless the fingerprints are equal. */
xorcast_status xci_bundle_same_layout(xorcast_bundle *a, xorcast_bundle *b);
/* BAD_STATE unless sealed. */
xorcast_status xci_bundle_need_sealed(xorcast_bundle *bundle);

#endif
