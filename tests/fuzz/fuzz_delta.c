/* Whole deltas against a small bundle: inspect, check, apply and fold. The first byte of the input
 * says what the rest is: a delta as it is (even), or (odd) the fields of records and of the
 * manifest, from which a delta with right lengths, hashes and checksums is made, because no fuzzer
 * finds those.
 *
 * A delta that is refused must leave the weights; one that is taken must fold to one that is taken.
 * No memory may be left behind. */
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "frame/manifest.h"
#include "support/delta_maker.h"
#include "support/fuzzing.h"

enum { A_BYTES = 19800, B_BYTES = 4800, SMALL_BYTES = 18, CODES_BYTES = 100 };

static struct {
    uint8_t a[A_BYTES], b[B_BYTES], c[SMALL_BYTES], d[4], e[CODES_BYTES], f[3];
} weights, original;

static struct {
    xorcast_context *context;
    xorcast_bundle *bundle;
    xorcast_layout layout;
    xorcast_digest digest;
} the;

static void add(const char *name, const char *dtype, uint64_t elements, uint64_t bytes,
                void *data) {
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = &elements;
    tensor.rank = 1;
    tensor.bytes = bytes;
    tensor.data = data;
    must(xorcast_bundle_add(the.bundle, &tensor) == XORCAST_OK);
}

static void prepare(void) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_bundle_options sizes = XORCAST_BUNDLE_OPTIONS_INIT;
    if (the.context != NULL)
        return;
    for (size_t i = 0; i < sizeof weights; i++)
        ((uint8_t *)&weights)[i] = (uint8_t)(i * 131 + (i >> 7));
    original = weights;
    options.threads = 1;
    options.log_level = XORCAST_LOG_ERROR;
    options.scratch_limit_bytes = UINT64_C(512) << 20; /* a small input must never need more */
    must(xorcast_context_create(&options, &the.context) == XORCAST_OK);
    sizes.chunk_bytes = 16384;
    sizes.group_bytes = 1 << 20;
    must(xorcast_bundle_create(the.context, &sizes, &the.bundle) == XORCAST_OK);
    add("a", "BF16", A_BYTES / 2, A_BYTES, weights.a);
    add("b", "F32", B_BYTES / 4, B_BYTES, weights.b);
    add("c", "BF16", SMALL_BYTES / 2, SMALL_BYTES, weights.c);
    add("d", "F32", 1, 4, weights.d);
    add("e", "U8", CODES_BYTES, CODES_BYTES, weights.e);
    add("f", "U8", 3, 3, weights.f);
    must(xorcast_bundle_seal(the.bundle, &the.layout) == XORCAST_OK);
    must(xorcast_bundle_digest(the.bundle, &the.digest) == XORCAST_OK);
}

/* ---- Fields to a delta ---- */

typedef struct fields {
    const uint8_t *at, *end;
} fields;

static uint64_t next(fields *f, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes && f->at != f->end; i++)
        value |= (uint64_t)*f->at++ << (8 * i);
    return value;
}

/* Small as a rule; all ones stand for the largest number. */
static uint64_t next_number(fields *f) {
    const uint64_t value = next(f, 1);
    if (value < 0xfe)
        return value;
    return value == 0xfe ? next(f, 8) : UINT64_MAX;
}

static void next_record(fields *f, made_record *record) {
    memset(record, 0, sizeof *record);
    record->group = next_number(f);
    record->flags = (uint8_t)next(f, 1);
    record->runs_made = (uint32_t)next(f, 1) % 5;
    record->run_count = record->runs_made;
    for (uint32_t i = 0; i < record->runs_made; i++)
        record->runs[i] = (made_pair){next_number(f), next_number(f)};
    record->codecs_made = (uint32_t)next(f, 1) % 5;
    for (uint32_t i = 0; i < record->codecs_made; i++)
        record->codecs[i] = (made_pair){next(f, 1), next_number(f)};
    record->sizes_made = (uint32_t)next(f, 1) % 9;
    for (uint32_t i = 0; i < record->sizes_made; i++)
        record->sizes[i] = next(f, 2);
    record->stored = next(f, 2);
    record->payload_bytes = next(f, 2);
    if (record->payload_bytes > (uint64_t)(f->end - f->at))
        record->payload_bytes = (uint64_t)(f->end - f->at);
    record->payload = f->at;
    f->at += record->payload_bytes;
}

