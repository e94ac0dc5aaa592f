/* Copies and batched operations of the stand-in device: the CPU backend's functions on chunks that
 * are fetched from wherever they lie. */
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/bytes.h"
#include "support/fake_inside.h"

/* ---- Copies ---- */

static int run_copy(fake_work *work) {
    const uint64_t bytes = work->call.copy.bytes;
    if (bytes > 0)
        memmove(fake_real(work->call.copy.to, bytes), fake_real(work->call.copy.from, bytes),
                bytes);
    return 0;
}

int fake_copy(void *device, void *to, const void *from, uint64_t bytes, void *stream) {
    const fake_work work = {.run = run_copy, .call.copy = {to, from, bytes}};
    return fake_put(device, stream, &work);
}

int fake_copy_now(void *device, void *to, const void *from, uint64_t bytes) {
    (void)device;
    fake_count_wait();
    const int error = fake_call();
    fake_work work = {.call.copy = {to, from, bytes}};
    return error != 0 ? error : run_copy(&work);
}

static int run_fill(fake_work *work) {
    const uint64_t bytes = work->call.fill.bytes;
    if (bytes > 0)
        memset(fake_real(work->call.fill.to, bytes), work->call.fill.value, bytes);
    return 0;
}

int fake_fill(void *device, void *to, uint8_t value, uint64_t bytes, void *stream) {
    const fake_work work = {.run = run_fill, .call.fill = {to, value, bytes}};
    return fake_put(device, stream, &work);
}

static int run_copy_many(fake_work *work) {
    const uint64_t count = work->call.many.count;
    const xci_cuda_move *moves = fake_real(work->call.many.moves, count * sizeof *moves);
    for (uint64_t i = 0; i < count; i++)
        memcpy(fake_real(moves[i].to, moves[i].bytes), fake_real(moves[i].from, moves[i].bytes),
               moves[i].bytes);
    return 0;
}

int fake_copy_many(void *device, const xci_cuda_move *moves, uint64_t count, void *stream) {
    const fake_work work = {.run = run_copy_many, .call.many = {moves, count}};
    return fake_put(device, stream, &work);
}

/* The sources were looked at when the copies were put; the targets are the device's. */
static int run_copy_peer_many(fake_work *work) {
    for (uint64_t i = 0; i < work->call.many.count; i++) {
        const xci_cuda_move *move = &work->call.many.moves[i];
        void *to = fake_real(move->to, move->bytes);
        const int before = fake_enter(-1);
        memcpy(to, fake_real(move->from, move->bytes), move->bytes);
        (void)fake_enter(before);
    }
    return 0;
}

int fake_copy_peer_many(void *device, void *from_device, const xci_cuda_move *moves, uint64_t count,
                        void *stream) {
    for (uint64_t i = 0; i < count; i++) {
        int32_t ordinal = XCI_NO_DEVICE;
        uint64_t owned = 0;
        const int error = fake_owner(from_device, moves[i].from, &ordinal, &owned);
        if (error != 0)
            return error;
        if (owned < moves[i].bytes || ordinal != ((fake_device *)from_device)->ordinal)
            fake_stop("a copy from a device that does not own the memory");
        if (((uintptr_t)moves[i].from | (uintptr_t)moves[i].to | moves[i].bytes) % 16 != 0)
            fake_stop("a copy of other than whole vectors");
        fake_count_peer_bytes(moves[i].bytes);
    }
    const fake_work work = {.run = run_copy_peer_many, .call.many = {moves, count}};
    return fake_put(device, stream, &work);
}

static int run_join_many(fake_work *work) {
    for (uint64_t i = 0; i < work->call.many.count; i++) {
        const xci_cuda_move *move = &work->call.many.moves[i];
        uint8_t *to = fake_real(move->to, move->bytes);
        const uint8_t *from = fake_real(move->from, move->bytes);
        for (uint64_t b = 0; b < move->bytes; b++)
            to[b] ^= from[b];
    }
    return 0;
}

int fake_join_many(void *device, const xci_cuda_move *moves, uint64_t count, void *stream) {
    for (uint64_t i = 0; i < count; i++)
        if (((uintptr_t)moves[i].from | (uintptr_t)moves[i].to | moves[i].bytes) % 16 != 0)
            fake_stop("a join of other than whole vectors");
    const fake_work work = {.run = run_join_many, .call.many = {moves, count}};
    return fake_put(device, stream, &work);
}

