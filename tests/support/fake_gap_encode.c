/* Groups in the gap codec on the stand-in device: the CPU's encoder, in the shape of kernels. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "delta/auto_group_writer.h"
#include "support/fake_inside.h"

uint64_t fake_gap_scratch(uint64_t count, uint64_t group_count, uint32_t chunk_bytes) {
    return 256 + count + group_count + chunk_bytes;
}

static atomic_uint_fast64_t most_beside = UINT64_MAX;

void fake_device_gap_room(uint64_t chunks) {
    atomic_store(&most_beside, chunks);
}

/* A group on its way: what the CPU lists of its chunks. */
typedef struct fake_group {
    const xci_cuda_gap_encode_call *call;
    uint64_t first, count; /* chunks of the grid */
    xci_cuda_result *results;
    xci_block *blocks;
    const uint8_t **old; /* of each that is listed */
    uint8_t *lists;
    xci_record listed;
} fake_group;

static void list_chunk(fake_group *g, uint64_t i) {
    const xci_cuda_gap_encode_call *call = g->call;
    const uint64_t chunk = g->first + i;
    const xci_cuda_chunk about = fake_chunk_of(&call->grid, chunk);
    const uint8_t *old_at = *(uint8_t *const *)fake_real(&call->old_at[chunk], sizeof old_at);
    const uint8_t *new_at = *(const uint8_t *const *)fake_real(&call->new_at[chunk], sizeof new_at);
    xci_segment *segments = fake_segments_of(&call->grid, &about);
    xci_encode_job job = {.old_bytes = fake_real(old_at, about.bytes),
                          .new_bytes = fake_real(new_at, about.bytes),
                          .bytes = about.bytes,
                          .element_bytes = about.element_bytes,
                          .codec = XORCAST_CODEC_GAP,
                          .segments = segments,
                          .segment_count = about.segment_count,
                          .block = g->lists + g->listed.raw_bytes};
    xci_backend_cpu.encode(&job, 1);
    if (call->listed != 0 && (g->results[i].bytes_changed != job.bytes_changed ||
                              g->results[i].change.lane[0] != job.change.lane[0]))
        fake_stop("results that are not of a call before");
    g->old[g->listed.block_count] = job.old_bytes;
    g->results[i] = (xci_cuda_result){.bytes_changed = job.bytes_changed,
                                      .elements_changed = job.elements_changed,
                                      .bits_changed = job.bits_changed,
                                      .change = job.change};
    if (job.block_bytes > 0)
        g->blocks[g->listed.block_count++] = (xci_block){
            (uint32_t)i, job.block_codec, about.element_bytes, job.block_bytes, about.bytes};
    g->listed.raw_bytes += job.block_bytes;
    free(segments);
}

/* The CPU's writers. */
typedef struct fake_writers {
    xorcast_context *context;
    xci_gap_group_writer *gap;
    xci_auto_group_writer *choice;
} fake_writers;

static fake_writers open_writers(const xci_cuda_prices *of) {
    fake_writers writers = {0};
    xci_prices prices = {.wire = of->wire, .old_weights = of->weights[XORCAST_CODEC_GAP]};
    memcpy(prices.weights, of->weights, sizeof prices.weights);
    if (xorcast_context_create(NULL, &writers.context) < 0 ||
        xci_gap_group_writer_open(writers.context, &writers.gap) < 0 ||
        xci_auto_group_writer_open(writers.context, &prices, &writers.choice) < 0)
        fake_stop("no context");
    return writers;
}

static void close_writers(const fake_writers *writers) {
    xci_gap_group_writer_close(writers->context, writers->gap);
    xci_auto_group_writer_close(writers->context, writers->choice);
    xorcast_context_destroy(writers->context);
}

static xorcast_status encode_group(const fake_group *g, const fake_writers *writers,
                                   xci_record *record) {
    const uint8_t *const *old = g->call->beside != 0 ? g->old : NULL;
    if (g->listed.block_count == 0)
        return XORCAST_OK;
    return g->call->prices.wire != 0
               ? xci_auto_group_mix(writers->context, writers->choice, &g->listed, old, record)
               : xci_gap_group_write(writers->context, writers->gap, &g->listed, old, NULL, record);
}

