/* Gap blocks on the device, when they are staged, against the CPU's decoder: the same blocks are
 * accepted, and come to the same counts, changes of the digest and device-ready forms. Groups as
 * the CPU encodes them, and damaged ones. Runs on a GPU, or on the emulation of one (emulated/),
 * which takes fewer cases because it is slow.
 *
 *     test_cuda_gap_decode [quick]
 *
 * Exit status 1 and a message at the first difference. */
#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_kernels.h"
#include "base/digest.h"
#include "gpu/gap_groups.h"

#define GROUPS 16u
#define GUARD 64u
#define FILL 0x5a

/* Groups that go to the device together. */
typedef struct batch {
    gap_made made[GROUPS];
    uint32_t group_count;
    /* what becomes of each gap block, by the CPU */
    uint32_t block_count;
    uint8_t *masks[GROUPS * GAP_CHUNKS];
    xci_block_job wanted[GROUPS * GAP_CHUNKS];
    xci_cuda_gap_block blocks[GROUPS * GAP_CHUNKS];
    xci_cuda_gap_record records[GROUPS];
    uint32_t most_tables, most_params;
} batch;

static uint64_t accepted, refused;

static void check_cuda(int error, const char *what) {
    if (error != cudaSuccess)
        gap_fail(what, (uint64_t)error);
}

static void *device(size_t bytes) {
    void *memory = NULL;
    check_cuda(cudaMalloc(&memory, bytes + 1), "cudaMalloc");
    return memory;
}

static void *to_device(const void *from, size_t bytes) {
    void *memory = device(bytes);
    if (bytes > 0)
        check_cuda(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice), "a copy");
    return memory;
}

static void to_host(void *to, const void *from, size_t bytes) {
    if (bytes > 0)
        check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "a copy");
}

/* ---- What the CPU says ---- */

static void want_block(batch *b, const gap_made *made, const xci_gap_group *group, uint32_t index,
                       bool group_good, bool beside, const uint8_t *bytes) {
    const xci_block *block = &made->blocks[index];
    const gap_chunk *c = &made->chunks[block->chunk];
    uint8_t *mask = gap_memory(c->bytes);
    xci_block_job *job = &b->wanted[b->block_count];
    b->masks[b->block_count] = mask;
    *job = (xci_block_job){.block = mask,
                           .block_bytes = c->bytes,
                           .block_codec = XORCAST_CODEC_RAW,
                           .bytes = c->bytes,
                           .segment_count = c->segment_count,
                           .segments = c->segments,
                           .weights = c->old_bytes,
                           .element_bytes = c->element_bytes};
    job->status = XORCAST_DATA_CORRUPT;
    if (!group_good || group->places[index].chunk_bytes != c->bytes)
        return;
    if (xci_gap_knows_old(group, index) && !beside) {
        job->status = XORCAST_UNSUPPORTED;
        return;
    }
    if (!xci_gap_decode(group, index, bytes, block->bytes, c->old_bytes, mask))
        return;
    job->status = XORCAST_OK;
    xci_backend_cpu.check(job, 1);
    if (job->status != XORCAST_OK)
        gap_fail("the CPU does not take a raw block", index);
}

/* Lists a group's gap blocks; block and parameter bytes are offsets in `payload` until they are on
 * the device. `sizes` and `params_bytes` say what they have become. */