/* ---- A chunk and its places ---- */

xci_cuda_chunk fake_chunk_of(const xci_cuda_grid *grid, uint64_t chunk) {
    if (chunk >= grid->chunk_count)
        fake_stop("a chunk that is not in the grid");
    return *(const xci_cuda_chunk *)fake_real(&grid->chunks[chunk], sizeof(xci_cuda_chunk));
}

/* The CPU backend's form of a chunk's segments; free(3). */
xci_segment *fake_segments_of(const xci_cuda_grid *grid, const xci_cuda_chunk *chunk) {
    xci_segment *list = calloc(chunk->segment_count + 1u, sizeof *list);
    if (chunk->segment_count == 0)
        return list;
    const xci_cuda_segment *from =
        fake_real(&grid->segments[chunk->segment_first], chunk->segment_count * sizeof *from);
    for (uint32_t i = 0; i < chunk->segment_count; i++)
        list[i] = (xci_segment){from[i].offset, from[i].bytes, from[i].key};
    return list;
}

typedef enum touch { READ, WRITE, XOR } touch;

static void touch_bytes(touch how, uint8_t *at, uint8_t *bytes, uint64_t count) {
    uint8_t *place = fake_real(at, count);
    if (how == READ)
        memcpy(bytes, place, count);
    else if (how == WRITE)
        memcpy(place, bytes, count);
    for (uint64_t i = 0; how == XOR && i < count; i++)
        place[i] ^= bytes[i];
}

/* Every place of a chunk; of several places of a byte the first is read last and prevails. What has
 * no place is left alone. */
static void touch_chunk(touch how, const xci_cuda_places *places, uint64_t chunk, uint32_t bytes,
                        uint8_t *piece) {
    uint8_t *direct = *(uint8_t *const *)fake_real(&places->direct[chunk], sizeof(uint8_t *));
    if (direct != NULL) {
        touch_bytes(how, direct, piece, bytes);
        return;
    }
    if (places->window_first == NULL)
        fake_stop("a chunk without a place in a table without windows");
    const uint32_t *first =
        fake_real(&places->window_first[chunk - places->window_base], 2 * sizeof *first);
    for (uint32_t i = first[1]; i-- > first[0];) {
        const xci_cuda_window *w = fake_real(&places->windows[i], sizeof *w);
        if (w->row_count == 0 || (i > first[0] && w->offset < w[-1].offset))
            fake_stop("windows that are empty or do not rise");
        for (uint32_t row = 0; row < w->row_count; row++) {
            const uint64_t offset = w->offset + (uint64_t)row * w->stride;
            if (offset + w->width > bytes || offset % 8 != 0)
                fake_stop("a window that leaves its chunk or is not at a word");
            touch_bytes(how, w->at + row * w->pitch, piece + offset, w->width);
        }
    }
}

void fake_read_chunk(const xci_cuda_places *places, uint64_t chunk, uint32_t bytes,
                     uint8_t *piece) {
    touch_chunk(READ, places, chunk, bytes, piece);
}

/* ---- Encode ---- */

uint64_t fake_encode_scratch(void *device, uint64_t count, uint32_t chunk_bytes) {
    (void)device;
    return 256 + count + chunk_bytes;
}

static xci_encode_job encode_chunk(const xci_cuda_encode_call *call, uint64_t chunk,
                                   uint8_t *block) {
    const xci_cuda_chunk about = fake_chunk_of(&call->grid, chunk);
    const uint8_t *old_at = *(uint8_t *const *)fake_real(&call->old_at[chunk], sizeof old_at);
    const uint8_t *new_at = *(const uint8_t *const *)fake_real(&call->new_at[chunk], sizeof new_at);
    xci_segment *segments = fake_segments_of(&call->grid, &about);
    xci_encode_job job = {.old_bytes = fake_real(old_at, about.bytes),
                          .new_bytes = fake_real(new_at, about.bytes),
                          .bytes = about.bytes,
                          .element_bytes = about.element_bytes,
                          .codec = call->codec,
                          .segments = segments,
                          .segment_count = about.segment_count,
                          .block = block};
    xci_backend_cpu.encode(&job, 1);
    free(segments);
    return job;
}

