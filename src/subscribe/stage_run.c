/* Runs of blocks: see stage_run.h. */
#include "subscribe/stage_run.h"

#include <string.h>

#include "backend/transcode.h"
#include "base/bytes.h"
#include "base/digest.h"
#include "codec/list_block.h"

/* Enough that a run costs nothing beside its work; few, so that many threads end together. */
#define RUN_BYTES (UINT64_C(32) << 10)

/* ---- Workers ---- */

static xorcast_status open_worker(xci_stage_worker *worker, xorcast_bundle *bundle) {
    xorcast_context *context = bundle->context;
    const uint64_t chunk_bytes = UINT64_C(1) << bundle->chunk_log2;
    void *memory;
    worker->bundle = bundle;
    xci_group_reader_open(&worker->reader, context);
    TRY(xci_allocate(context, chunk_bytes, &memory));
    worker->gather = memory;
    TRY(xci_allocate(context, XCI_TRANSCODE_SCRATCH(chunk_bytes), &memory));
    worker->scratch = memory;
    TRY(xci_allocate(context, chunk_bytes + XCI_BLOCK_SLACK, &memory));
    worker->form = memory;
    TRY(xci_allocate_array(context, xci_bundle_segment_space(bundle), sizeof(xci_segment),
                           &memory));
    worker->segments = memory;
    TRY(xci_allocate_array(context, bundle->group_chunks_max, sizeof(xci_chunk), &memory));
    worker->chunks = memory;
    TRY(xci_allocate_array(context, bundle->group_chunks_max, sizeof(xci_block_job), &memory));
    worker->jobs = memory;
    TRY(xci_arena_create(context, &worker->arena));
    TRY(xci_allocate_array(context, bundle->group_chunks_max, sizeof(uint32_t), &memory));
    worker->indices = memory;
    return XORCAST_OK;
}

static void close_worker(xci_stage_worker *worker, xorcast_context *context) {
    void *const parts[] = {worker->gather, worker->scratch,  worker->form,
                           worker->made,   worker->segments, worker->chunks,
                           worker->jobs,   worker->indices,  worker->lists};
    xci_group_reader_close(&worker->reader);
    xci_arena_destroy(worker->arena);
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
        xci_release(context, parts[p]);
}

xorcast_status xci_stage_workers_open(xorcast_bundle *bundle, xci_stage_worker **workers_out) {
    const uint32_t threads = xci_context_threads(bundle->context);
    void *memory;
    TRY(xci_allocate_array(bundle->context, threads, sizeof(xci_stage_worker), &memory));
    *workers_out = memory;
    for (uint32_t i = 0; i < threads; i++)
        TRY(open_worker(&(*workers_out)[i], bundle));
    return XORCAST_OK;
}

void xci_stage_workers_close(xorcast_context *context, xci_stage_worker *workers) {
    for (uint32_t i = 0; workers != NULL && i < xci_context_threads(context); i++)
        close_worker(&workers[i], context);
    xci_release(context, workers);
}

void xci_stage_workers_reset(xorcast_context *context, xci_stage_worker *workers) {
    for (uint32_t i = 0; workers != NULL && i < xci_context_threads(context); i++)
        if (workers[i].arena != NULL)
            xci_arena_reset(workers[i].arena);
}

/* ---- One chunk ---- */

static xorcast_status bad_chunk(xorcast_bundle *bundle, const xci_chunk *chunk, const char *what) {
    char words[300];
    const xci_place place = {chunk->tensor, chunk->index, 0};
    FAIL_AT(bundle->context, XORCAST_DATA_CORRUPT, place, "%s: %s; fetch the delta again",
            xci_chunk_words(bundle, chunk->index, words, sizeof words), what);
}

static const xci_backend *backend_of(const xci_stage_worker *worker) {
    return worker->bundle->context->shared->backend;
}

/* A mask must not touch the padding between the tensors of a packed chunk: nothing there could
 * take it. */
static bool padding_untouched(xci_stage_worker *worker, const xci_chunk *chunk,
                              const xci_block_job *block) {
    memset(worker->gather, 0, chunk->bytes);
    xci_block_job job = *block;
    job.weights = worker->gather;
    backend_of(worker)->apply(&job, 1);
    uint32_t at = 0;
    for (uint32_t i = 0; i <= chunk->tensor_count; i++) {
        const uint32_t end = i < chunk->tensor_count ? chunk->places[i].offset : chunk->bytes;
        for (; at < end; at++)
            if (worker->gather[at] != 0)
                return false;
        if (i < chunk->tensor_count)
            at = chunk->places[i].offset + chunk->places[i].bytes;
    }
    return true;
}

