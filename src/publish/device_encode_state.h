/* The state of a device's encoder, which the files of its jobs share; who uses it sees
 * device_encode.h.
 *
 *     device_pieces.h    which ranges make the next piece
 *     device_launch.h    pieces to the device
 *     device_receive.h   their results and blocks to the host
 *     device_book.h      to records
 *     device_settle.h    the shadow, where it must follow what was booked
 *
 * The encoder owns what is here unless said otherwise. */
#ifndef XCI_DEVICE_ENCODE_STATE_H
#define XCI_DEVICE_ENCODE_STATE_H

#include "publish/device_encode.h"
#include "publish/device_incoming.h"
#include "publish/device_join.h"
#include "publish/device_slot.h"

#define XCI_BLOCK_ALIGNMENT 16u /* where apply wants blocks; encode packs them closely */
#define XCI_ENCODE_SPANS 64u /* every cut at least halves a piece, of which three are under way */
#define XCI_ENCODE_SLOTS 3u
#define XCI_ENCODE_LANES 2u /* streams that pieces go on */

/* What became of a range of the piece that is booked. */
typedef struct xci_range_note {
    bool booked, behind; /* behind: chunks of it have not moved */
} xci_range_note;

struct xci_device_encoder {
    xorcast_context *context;
    xci_pending *pending;
    xci_device_shadow *shadow;
    uint32_t share;                                     /* of the bundle, whose chunks it encodes */
    const xci_device_encoder *const *siblings;          /* one for each share */
    void *compute, *sizes, *drain, *keep, *join_stream; /* streams, */
    void *event, *computed, *settled, *gathered;        /* and events between them */
    /* Beside `compute`, for every other piece whose groups the device writes: the end of one, with
     * little to do, is beside the beginning of the next. `apart`: neither waits for the other. */
    void *second;
    bool apart;
    xci_device_incoming incoming;
    xci_device_memory scratch; /* of encode; of settling, which is on the same stream. One half is
                                * for each of these two streams where they are apart */
    xci_device_side *side;     /* where blocks stay until the next version, or NULL; not owned */
    bool moves;                /* encode moves the shadow */
    /* Scattered chunks, which are brought on a stream of their own; whose turn is next; and of each
     * turn, which ranges are there, if any are, and an event: they are encoded. */
    xci_device_join join;
    uint32_t turn;
    xci_range_span joined[XCI_JOIN_TURNS];
    void *joined_read[XCI_JOIN_TURNS];
    xci_encode_slot slots[XCI_ENCODE_SLOTS];
    uint64_t launched, received, booked; /* pieces of the put; slots go round */
    uint64_t capacity, most_chunks;      /* of a piece */
    uint64_t piece_chunks;               /* how many are expected to fit */
    const xci_put_range *ranges;         /* of the put */
    xci_range_note *notes;               /* one for each range of a piece */
    xci_range_span spans[XCI_ENCODE_SPANS];
    uint32_t span_count;
    bool encodes_gap;    /* whole groups are written by the device, in the gap codec or `auto`, */
    uint64_t gap_groups; /* so many at most in a piece, */
    uint64_t list_bytes; /* with so much scratch for lists, */
    uint64_t *gap_first; /* their first chunks, and where the last one ends; */
    uint64_t host_range; /* but not this one, for which there was no room there */
    const xci_encode_slot *booking; /* the piece whose ranges are booked now, or NULL */
};

/* What comes on `compute` now comes after all that is on the second stream. */
xorcast_status xci_device_join_lanes(xci_device_encoder *e);

static inline const xorcast_encoding *xci_device_encoding(const xci_device_encoder *e) {
    return &e->pending->workers[0].writer.encoding;
}

#endif