#define NO_PLACE UINT64_C(0x0BAD0BAD0BAD) /* where an unchanged chunk has no block */

static int run_encode(fake_work *work) {
    const xci_cuda_encode_call *call = &work->call.encode;
    xci_cuda_result *results = fake_real(call->results, call->count * sizeof *results);
    uint64_t *used = fake_real(call->used_bytes, sizeof *used);
    uint8_t *block = malloc(call->grid.chunk_bytes + XCI_BLOCK_SLACK);
    memset(fake_real(call->scratch, call->scratch_bytes), 0xEE,
           call->scratch_bytes < 4096 ? call->scratch_bytes : 4096);
    if (call->scratch_bytes < fake_encode_scratch(NULL, call->count, call->grid.chunk_bytes))
        fake_stop("too little scratch for an encode");
    *used = 0;
    for (uint64_t i = 0; i < call->count; i++) {
        const xci_encode_job job = encode_chunk(call, call->first + i, block);
        const bool fits = *used + job.block_bytes <= call->capacity;
        results[i] = (xci_cuda_result){job.block_bytes,
                                       job.block_codec,
                                       job.bytes_changed,
                                       job.elements_changed,
                                       job.bits_changed,
                                       job.change,
                                       job.block_bytes > 0 ? *used : NO_PLACE,
                                       fits ? XORCAST_OK : XORCAST_BUFFER_TOO_SMALL,
                                       {0}};
        if (fits && job.block_bytes > 0)
            memcpy(fake_real(call->blocks + *used, job.block_bytes), block, job.block_bytes);
        /* Some chunks may stay as they were; here it is the raw ones. */
        results[i].moved =
            call->move == 1 && fits && job.block_bytes > 0 && job.block_codec == XORCAST_CODEC_LZ4;
        if (results[i].moved == 1)
            memcpy((uint8_t *)(uintptr_t)job.old_bytes, job.new_bytes, job.bytes);
        *used += job.block_bytes;
    }
    free(block);
    return 0;
}

int fake_encode(void *device, const xci_cuda_encode_call *call, void *stream) {
    const fake_work work = {.run = run_encode, .call.encode = *call};
    return fake_put(device, stream, &work);
}

/* ---- Check and apply ---- */

static const uint8_t *block_bytes_of(const xci_cuda_block *block) {
    if ((uintptr_t)block->bytes % 16 != 0)
        fake_stop("a block that is not 16-byte aligned");
    return fake_real(block->bytes, block->block_bytes + UINT64_C(16));
}

/* What the backend says of a block: check's, or of its mask as a raw block. */
static void check_block(const xci_cuda_block_call *call, const xci_cuda_block *block,
                        const uint8_t *mask, xci_cuda_result *result) {
    const xci_cuda_chunk about = fake_chunk_of(&call->grid, block->chunk);
    xci_segment *segments = fake_segments_of(&call->grid, &about);
    uint8_t *old = calloc(1, about.bytes);
    touch_chunk(READ, &call->places, block->chunk, about.bytes, old);
    xci_block_job job = {.block = mask != NULL ? mask : block_bytes_of(block),
                         .block_bytes = mask != NULL ? about.bytes : block->block_bytes,
                         .block_codec = mask != NULL ? XORCAST_CODEC_RAW : block->block_codec,
                         .bytes = about.bytes,
                         .segments = segments,
                         .segment_count = about.segment_count,
                         .element_bytes = about.element_bytes,
                         .weights = old};
    xci_backend_cpu.check(&job, 1);
    *result = (xci_cuda_result){.block_bytes = block->block_bytes,
                                .block_codec = block->block_codec,
                                .bytes_changed = job.bytes_changed,
                                .elements_changed = job.elements_changed,
                                .bits_changed = job.bits_changed,
                                .change = job.change,
                                .status = job.status};
    const uint64_t list_bytes = UINT64_C(4) * job.bytes_changed;
    if (job.status == XORCAST_OK && block->block_codec == XORCAST_CODEC_LZ4 &&
        list_bytes <= block->block_bytes)
        result->list_bytes = (uint32_t)list_bytes;
    free(segments);
    free(old);
    if (mask == NULL)
        fake_pass_ns((uint64_t)(fake_engine_config().kernel_ns_per_byte * (double)about.bytes));
}

