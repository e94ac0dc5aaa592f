/* Device maps: see device_map.h. The tables are made in host memory, in one block laid out as the
 * device gets it, and copied at once. */
#include "bundle/device_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "bundle/shares.h"
#include "bundle/spans.h"

/* How many entries the tables have; filled by a first pass over the chunks. */
typedef struct map_sizes {
    uint64_t segments, windows;
} map_sizes;

/* Where each table begins in the block. */
typedef struct map_layout {
    uint64_t chunks, segments, direct, window_first, windows, bytes;
} map_layout;

typedef struct map_build {
    xorcast_bundle *bundle;
    const xorcast_bundle *described;
    const xorcast_bundle
        *whole; /* NULL: of all chunks, or of those at home in one of its shares: */
    uint32_t home;
    uint64_t chunk_count; /* of these */
    bool describe; /* the description is made here, not borrowed */
    uint64_t window_base; /* the first chunk with windows; after the first pass */
    xci_segment *space;
    uint8_t *block; /* NULL in the first pass */
    map_layout at;
    map_sizes used;
    /* the windows of the present tensor's part */
    bool replicas;
    uint32_t part_offset;
    uint64_t part_first;
} map_build;

/* Where a chunk lies, if that is one piece in one box. */
typedef struct one_piece {
    uint8_t *at;
    uint64_t bytes;
    uint32_t count;
} one_piece;

static void find_piece(void *user, const xci_span *span) {
    one_piece *piece = user;
    *piece = (one_piece){span->region->data + span->at, span->bytes, piece->count + 1};
}

static uint8_t *direct_address(const xorcast_bundle *bundle, const xci_chunk *chunk) {
    const xci_tensor *tensor = &bundle->tensors[chunk->tensor];
    if (chunk->packed)
        return bundle->packed_data == NULL
                   ? NULL
                   : bundle->packed_data +
                         ((chunk->index - bundle->whole_chunk_count) << bundle->chunk_log2);
    if (tensor->simple)
        return tensor->regions[0].data + chunk->offset;
    one_piece piece = {0};
    xci_spans(tensor, chunk->offset, chunk->bytes, find_piece, &piece);
    return piece.count == 1 && piece.bytes == chunk->bytes ? piece.at : NULL;
}

/* ---- Windows ---- */

static xci_cuda_window *window_at(map_build *b, uint64_t index) {
    return (xci_cuda_window *)(void *)(b->block + b->at.windows) + index;
}

/* Spans of one box come row by row: a row that continues the pattern of the window before it is
 * one more of its rows. */
static bool joins(xci_cuda_window *last, uint32_t offset, const xci_span *span, const uint8_t *at) {
    if (last->width != span->bytes || offset <= last->offset)
        return false;
    const uint32_t shift = offset - last->offset;
    const uint64_t distance = (uintptr_t)at - (uintptr_t)last->at;
    if (last->row_count == 1) {
        if (at < last->at || span->region->column_bytes != span->bytes)
            return false;
        last->stride = shift;
        last->pitch = distance;
    } else if (shift != last->row_count * last->stride ||
               distance != last->row_count * last->pitch) {
        return false;
    }
    last->row_count++;
    return true;
}

static void add_window(void *user, const xci_span *span) {
    map_build *b = user;
    if (span->region->replica != b->replicas)
        return;
    const uint32_t offset = b->part_offset + (uint32_t)span->offset;
    uint8_t *at = span->region->data + span->at;
    if (b->block == NULL) {
        b->used.windows++; /* at most: rows that join are counted one by one */
        return;
    }
    if (b->used.windows > b->part_first &&
        joins(window_at(b, b->used.windows - 1), offset, span, at))
        return;
    *window_at(b, b->used.windows++) =
        (xci_cuda_window){at, 0, offset, 0, (uint32_t)span->bytes, 1};
}