static void next_manifest(fields *f, made_delta *made) {
    memcpy(made->base_digest, the.digest.lane, sizeof made->base_digest);
    memcpy(made->base_fingerprint, the.layout.fingerprint, 16);
    memcpy(made->target_fingerprint, the.layout.fingerprint, 16);
    made->head_version = made->version = XCI_FORMAT_VERSION;
    made->flags = 3;
    made->target_step = 1;
    made->chunk_log2 = 14;
    made->group_log2 = 20;
    made->codec = 2;
    made->zstd_level = 1;
    made->layout_groups = the.layout.group_count;
    made->layout_chunks = the.layout.chunk_count;
    for (unsigned i = 0; i < 4; i++)
        made->counts[i] = next(f, 2);
    made->counts[MADE_COVERED] = the.layout.total_bytes;
    made->payload_bytes = next(f, 2);
    made->encoded_bytes = next(f, 2);
    for (unsigned i = 0; i < 2; i++)
        made->target_digest[i] = made->base_digest[i] + next(f, 8);
    if (next(f, 1) == 1) /* anything in place of anything, at times */
        made->group_log2 = (uint8_t)next(f, 1);
}

static void make_delta(const uint8_t *bytes, size_t count, test_bytes *out) {
    static made_record records[3];
    made_delta made;
    fields f = {bytes, bytes + count};
    memset(&made, 0, sizeof made);
    next_manifest(&f, &made);
    made.parts_made = 1 + (uint32_t)next(&f, 1) % 2;
    made.part_count = made.parts_made;
    for (uint32_t p = 0; p < made.parts_made; p++) {
        const uint32_t record_count = 1 + (uint32_t)next(&f, 1) % 3;
        for (uint32_t i = 0; i < record_count; i++)
            next_record(&f, &records[i]);
        made_set_records(&made.parts[p], records, record_count);
        made.group_count += record_count;
    }
    made_write(&made, out);
    for (uint32_t p = 0; p < made.parts_made; p++)
        free(made.parts[p].bytes.bytes);
}

/* ---- What must hold ---- */

static int append(void *user, const void *bytes, uint64_t count) {
    test_put(user, bytes, count);
    return 0;
}

static uint64_t now_bytes(void) {
    xorcast_memory memory;
    xorcast_context_memory(the.context, &memory);
    return memory.now_bytes;
}

static void try_delta(const uint8_t *bytes, uint64_t count) {
    const xorcast_source source = {.bytes = bytes, .size = count};
    const uint64_t before = now_bytes();
    test_bytes folded = {NULL, 0, 0};
    const xorcast_sink sink = {append, &folded};
    xorcast_delta_info info;
    const xorcast_status inspected = xorcast_delta_inspect(the.context, &source, &info);
    const xorcast_status checked = xorcast_delta_check(the.bundle, &source, &info);
    must(memcmp(&weights, &original, sizeof weights) == 0);
    const xorcast_status applied = xorcast_delta_apply(the.bundle, &source, &info);
    must(checked == applied);
    must(applied < 0 || inspected == XORCAST_OK);
    must(applied != XORCAST_INTERNAL && applied != XORCAST_NO_HOST_MEMORY);
    must(applied == XORCAST_OK || memcmp(&weights, &original, sizeof weights) == 0);
    const xorcast_status status = xorcast_delta_fold(the.context, &source, 1, NULL, &sink, NULL);
    must(status != XORCAST_INTERNAL && status != XORCAST_NO_HOST_MEMORY);
    must(status == XORCAST_OK || applied < 0);
    if (applied == XORCAST_OK) {
        const xorcast_source again = {.bytes = folded.bytes, .size = folded.count};
        uint8_t expected[sizeof weights];
        memcpy(expected, &weights, sizeof weights);
        weights = original;
        must(xorcast_delta_apply(the.bundle, &again, NULL) == XORCAST_OK);
        must(memcmp(expected, &weights, sizeof weights) == 0);
        weights = original;
    }
    free(folded.bytes);
    must(now_bytes() == before);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    prepare();
    if (count == 0)
        return 0;
    test_bytes made = {NULL, 0, 0};
    if (bytes[0] % 2 == 1)
        make_delta(bytes + 1, count - 1, &made);
    else
        test_put(&made, bytes + 1, count - 1);
    uint8_t *exact = malloc(made.count + 1); /* its end is the block's, for the sanitizer */
    must(exact != NULL);
    if (made.count > 0)
        memcpy(exact + 1, made.bytes, made.count);
    try_delta(exact + 1, made.count);
    free(exact);
    free(made.bytes);
    return 0;
}