static void mark_bad(const xci_cuda_block_call *call, const xci_cuda_result *result) {
    if (result->status < 0 && call->any_bad != NULL)
        *(uint32_t *)fake_real(call->any_bad, sizeof *call->any_bad) = 1;
}

static int run_check(fake_work *work) {
    const xci_cuda_block_call *call = &work->call.block;
    const xci_cuda_block *blocks = fake_real(call->blocks, call->count * sizeof *blocks);
    xci_cuda_result *results = fake_real(call->results, call->count * sizeof *results);
    uint32_t *notes =
        call->notes != NULL ? fake_real(call->notes, call->count * sizeof *notes) : NULL;
    for (uint64_t i = 0; i < call->count; i++) {
        check_block(call, &blocks[i], NULL, &results[i]);
        if (notes != NULL)
            notes[i] = results[i].list_bytes;
        mark_bad(call, &results[i]);
    }
    return 0;
}

int fake_check(void *device, const xci_cuda_block_call *call, void *stream) {
    const fake_work work = {.run = run_check, .call.block = *call};
    return fake_put(device, stream, &work);
}

/* A block's mask; free(3). */
static uint8_t *mask_of(const xci_cuda_block *block, uint32_t bytes) {
    const uint8_t *at = block_bytes_of(block);
    uint8_t *mask = calloc(1, bytes);
    const xci_block_job job = {.block = at,
                               .block_bytes = block->block_bytes,
                               .block_codec = block->block_codec,
                               .bytes = bytes,
                               .weights = mask};
    if (block->block_codec != XCI_CUDA_CODEC_LIST)
        xci_backend_cpu.apply(&job, 1);
    for (uint32_t i = 0; block->block_codec == XCI_CUDA_CODEC_LIST && i < block->block_bytes;
         i += 4) {
        const uint32_t entry = xci_load32(at + i);
        if (entry >> 8 >= bytes)
            fake_stop("a list that leaves its chunk");
        mask[entry >> 8] = (uint8_t)entry;
    }
    return mask;
}

static void make_list(xci_cuda_block *block, const uint8_t *mask, uint32_t bytes,
                      uint32_t list_bytes) {
    uint8_t *list = fake_real(block->bytes, block->block_bytes);
    for (uint32_t at = 0; at < bytes; at++)
        if (mask[at] != 0) {
            xci_store32(list, at << 8 | mask[at]);
            list += 4;
        }
    block->block_bytes = list_bytes;
    block->block_codec = XCI_CUDA_CODEC_LIST;
}

static int run_prepare(fake_work *work) {
    const xci_cuda_block_call *call = &work->call.block;
    xci_cuda_block *blocks = fake_real(call->blocks, call->count * sizeof *blocks);
    const uint32_t *notes = fake_real(call->notes, call->count * sizeof *notes);
    for (uint64_t i = 0; i < call->count; i++) {
        if (notes[i] == 0)
            continue;
        const uint32_t bytes = fake_chunk_of(&call->grid, blocks[i].chunk).bytes;
        uint8_t *mask = mask_of(&blocks[i], bytes);
        make_list(&blocks[i], mask, bytes, notes[i]);
        free(mask);
    }
    return 0;
}

int fake_prepare(void *device, const xci_cuda_block_call *call, void *stream) {
    const fake_work work = {.run = run_prepare, .call.block = *call};
    return fake_put(device, stream, &work);
}

static int run_check_masks(fake_work *work) {
    const xci_cuda_mask_call *call = &work->call.masks;
    const uint64_t count = call->of.count;
    xci_cuda_block *blocks = fake_real(call->of.blocks, count * sizeof *blocks);
    xci_cuda_result *results = fake_real(call->of.results, count * sizeof *results);
    const uint32_t *decoded = fake_real(call->decoded, count * 2 * sizeof *decoded);
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t bytes = fake_chunk_of(&call->of.grid, blocks[i].chunk).bytes;
        const uint8_t *mask = fake_real(call->masks + i * call->stride, bytes);
        if (blocks[i].block_codec != XORCAST_CODEC_LZ4)
            fake_stop("a mask of a block that is not LZ4");
        results[i] = (xci_cuda_result){.block_bytes = blocks[i].block_bytes,
                                       .block_codec = blocks[i].block_codec,
                                       .status = XORCAST_DATA_CORRUPT};
        if (decoded[2 * i] == bytes)
            check_block(&call->of, &blocks[i], mask, &results[i]);
        mark_bad(&call->of, &results[i]);
        if (results[i].list_bytes != 0)
            make_list(&blocks[i], mask, bytes, results[i].list_bytes);
    }
    return 0;
}