/* In rising order of their offsets, as kernels walk them. */
static int by_offset(const void *a, const void *b) {
    const xci_cuda_window *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void add_part(map_build *b, const xci_tensor *tensor, uint64_t tensor_offset,
                     uint32_t chunk_offset, uint32_t bytes) {
    b->part_offset = chunk_offset;
    /* Rows join only with rows of boxes of their own kind. */
    for (int pass = 0; pass < 2; pass++) {
        b->replicas = pass == 1;
        b->part_first = b->used.windows;
        xci_spans(tensor, tensor_offset, bytes, add_window, b);
    }
}

static void add_windows(map_build *b, const xci_chunk *chunk) {
    const xorcast_bundle *bundle = b->bundle;
    const uint64_t first = b->used.windows;
    if (!chunk->packed)
        add_part(b, &bundle->tensors[chunk->tensor], chunk->offset, 0, chunk->bytes);
    for (uint32_t i = 0; i < chunk->tensor_count; i++)
        add_part(b, &bundle->tensors[chunk->tensors[i]], 0, chunk->places[i].offset,
                 chunk->places[i].bytes);
    if (b->block != NULL && b->used.windows - first > 1)
        qsort(window_at(b, first), b->used.windows - first, sizeof(xci_cuda_window), by_offset);
}

/* ---- Chunks ---- */

static void describe_chunk(map_build *b, const xci_chunk *chunk, uint64_t index) {
    if (b->block != NULL) {
        xci_cuda_chunk *chunks = (xci_cuda_chunk *)(void *)(b->block + b->at.chunks);
        xci_cuda_segment *segments = (xci_cuda_segment *)(void *)(b->block + b->at.segments);
        chunks[index] = (xci_cuda_chunk){chunk->bytes, chunk->element_bytes,
                                         (uint32_t)b->used.segments, chunk->segment_count};
        for (uint32_t i = 0; i < chunk->segment_count; i++)
            segments[b->used.segments + i] = (xci_cuda_segment){
                chunk->segments[i].key, chunk->segments[i].offset, chunk->segments[i].bytes};
    }
    b->used.segments += chunk->segment_count;
}

static void list_place(const map_build *b, uint64_t chunk, uint8_t *direct) {
    if (b->block == NULL)
        return;
    if (chunk < b->chunk_count)
        ((uint8_t **)(void *)(b->block + b->at.direct))[chunk] = direct;
    if (chunk >= b->window_base)
        ((uint32_t *)(void *)(b->block + b->at.window_first))[chunk - b->window_base] =
            (uint32_t)b->used.windows;
}

static void pass_chunk(map_build *b, const xci_chunk *chunk, uint64_t index) {
    uint8_t *address = direct_address(b->bundle, chunk);
    list_place(b, index, address);
    if (address == NULL) {
        b->window_base = xci_min(b->window_base, index);
        add_windows(b, chunk);
    }
    if (b->describe)
        describe_chunk(b, chunk, index);
}

/* One pass over all chunks: counts, or fills the tables. */
static void pass_over(map_build *b) {
    xci_chunk chunk;
    uint64_t index = 0;
    b->used = (map_sizes){0, 0};
    for (uint64_t c = 0; c < b->bundle->layout.chunk_count; c++) {
        if (c == 0)
            xci_bundle_chunk(b->described, 0, b->space, &chunk);
        else
            xci_bundle_next_chunk(b->described, b->space, &chunk);
        if (b->whole == NULL || xci_home(b->whole, c) == b->home)
            pass_chunk(b, &chunk, index++);
    }
    list_place(b, b->chunk_count, NULL);
}

/* ---- The whole ---- */

static uint64_t place(uint64_t *end, uint64_t count, uint64_t item_bytes) {
    const uint64_t at = *end;
    *end = xci_round_up(at + count * item_bytes, 64);
    return at;
}

static map_layout lay_out(const map_build *b) {
    const uint64_t chunk_count = b->chunk_count;
    map_layout at = {0};
    at.chunks = place(&at.bytes, b->describe ? chunk_count : 0, sizeof(xci_cuda_chunk));
    at.segments = place(&at.bytes, b->used.segments, sizeof(xci_cuda_segment));
    at.direct = place(&at.bytes, chunk_count, sizeof(uint8_t *));
    at.window_first = place(&at.bytes, chunk_count + 1 - b->window_base, sizeof(uint32_t));
    at.windows = place(&at.bytes, b->used.windows, sizeof(xci_cuda_window));
    return at;
}

static void point(const map_build *b, xci_device_map *map) {
    const uint8_t *base = map->memory.at;
    map->grid = (xci_cuda_grid){(const xci_cuda_chunk *)(const void *)(base + b->at.chunks),
                                (const xci_cuda_segment *)(const void *)(base + b->at.segments),
                                b->chunk_count, (uint32_t)b->bundle->layout.chunk_bytes};
    if (!b->describe)
        map->grid = b->described->map->grid;
    map->places.direct = (uint8_t *const *)(const void *)(base + b->at.direct);
    if (b->window_base == b->chunk_count)
        return;
    map->places.window_base = b->window_base;
    map->places.window_first = (const uint32_t *)(const void *)(base + b->at.window_first);
    map->places.windows = (const xci_cuda_window *)(const void *)(base + b->at.windows);
}

static xorcast_status fill(map_build *b, xci_device_map *map) {
    xorcast_context *context = map->context;
    const xci_device *device = context->shared->device;
    const uint64_t direct_bytes = b->chunk_count * sizeof(uint8_t *);
    void *memory;
    pass_over(b);
    if (b->used.windows > UINT32_MAX || b->used.segments > UINT32_MAX)
        FAIL(context, XORCAST_UNSUPPORTED,
             "the boxes of this bundle have more than 2^32 rows; a device cannot list them");
    b->at = lay_out(b);
    TRY(xci_allocate_zeroed(context, b->at.bytes, &memory));
    b->block = memory;
    pass_over(b);
    TRY(xci_allocate(context, direct_bytes, &memory));
    map->direct = memory;
    if (direct_bytes > 0) /* none where a device holds parts of chunks only */
        memcpy(map->direct, b->block + b->at.direct, direct_bytes);
    TRY(xci_device_allocate(context, b->at.bytes, &map->memory));
    point(b, map);
    return xci_device_result(
        context, device->ops->copy_now(device->handle, map->memory.at, b->block, b->at.bytes),
        "copy a table");
}

static xorcast_status open_map(map_build *b, xci_device_map **map_out) {
    xorcast_context *context = b->bundle->context;
    void *memory;
    b->window_base = b->chunk_count;
    TRY(xci_allocate_zeroed(context, sizeof(xci_device_map), &memory));
    xci_device_map *map = memory;
    map->context = context;
    xorcast_status status = xci_allocate_array(context, xci_bundle_segment_space(b->described),
                                               sizeof(xci_segment), &memory);
    if (status == XORCAST_OK) {
        b->space = memory;
        status = fill(b, map);
    }
    xci_release(context, b->space);
    xci_release(context, b->block);
    if (status < 0) {
        xci_device_map_close(map);
        return status;
    }
    *map_out = map;
    return XORCAST_OK;
}

xorcast_status xci_device_map_open(xorcast_bundle *bundle, const xorcast_bundle *described,
                                   xci_device_map **map_out) {
    map_build b = {.bundle = bundle,
                   .described = described,
                   .chunk_count = bundle->layout.chunk_count,
                   .describe = bundle == described};
    return open_map(&b, map_out);
}

xorcast_status xci_device_map_open_home(xorcast_bundle *bundle, const xorcast_bundle *whole,
                                        uint32_t index, xci_device_map **map_out) {
    map_build b = {.bundle = bundle,
                   .described = bundle,
                   .whole = whole,
                   .home = index,
                   .chunk_count = xci_home_count(whole, index),
                   .describe = true};
    return open_map(&b, map_out);
}

void xci_device_map_close(xci_device_map *map) {
    if (map == NULL)
        return;
    xci_device_release(map->context, &map->memory);
    xci_release(map->context, map->direct);
    xci_release(map->context, map);
}
