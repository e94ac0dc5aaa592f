/* The CUDA backend's encode against the CPU's: blocks, codecs, counts and digest changes must be
 * the same, byte for byte, whatever the lengths, alignments, densities and segments. Runs on a
 * GPU, or on the emulation of one (emulated/), which takes fewer cases because it is slow.
 *
 *     test_cuda_encode [quick | few]
 *
 * few: a case or two of each kind, for tools that make a GPU a thousand times slower.
 * Prints one line a group of cases; exit status 1 and a message at the first difference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "backend/cuda/cuda_kernels.h"
#include "base/digest.h"

#define GUARD 256u

typedef enum pattern {
    PATTERN_NONE,
    PATTERN_BIT,       /* one bit */
    PATTERN_ELEMENTS,  /* a share of 16-bit elements, low byte mostly */
    PATTERN_BYTES,     /* a share of all bytes */
    PATTERN_CLUSTERED, /* BYTES in a few stretches */
    PATTERN_STRETCHES, /* of every byte, of hardly any and of none, by turns */
    PATTERN_RUNS,      /* zero runs about as long as LZ4's limits, between single bytes */
    PATTERN_EDGES,     /* the first and last bytes */
    PATTERN_NEARLY,    /* every byte, but for one short zero run */
    PATTERN_ALL        /* every byte */
} pattern;

typedef struct chunk_case {
    uint32_t bytes, element_bytes, old_shift, new_shift;
    pattern pattern;
    double share;
    uint32_t segments; /* 0: none, 1: the whole chunk, 2: many */
} chunk_case;

typedef struct set {
    chunk_case *cases;
    uint32_t count, room;
    uint32_t chunk_bytes;
    uint64_t seed;
} set;

/* Everything on both sides. */
typedef struct field {
    uint8_t *old_bytes, *new_bytes, *blocks; /* host; blocks: the expected ones, packed */
    uint64_t bytes, used;
    uint64_t *old_at, *new_at; /* offsets in them, one a chunk */
    xci_cuda_chunk *chunks;
    xci_cuda_segment *segments;
    xci_segment *host_segments;
    uint32_t segment_count;
    xci_encode_job *jobs;
} field;

static uint64_t random_state = 1;

