/* The chunk grid: which bytes of which tensors a chunk holds, and which chunks a group. Fixed at
 * seal; the same on every machine, because deltas name chunks by index. */
#include <string.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "bundle/seal.h"
#include "bundle/spans.h"

/* ---- Sealing ---- */

static uint64_t chunk_size(const xorcast_bundle *bundle) {
    return UINT64_C(1) << bundle->chunk_log2;
}

static xorcast_status number_whole(xorcast_bundle *bundle) {
    void *memory;
    TRY(xci_allocate_array(bundle->context, bundle->tensor_count, sizeof(uint64_t), &memory));
    xci_release(bundle->context, bundle->whole);
    bundle->whole = memory;
    bundle->whole_count = bundle->whole_chunk_count = 0;
    for (uint64_t t = 0; t < bundle->tensor_count; t++) {
        xci_tensor *tensor = &bundle->tensors[t];
        if (tensor->bytes < XCI_SMALL_BYTES)
            continue;
        bundle->whole[bundle->whole_count++] = t;
        tensor->first_chunk = bundle->whole_chunk_count;
        bundle->whole_chunk_count += xci_divide_up(tensor->bytes, chunk_size(bundle));
    }
    return XORCAST_OK;
}

static xorcast_status allocate_packed(xorcast_bundle *bundle, uint64_t small) {
    xorcast_context *context = bundle->context;
    void *memory;
    xci_release(context, bundle->packed);
    xci_release(context, bundle->segments);
    xci_release(context, bundle->packed_first);
    bundle->packed = NULL;
    bundle->segments = NULL;
    bundle->packed_first = NULL;
    TRY(xci_allocate_array(context, small, sizeof *bundle->packed, &memory));
    bundle->packed = memory;
    TRY(xci_allocate_array(context, small, sizeof *bundle->segments, &memory));
    bundle->segments = memory;
    TRY(xci_allocate_array(context, small + 1, sizeof *bundle->packed_first, &memory));
    bundle->packed_first = memory;
    return XORCAST_OK;
}

/* Packs the small tensors of one element width; returns the number of chunks with theirs. */
static uint64_t pack_width(xorcast_bundle *bundle, uint32_t width, uint64_t packed_chunks) {
    uint64_t fill = chunk_size(bundle); /* the first tensor opens a chunk */
    for (uint64_t t = 0; t < bundle->tensor_count; t++) {
        xci_tensor *tensor = &bundle->tensors[t];
        if (tensor->bytes == 0 || tensor->bytes >= XCI_SMALL_BYTES ||
            tensor->element_bytes != width)
            continue;
        const uint64_t padded = xci_round_up(tensor->bytes, 8);
        if (fill + padded > chunk_size(bundle)) {
            bundle->packed_first[packed_chunks++] = bundle->packed_count;
            fill = 0;
        }
        tensor->first_chunk = bundle->whole_chunk_count + packed_chunks - 1;
        bundle->packed[bundle->packed_count] = t;
        bundle->segments[bundle->packed_count++] =
            (xci_segment){(uint32_t)fill, (uint32_t)tensor->bytes, tensor->key};
        fill += padded;
    }
    return packed_chunks;
}

static xorcast_status pack_small(xorcast_bundle *bundle) {
    uint64_t small = 0, packed_chunks = 0;
    for (uint64_t t = 0; t < bundle->tensor_count; t++)
        small += bundle->tensors[t].bytes > 0 && bundle->tensors[t].bytes < XCI_SMALL_BYTES;
    TRY(allocate_packed(bundle, small));
    bundle->packed_count = 0;
    for (uint32_t width = 1; width <= 8; width *= 2)
        packed_chunks = pack_width(bundle, width, packed_chunks);
    bundle->packed_first[packed_chunks] = bundle->packed_count;
    bundle->layout.chunk_count = bundle->whole_chunk_count + packed_chunks;
    return XORCAST_OK;
}

typedef struct grouping { uint64_t groups, fill, first; } grouping;

static void group_chunk(xorcast_bundle *bundle, grouping *g, uint64_t chunk, uint64_t bytes) {
    if (g->fill >= bundle->group_bytes) {
        bundle->group_first[g->groups++] = chunk;
        g->first = chunk;
        g->fill = 0;
    }
    g->fill += bytes;
    bundle->group_size_max = xci_max(bundle->group_size_max, g->fill);
    bundle->group_chunks_max = xci_max(bundle->group_chunks_max, chunk - g->first + 1);
}

