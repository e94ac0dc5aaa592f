/* Encoding ranges of chunks: see encode.h. */
#include "publish/encode.h"

#include <string.h>

#include "base/bytes.h"
#include "codec/words_block.h"

/* ---- Workers ---- */

xorcast_status xci_encode_worker_open(xci_encode_worker *worker, xorcast_bundle *bundle,
                                      const xorcast_encoding *encoding) {
    xorcast_context *context = bundle->context;
    const uint64_t count = bundle->group_chunks_max;
    void *memory;
    memset(worker, 0, sizeof *worker);
    TRY(xci_group_writer_open(&worker->writer, context, encoding));
    TRY(xci_allocate_array(context, count, sizeof *worker->chunks, &memory));
    worker->chunks = memory;
    TRY(xci_allocate_array(context, count, sizeof *worker->jobs, &memory));
    worker->jobs = memory;
    TRY(xci_allocate_array(context, count, sizeof *worker->blocks, &memory));
    worker->blocks = memory;
    TRY(xci_allocate_array(context, count, sizeof *worker->old, &memory));
    worker->old = memory;
    TRY(xci_allocate(context, bundle->group_size_max + XCI_BLOCK_SLACK, &memory));
    worker->blocks_at = memory;
    return XORCAST_OK;
}

void xci_encode_worker_close(xci_encode_worker *worker, xorcast_context *context) {
    void *const parts[] = {worker->chunks,    worker->jobs,      worker->blocks, worker->blocks_at,
                           worker->gather[0], worker->gather[1], worker->old,    worker->before};
    xci_group_writer_close(&worker->writer);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        xci_release(context, parts[i]);
}

xorcast_status xci_encode_workers_open(xorcast_bundle *bundle, const xorcast_encoding *encoding,
                                       xci_encode_worker **workers_out) {
    xorcast_context *context = bundle->context;
    const uint32_t threads = xci_context_threads(context);
    void *memory;
    TRY(xci_allocate_array(context, threads, sizeof(xci_encode_worker), &memory));
    xci_encode_worker *workers = memory;
    for (uint32_t i = 0; i < threads; i++) {
        const xorcast_status status = xci_encode_worker_open(&workers[i], bundle, encoding);
        if (status < 0) {
            xci_encode_workers_close(context, workers);
            return status;
        }
    }
    *workers_out = workers;
    return XORCAST_OK;
}

void xci_encode_workers_close(xorcast_context *context, xci_encode_worker *workers) {
    for (uint32_t i = 0; workers != NULL && i < xci_context_threads(context); i++)
        xci_encode_worker_close(&workers[i], context);
    xci_release(context, workers);
}

/* ---- Ranges ---- */

/* Bytes of chunk i of the range, where they lie or gathered behind those gathered before. */
static xorcast_status fetch(xci_encode_worker *worker, xorcast_bundle *bundle, unsigned side,
                            uint64_t i, uint64_t *used, const uint8_t **bytes_out) {
    const xci_chunk *chunk = &worker->chunks[i];
    *bytes_out = xci_chunk_direct(bundle, chunk);
    if (*bytes_out != NULL)
        return XORCAST_OK;
    if (worker->gather_capacity[side] == 0) {
        void *memory;
        const uint64_t bytes = bundle->group_size_max + bundle->group_chunks_max * 64;
        TRY(xci_allocate(bundle->context, bytes, &memory));
        worker->gather[side] = memory;
        worker->gather_capacity[side] = bytes;
    }
    uint8_t *place = worker->gather[side] + *used;
    *used += xci_round_up(chunk->bytes, 64);
    return xci_chunk_read(bundle, chunk, place, bytes_out);
}

static xorcast_status make_jobs(xci_encode_worker *worker, xorcast_bundle *old_bundle,
                                xorcast_bundle *new_bundle, uint64_t first, uint64_t count,
                                xci_old_side old_side) {
    uint64_t used[2] = {0, 0};
    for (uint64_t i = 0; i < count; i++) {
        xci_chunk *chunk = &worker->chunks[i];
        if (i == 0) {
            xci_bundle_chunk(old_bundle, first, NULL, chunk);
        } else {
            *chunk = worker->chunks[i - 1];
            xci_bundle_next_chunk(old_bundle, NULL, chunk);
        }
        xci_encode_job *job = &worker->jobs[i];
        memset(job, 0, sizeof *job);
        TRY(fetch(worker, old_bundle, 0, i, &used[0], &job->old_bytes));
        TRY(fetch(worker, new_bundle, 1, i, &used[1], &job->new_bytes));
        job->bytes = chunk->bytes;
        job->element_bytes = chunk->element_bytes;
        job->codec = xci_group_writer_codec(&worker->writer);
        job->segments = chunk->segments;
        job->segment_count = chunk->segment_count;
        job->move = old_side == XCI_OLD_MOVE ? xci_chunk_direct(old_bundle, chunk) : NULL;
    }
    return XORCAST_OK;
}