int fake_check_masks(void *device, const xci_cuda_mask_call *call, void *stream) {
    const fake_work work = {.run = run_check_masks, .call.masks = *call};
    return fake_put(device, stream, &work);
}

static int run_apply(fake_work *work) {
    const xci_cuda_block_call *call = &work->call.block;
    const xci_cuda_block *blocks = fake_real(call->blocks, call->count * sizeof *blocks);
    if (call->gate != NULL && *(const uint32_t *)fake_real(call->gate, sizeof *call->gate) != 0)
        return 0;
    for (uint64_t i = 0; i < call->count; i++) {
        const xci_cuda_chunk about = fake_chunk_of(&call->grid, blocks[i].chunk);
        uint8_t *mask = mask_of(&blocks[i], about.bytes);
        touch_chunk(XOR, &call->places, blocks[i].chunk, about.bytes, mask);
        free(mask);
        if (call->progress != NULL)
            ++*(uint64_t *)fake_real(call->progress, sizeof *call->progress);
    }
    return 0;
}

int fake_apply(void *device, const xci_cuda_block_call *call, void *stream) {
    const fake_work work = {.run = run_apply, .call.block = *call};
    return fake_put(device, stream, &work);
}

/* ---- Digest, gather, scatter ---- */

static int run_digest(fake_work *work) {
    const xci_cuda_digest_call *call = &work->call.digest;
    xorcast_digest *digests = fake_real(call->digests, call->count * sizeof *digests);
    for (uint64_t i = 0; i < call->count; i++) {
        const xci_cuda_chunk about = fake_chunk_of(&call->grid, call->first + i);
        xci_segment *segments = fake_segments_of(&call->grid, &about);
        uint8_t *bytes = calloc(1, about.bytes);
        touch_chunk(READ, &call->places, call->first + i, about.bytes, bytes);
        xci_digest_job job = {bytes, about.segment_count, segments, {{0, 0}}};
        xci_backend_cpu.digest(&job, 1);
        digests[i] = job.digest;
        free(segments);
        free(bytes);
    }
    return 0;
}

int fake_digest(void *device, const xci_cuda_digest_call *call, void *stream) {
    const fake_work work = {.run = run_digest, .call.digest = *call};
    return fake_put(device, stream, &work);
}

static uint8_t *piece_of(const xci_cuda_copy_call *call, uint64_t index, uint32_t bytes) {
    return fake_real(*(uint8_t *const *)fake_real(&call->pieces[index], sizeof(uint8_t *)), bytes);
}

static int run_pieces(fake_work *work, touch how) {
    const xci_cuda_copy_call *call = &work->call.pieces;
    for (uint64_t i = 0; i < call->count; i++) {
        const xci_cuda_chunk about = fake_chunk_of(&call->grid, call->first + i);
        uint8_t *bytes = calloc(1, about.bytes); /* what is nowhere reads as zero */
        uint8_t *piece = piece_of(call, i, about.bytes);
        if (how == WRITE)
            memcpy(bytes, piece, about.bytes);
        touch_chunk(how, &call->places, call->first + i, about.bytes, bytes);
        if (how == READ)
            memcpy(piece, bytes, about.bytes);
        free(bytes);
    }
    return 0;
}

static int run_gather(fake_work *work) {
    return run_pieces(work, READ);
}
static int run_scatter(fake_work *work) {
    return run_pieces(work, WRITE);
}

int fake_gather(void *device, const xci_cuda_copy_call *call, void *stream) {
    const fake_work work = {.run = run_gather, .call.pieces = *call};
    return fake_put(device, stream, &work);
}

int fake_scatter(void *device, const xci_cuda_copy_call *call, void *stream) {
    const fake_work work = {.run = run_scatter, .call.pieces = *call};
    return fake_put(device, stream, &work);
}