static void add_group(batch *b, const gap_made *made, const uint8_t *payload, uint32_t params_bytes,
                      bool beside) {
    static xci_gap_group group;
    xci_cuda_gap_record *record = &b->records[b->group_count++];
    uint64_t at = 0;
    *record = (xci_cuda_gap_record){.first = b->block_count, .params_bytes = params_bytes};
    for (uint32_t i = 0; i < made->record.block_count; i++) {
        group.is_gap[i] = made->blocks[i].codec == XORCAST_CODEC_GAP;
        record->gap_count += group.is_gap[i];
        at += made->blocks[i].bytes;
    }
    const uint8_t *params = payload + at;
    const bool good = xci_gap_group_read(&group, params, params_bytes, made->record.block_count);
    const uint32_t tables = params_bytes > 0 && params[0] < 32 ? params[0] : 32;
    b->most_tables = b->most_tables > tables ? b->most_tables : tables;
    b->most_params = b->most_params > params_bytes ? b->most_params : params_bytes;
    record->params = (const uint8_t *)(uintptr_t)at;
    uint32_t ordinal = 0;
    at = 0;
    for (uint32_t i = 0; i < made->record.block_count; i++) {
        const xci_block *block = &made->blocks[i];
        if (block->codec == XORCAST_CODEC_GAP) {
            want_block(b, made, &group, i, good, beside, payload + at);
            b->blocks[b->block_count++] =
                (xci_cuda_gap_block){.bytes = (const uint8_t *)(uintptr_t)at,
                                     .chunk = block->chunk,
                                     .block_bytes = block->bytes,
                                     .ordinal = ordinal++};
        }
        at += block->bytes;
    }
    record->count = b->block_count - (uint32_t)record->first;
}

/* ---- On the device ---- */

typedef struct on_device {
    xci_cuda_gap_call call;
    void *all[8 + 2 * GROUPS * GAP_CHUNKS];
    uint32_t count;
} on_device;

static void *keep(on_device *d, void *memory) {
    d->all[d->count++] = memory;
    return memory;
}

/* Tables of all groups' chunks; blocks' chunk numbers become those of the whole grid. */
static void send_grid(batch *b, on_device *d) {
    static xci_cuda_chunk chunks[GROUPS * GAP_CHUNKS];
    static xci_cuda_segment segments[2 * GROUPS * GAP_CHUNKS];
    static uint8_t *direct[GROUPS * GAP_CHUNKS];
    uint32_t count = 0, segment_count = 0, most = 0;
    for (uint32_t g = 0; g < b->group_count; g++) {
        const gap_made *made = &b->made[g];
        for (uint32_t i = 0; i < b->records[g].count; i++)
            b->blocks[b->records[g].first + i].chunk += count;
        for (uint32_t i = 0; i < made->count; i++) {
            const gap_chunk *c = &made->chunks[i];
            direct[count] = keep(d, to_device(c->old_bytes, c->bytes));
            chunks[count++] =
                (xci_cuda_chunk){c->bytes, c->element_bytes, segment_count, c->segment_count};
            most = c->bytes > most ? c->bytes : most;
            for (uint32_t s = 0; s < c->segment_count; s++)
                segments[segment_count++] = (xci_cuda_segment){
                    c->segments[s].key, c->segments[s].offset, c->segments[s].bytes};
        }
    }
    d->call.grid = (xci_cuda_grid){keep(d, to_device(chunks, count * sizeof *chunks)),
                                   keep(d, to_device(segments, segment_count * sizeof *segments)),
                                   count, most};
    d->call.places.direct = keep(d, to_device(direct, count * sizeof *direct));
}

static void send_blocks(batch *b, on_device *d, uint8_t *const *payloads,
                        const uint64_t *payload_bytes) {
    for (uint32_t g = 0; g < b->group_count; g++) {
        const uint8_t *at = keep(d, to_device(payloads[g], payload_bytes[g]));
        b->records[g].params = at + (uintptr_t)b->records[g].params;
        for (uint32_t i = 0; i < b->records[g].count; i++) {
            xci_cuda_gap_block *block = &b->blocks[b->records[g].first + i];
            block->bytes = at + (uintptr_t)block->bytes;
        }
    }
    d->call.blocks = keep(d, to_device(b->blocks, b->block_count * sizeof *b->blocks));
    d->call.records = keep(d, to_device(b->records, b->group_count * sizeof *b->records));
    d->call.results = keep(d, device(b->block_count * sizeof(xci_cuda_result)));
    d->call.record_count = b->group_count;
    d->call.most_tables = b->most_tables;
    d->call.most_params = b->most_params;
}