/* Makes another form of a block device-ready, in the worker's memory. */
static xorcast_status transcode(xci_stage_worker *worker, const xci_chunk *chunk,
                                const xci_record *record, uint32_t index, xci_block_job *job) {
    const xci_place place = {chunk->tensor, chunk->index, 0};
    const uint8_t *old = worker->beside_old_weights ? job->weights : NULL;
    const xorcast_status status = xci_block_decode(&worker->reader, place, record, index,
                                                   job->block, old, worker->scratch, chunk->bytes);
    if (status == XORCAST_DATA_CORRUPT)
        return bad_chunk(worker->bundle, chunk, "its block does not decode to the chunk's size");
    TRY(status);
    xci_mask_to_ready(backend_of(worker), chunk->bytes, worker->scratch, worker->form,
                      &job->block_bytes, &job->block_codec);
    job->block = worker->form;
    return XORCAST_OK;
}

/* ---- A run ---- */

static xci_block_job job_of(const xci_chunk *chunk, const xci_block *block, const uint8_t *bytes) {
    return (xci_block_job){.block = bytes,
                           .block_bytes = block->bytes,
                           .block_codec = block->codec,
                           .bytes = chunk->bytes,
                           .segments = chunk->segments,
                           .segment_count = chunk->segment_count,
                           .element_bytes = chunk->element_bytes};
}

static void count_changes(const xci_block_job *job, xorcast_counts *counts) {
    counts->bits_changed += job->bits_changed;
    counts->bytes_changed += job->bytes_changed;
    counts->elements_changed += job->elements_changed;
    counts->chunks_changed += job->bytes_changed > 0; /* a foreign block may be all zeros */
}

static xorcast_status keep_made(xci_stage_worker *worker, const xci_block_job *job) {
    TRY(xci_grow(worker->bundle->context, &worker->made, &worker->made_capacity,
                 worker->made_bytes + job->block_bytes));
    memcpy(worker->made + worker->made_bytes, job->block, job->block_bytes);
    worker->made_bytes += job->block_bytes;
    return XORCAST_OK;
}

/* A block that was checked once: as it is, or made another form and checked again. */
static xorcast_status keep_block(xci_stage_worker *worker, xci_stage_run *run,
                                 const xci_chunk *chunk, uint32_t index, xci_block_job *job) {
    const bool foreign = job->status < 0;
    if (foreign) {
        TRY(transcode(worker, chunk, run->record, index, job));
        if (job->block_bytes == 0)
            return XORCAST_OK;
        job->list = NULL; /* its room was for the other form */
        backend_of(worker)->check(job, 1);
    }
    if (job->status < 0)
        return bad_chunk(worker->bundle, chunk, "its block is damaged");
    if (chunk->packed && !padding_untouched(worker, chunk, job))
        return bad_chunk(worker->bundle, chunk, "it changes bytes between tensors");
    if (foreign)
        TRY(keep_made(worker, job));
    xci_ready *ready = &run->ready[run->ready_count++];
    *ready = (xci_ready){.chunk = chunk->index,
                         .block = foreign ? NULL : job->block, /* NULL: the next in worker->made */
                         .weights = xci_chunk_direct(worker->bundle, chunk),
                         .block_bytes = job->block_bytes,
                         .block_codec = job->block_codec,
                         .bytes = chunk->bytes,
                         .change = job->change};
    if (worker->keeps_lists && job->list_bytes > 0) {
        ready->block = (const uint8_t *)job->list;
        ready->block_bytes = job->list_bytes;
        ready->block_codec = XCI_CODEC_LIST;
    }
    run->ready_bytes += ready->block_bytes;
    count_changes(job, &run->counts);
    xci_digest_merge(&run->change, &job->change);
    return XORCAST_OK;
}

static xorcast_status check_listed(xci_stage_worker *worker, xci_stage_run *run, uint64_t count) {
    backend_of(worker)->check(worker->jobs, count);
    for (uint64_t i = 0; i < count; i++)
        TRY(keep_block(worker, run, &worker->chunks[i], worker->indices[i], &worker->jobs[i]));
    return XORCAST_OK;
}

/* Scattered weights are gathered, one chunk at a time. */
static xorcast_status check_alone(xci_stage_worker *worker, xci_stage_run *run,
                                  const xci_chunk *chunk, uint32_t index, xci_block_job *job) {
    const uint8_t *old;
    TRY(xci_chunk_read(worker->bundle, chunk, worker->gather, &old));
    job->weights = (uint8_t *)(uintptr_t)old; /* only read by check */
    backend_of(worker)->check(job, 1);
    return keep_block(worker, run, chunk, index, job);
}

/* The chunk of a block; false: this bundle holds nothing of it. */
static xorcast_status find_chunk(xci_stage_worker *worker, const xci_record *record,
                                 const xci_block *block, xci_chunk *chunk, bool *holds_out) {
    xorcast_bundle *bundle = worker->bundle;
    const uint64_t first = bundle->group_first[record->group],
                   end = bundle->group_first[record->group + 1];
    const xci_place place = {xci_bundle_tensor_of(bundle, first), first, 0};
    if (first + block->chunk >= end)
        FAIL_AT(bundle->context, XORCAST_DATA_CORRUPT, place,
                "group %llu has no chunk %u; fetch the delta again",
                (unsigned long long)record->group, block->chunk);
    *holds_out = xci_bundle_holds(bundle, first + block->chunk);
    if (!*holds_out)
        return XORCAST_OK;
    xci_bundle_chunk(bundle, first + block->chunk, worker->segments, chunk);
    if (block->element_bytes != chunk->element_bytes)
        return bad_chunk(bundle, chunk, "its elements have another width");
    return XORCAST_OK;
}