static xorcast_status form_groups(xorcast_bundle *bundle) {
    void *memory;
    TRY(xci_allocate_array(bundle->context, bundle->layout.chunk_count + 1, sizeof(uint64_t),
                           &memory));
    xci_release(bundle->context, bundle->group_first);
    bundle->group_first = memory;
    bundle->group_size_max = bundle->group_chunks_max = 0;
    grouping g = {0, bundle->group_bytes, 0}; /* the first chunk opens a group */
    for (uint64_t w = 0; w < bundle->whole_count; w++) {
        const xci_tensor *tensor = &bundle->tensors[bundle->whole[w]];
        uint64_t chunk = tensor->first_chunk;
        for (uint64_t at = 0; at < tensor->bytes; at += chunk_size(bundle))
            group_chunk(bundle, &g, chunk++, xci_min(chunk_size(bundle), tensor->bytes - at));
    }
    g.fill = bundle->group_bytes; /* packed chunks begin a group of their own */
    for (uint64_t c = bundle->whole_chunk_count; c < bundle->layout.chunk_count; c++)
        group_chunk(bundle, &g, c, xci_bundle_chunk_bytes(bundle, c));
    bundle->group_first[g.groups] = bundle->layout.chunk_count;
    bundle->layout.group_count = g.groups;
    return XORCAST_OK;
}

xorcast_status xci_seal_grid(xorcast_bundle *bundle) {
    TRY(number_whole(bundle));
    TRY(pack_small(bundle));
    return form_groups(bundle);
}

/* ---- Looking up ---- */

