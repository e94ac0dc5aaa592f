/* What a delta, a publisher and a subscriber of a bundle take at most. Bounds, rounded up to plain
 * formulas of the grid; a test compares them with the context's high-water mark. */
#include "base/bytes.h"
#include "bundle/device_map.h"
#include "bundle/seal.h"

#define DELTA_FIXED 1024u     /* head, manifest without parts, foot */
#define RECORD_HEAD 128u      /* of a group, with its entry in the manifest */
#define RECORD_CHUNK 16u      /* of a chunk in a record's head at worst */
#define PUBLISHER_TENSOR 768u /* two twins of a tensor, ranges, alignment of the shadow */
#define SUBSCRIBER_TENSOR 64u
#define GROUP_STATE 256u /* pending state, digests, steps */
#define CHUNK_WORK 512u  /* a worker's job, view and block of one chunk */
#define CHUNK_COPIES 8u  /* chunks that a worker holds for gathering and transcoding */
#define GROUP_COPIES 5u  /* groups that a worker holds: slots, gathered bytes, records */
#define WORKER_FIXED (UINT64_C(8) << 20) /* zstd and what rounds up */
#define PART_BYTES (UINT64_C(4) << 20)   /* of a part, but for the record that closes it */

/* On a device, and in pinned host memory beside it. */
#define PIECE_OUTPUT                                                                               \
    (UINT64_C(40) << 20) /* blocks of a piece that is encoded, of three at a time */
#define PIECE_SCRATCH (UINT64_C(192) << 20)
#define PIECE_TABLES (UINT64_C(112) * 65536)
#define KEPT_SHARE 16u /* of the weights, for subscribers in the process */
/* A batch that is loaded, of four at a time and one that the host had to make ready. */
#define BATCHES 5u
#define BATCH_PAYLOAD (UINT64_C(24) << 20)
#define BATCH_BLOCKS UINT64_C(131072)
#define BATCH_PINNED 200u /* of a block, 112 of them where there are gap blocks */
#define BATCH_DEVICE 140u /* likewise, and 24 where the list of a version is not in one piece */
#define OWN_BATCH (UINT64_C(6) << 20)        /* of blocks that are applied at once */
#define ENGINE_WINDOW (UINT64_C(33) << 20)   /* masks, where there is a Decompression Engine */
#define SCAN_BYTES (UINT64_C(1) << 20)
#define JOIN_ROOM (UINT64_C(33) << 20) /* of a lot of joined chunks, to all other devices */
#define DEVICE_ROUNDING UINT64_C(65536)
#define DEVICE_TENSOR 96u /* alignment in the shadow, copies of a small one */
#define SHARE_TENSOR 256u /* of a share and of its shadow: tensors, and a run of each */
#define DEVICE_CHUNK 48u  /* addresses of its old and new bytes */

static uint64_t worker_bytes(const xorcast_bundle *bundle) {
    const uint64_t chunk_bytes = UINT64_C(1) << bundle->chunk_log2;
    return GROUP_COPIES * bundle->group_size_max + CHUNK_COPIES * chunk_bytes +
           bundle->group_chunks_max * CHUNK_WORK +
           xci_bundle_segment_space(bundle) * sizeof(xci_segment) + WORKER_FIXED;
}