/* Room for the lists of a run. */
static xorcast_status take_lists(xci_stage_worker *worker, const xci_stage_run *run,
                                 uint32_t **lists_out) {
    uint64_t entries = 0;
    for (uint32_t i = run->first_block; i < run->first_block + run->block_count; i++)
        entries += XCI_LIST_ROOM(run->record->blocks[i].bytes);
    TRY(xci_grow(worker->bundle->context, &worker->lists, &worker->lists_capacity,
                 entries * XCI_LIST_ENTRY));
    *lists_out = worker->lists;
    return XORCAST_OK;
}

/* Blocks of chunks whose weights lie in one piece are checked many at a time. */
static xorcast_status check_blocks(xci_stage_worker *worker, xci_stage_run *run,
                                   const uint8_t *bytes) {
    const xci_record *record = run->record;
    uint64_t listed = 0;
    uint32_t *list;
    TRY(take_lists(worker, run, &list));
    for (uint32_t i = run->first_block; i < run->first_block + run->block_count; i++) {
        const xci_block *block = &record->blocks[i];
        xci_chunk *chunk = &worker->chunks[listed];
        xci_block_job *job = &worker->jobs[listed];
        const uint8_t *at = bytes;
        bool holds;
        bytes += block->bytes;
        TRY(find_chunk(worker, record, block, chunk, &holds));
        if (!holds)
            continue;
        *job = job_of(chunk, block, at);
        job->list = list;
        list += XCI_LIST_ROOM(block->bytes);
        worker->indices[listed] = i;
        job->weights = worker->bundle->complete ? xci_chunk_direct(worker->bundle, chunk) : NULL;
        if (job->weights != NULL) {
            listed++;
            continue;
        }
        TRY(check_listed(worker, run, listed));
        TRY(check_alone(worker, run, chunk, i, job));
        listed = 0;
    }
    return check_listed(worker, run, listed);
}

/* Blocks that the worker made stay nowhere yet, those in the part only if it is held. */
static bool is_to_copy(const xci_stage_run *run, const xci_ready *ready, bool held) {
    return ready->block == NULL || ready->block_codec == XCI_CODEC_LIST ||
           run->record->second_pass || !held;
}

/* Moves ready blocks, which are in the cache now, to where they stay until they are applied. */
static xorcast_status copy_ready(xci_stage_worker *worker, bool held, xci_stage_run *run) {
    const uint8_t *made = worker->made;
    uint64_t bytes = 0;
    void *memory;
    for (uint32_t i = 0; i < run->ready_count; i++)
        if (is_to_copy(run, &run->ready[i], held))
            bytes += xci_round_up(run->ready[i].block_bytes, XCI_LIST_ENTRY);
        else
            run->in_part = true;
    if (bytes == 0)
        return XORCAST_OK;
    TRY(xci_arena_take(worker->arena, bytes, &memory));
    uint8_t *at = memory;
    for (uint32_t i = 0; i < run->ready_count; i++) {
        xci_ready *ready = &run->ready[i];
        if (!is_to_copy(run, ready, held))
            continue;
        const uint8_t *from = ready->block;
        if (from == NULL) {
            from = made;
            made += ready->block_bytes;
        }
        memcpy(at, from, ready->block_bytes);
        ready->block = at;
        at += xci_round_up(ready->block_bytes, XCI_LIST_ENTRY);
    }
    return XORCAST_OK;
}

bool xci_stage_run_next(xci_stage_run *run) {
    const xci_record *record = run->record;
    /* blocks that are made of the record as a whole, in a worker's memory */
    const bool undivided = record->second_pass || record->params_bytes != 0;
    uint32_t end = run->first_block + run->block_count;
    run->first_block = end;
    run->offset += run->bytes;
    run->bytes = 0;
    while (end < record->block_count && (undivided || run->bytes < RUN_BYTES))
        run->bytes += record->blocks[end++].bytes;
    run->block_count = end - run->first_block;
    return run->block_count > 0;
}

xorcast_status xci_stage_run_work(xci_stage_worker *worker, bool held, xci_stage_run *run) {
    const xci_record *record = run->record;
    const uint64_t first = worker->bundle->group_first[record->group];
    const xci_place place = {xci_bundle_tensor_of(worker->bundle, first), first, 0};
    const uint8_t *bytes;
    TRY(xci_group_read(&worker->reader, place, record, &bytes));
    worker->made_bytes = 0;
    TRY(check_blocks(worker, run, bytes + run->offset));
    return run->ready_count > 0 ? copy_ready(worker, held, run) : XORCAST_OK;
}