static void digest_old_side(xci_encode_worker *worker, const xci_backend *backend, uint64_t count,
                            xorcast_digest *sum) {
    for (uint64_t i = 0; i < count; i++) {
        const xci_encode_job *job = &worker->jobs[i];
        xci_digest_job digest = {job->old_bytes, job->segment_count, job->segments, {{0, 0}}};
        backend->digest(&digest, 1);
        sum->lane[0] += digest.digest.lane[0];
        sum->lane[1] += digest.digest.lane[1];
    }
}

void xci_piece_cover(xci_piece *piece, const xci_segment *segments, uint32_t segment_count,
                     uint32_t element_bytes) {
    for (uint32_t s = 0; s < segment_count; s++) {
        piece->counts.bytes_covered += segments[s].bytes;
        piece->counts.elements_covered += xci_divide_up(segments[s].bytes, element_bytes);
    }
}

/* Blocks one behind the other: few bytes, which stay in the cache. */
static void encode_blocks(xci_encode_worker *worker, const xci_backend *backend, uint64_t count) {
    uint8_t *at = worker->blocks_at;
    for (uint64_t i = 0; i < count; i++) {
        worker->jobs[i].block = at;
        backend->encode(&worker->jobs[i], 1);
        at += worker->jobs[i].block_bytes;
    }
}

/* Lists the blocks. */
static void collect(xci_encode_worker *worker, uint64_t first_in_group, uint64_t count,
                    xci_piece *piece) {
    xci_record *record = &piece->record;
    record->blocks = worker->blocks;
    record->payload = worker->blocks_at;
    for (uint64_t i = 0; i < count; i++) {
        const xci_encode_job *job = &worker->jobs[i];
        xci_piece_cover(piece, job->segments, job->segment_count, job->element_bytes);
        if (job->block_bytes == 0)
            continue;
        record->raw_bytes += job->block_bytes;
        record->blocks[record->block_count++] = (xci_block){
            (uint32_t)(first_in_group + i), job->block_codec, job->element_bytes, job->block_bytes,
            job->bytes};
        piece->counts.bits_changed += job->bits_changed;
        piece->counts.bytes_changed += job->bytes_changed;
        piece->counts.elements_changed += job->elements_changed;
        piece->counts.chunks_changed++;
        piece->change.lane[0] += job->change.lane[0];
        piece->change.lane[1] += job->change.lane[1];
    }
}

xorcast_status xci_encode_range(xci_encode_worker *worker, xorcast_bundle *old_bundle,
                                xorcast_bundle *new_bundle, uint64_t group, uint64_t first,
                                uint64_t end, xci_old_side old_side, xci_piece *piece_out) {
    const xci_backend *backend = old_bundle->context->shared->backend;
    const uint64_t count = end - first;
    memset(piece_out, 0, sizeof *piece_out);
    piece_out->record.group = group;
    TRY(make_jobs(worker, old_bundle, new_bundle, first, count, old_side));
    encode_blocks(worker, backend, count);
    if (old_side == XCI_OLD_DIGEST)
        digest_old_side(worker, backend, count, &piece_out->old);
    collect(worker, first - old_bundle->group_first[group], count, piece_out);
    return XORCAST_OK;
}

/* A chunk's bytes before a block of changed words, or a raw one, was XORed into them. */
static void take_back(const xci_block *block, const uint8_t *mask, const uint8_t *now,
                      uint8_t *out) {
    const uint32_t bytes = block->chunk_bytes;
    memcpy(out, now, bytes);
    if (block->codec == XCI_CODEC_WORDS)
        xci_words_xor(mask, block->bytes, out, bytes);
    else
        xci_xor_into(out, mask, bytes);
}

xorcast_status xci_encode_old(xci_encode_worker *worker, const xorcast_bundle *moved,
                              const xci_record *record, const uint8_t *const **old_out) {
    *old_out = worker->old;
    for (uint32_t i = 0; i < record->block_count && moved == NULL; i++)
        worker->old[i] = worker->jobs[record->blocks[i].chunk].old_bytes;
    if (moved == NULL)
        return XORCAST_OK;
    TRY(xci_grow(moved->context, &worker->before, &worker->before_capacity, moved->group_size_max));
    const uint8_t *mask = record->payload;
    uint8_t *at = worker->before;
    for (uint32_t i = 0; i < record->block_count; i++) {
        const xci_block *block = &record->blocks[i];
        xci_chunk chunk;
        xci_bundle_chunk_places(moved, moved->group_first[record->group] + block->chunk, &chunk);
        take_back(block, mask, xci_chunk_direct(moved, &chunk), at);
        worker->old[i] = at;
        at += block->chunk_bytes;
        mask += block->bytes;
    }
    return XORCAST_OK;
}