void xci_seal_costs(xorcast_bundle *bundle) {
    xorcast_layout *layout = &bundle->layout;
    const uint64_t threads = xci_context_threads(bundle->context);
    /* Small tensors, with the padding between and behind them. */
    const uint64_t small_bytes = xci_packed_chunk_count(bundle) << bundle->chunk_log2;
    /* Of what is staged, one for each thread is under way, and its lists. */
    const uint64_t part_bytes = 2 * PART_BYTES + bundle->group_size_max;
    layout->delta_bound_bytes = DELTA_FIXED + layout->total_bytes + small_bytes +
                                layout->group_count * RECORD_HEAD +
                                layout->chunk_count * RECORD_CHUNK;
    layout->publisher_bytes = WORKER_FIXED + layout->total_bytes + 2 * small_bytes +
                              layout->tensor_count * PUBLISHER_TENSOR +
                              layout->group_count * GROUP_STATE + threads * worker_bytes(bundle);
    layout->publisher_device_bytes = layout->subscriber_device_bytes = 0;
    layout->subscriber_bytes = WORKER_FIXED + layout->chunk_count * sizeof(xorcast_digest) +
                               layout->tensor_count * SUBSCRIBER_TENSOR +
                               layout->group_count * GROUP_STATE +
                               threads * (worker_bytes(bundle) + part_bytes);
}

/* Of the tables of a shadow's share, which describe its chunks themselves: a segment for each, and
 * one for each small tensor. */
static uint64_t map_bytes(const xorcast_bundle *bundle) {
    return bundle->layout.chunk_count * (sizeof(xci_cuda_chunk) + sizeof(xci_cuda_segment) + 16) +
           bundle->packed_count * sizeof(xci_cuda_segment) + DEVICE_ROUNDING;
}

void xci_seal_device_costs(xorcast_bundle *bundle) {
    xorcast_layout *layout = &bundle->layout;
    const uint64_t small_bytes = xci_packed_chunk_count(bundle) << bundle->chunk_log2;
    /* A group's blocks in chunks of their own, at worst. */
    const uint64_t group = bundle->group_chunks_max * (layout->chunk_bytes + 128);
    const uint64_t piece =
        xci_max(PIECE_OUTPUT, group) + PIECE_TABLES + 112 * bundle->group_chunks_max;
    const uint64_t kept = layout->total_bytes / KEPT_SHARE + (1 + bundle->share_count) * piece;
    const uint64_t own = xci_max(OWN_BATCH, 2 * group);
    const uint64_t blocks = BATCH_BLOCKS + bundle->group_chunks_max;
    const uint64_t batch = xci_max(BATCH_PAYLOAD, group) + BATCH_PINNED * blocks;
    const uint64_t shares = bundle->share_count;
    /* Two lots in the bounce buffer and in each room, and one that is staged. */
    const uint64_t joining =
        shares > 1 ? (2 * shares + 1) * xci_max(JOIN_ROOM / (shares - 1), group) : 0;
    /* Of each device: what encodes, joins chunks and takes back; what stages and commits. */
    const uint64_t publisher = layout->chunk_count * DEVICE_CHUNK + 8 * piece + PIECE_SCRATCH +
                               group + BATCHES * own + SCAN_BYTES + 2 * small_bytes +
                               layout->tensor_count * DEVICE_TENSOR + joining;
    const uint64_t subscriber = layout->chunk_count * DEVICE_CHUNK +
                                BATCHES * (BATCH_DEVICE * blocks + own) + group + 2 * SCAN_BYTES +
                                ENGINE_WINDOW;
    uint64_t tables = 0;
    for (uint64_t s = 0; s < shares; s++)
        tables += bundle->shares[s]->map->memory.bytes + DEVICE_ROUNDING;
    layout->publisher_device_bytes =
        tables + layout->total_bytes + small_bytes + kept + shares * publisher +
        (shares > 1 ? (shares + 1) * (map_bytes(bundle) + DEVICE_ROUNDING) : 0);
    layout->subscriber_device_bytes = tables + shares * subscriber;
    layout->publisher_bytes +=
        shares * (layout->chunk_count * 2 * DEVICE_CHUNK + 4 * piece + BATCHES * own +
                  layout->tensor_count * (DEVICE_TENSOR + SHARE_TENSOR) + SCAN_BYTES);
    layout->subscriber_bytes += shares * (BATCHES * (batch + own) + group + 2 * SCAN_BYTES +
                                          layout->tensor_count * SHARE_TENSOR);
}
