/* The CUDA backend's gap encoder against the CPU's: payloads of groups, sizes, codecs, counts and
 * digest changes must be the same, byte for byte, however much scratch there is; also where each
 * chunk takes the cheapest codec, for several prices. And old becomes new where it is told to. Runs
 * on a GPU, or on the emulation of one (emulated/), which takes fewer cases because it is slow.
 *
 *     test_cuda_gap_encode [quick]
 *
 * Exit status 1 and a message at the first difference. */
#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_kernels.h"
#include "gpu/gap_groups.h"

#define GROUPS 16u
#define CHUNKS (GROUPS * GAP_CHUNKS)
#define GUARD 256u
#define FILL 0x5a
#define ENOUGH (UINT64_C(64) << 20) /* scratch for any lists */

typedef struct set {
    gap_made made[GROUPS];
    uint32_t chunk_count, segment_count, chunk_bytes;
    uint64_t group_first[GROUPS + 1];
    xci_cuda_chunk chunks[CHUNKS];
    xci_cuda_segment segments[2 * CHUNKS];
} set;

typedef struct on_device {
    xci_cuda_gap_encode_call call;
    void *all[2 * CHUNKS + 16];
    uint32_t count;
    const uint8_t *olds[CHUNKS];
} on_device;

static void check_cuda(int error, const char *what) {
    if (error != cudaSuccess)
        gap_fail(what, (uint64_t)error);
}

static void *keep(on_device *d, size_t bytes) {
    void *memory = NULL;
    check_cuda(cudaMalloc(&memory, bytes + 1), "cudaMalloc");
    d->all[d->count++] = memory;
    return memory;
}

/* `shift` bytes behind where memory begins. */
static void *send(on_device *d, const void *from, size_t bytes, uint32_t shift) {
    uint8_t *memory = (uint8_t *)keep(d, bytes + shift) + shift;
    if (bytes > 0)
        check_cuda(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice), "a copy");
    return memory;
}

static void to_host(void *to, const void *from, size_t bytes) {
    if (bytes > 0)
        check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "a copy");
}

/* ---- Groups ---- */

static void make_set(set *s, uint32_t chunks, uint32_t most_bytes) {
    memset(s, 0, sizeof *s);
    for (uint32_t g = 0; g < GROUPS; g++) {
        gap_made *made = &s->made[g];
        gap_make(made, 1 + mask_random(&gap_seed, chunks), most_bytes);
        s->group_first[g] = s->chunk_count;
        for (uint32_t i = 0; i < made->count; i++) {
            const gap_chunk *c = &made->chunks[i];
            s->chunks[s->chunk_count++] =
                (xci_cuda_chunk){c->bytes, c->element_bytes, s->segment_count, c->segment_count};
            s->chunk_bytes = c->bytes > s->chunk_bytes ? c->bytes : s->chunk_bytes;
            for (uint32_t k = 0; k < c->segment_count; k++)
                s->segments[s->segment_count++] = (xci_cuda_segment){
                    c->segments[k].key, c->segments[k].offset, c->segments[k].bytes};
        }
    }
    s->group_first[GROUPS] = s->chunk_count;
}

/* `more_scratch`: 0: none for lists. */
static void send_set(const set *s, on_device *d, uint64_t more_scratch) {
    static const uint8_t *news[CHUNKS];
    uint32_t count = 0;
    memset(d, 0, sizeof *d);
    const uint32_t shifts = mask_random(&gap_seed, 3) == 0;
    for (uint32_t g = 0; g < GROUPS; g++)
        for (uint32_t i = 0; i < s->made[g].count; i++, count++) {
            const gap_chunk *c = &s->made[g].chunks[i];
            d->olds[count] = send(d, c->old_bytes, c->bytes, shifts * mask_random(&gap_seed, 17));
            news[count] = send(d, c->new_bytes, c->bytes, shifts * mask_random(&gap_seed, 17));
        }
    xci_cuda_gap_encode_call *call = &d->call;
    call->grid = (xci_cuda_grid){send(d, s->chunks, count * sizeof *s->chunks, 0),
                                 send(d, s->segments, s->segment_count * sizeof *s->segments, 0),
                                 count, s->chunk_bytes};
    call->old_at = send(d, d->olds, sizeof d->olds, 0);
    call->new_at = send(d, news, sizeof news, 0);
    call->group_first = send(d, s->group_first, sizeof s->group_first, 0);
    call->results = keep(d, count * sizeof *call->results);
    call->groups = keep(d, GROUPS * sizeof *call->groups);
    call->used = keep(d, sizeof *call->used);
    call->scratch_bytes = xci_cuda_gap_scratch(count, GROUPS, s->chunk_bytes) + more_scratch;
    call->scratch = keep(d, call->scratch_bytes);
    check_cuda(cudaMemset(call->scratch, FILL, call->scratch_bytes), "cudaMemset");
}

