/* Pieces of a put: see device_pieces.h. */
#include "publish/device_pieces.h"

#include "base/bytes.h"

/* The last pieces halve down to this: what the host does with the very last one is waited for. */
#define LAST_CHUNKS UINT64_C(16384)

void xci_pieces_push(xci_device_encoder *e, xci_range_span span) {
    if (span.first < span.end)
        e->spans[e->span_count++] = span;
}

uint8_t **xci_chunk_place(const xci_device_encoder *e, uint64_t chunk) {
    return &e->incoming.at[xci_local(e->pending->bundle, chunk)];
}

bool xci_chunk_scattered(const xci_device_encoder *e, uint64_t chunk) {
    const uint8_t *place = *xci_chunk_place(e, chunk);
    return place == NULL || xci_joined(e->pending->bundle, chunk) ||
           xci_device_join_has(&e->join, place);
}

bool xci_range_scattered(const xci_device_encoder *e, const xci_put_range *range) {
    for (uint64_t c = range->first; e->incoming.scattered && c < range->end; c++)
        if (xci_chunk_scattered(e, c))
            return true;
    return false;
}

bool xci_range_whole(const xci_device_encoder *e, const xci_put_range *range) {
    const uint64_t *group = &e->pending->bundle->group_first[range->group];
    return range->first == group[0] && range->end == group[1];
}

/* How many chunks the next piece has at most, of a span whose ranges are there. */
static uint64_t piece_limit(const xci_device_encoder *e, const xci_range_span *span) {
    const uint64_t left =
        xci_range_end(e, &e->ranges[span->end - 1]) - xci_range_first(e, &e->ranges[span->first]);
    return xci_min(e->piece_chunks, xci_max(LAST_CHUNKS, left / 2));
}

/* Whether `next` can be in one piece with the range before it: it follows that one on the device,
 * is of another group, which nobody else books then, and goes the same way in the gap codec. */
static bool goes_along(const xci_device_encoder *e, const xci_put_range *next) {
    return xci_range_first(e, next) == xci_range_end(e, next - 1) &&
           next->group != next[-1].group &&
           (!e->encodes_gap || xci_range_whole(e, next) == xci_range_whole(e, next - 1));
}

/* Whether `next` is scattered as the piece is that begins with `first`, and is joined with it. */
static bool scattered_alike(const xci_device_encoder *e, const xci_put_range *first, bool scattered,
                            const xci_put_range *next) {
    const uint64_t packed = e->pending->bundle->whole_chunk_count;
    if (xci_range_scattered(e, next) != scattered)
        return false;
    return !scattered || (next->end - first->first <= e->join.most_chunks &&
                          (first->first < packed) == (next->first < packed));
}

/* Ranges that follow each other on the device, as many as are expected to fit; where chunks are
 * scattered, as many as the bounce buffer takes. */
xci_range_span xci_pieces_next(xci_device_encoder *e) {
    xci_range_span *span = &e->spans[e->span_count - 1];
    xci_range_span piece = {span->first, span->first + 1};
    const uint64_t limit = piece_limit(e, span);
    const xci_put_range *begin = &e->ranges[piece.first];
    const bool scattered = xci_range_scattered(e, begin);
    while (piece.end < span->end) {
        const xci_put_range *next = &e->ranges[piece.end];
        if (!goes_along(e, next) || xci_range_end(e, next) - xci_range_first(e, begin) > limit ||
            (e->encodes_gap && piece.end - piece.first == e->gap_groups) ||
            !scattered_alike(e, begin, scattered, next))
            break;
        piece.end++;
    }
    span->first = piece.end;
    if (span->first == span->end)
        e->span_count--;
    return piece;
}

bool xci_slot_whole(const xci_device_encoder *e, const xci_encode_slot *slot) {
    for (uint64_t r = slot->ranges.first; r < slot->ranges.end; r++)
        if (!xci_range_whole(e, &e->ranges[r]))
            return false;
    return true;
}

const xci_put_range *xci_slot_range(const xci_device_encoder *e, const xci_encode_slot *slot,
                                    uint64_t group) {
    uint64_t first = slot->ranges.first, end = slot->ranges.end;
    while (end - first > 1) {
        const uint64_t middle = first + (end - first) / 2;
        if (e->ranges[middle].group <= group)
            first = middle;
        else
            end = middle;
    }
    return &e->ranges[first];
}