static uint64_t random_next(void) {
    random_state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = random_state;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint32_t random_below(uint32_t limit) {
    return (uint32_t)(random_next() % limit);
}

static bool random_share(double share) {
    return (double)(random_next() >> 11) < share * 9007199254740992.0;
}

static uint8_t random_change(void) {
    return (uint8_t)(1 + random_below(255));
}

static void fail(const char *what) {
    fprintf(stderr, "test_cuda_encode: %s\n", what);
    exit(1);
}

static void check_cuda(cudaError_t error, const char *what) {
    if (error != cudaSuccess) {
        fprintf(stderr, "test_cuda_encode: %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

static void *host(size_t bytes) {
    void *memory = calloc(1, bytes + 1);
    if (memory == NULL)
        fail("out of memory");
    return memory;
}

static void *device(size_t bytes) {
    void *memory = NULL;
    check_cuda(cudaMalloc(&memory, bytes + 1), "cudaMalloc");
    return memory;
}

static void *device_copy(const void *from, size_t bytes) {
    void *memory = device(bytes);
    if (bytes > 0)
        check_cuda(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice), "copy to the device");
    return memory;
}

/* ---- Cases -----------------------------------------------------------------------------------*/

static void change_runs(uint8_t *mask, uint32_t bytes) {
    static const uint32_t limits[] = {1,  3,   4,   5,   6,   7,   8,   12,  13,  19,  20,   21,
                                      34, 274, 275, 276, 529, 530, 531, 784, 785, 786, 4000, 66000};
    uint32_t at = random_below(9);
    while (at < bytes) {
        uint32_t literals = 1 + random_below(4);
        if (random_below(16) == 0)
            literals = 10 + random_below(12) + 255 * random_below(3);
        for (; literals > 0 && at < bytes; --literals)
            mask[at++] = random_change();
        at += limits[random_below(sizeof limits / sizeof *limits)];
    }
}

static void change_edges(uint8_t *mask, uint32_t bytes) {
    for (uint32_t i = 0; i < 20 && i < bytes; ++i) {
        if (random_below(4) == 0)
            mask[i] = random_change();
        if (random_below(4) == 0)
            mask[bytes - 1 - i] = random_change();
    }
}

static void change_elements(uint8_t *mask, uint32_t bytes, double share) {
    for (uint32_t i = 0; i + 1 < bytes; i += 2) {
        if (!random_share(share))
            continue;
        mask[i] = random_change();
        if (random_below(20) == 0)
            mask[i + 1] = random_change();
    }
}

static void change_stretches(uint8_t *mask, uint32_t bytes) {
    for (uint32_t at = 0; at < bytes;) {
        const double share = random_below(3) * 0.5;
        const uint32_t end = at + 1 + random_below(6000);
        for (; at < end && at < bytes; ++at)
            mask[at] = random_share(share == 0.5 ? 0.01 : share) ? random_change() : 0;
    }
}

static void change(const chunk_case *c, uint8_t *mask) {
    const uint32_t bytes = c->bytes;
    bool here = false;
    switch (c->pattern) {
    case PATTERN_NONE:
        break;
    case PATTERN_BIT:
        mask[random_below(bytes)] = (uint8_t)(1u << random_below(8));
        break;
    case PATTERN_ELEMENTS:
        change_elements(mask, bytes, c->share);
        break;
    case PATTERN_BYTES:
        for (uint32_t i = 0; i < bytes; ++i)
            mask[i] = random_share(c->share) ? random_change() : 0;
        break;
    case PATTERN_CLUSTERED:
        for (uint32_t i = 0; i < bytes; ++i) {
            here = i % 512 == 0 ? random_share(0.05) : here;
            mask[i] = here && random_share(c->share) ? random_change() : 0;
        }
        break;
    case PATTERN_STRETCHES:
        change_stretches(mask, bytes);
        break;
    case PATTERN_RUNS:
        change_runs(mask, bytes);
        break;
    case PATTERN_EDGES:
        change_edges(mask, bytes);
        break;
    case PATTERN_NEARLY:
    case PATTERN_ALL:
        for (uint32_t i = 0; i < bytes; ++i)
            mask[i] = random_change();
        if (c->pattern == PATTERN_NEARLY && bytes > 64)
            memset(mask + random_below(bytes - 40), 0, 1 + (size_t)random_below(40));
        break;
    }
}

static void add(set *s, chunk_case c) {
    if (s->count == s->room) {
        s->room = s->room * 2 + 64;
        s->cases = realloc(s->cases, s->room * sizeof *s->cases);
        if (s->cases == NULL)
            fail("out of memory");
    }
    s->cases[s->count++] = c;
    if (c.bytes > s->chunk_bytes)
        s->chunk_bytes = c.bytes;
}

static void add_segment(field *f, uint32_t *room, uint32_t offset, uint32_t bytes) {
    if (f->segment_count == *room) {
        *room = *room * 2 + 64;
        f->segments = realloc(f->segments, *room * sizeof *f->segments);
        f->host_segments = realloc(f->host_segments, *room * sizeof *f->host_segments);
        if (f->segments == NULL || f->host_segments == NULL)
            fail("out of memory");
    }
    const uint64_t key = random_next();
    f->segments[f->segment_count] = (xci_cuda_segment){key, offset, bytes};
    f->host_segments[f->segment_count++] = (xci_segment){offset, bytes, key};
}

static void make_segments(field *f, uint32_t *room, const chunk_case *c, xci_cuda_chunk *chunk) {
    chunk->segment_first = f->segment_count;
    if (c->segments == 1)
        add_segment(f, room, 0, c->bytes);
    for (uint32_t at = 0; c->segments == 2 && at < c->bytes;) {
        uint32_t bytes = 1 + random_below(200);
        if (bytes > c->bytes - at)
            bytes = c->bytes - at;
        if (random_below(8) != 0)
            add_segment(f, room, at, bytes);
        at += (bytes + 7) / 8 * 8 + random_below(2) * 8;
    }
    chunk->segment_count = f->segment_count - chunk->segment_first;
}

static field make_field(const set *s) {
    field f = {0};
    uint32_t room = 0;
    random_state = s->seed;
    f.old_at = host(s->count * sizeof *f.old_at);
    f.new_at = host(s->count * sizeof *f.new_at);
    f.chunks = host(s->count * sizeof *f.chunks);
    f.jobs = host(s->count * sizeof *f.jobs);
    for (uint32_t i = 0; i < s->count; ++i) {
        const chunk_case *c = &s->cases[i];
        f.old_at[i] = f.bytes + c->old_shift;
        f.new_at[i] = f.bytes + c->new_shift;
        f.bytes += ((uint64_t)c->bytes + 15) / 16 * 16 + 16;
        f.chunks[i] = (xci_cuda_chunk){c->bytes, c->element_bytes, 0, 0};
        make_segments(&f, &room, c, &f.chunks[i]);
    }
    /* Not a byte more than the last chunk has, so that a read behind it is found. */
    const chunk_case *last = &s->cases[s->count - 1];
    const uint64_t old_end = f.old_at[s->count - 1] + last->bytes;
    const uint64_t new_end = f.new_at[s->count - 1] + last->bytes;
    f.bytes = old_end > new_end ? old_end : new_end;
    f.old_bytes = host(f.bytes);
    f.new_bytes = host(f.bytes);
    for (uint64_t i = 0; i < f.bytes; ++i)
        f.old_bytes[i] = (uint8_t)random_next();
    uint8_t *mask = host(s->chunk_bytes);
    for (uint32_t i = 0; i < s->count; ++i) {
        memset(mask, 0, s->cases[i].bytes);
        change(&s->cases[i], mask);
        for (uint32_t k = 0; k < s->cases[i].bytes; ++k)
            f.new_bytes[f.new_at[i] + k] = f.old_bytes[f.old_at[i] + k] ^ mask[k];
    }
    free(mask);
    return f;
}

static void free_field(field *f) {
    free(f->old_bytes);
    free(f->new_bytes);
    free(f->blocks);
    free(f->old_at);
    free(f->new_at);
    free(f->chunks);
    free(f->segments);
    free(f->host_segments);
    free(f->jobs);
}

/* What the CPU makes of it, packed. */
static void encode_on_cpu(field *f, const set *s, uint32_t codec) {
    free(f->blocks);
    f->used = 0;
    f->blocks = host(f->bytes + (uint64_t)s->count * XCI_BLOCK_SLACK);
    for (uint32_t i = 0; i < s->count; ++i) {
        const chunk_case *c = &s->cases[i];
        f->jobs[i] = (xci_encode_job){
            .old_bytes = f->old_bytes + f->old_at[i],
            .new_bytes = f->new_bytes + f->new_at[i],
            .bytes = c->bytes,
            .element_bytes = c->element_bytes,
            .codec = codec,
            .segment_count = f->chunks[i].segment_count,
            .segments =
                f->host_segments == NULL ? NULL : f->host_segments + f->chunks[i].segment_first,
            .block = f->blocks + f->used};
        xci_backend_cpu.encode(&f->jobs[i], 1);
        f->used += f->jobs[i].block_bytes;
    }
}

/* ---- On the device ---------------------------------------------------------------------------*/

typedef struct outcome {
    uint8_t *blocks; /* capacity, and GUARD bytes behind */
    xci_cuda_result *results;
    uint64_t used;
} outcome;

typedef struct on_device {
    uint8_t *old_bytes, *new_bytes;
    uint8_t **old_at, **new_at;
    xci_cuda_encode_call call;
} on_device;

static on_device to_device(const field *f, const set *s, uint32_t codec) {
    on_device d = {0};
    d.old_bytes = device_copy(f->old_bytes, f->bytes);
    d.new_bytes = device_copy(f->new_bytes, f->bytes);
    uint8_t **at = host(s->count * sizeof *at);
    for (uint32_t i = 0; i < s->count; ++i)
        at[i] = d.old_bytes + f->old_at[i];
    d.old_at = device_copy(at, s->count * sizeof *at);
    for (uint32_t i = 0; i < s->count; ++i)
        at[i] = d.new_bytes + f->new_at[i];
    d.new_at = device_copy(at, s->count * sizeof *at);
    free(at);
    d.call.grid.chunks = device_copy(f->chunks, s->count * sizeof *f->chunks);
    d.call.grid.segments = device_copy(f->segments, f->segment_count * sizeof *f->segments);
    d.call.grid.chunk_count = s->count;
    d.call.grid.chunk_bytes = s->chunk_bytes;
    d.call.old_at = d.old_at;
    d.call.new_at = (const uint8_t *const *)d.new_at;
    d.call.count = s->count;
    d.call.codec = codec;
    d.call.results = device(s->count * sizeof *d.call.results);
    d.call.used_bytes = device(sizeof *d.call.used_bytes);
    d.call.scratch_bytes = xci_cuda_encode_scratch(s->count, s->chunk_bytes);
    if (d.call.scratch_bytes > UINT64_C(192) << 20)
        fail("more scratch than 192 MiB");
    d.call.scratch = device(d.call.scratch_bytes);
    return d;
}

static void free_device(on_device *d) {
    void *all[] = {d->old_bytes,
                   d->new_bytes,
                   d->old_at,
                   d->new_at,
                   (void *)(uintptr_t)d->call.grid.chunks,
                   (void *)(uintptr_t)d->call.grid.segments,
                   d->call.results,
                   d->call.used_bytes,
                   d->call.scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
        check_cuda(cudaFree(all[i]), "cudaFree");
}

/* `shift`: of the output from a 16-byte boundary. */
static outcome run(on_device *d, uint64_t first, uint64_t count, uint64_t capacity,
                   uint32_t shift) {
    outcome o = {host(capacity + GUARD), host(count * sizeof *o.results), 0};
    uint8_t *blocks = device(shift + capacity + GUARD);
    check_cuda(cudaMemset(blocks, 0x5a, shift + capacity + GUARD), "cudaMemset");
    check_cuda(cudaMemset(d->call.results, 0x5a, count * sizeof *o.results), "cudaMemset");
    check_cuda(cudaMemset(d->call.scratch, 0x5a, d->call.scratch_bytes), "cudaMemset");
    d->call.first = first;
    d->call.count = count;
    d->call.blocks = blocks + shift;
    d->call.capacity = capacity;
    check_cuda((cudaError_t)xci_cuda_encode(&d->call, NULL), "xci_cuda_encode");
    check_cuda(cudaDeviceSynchronize(), "encode");
    check_cuda(cudaMemcpy(o.blocks, blocks + shift, capacity + GUARD, cudaMemcpyDeviceToHost),
               "copy of blocks");
    check_cuda(
        cudaMemcpy(o.results, d->call.results, count * sizeof *o.results, cudaMemcpyDeviceToHost),
        "copy of results");
    check_cuda(cudaMemcpy(&o.used, d->call.used_bytes, sizeof o.used, cudaMemcpyDeviceToHost),
               "copy of the size");
    uint8_t *before = host(shift);
    if (shift > 0)
        check_cuda(cudaMemcpy(before, blocks, shift, cudaMemcpyDeviceToHost), "copy");
    for (uint32_t i = 0; i < shift; ++i)
        if (before[i] != 0x5a)
            fail("bytes before the output were written");
    free(before);
    check_cuda(cudaFree(blocks), "cudaFree");
    return o;
}

static void free_outcome(outcome *o) {
    free(o->blocks);
    free(o->results);
}

static void report(const chunk_case *c, uint64_t index, const char *what, uint64_t got,
                   uint64_t wanted) {
    fprintf(stderr,
            "test_cuda_encode: chunk %llu (%u bytes, width %u, pattern %d, share %g, shifts %u %u, "
            "segments %u): %s is %llu, not %llu\n",
            (unsigned long long)index, c->bytes, c->element_bytes, (int)c->pattern, c->share,
            c->old_shift, c->new_shift, c->segments, what, (unsigned long long)got,
            (unsigned long long)wanted);
    exit(1);
}

#define SAME(field_name, got, wanted)                                                              \
    if ((got) != (wanted))                                                                         \
    report(c, i, field_name, (uint64_t)(got), (uint64_t)(wanted))

/* Chunks [first, first + count) of the set; blocks beyond `capacity` must not have been written.
 */
static void compare(const field *f, const set *s, const outcome *o, uint64_t first, uint64_t count,
                    uint64_t capacity) {
    uint64_t offset = 0, written = 0;
    for (uint64_t i = first; i < first + count; ++i) {
        const chunk_case *c = &s->cases[i];
        const xci_encode_job *job = &f->jobs[i];
        const xci_cuda_result *r = &o->results[i - first];
        const bool fits = job->block_bytes == 0 || offset + job->block_bytes <= capacity;
        SAME("size", r->block_bytes, job->block_bytes);
        SAME("codec", r->block_codec, job->block_codec);
        SAME("bits", r->bits_changed, job->bits_changed);
        SAME("bytes", r->bytes_changed, job->bytes_changed);
        SAME("elements", r->elements_changed, job->elements_changed);
        SAME("digest, low", r->change.lane[0], job->change.lane[0]);
        SAME("digest, high", r->change.lane[1], job->change.lane[1]);
        SAME("offset", r->block_offset, offset);
        SAME("status", r->status, fits ? XORCAST_OK : XORCAST_BUFFER_TOO_SMALL);
        for (uint32_t k = 0; fits && k < job->block_bytes; ++k)
            SAME("a byte of the block", o->blocks[offset + k], job->block[k]);
        offset += job->block_bytes;
        written = fits ? offset : written;
    }
    if (o->used != offset)
        fail("the size of all blocks is wrong");
    for (uint64_t i = written; i < capacity + GUARD; ++i)
        if (o->blocks[i] != 0x5a)
            fail("bytes behind the output were written");
}

/* Old is new where the results say so, and as it was everywhere else. What has its block must have
 * moved, if blocks of any size were allowed to and it was not worked on twice. */
static void compare_old(on_device *d, const field *f, const set *s, const outcome *o,
                        uint64_t first, uint64_t count) {
    uint8_t *wanted = host(f->bytes), *got = host(f->bytes);
    const bool any_size = s->chunk_bytes <= 65536 &&
                          d->call.scratch_bytes >= xci_cuda_encode_scratch(count, s->chunk_bytes);
    memcpy(wanted, f->old_bytes, f->bytes);
    check_cuda(cudaMemcpy(got, d->old_bytes, f->bytes, cudaMemcpyDeviceToHost), "copy of old");
    for (uint64_t i = first; i < first + count; ++i) {
        const chunk_case *c = &s->cases[i];
        const xci_cuda_result *r = &o->results[i - first];
        const bool has_block = r->block_bytes > 0 && r->status == XORCAST_OK;
        const bool once = r->block_codec == d->call.codec && f->old_at[i] % 16 == 0;
        if (r->moved > (d->call.move == 1 && has_block) ||
            (d->call.move == 1 && has_block && any_size && once && r->moved == 0))
            SAME("whether it moved", r->moved, !r->moved);
        if (r->moved == 1)
            memcpy(wanted + f->old_at[i], f->new_bytes + f->new_at[i], c->bytes);
    }
    for (uint64_t i = 0; i < f->bytes; ++i)
        if (got[i] != wanted[i])
            fail("old is neither what it was nor new");
    free(wanted);
    free(got);
}

/* Twice: old is only read, and old becomes new. */
static void run_and_compare(on_device *d, const field *f, const set *s, uint64_t first,
                            uint64_t count, uint64_t capacity, uint32_t shift) {
    for (uint32_t move = 0; move < 2; ++move) {
        d->call.move = move;
        check_cuda(cudaMemcpy(d->old_bytes, f->old_bytes, f->bytes, cudaMemcpyHostToDevice),
                   "copy to the device");
        outcome o = run(d, first, count, capacity, shift);
        compare(f, s, &o, first, count, capacity);
        compare_old(d, f, s, &o, first, count);
        free_outcome(&o);
    }
}

/* With so little scratch that many blocks outgrow what a warp has of it. */
static void run_with_little(on_device *d, const field *f, const set *s) {
    const uint64_t bytes = d->call.scratch_bytes;
    const uint64_t little = (uint64_t)s->count * sizeof(uint64_t) + 512 + (32u << 10);
    d->call.scratch_bytes = little < bytes ? little : bytes;
    run_and_compare(d, f, s, 0, s->count, f->used, 2);
    d->call.scratch_bytes = bytes;
}

static bool few;

/* Without room for the last block, for half of the blocks, for any; and from the middle on. */
static void run_with_less(on_device *d, const field *f, const set *s) {
    const uint64_t half = s->count / 2;
    run_and_compare(d, f, s, 0, s->count, f->used / 2, 8);
    if (few)
        return;
    run_and_compare(d, f, s, 0, s->count, f->used + 100, 0);
    if (f->used > 0)
        run_and_compare(d, f, s, 0, s->count, f->used - 1, 1);
    run_and_compare(d, f, s, 0, s->count, 0, 0);
    run_and_compare(d, f, s, half, s->count - half, f->used, 5);
}

/* A set in both codecs, in one call and in two, with room and without, with little scratch. */
static void test_set(set *s, const char *name) {
    field f = make_field(s);
    const uint32_t codecs[] = {XORCAST_CODEC_LZ4, XORCAST_CODEC_RAW};
    uint32_t raw = 0, none = 0;
    for (uint32_t k = 0; k < 2; ++k) {
        encode_on_cpu(&f, s, codecs[k]);
        on_device d = to_device(&f, s, codecs[k]);
        run_and_compare(&d, &f, s, 0, s->count, f.used, 3 * k);
        run_with_little(&d, &f, s);
        if (k == 0) {
            for (uint32_t i = 0; i < s->count; ++i) {
                raw += f.jobs[i].block_codec == XORCAST_CODEC_RAW;
                none += f.jobs[i].block_bytes == 0;
            }
            run_with_less(&d, &f, s);
        }
        free_device(&d);
    }
    printf("%s: %u chunks, of which %u raw and %u unchanged, %llu bytes of blocks\n", name,
           s->count, raw, none, (unsigned long long)f.used);
    fflush(stdout);
    free_field(&f);
    free(s->cases);
}

/* ---- Groups ----------------------------------------------------------------------------------*/

static const uint32_t widths[4] = {1, 2, 4, 8};

/* Every pattern at one length, with alignments, widths and segments going round. */
static void add_patterns(set *s, uint32_t bytes, uint32_t seed) {
    static const double shares[] = {0.0003, 0.01, 0.17, 0.5, 0.9};
    uint32_t k = seed;
    for (uint32_t p = PATTERN_NONE; p <= PATTERN_ALL; ++p) {
        const bool many = p == PATTERN_ELEMENTS || p == PATTERN_BYTES;
        for (uint32_t i = 0; i < (many ? 5 : 1); ++i, ++k) {
            const bool odd = k % 3 == 0;
            const double share = p == PATTERN_CLUSTERED ? 0.3 : shares[i];
            add(s, (chunk_case){bytes, widths[k % 4], odd ? k * 7 % 16 : 0, odd ? k * 5 % 16 : 0,
                                (pattern)p, share,
                                k % 7 == 0  ? 0
                                : k % 7 < 4 ? 1
                                            : 2});
        }
    }
}

static void test_short(uint64_t seed) {
    set s = {.seed = seed};
    for (uint32_t bytes = 1; bytes <= 40; bytes += few ? 13 : 1)
        add_patterns(&s, bytes, (uint32_t)seed + bytes);
    test_set(&s, "lengths 1 to 40");
}

static void test_length(uint32_t bytes, uint64_t seed) {
    set s = {.seed = seed};
    char name[40];
    for (uint32_t by = few ? 2 : 0; by < 3; ++by)
        add_patterns(&s, bytes - 1 + by, (uint32_t)seed + by);
    snprintf(name, sizeof name, "%u +- 1", bytes);
    test_set(&s, name);
}

static void test_odd_lengths(uint32_t most, uint32_t count, uint64_t seed) {
    set s = {.seed = seed};
    random_state = seed;
    for (uint32_t i = 0; i < count; ++i) {
        const pattern p = (pattern)random_below(PATTERN_ALL + 1);
        const uint32_t bytes = 1 + random_below(random_below(2) ? most : most / 16);
        const double shares[] = {0.0005, 0.005, 0.03, 0.1, 0.3, 0.8};
        add(&s, (chunk_case){bytes, widths[random_below(4)], random_below(2) * random_below(16),
                             random_below(2) * random_below(16), p, shares[random_below(6)],
                             random_below(3)});
    }
    char name[40];
    snprintf(name, sizeof name, "random lengths up to %u", most);
    test_set(&s, name);
}

/* The same bytes every time, however blocks and warps race. */
static void test_repeated(uint32_t count, uint32_t rounds, uint64_t seed) {
    set s = {.seed = seed};
    for (uint32_t i = 0; i < count; ++i)
        add(&s, (chunk_case){65536, 2, 0, 0, i % 5 == 0 ? PATTERN_CLUSTERED : PATTERN_ELEMENTS,
                             i % 7 == 0 ? 0.3 : 0.01, 1});
    field f = make_field(&s);
    encode_on_cpu(&f, &s, XORCAST_CODEC_LZ4);
    on_device d = to_device(&f, &s, XORCAST_CODEC_LZ4);
    for (uint32_t round = 0; round < rounds; ++round)
        run_and_compare(&d, &f, &s, 0, s.count, f.used, 0);
    free_device(&d);
    printf("%u chunks, %u times the same\n", count, rounds);
    free_field(&f);
    free(s.cases);
}

/* Nothing to do is fine, and says that nothing was used. */
static void test_nothing(void) {
    uint64_t used = 7;
    xci_cuda_encode_call call = {0};
    call.used_bytes = device_copy(&used, sizeof used);
    check_cuda((cudaError_t)xci_cuda_encode(&call, NULL), "xci_cuda_encode of nothing");
    check_cuda(cudaMemcpy(&used, call.used_bytes, sizeof used, cudaMemcpyDeviceToHost), "copy");
    if (used != 0)
        fail("a call of no chunks used bytes");
    check_cuda(cudaFree(call.used_bytes), "cudaFree");
}

int main(int argc, char **argv) {
    few = argc > 1 && strcmp(argv[1], "few") == 0;
    const bool quick = few || (argc > 1 && strcmp(argv[1], "quick") == 0);
    const uint32_t rounds = quick ? 1 : 8;
    test_nothing();
    for (uint32_t i = 0; i < rounds; ++i) {
        test_short(1 + i);
        test_odd_lengths(3000, few ? 10 : quick ? 60 : 1000, 100 + i);
        test_length(16384, 200 + i);
        test_odd_lengths(65536, few ? 6 : quick ? 20 : 300, 300 + i);
        test_length(65536, 400 + i);
        if (!quick || i == 0)
            test_odd_lengths(262144, quick ? 4 : 100, 500 + i);
    }
    test_odd_lengths(1u << 20, few ? 1 : quick ? 3 : 200, 600);
    if (!quick)
        test_length((1u << 20) - 1, 700);
    test_repeated(few ? 20 : quick ? 40 : 2000, few ? 1 : quick ? 2 : 20, 800);
    printf("test_cuda_encode: all the same as on the CPU\n");
    return 0;
}