/* ---- Comparing ---- */

#define SAME(what, got, wanted)                                                                    \
    if ((got) != (wanted))                                                                         \
    gap_fail(what " of a block", i)

static void compare_results(const batch *b, const xci_cuda_result *results) {
    for (uint32_t i = 0; i < b->block_count; i++) {
        const xci_block_job *job = &b->wanted[i];
        const xci_cuda_result *r = &results[i];
        SAME("status", r->status, job->status);
        accepted += job->status == XORCAST_OK;
        refused += job->status != XORCAST_OK;
        if (job->status != XORCAST_OK) {
            SAME("size", r->list_bytes, 0);
            continue;
        }
        SAME("bits", r->bits_changed, job->bits_changed);
        SAME("bytes", r->bytes_changed, job->bytes_changed);
        SAME("elements", r->elements_changed, job->elements_changed);
        SAME("digest, low", r->change.lane[0], job->change.lane[0]);
        SAME("digest, high", r->change.lane[1], job->change.lane[1]);
        const bool raw = r->block_codec == XORCAST_CODEC_RAW;
        if (raw ? r->list_bytes != job->bytes : r->list_bytes != 4 * job->bytes_changed)
            gap_fail("size of a form", i);
        if (r->list_bytes > job->bytes || (!raw && r->block_codec != XCI_CUDA_CODEC_LIST))
            gap_fail("a form", i);
    }
}

static void compare_form(const xci_block_job *job, const xci_cuda_result *r, const uint8_t *form,
                         uint32_t i) {
    if (r->block_codec == XORCAST_CODEC_RAW) {
        if (memcmp(form, job->block, job->bytes) != 0)
            gap_fail("a raw mask", i);
        return;
    }
    for (uint32_t k = 0, at = 0; at < job->bytes; at++) {
        if (job->block[at] == 0)
            continue;
        if (xci_load32(form + 4 * (size_t)k++) != (at << 8 | job->block[at]))
            gap_fail("a list", i);
    }
}

static void run_ready(batch *b, on_device *d, const xci_cuda_result *results) {
    static uint8_t *forms[GROUPS * GAP_CHUNKS];
    for (uint32_t i = 0; i < b->block_count; i++) {
        const uint32_t room = (results[i].list_bytes + 15) / 16 * 16;
        forms[i] = device(room + GUARD);
        check_cuda(cudaMemset(forms[i], FILL, room + GUARD), "cudaMemset");
        b->blocks[i].ready = forms[i];
    }
    check_cuda(cudaMemcpy((void *)(uintptr_t)d->call.blocks, b->blocks,
                          b->block_count * sizeof *b->blocks, cudaMemcpyHostToDevice),
               "a copy");
    check_cuda(xci_cuda_gap_ready(&d->call, NULL), "xci_cuda_gap_ready");
    check_cuda(cudaDeviceSynchronize(), "ready");
    for (uint32_t i = 0; i < b->block_count; i++) {
        const uint32_t room = (results[i].list_bytes + 15) / 16 * 16;
        uint8_t *form = gap_memory(room + GUARD);
        to_host(form, forms[i], room + GUARD);
        for (uint32_t k = 0; k < GUARD; k++)
            if (form[room + k] != FILL)
                gap_fail("bytes behind a form were written", i);
        if (results[i].list_bytes != 0)
            compare_form(&b->wanted[i], &results[i], form, i);
        free(form);
        check_cuda(cudaFree(forms[i]), "cudaFree");
    }
}