/* ---- Comparing ---- */

#define SAME(what, got, wanted)                                                                    \
    if ((got) != (wanted))                                                                         \
    gap_fail(what, (uint64_t)(got))

static void compare_chunk(const gap_chunk *c, const xci_block *block, const xci_cuda_result *r,
                          bool fits, uint64_t offset) {
    SAME("bits", r->bits_changed, c->job.bits_changed);
    SAME("bytes", r->bytes_changed, c->job.bytes_changed);
    SAME("elements", r->elements_changed, c->job.elements_changed);
    SAME("digest, low", r->change.lane[0], c->job.change.lane[0]);
    SAME("digest, high", r->change.lane[1], c->job.change.lane[1]);
    SAME("status", r->status, fits ? XORCAST_OK : XORCAST_BUFFER_TOO_SMALL);
    if (block == NULL) {
        SAME("size of no block", r->block_bytes, 0);
        return;
    }
    SAME("codec", r->block_codec, block->codec);
    SAME("size", r->block_bytes, block->bytes);
    SAME("offset", r->block_offset, offset);
}

static void compare_group(const gap_made *made, const xci_cuda_result *results,
                          const xci_cuda_gap_group *group, const uint8_t *output, uint64_t capacity,
                          uint64_t offset, bool chooses) {
    const xci_record *record = &made->record;
    const bool fits = offset + record->raw_bytes <= capacity;
    uint64_t at = 0;
    uint32_t b = 0;
    for (uint32_t i = 0; i < made->count; i++) {
        const bool changed = b < record->block_count && record->blocks[b].chunk == i;
        compare_chunk(&made->chunks[i], changed ? &record->blocks[b] : NULL, &results[i], fits, at);
        at += changed ? record->blocks[b++].bytes : 0;
    }
    SAME("offset of a group", group->offset, offset);
    SAME("parameters", group->params_bytes, record->params_bytes);
    SAME("payload", group->bytes, record->raw_bytes);
    if (chooses)
        SAME("bytes in LZ4", group->lz4_bytes, record->lz4_bytes);
    if (fits && record->raw_bytes > 0 &&
        memcmp(output + offset, record->payload, record->raw_bytes) != 0)
        gap_fail("bytes of a payload", offset);
}

/* A call that had too little scratch for the form beside the old weights wrote nothing. */
static void compare_failed(const set *s, const xci_cuda_result *results, const uint8_t *output,
                           uint64_t bytes) {
    for (uint32_t i = 0; i < s->chunk_count; i++)
        SAME("status without room", results[i].status, XORCAST_BUFFER_TOO_SMALL);
    for (uint64_t i = 0; i < bytes; i++)
        if (output[i] != FILL)
            gap_fail("bytes were written without room", i);
}

