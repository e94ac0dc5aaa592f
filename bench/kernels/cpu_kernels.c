/* The CPU backend's operations on one core against the time it takes to read the same two
 * buffers: encode (with counts and digest), check, apply and digest at several densities of BF16
 * changes. Every round times the bound and all operations once, in turn, so that ratios are
 * taken under the same conditions; rows give medians. Owns its buffers; knows nothing of
 * bundles, deltas or threads.
 *
 *     cpu_kernels [--bytes 268m] [--rounds 11] [--level portable|avx2|avx512] [--share PERCENT] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_level.h"
#include "base/digest.h"
#include "gen/gen.h"
#include "gen/measure.h"

#define CHUNK_BYTES 65536u
#define MOST_ROUNDS 101u

typedef struct options {
    uint64_t bytes, rounds;
    const xci_backend *backend;
    double share; /* percent of bytes; 0: the list below */
} options;

typedef struct field {
    uint8_t *old_bytes, *new_bytes, *blocks;
    uint64_t chunks, blocks_bytes;
    xci_encode_job *encoded;
    xci_block_job *ready;
    xci_segment *segments;
} field;

typedef struct times {
    double bound[MOST_ROUNDS], encode[MOST_ROUNDS], check[MOST_ROUNDS], apply[MOST_ROUNDS],
        digest[MOST_ROUNDS];
} times;

static bool make_field(field *f, uint64_t bytes) {
    f->chunks = bytes / CHUNK_BYTES;
    f->blocks_bytes = bytes + f->chunks * XCI_BLOCK_SLACK;
    f->old_bytes = measure_allocate(bytes);
    f->new_bytes = measure_allocate(bytes);
    f->blocks = measure_allocate(f->blocks_bytes);
    f->encoded = calloc(f->chunks, sizeof *f->encoded);
    f->ready = calloc(f->chunks, sizeof *f->ready);
    f->segments = calloc(f->chunks, sizeof *f->segments);
    if (f->old_bytes == NULL || f->new_bytes == NULL || f->blocks == NULL || f->encoded == NULL ||
        f->ready == NULL || f->segments == NULL)
        return false;
    memset(f->blocks, 1, f->blocks_bytes);
    for (uint64_t i = 0; i < f->chunks; ++i)
        f->segments[i] = (xci_segment){
            0, CHUNK_BYTES, xci_digest_key(0) + i * (CHUNK_BYTES / 8) * XCI_DIGEST_STRIDE};
    return true;
}

static void free_field(field *f, uint64_t bytes) {
    measure_free(f->old_bytes, bytes);
    measure_free(f->new_bytes, bytes);
    measure_free(f->blocks, f->blocks_bytes);
    free(f->encoded);
    free(f->ready);
    free(f->segments);
}

/* Encodes chunk after chunk into one packed row of blocks, as a writer of deltas does. */
static uint64_t encode_all(field *f, const xci_backend *backend) {
    uint64_t used = 0;
    for (uint64_t i = 0; i < f->chunks; ++i) {
        f->encoded[i] = (xci_encode_job){.old_bytes = f->old_bytes + i * CHUNK_BYTES,
                                         .new_bytes = f->new_bytes + i * CHUNK_BYTES,
                                         .bytes = CHUNK_BYTES,
                                         .element_bytes = 2,
                                         .codec = XORCAST_CODEC_LZ4,
                                         .segment_count = 1,
                                         .segments = &f->segments[i],
                                         .block = f->blocks + used};
        backend->encode(&f->encoded[i], 1);
        used += f->encoded[i].block_bytes;
    }
    return used;
}

/* Jobs for the chunks that changed, on `old_bytes`. */
static uint64_t make_ready(field *f) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < f->chunks; ++i) {
        const xci_encode_job *e = &f->encoded[i];
        if (e->block_bytes == 0)
            continue;
        f->ready[count++] = (xci_block_job){.block = e->block,
                                            .block_bytes = e->block_bytes,
                                            .block_codec = e->block_codec,
                                            .bytes = e->bytes,
                                            .element_bytes = e->element_bytes,
                                            .segment_count = 1,
                                            .segments = e->segments,
                                            .weights = f->old_bytes + i * CHUNK_BYTES};
    }
    return count;
}

static xorcast_digest digest_all(field *f, const xci_backend *backend, const uint8_t *bytes) {
    xorcast_digest sum = {{0, 0}};
    for (uint64_t i = 0; i < f->chunks; ++i) {
        xci_digest_job job = {
            .bytes_at = bytes + i * CHUNK_BYTES, .segment_count = 1, .segments = &f->segments[i]};
        backend->digest(&job, 1);
        xci_digest_merge(&sum, &job.digest);
    }
    return sum;
}