/* Sends the groups, of which `payloads` are on the wire, and compares. */
static void run_batch(batch *b, uint8_t *const *payloads, const uint64_t *payload_bytes,
                      bool beside) {
    static on_device d;
    static xci_cuda_result results[GROUPS * GAP_CHUNKS];
    memset(&d, 0, sizeof d);
    d.call.beside = beside;
    send_grid(b, &d);
    send_blocks(b, &d, payloads, payload_bytes);
    check_cuda(xci_cuda_gap_check(&d.call, NULL), "xci_cuda_gap_check");
    check_cuda(cudaDeviceSynchronize(), "check");
    to_host(results, d.call.results, b->block_count * sizeof *results);
    compare_results(b, results);
    run_ready(b, &d, results);
    for (uint32_t i = 0; i < d.count; i++)
        check_cuda(cudaFree(d.all[i]), "cudaFree");
    for (uint32_t i = 0; i < b->block_count; i++)
        free(b->masks[i]);
    b->block_count = b->group_count = b->most_tables = b->most_params = 0;
}

/* ---- Cases ---- */

static uint32_t sum_of_blocks(const gap_made *made) {
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < made->record.block_count; i++)
        bytes += made->blocks[i].bytes;
    return bytes;
}

/* The groups as they are, or with a few bytes of blocks and parameters damaged. */
static void run_groups(batch *b, uint32_t groups, uint32_t damages, bool beside) {
    static uint8_t *payloads[GROUPS];
    uint64_t payload_bytes[GROUPS];
    for (uint32_t g = 0; g < groups; g++) {
        const gap_made *made = &b->made[g];
        const uint32_t blocks = sum_of_blocks(made);
        uint32_t params = (uint32_t)made->record.params_bytes;
        payloads[g] = gap_memory(blocks + params + 1000);
        if (made->record.block_count > 0)
            memcpy(payloads[g], made->payload, blocks + params);
        if (damages != 0 && params > 0 && mask_random(&gap_seed, 2))
            mask_damage(&gap_seed, payloads[g] + blocks, &params, params + 900);
        for (uint32_t i = 0; i < damages && blocks > 0; i++) {
            const uint32_t at = mask_random(&gap_seed, blocks);
            payloads[g][at] = mask_damaged_byte(&gap_seed, payloads[g][at]);
        }
        payload_bytes[g] = blocks + params;
        add_group(b, made, payloads[g], params, beside);
    }
    run_batch(b, payloads, payload_bytes, beside);
    for (uint32_t g = 0; g < groups; g++)
        free(payloads[g]);
}

static void test_groups(const gap_writers *writers, uint32_t rounds, uint32_t chunks,
                        uint32_t most_bytes, bool beside) {
    static batch b;
    for (uint32_t round = 0; round < rounds; round++) {
        memset(&b, 0, sizeof b);
        for (uint32_t g = 0; g < GROUPS; g++) {
            gap_make(&b.made[g], 1 + mask_random(&gap_seed, chunks), most_bytes);
            gap_encode(writers, &b.made[g], beside);
        }
        run_groups(&b, GROUPS, 0, beside);
        run_groups(&b, GROUPS, 0, !beside);
        for (uint32_t i = 0; i < 4; i++)
            run_groups(&b, GROUPS, 1 + i * 4, beside);
        for (uint32_t g = 0; g < GROUPS; g++)
            gap_free(&b.made[g]);
    }
    printf("chunks up to %u%s: %llu blocks accepted, %llu refused\n", most_bytes,
           beside ? ", beside the old weights" : "", (unsigned long long)accepted,
           (unsigned long long)refused);
    fflush(stdout);
}

int main(int argc, char **argv) {
    const bool quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    const gap_writers writers = gap_open(NULL);
    for (uint32_t beside = 0; beside < 2; beside++) {
        test_groups(&writers, quick ? 3 : 40, 12, 700, beside);
        test_groups(&writers, quick ? 1 : 20, 6, 9000, beside);
        test_groups(&writers, quick ? 1 : 20, 3, 65536, beside);
    }
    gap_close(&writers);
    printf("test_cuda_gap_decode: as on the CPU\n");
    return 0;
}