/* Blocks and parameters, where they belong if they fit. */
static void write_group(const fake_group *g, const fake_writers *writers,
                        xci_cuda_gap_group *group) {
    xci_record record = {0};
    uint64_t at = 0;
    if (encode_group(g, writers, &record) < 0)
        fake_stop("a group that the CPU does not encode");
    for (uint32_t i = 0; i < record.block_count; i++) {
        xci_cuda_result *result = &g->results[record.blocks[i].chunk];
        result->block_bytes = record.blocks[i].bytes;
        result->block_codec = record.blocks[i].codec;
        result->block_offset = at;
        at += record.blocks[i].bytes;
    }
    group->bytes = (uint32_t)record.raw_bytes;
    group->params_bytes = (uint32_t)record.params_bytes;
    group->lz4_bytes = (uint32_t)record.lz4_bytes;
    const bool fits = group->offset + group->bytes <= g->call->capacity;
    for (uint64_t i = 0; i < g->count; i++)
        g->results[i].status = fits ? XORCAST_OK : XORCAST_BUFFER_TOO_SMALL;
    if (group->bytes > 0 && fits)
        memcpy(fake_real(g->call->blocks + group->offset, group->bytes), record.payload,
               group->bytes);
}

/* A call for too many chunks writes nothing. */
static void find_no_room(const xci_cuda_gap_encode_call *call, xci_cuda_result *results,
                         xci_cuda_gap_used *used) {
    for (uint64_t i = 0; i < call->count; i++)
        results[i].status = XORCAST_BUFFER_TOO_SMALL;
    used->bytes = UINT64_MAX;
}

static int run_encode(fake_work *work) {
    const xci_cuda_gap_encode_call *call = &work->call.gap_encode;
    const uint64_t *first = fake_real(call->group_first, (call->group_count + 1) * sizeof *first);
    xci_cuda_gap_group *groups = fake_real(call->groups, call->group_count * sizeof *groups);
    xci_cuda_result *results = fake_real(call->results, call->count * sizeof *results);
    xci_cuda_gap_used *used = fake_real(call->used, sizeof *used);
    if (first[0] != call->first || first[call->group_count] != call->first + call->count)
        fake_stop("groups that are not the call's chunks");
    memcpy(fake_real(call->scratch, sizeof call->results), &call->results, sizeof call->results);
    if (call->beside != 0 && call->count > atomic_load(&most_beside)) {
        find_no_room(call, results, used);
        return 0;
    }
    const fake_writers writers = open_writers(&call->prices);
    used->bytes = used->list_bytes = 0;
    for (uint64_t i = 0; i < call->group_count; i++) {
        fake_group g = {.call = call,
                        .first = first[i],
                        .count = first[i + 1] - first[i],
                        .results = results + (first[i] - call->first)};
        g.blocks = calloc(g.count, sizeof *g.blocks);
        g.old = calloc(g.count, sizeof *g.old);
        g.lists = malloc(g.count * (call->grid.chunk_bytes + XCI_BLOCK_SLACK));
        g.listed.blocks = g.blocks;
        g.listed.payload = g.lists;
        for (uint64_t c = 0; c < g.count; c++)
            list_chunk(&g, c);
        groups[i].offset = used->bytes;
        write_group(&g, &writers, &groups[i]);
        used->bytes += groups[i].bytes;
        used->list_bytes += g.listed.raw_bytes;
        free(g.blocks);
        free(g.old);
        free(g.lists);
    }
    close_writers(&writers);
    return 0;
}

int fake_gap_encode(void *device, const xci_cuda_gap_encode_call *call, void *stream) {
    const fake_work work = {.run = run_encode, .call.gap_encode = *call};
    return fake_put(device, stream, &work);
}

/* ---- Old becomes new ---- */

static void move_chunk(const xci_cuda_gap_encode_call *call, uint64_t i) {
    const uint64_t chunk = call->first + i;
    const uint32_t bytes = fake_chunk_of(&call->grid, chunk).bytes;
    uint8_t *old_at = *(uint8_t *const *)fake_real(&call->old_at[chunk], sizeof old_at);
    const uint8_t *new_at = *(const uint8_t *const *)fake_real(&call->new_at[chunk], sizeof new_at);
    memcpy(fake_real(old_at, bytes), fake_real(new_at, bytes), bytes);
}

static int run_move(fake_work *work) {
    const xci_cuda_gap_encode_call *call = &work->call.gap_encode;
    xci_cuda_result *results = fake_real(call->results, call->count * sizeof *results);
    const xci_cuda_result *other =
        call->other != NULL ? fake_real(call->other, call->count * sizeof *other) : NULL;
    const xci_cuda_result *last = *(xci_cuda_result *const *)fake_real(call->scratch, sizeof last);
    if (last != (other != NULL ? call->other : call->results))
        fake_stop("scratch that is not of the call to move");
    for (uint64_t i = 0; i < call->count; i++) {
        if (results[i].bytes_changed == 0 || results[i].status != XORCAST_OK ||
            (other != NULL && other[i].status != XORCAST_OK))
            continue;
        move_chunk(call, i);
        results[i].moved = 1;
    }
    return 0;
}

int fake_gap_move(void *device, const xci_cuda_gap_encode_call *call, void *stream) {
    const fake_work work = {.run = run_move, .call.gap_encode = *call};
    return fake_put(device, stream, &work);
}