/* One round; the weights are the old ones again after it. False: a result was wrong. */
static bool run_round(field *f, const xci_backend *backend, uint64_t bytes, times *t,
                      uint64_t round) {
    t->bound[round] = measure_two_stream_read(f->old_bytes, f->new_bytes, bytes, 1);
    double start = measure_now();
    encode_all(f, backend);
    t->encode[round] = measure_now() - start;
    const uint64_t ready = make_ready(f);
    start = measure_now();
    backend->check(f->ready, ready);
    t->check[round] = measure_now() - start;
    start = measure_now();
    backend->apply(f->ready, ready);
    t->apply[round] = measure_now() - start;
    bool good = memcmp(f->old_bytes, f->new_bytes, bytes) == 0;
    start = measure_now();
    const xorcast_digest after = digest_all(f, backend, f->old_bytes);
    t->digest[round] = measure_now() - start;
    backend->apply(f->ready, ready);
    xorcast_digest change = {{0, 0}};
    for (uint64_t i = 0; i < ready; ++i) {
        good = good && f->ready[i].status == XORCAST_OK;
        xci_digest_merge(&change, &f->ready[i].change);
    }
    if (round == 0) {
        const xorcast_digest before = digest_all(f, backend, f->old_bytes);
        good = good && after.lane[0] - before.lane[0] == change.lane[0] &&
               after.lane[1] - before.lane[1] == change.lane[1];
    }
    return good;
}

static bool run_density(field *f, const options *o, double percent, int argc, char **argv) {
    const gen_mask mask = {.kind = GEN_BF16,
                           .density = gen_density_of_bytes(GEN_BF16, percent / 100),
                           .seed = 1,
                           .step = 1};
    gen_weights(GEN_BF16, 1, 0, 0, f->old_bytes, o->bytes);
    memcpy(f->new_bytes, f->old_bytes, o->bytes);
    const uint64_t changed = gen_mask_xor(&mask, 0, f->new_bytes, o->bytes);
    times t;
    bool good = true;
    for (uint64_t round = 0; round < o->rounds && good; ++round)
        good = run_round(f, o->backend, o->bytes, &t, round);
    const uint64_t encoded = encode_all(f, o->backend);
    const double bytes = (double)o->bytes;
    const double bound = measure_median(t.bound, o->rounds),
                 encode = measure_median(t.encode, o->rounds);
    const double check = measure_median(t.check, o->rounds),
                 apply = measure_median(t.apply, o->rounds);
    measure_row("cpu_kernels", argc, argv);
    measure_text("backend", o->backend->name);
    measure_count("bytes", o->bytes);
    measure_number("changed_percent", 100 * (double)changed / bytes);
    measure_number("encoded_percent", 100 * (double)encoded / bytes);
    measure_number("read_bound_GB_s", 2e-9 * bytes / bound);
    measure_number("encode_GB_s", 2e-9 * bytes / encode);
    measure_number("encode_of_bound", bound / encode);
    measure_number("check_ms", 1e3 * check);
    measure_number("apply_ms", 1e3 * apply);
    measure_number("encode_ms", 1e3 * encode);
    measure_number("check_apply_over_encode", encode / (check + apply));
    measure_number("digest_GB_s", 1e-9 * bytes / measure_median(t.digest, o->rounds));
    measure_count("correct", good);
    measure_row_end();
    return good;
}

static bool parse(int argc, char **argv, options *o) {
    *o = (options){.bytes = UINT64_C(1) << 28, .rounds = 11, .backend = &xci_backend_cpu};
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--bytes") == 0 && measure_size(value, &o->bytes))
            continue;
        if (strcmp(argv[i], "--rounds") == 0 && (o->rounds = strtoull(value, NULL, 10)) > 0 &&
            o->rounds <= MOST_ROUNDS)
            continue;
        if (strcmp(argv[i], "--share") == 0 && (o->share = strtod(value, NULL)) > 0)
            continue;
        if (strcmp(argv[i], "--level") != 0)
            return false;
        o->backend = NULL;
        for (int level = 0; level < XCI_CPU_LEVELS && o->backend == NULL; ++level) {
            const xci_backend *backend = xci_cpu_backend_at((xci_cpu_level)level);
            if (backend != NULL && strcmp(backend->name + strlen("cpu-"), value) == 0)
                o->backend = backend;
        }
        if (o->backend == NULL)
            return false;
    }
    o->bytes = o->bytes / CHUNK_BYTES * CHUNK_BYTES;
    return o->bytes > 0;
}

int main(int argc, char **argv) {
    static const double shares[] = {0.05, 0.15, 0.6, 2, 10};
    options o;
    field f = {0};
    if (!parse(argc, argv, &o)) {
        fprintf(stderr,
                "usage: cpu_kernels [--bytes 268m] [--rounds 11] [--level portable|avx2|avx512] "
                "[--share PERCENT]\n");
        return 2;
    }
    if (!make_field(&f, o.bytes)) {
        fprintf(stderr, "cpu_kernels: not enough memory for 3 x %llu bytes\n",
                (unsigned long long)o.bytes);
        return 1;
    }
    bool good = true;
    const size_t count = o.share > 0 ? 1 : sizeof shares / sizeof shares[0];
    for (size_t i = 0; i < count && good; ++i)
        good = run_density(&f, &o, o.share > 0 ? o.share : shares[i], argc, argv);
    free_field(&f, o.bytes);
    return good ? 0 : 1;
}