/* Index of the last entry of `list` that is not larger than `value`; list[0] must not be. */
static uint64_t last_not_above(const uint64_t *list, uint64_t count, uint64_t value) {
    uint64_t low = 0, high = count;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (list[middle] <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Place in the list of whole tensors. */
static uint64_t whole_of(const xorcast_bundle *bundle, uint64_t chunk) {
    uint64_t low = 0, high = bundle->whole_count;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (bundle->tensors[bundle->whole[middle]].first_chunk <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint64_t xci_bundle_tensor_of(const xorcast_bundle *bundle, uint64_t chunk) {
    if (chunk < bundle->whole_chunk_count)
        return bundle->whole[whole_of(bundle, chunk)];
    return bundle->packed[bundle->packed_first[chunk - bundle->whole_chunk_count]];
}

uint64_t xci_bundle_group_of(const xorcast_bundle *bundle, uint64_t chunk) {
    return last_not_above(bundle->group_first, bundle->layout.group_count, chunk);
}

uint64_t xci_bundle_group_size(const xorcast_bundle *bundle, uint64_t group) {
    uint64_t bytes = 0;
    for (uint64_t c = bundle->group_first[group]; c < bundle->group_first[group + 1]; c++)
        bytes += xci_bundle_chunk_bytes(bundle, c);
    return bytes;
}

uint64_t xci_bundle_segment_space(const xorcast_bundle *bundle) {
    return bundle->complete ? 0 : chunk_size(bundle) / 8 + 1;
}

static void whole_chunk(const xorcast_bundle *bundle, uint64_t index, uint64_t whole,
                        xci_chunk *chunk) {
    chunk->whole = whole;
    chunk->tensor = bundle->whole[whole];
    const xci_tensor *tensor = &bundle->tensors[chunk->tensor];
    chunk->offset = (index - tensor->first_chunk) << bundle->chunk_log2;
    chunk->bytes = (uint32_t)xci_min(chunk_size(bundle), tensor->bytes - chunk->offset);
    chunk->element_bytes = tensor->element_bytes;
    chunk->own =
        (xci_segment){0, chunk->bytes, tensor->key + chunk->offset / 8 * XCI_DIGEST_STRIDE};
    chunk->segments = &chunk->own;
    chunk->segment_count = 1;
}

static void packed_chunk(const xorcast_bundle *bundle, uint64_t index, xci_chunk *chunk) {
    const uint64_t *first = &bundle->packed_first[index - bundle->whole_chunk_count];
    const xci_segment *last = &bundle->segments[first[1] - 1];
    chunk->packed = true;
    chunk->tensors = &bundle->packed[first[0]];
    chunk->places = &bundle->segments[first[0]];
    chunk->tensor_count = (uint32_t)(first[1] - first[0]);
    chunk->tensor = chunk->tensors[0];
    chunk->bytes = last->offset + last->bytes;
    chunk->element_bytes = bundle->tensors[chunk->tensor].element_bytes;
    chunk->segments = chunk->places;
    chunk->segment_count = chunk->tensor_count;
}

uint32_t xci_bundle_chunk_bytes(const xorcast_bundle *bundle, uint64_t chunk) {
    xci_chunk view = {0};
    if (chunk < bundle->whole_chunk_count)
        whole_chunk(bundle, chunk, whole_of(bundle, chunk), &view);
    else
        packed_chunk(bundle, chunk, &view);
    return view.bytes;
}

/* ---- Words that this bundle counts ---- */

typedef struct counting {
    xci_segment *space;
    uint32_t count;
    uint64_t tensor_key, tensor_offset; /* of the part's first byte */
    uint32_t chunk_offset;              /* where that byte stands in the chunk */
    uint32_t part_first;                /* the part's first segment */
} counting;

static void count_span(void *user, const xci_span *span) {
    counting *c = user;
    if (span->region->replica)
        return;
    const uint64_t word = (c->tensor_offset + span->offset) / 8;
    const uint32_t offset = c->chunk_offset + (uint32_t)span->offset;
    xci_segment *last = c->count > c->part_first ? &c->space[c->count - 1] : NULL;
    /* Whole rows may end inside a word; box edges do not, so that what is left begins at one. */
    if (last != NULL && last->offset + last->bytes == offset) {
        last->bytes += (uint32_t)span->bytes;
        return;
    }
    c->space[c->count++] = (xci_segment){offset, (uint32_t)span->bytes,
                                         c->tensor_key + word * XCI_DIGEST_STRIDE};
}

static void count_part(const xci_tensor *tensor, uint64_t offset, uint32_t bytes, counting *c) {
    c->tensor_key = tensor->key;
    c->tensor_offset = offset;
    c->part_first = c->count;
    xci_spans(tensor, offset, bytes, count_span, c);
}

static void count_segments(const xorcast_bundle *bundle, xci_segment *space, xci_chunk *chunk) {
    counting c = {.space = space};
    if (!chunk->packed)
        count_part(&bundle->tensors[chunk->tensor], chunk->offset, chunk->bytes, &c);
    for (uint32_t i = 0; i < chunk->tensor_count; i++) {
        c.chunk_offset = chunk->places[i].offset;
        count_part(&bundle->tensors[chunk->tensors[i]], 0, chunk->places[i].bytes, &c);
    }
    chunk->segments = space;
    chunk->segment_count = c.count;
}

static void view_places(const xorcast_bundle *bundle, uint64_t index, uint64_t whole,
                        xci_chunk *chunk) {
    memset(chunk, 0, sizeof *chunk);
    chunk->index = index;
    if (index < bundle->whole_chunk_count)
        whole_chunk(bundle, index, whole, chunk);
    else
        packed_chunk(bundle, index, chunk);
}

void xci_bundle_chunk_places(const xorcast_bundle *bundle, uint64_t index, xci_chunk *chunk_out) {
    view_places(bundle, index, index < bundle->whole_chunk_count ? whole_of(bundle, index) : 0,
                chunk_out);
}

static void view_chunk(const xorcast_bundle *bundle, uint64_t index, uint64_t whole,
                       xci_segment *space, xci_chunk *chunk) {
    view_places(bundle, index, whole, chunk);
    if (bundle->complete)
        return;
    bool counted = chunk->packed || bundle->tensors[chunk->tensor].counted;
    for (uint32_t i = 0; i < chunk->tensor_count; i++)
        counted = counted && bundle->tensors[chunk->tensors[i]].counted;
    if (!counted)
        count_segments(bundle, space, chunk);
}

void xci_bundle_chunk(const xorcast_bundle *bundle, uint64_t index, xci_segment *space,
                      xci_chunk *chunk_out) {
    view_chunk(bundle, index, index < bundle->whole_chunk_count ? whole_of(bundle, index) : 0,
               space, chunk_out);
}

void xci_bundle_next_chunk(const xorcast_bundle *bundle, xci_segment *space, xci_chunk *chunk) {
    const uint64_t next = chunk->index + 1;
    uint64_t whole = chunk->whole;
    if (next < bundle->whole_chunk_count && whole + 1 < bundle->whole_count &&
        bundle->tensors[bundle->whole[whole + 1]].first_chunk == next)
        whole++;
    view_chunk(bundle, next, whole, space, chunk);
}

static void note_span(void *user, const xci_span *span) {
    (void)span;
    *(bool *)user = true;
}

bool xci_bundle_holds(const xorcast_bundle *bundle, uint64_t index) {
    if (bundle->complete)
        return true;
    xci_chunk chunk = {0};
    bool holds = false;
    if (index < bundle->whole_chunk_count) {
        whole_chunk(bundle, index, whole_of(bundle, index), &chunk);
        xci_spans(&bundle->tensors[chunk.tensor], chunk.offset, chunk.bytes, note_span, &holds);
        return holds;
    }
    packed_chunk(bundle, index, &chunk);
    for (uint32_t i = 0; i < chunk.tensor_count && !holds; i++)
        xci_spans(&bundle->tensors[chunk.tensors[i]], 0, chunk.places[i].bytes, note_span, &holds);
    return holds;
}