/* `may_fail`: the scratch may be too small. */
static void compare_set(const set *s, const on_device *d, uint64_t capacity, bool may_fail) {
    static xci_cuda_result results[CHUNKS];
    xci_cuda_gap_group groups[GROUPS];
    uint64_t offset = 0, written = 0;
    xci_cuda_gap_used used;
    uint8_t *output = gap_memory(capacity + GUARD);
    to_host(output, d->call.blocks, capacity + GUARD);
    to_host(results, d->call.results, s->chunk_count * sizeof *results);
    to_host(groups, d->call.groups, sizeof groups);
    to_host(&used, d->call.used, sizeof used);
    if (may_fail && used.bytes == UINT64_MAX) {
        compare_failed(s, results, output, capacity + GUARD);
        free(output);
        return;
    }
    for (uint32_t g = 0; g < GROUPS; g++) {
        compare_group(&s->made[g], &results[s->group_first[g]], &groups[g], output, capacity,
                      offset, d->call.prices.wire != 0);
        offset += s->made[g].record.raw_bytes;
        written = offset <= capacity ? offset : written;
    }
    SAME("all bytes", used.bytes, offset);
    if (used.list_bytes > d->call.scratch_bytes && !may_fail && d->call.scratch_bytes > ENOUGH)
        gap_fail("more is listed than there is room for", used.list_bytes);
    for (uint64_t i = written; i < capacity + GUARD; i++)
        if (output[i] != FILL)
            gap_fail("bytes behind the output were written", i);
    free(output);
}

/* Old is new in the chunks of groups that were written, and as it was in the others. */
static void compare_moved(const set *s, const on_device *d) {
    static xci_cuda_result results[CHUNKS];
    to_host(results, d->call.results, s->chunk_count * sizeof *results);
    uint32_t index = 0;
    for (uint32_t g = 0; g < GROUPS; g++)
        for (uint32_t i = 0; i < s->made[g].count; i++, index++) {
            const gap_chunk *c = &s->made[g].chunks[i];
            const bool moved = results[index].status == XORCAST_OK;
            uint8_t *now = gap_memory(c->bytes);
            to_host(now, d->olds[index], c->bytes);
            if (memcmp(now, moved ? c->new_bytes : c->old_bytes, c->bytes) != 0)
                gap_fail("bytes of old", index);
            SAME("moved", results[index].moved, moved && c->job.bytes_changed != 0);
            free(now);
        }
}

/* The CPU's payloads of a form; returns their bytes. */
static uint64_t encode_set(const gap_writers *writers, set *s, bool beside) {
    uint64_t all = 0;
    for (uint32_t g = 0; g < GROUPS; g++) {
        gap_encode(writers, &s->made[g], beside);
        all += s->made[g].record.raw_bytes;
    }
    return all;
}

/* `listed`: another call for the plain form has been before. */
static void run_set(const set *s, const xci_cuda_prices *prices, uint64_t capacity,
                    uint64_t more_scratch, uint32_t shift, bool beside, bool listed) {
    static on_device d;
    send_set(s, &d, more_scratch);
    d.call.count = s->chunk_count;
    d.call.group_count = GROUPS;
    d.call.capacity = capacity;
    d.call.prices = *prices;
    uint8_t *blocks = (uint8_t *)keep(&d, capacity + GUARD + shift) + shift;
    d.call.blocks = blocks;
    if (listed)
        check_cuda(xci_cuda_gap_encode(&d.call, NULL), "xci_cuda_gap_encode");
    check_cuda(cudaMemset(blocks, FILL, capacity + GUARD), "cudaMemset");
    d.call.beside = beside;
    d.call.listed = listed;
    check_cuda(xci_cuda_gap_encode(&d.call, NULL), "xci_cuda_gap_encode");
    check_cuda(cudaDeviceSynchronize(), "encode");
    compare_set(s, &d, capacity, beside && more_scratch == 0);
    check_cuda(xci_cuda_gap_move(&d.call, NULL), "xci_cuda_gap_move");
    check_cuda(cudaDeviceSynchronize(), "move");
    compare_moved(s, &d);
    for (uint32_t i = 0; i < d.count; i++)
        check_cuda(cudaFree(d.all[i]), "cudaFree");
}

/* ---- Cases ---- */

/* What became of the chunks of all rounds. */
typedef struct totals {
    uint64_t chunks, codecs[XORCAST_CODEC_GAP + 1], bytes, params, beside;
} totals;

static void add_totals(const set *s, totals *sums) {
    sums->chunks += s->chunk_count;
    for (uint32_t g = 0; g < GROUPS; g++) {
        const xci_record *record = &s->made[g].record;
        sums->params += record->params_bytes;
        for (uint32_t i = 0; i < record->block_count; i++)
            sums->codecs[record->blocks[i].codec]++;
    }
}

/* In the gap codec alone, or by prices, of which the writers' are the same. */
static void test_round(const gap_writers *writers, const xci_cuda_prices *prices, set *s,
                       totals *sums) {
    const uint64_t all = encode_set(writers, s, false);
    add_totals(s, sums);
    run_set(s, prices, all, ENOUGH, mask_random(&gap_seed, 16), false, false);
    run_set(s, prices, all / 2, ENOUGH, 3, false, false);
    run_set(s, prices, all, 0, 0, false, false);
    const uint64_t all_beside = encode_set(writers, s, true);
    run_set(s, prices, all_beside, ENOUGH, mask_random(&gap_seed, 16), true, false);
    run_set(s, prices, all_beside, ENOUGH, 1, true, true);
    run_set(s, prices, all_beside, 0, 2, true, false);
    sums->bytes += all;
    sums->beside += all_beside;
}

static void test_sets(const xci_prices *of, uint32_t rounds, uint32_t chunks, uint32_t most_bytes) {
    static set s;
    totals sums = {0};
    xci_cuda_prices prices = {0};
    if (of != NULL) {
        prices.wire = of->wire;
        memcpy(prices.weights, of->weights, sizeof prices.weights);
    }
    const gap_writers writers = gap_open(of);
    for (uint32_t round = 0; round < rounds; round++) {
        make_set(&s, chunks, most_bytes);
        test_round(&writers, &prices, &s, &sums);
        for (uint32_t g = 0; g < GROUPS; g++)
            gap_free(&s.made[g]);
    }
    gap_close(&writers);
    printf("wire %llu, chunks up to %u: %llu; raw %llu, lz4 %llu, snappy %llu, gap %llu; %llu "
           "bytes, %llu of them parameters; beside the old weights %llu\n",
           (unsigned long long)prices.wire, most_bytes, (unsigned long long)sums.chunks,
           (unsigned long long)sums.codecs[XORCAST_CODEC_RAW],
           (unsigned long long)sums.codecs[XORCAST_CODEC_LZ4],
           (unsigned long long)sums.codecs[XORCAST_CODEC_SNAPPY],
           (unsigned long long)sums.codecs[XORCAST_CODEC_GAP], (unsigned long long)sums.bytes,
           (unsigned long long)sums.params, (unsigned long long)sums.beside);
    fflush(stdout);
}

/* Fewest bytes; fast and slow links to receivers of each kind; and what makes Snappy cheap. */
static const xci_prices all_prices[] = {
    {.wire = 1},
    {40, {0, 1, 1, 3, 3}, 3, 1000},
    {800, {0, 60, 94, 300, 236}, 236, 1000},
    {8, {0, 1, 0, 0, 3}, 3, 1000},
    {10, {0, 20, 20, 0, 20}, 20, 1000},
};
#define PRICES (sizeof all_prices / sizeof *all_prices)

int main(int argc, char **argv) {
    const bool quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    for (uint32_t p = 0; p <= PRICES; p++) {
        const xci_prices *prices = p > 0 ? &all_prices[p - 1] : NULL;
        const uint32_t rounds = quick ? 1 : p == 0 ? 40 : 4;
        test_sets(prices, rounds, quick && p > 0 ? 6 : 16, 600);
        test_sets(prices, rounds, quick && p > 0 ? 2 : 10, quick ? 6000 : 9000);
        if (!quick || p == 0)
            test_sets(prices, rounds, 2, quick ? 40000 : 65536);
        if (!quick)
            test_sets(prices, rounds / 4, 64, 65536);
        if (!quick)
            test_sets(prices, rounds / 4, 2, 1u << 20);
    }
    printf("test_cuda_gap_encode: the same as on the CPU\n");
    return 0;
}
