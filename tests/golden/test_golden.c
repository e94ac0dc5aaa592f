/* Committed deltas of format version 1, which every later release reads. Good ones must be applied
 * right, and encoding the same weights today must give the same bytes; zstd's own output is
 * compared after decoding only, because another zstd may write another. Bad ones must be refused as
 * v1/bad.txt says: file, status, words of the message.
 *
 * With XORCAST_TEST_DEVICE the weights that they are applied to lie in memory of that device.
 *
 * To make the files of a case that is added:
 *
 *     XORCAST_GOLDEN_MAKE=1 build/tests/test_golden
 *
 * and commit the new ones. A file that changed, but for zstd's own output, is a defect: a format
 * that gives other bytes is another version, with a folder of its own beside this one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zstd.h>

#include "support/delta_maker.h"
#include "support/device_model.h"

#define FOLDER XORCAST_TEST_SOURCE "/golden/v1/"
#define CHUNK 16384u

enum { NONE, SMALL, WHOLE, STEPS };

static const struct {
    const char *name;
    uint32_t codec, second_pass, touched;
    const char *run;
    uint64_t base_step, target_step;
    uint32_t old_weights;
} cases[] = {
    {"raw", XORCAST_CODEC_RAW, 1, SMALL, "golden", 3, 4, 0},
    {"raw-zstd", XORCAST_CODEC_RAW, 0, WHOLE, "golden", 3, 4, 0},
    {"lz4", XORCAST_CODEC_LZ4, 1, WHOLE, "golden", 3, 4, 0},
    {"lz4-zstd", XORCAST_CODEC_LZ4, 0, WHOLE, "golden", 3, 4, 0},
    {"snappy", XORCAST_CODEC_SNAPPY, 1, WHOLE, "golden", 3, 4, 0},
    {"snappy-zstd", XORCAST_CODEC_SNAPPY, 0, WHOLE, "golden", 3, 4, 0},
    {"packed", XORCAST_CODEC_LZ4, 1, SMALL, NULL, XORCAST_NO_STEP, XORCAST_NO_STEP, 0},
    {"nothing", XORCAST_CODEC_LZ4, 0, NONE, "golden", UINT64_C(1) << 40, (UINT64_C(1) << 40) + 1,
     0},
    {"bare", XORCAST_CODEC_LZ4, 1, WHOLE, NULL, XORCAST_NO_STEP, XORCAST_NO_STEP, 0},
    {"gap", XORCAST_CODEC_GAP, 1, WHOLE, "golden", 3, 4, 0},
    {"gap-zstd", XORCAST_CODEC_GAP, 0, WHOLE, "golden", 3, 4, 0},
    {"gap-small", XORCAST_CODEC_GAP, 1, SMALL, "golden", 3, 4, 0},
    {"auto", XORCAST_CODEC_AUTO, 1, WHOLE, "golden", 3, 4, 0},
    {"gap-old-weights", XORCAST_CODEC_GAP, 1, STEPS, "golden", 3, 4, 1},
};
#define CASES (sizeof cases / sizeof *cases)

/* Where the files are, with a slash behind: here, or where XORCAST_GOLDEN says. */
static const char *folder(void) {
    const char *elsewhere = getenv("XORCAST_GOLDEN");
    return elsewhere != NULL ? elsewhere : FOLDER;
}

static bool making(void) {
    return getenv("XORCAST_GOLDEN_MAKE") != NULL;
}

/* ---- Weights ---- */

static void golden_model(model *m) {
    memset(m, 0, sizeof *m);
    m->random = 2024;
    model_add(m, "a.weight", "BF16", 2, 2, 33, 300); /* chunks 0 and 1 */
    model_add(m, "b.untouched", "F32", 4, 1, 1200, 0);
    model_add(m, "c.scale", "F32", 4, 1, 1025, 0);
    model_add(m, "d.norm", "BF16", 2, 1, 9, 0);
    model_add(m, "e.scale_2", "F32", 4, 0, 0, 0);
    model_add(m, "f.codes", "U8", 1, 1, 99, 0);
    model_add(m, "g.odd", "U8", 1, 1, 3, 0);
    model_add(m, "h.wide", "F64", 8, 1, 5, 0);
    model_add(m, "i.empty", "F32", 4, 1, 0, 0);
}

/* One step of the last place, up or down: shorter beside the old weights than as XOR. */
static void touch_steps(model *m) {
    uint64_t random = 8;
    for (uint64_t i = 0; i + 1 < m->tensors[0].bytes; i += 10) {
        uint8_t *at = m->tensors[0].data + i;
        const uint32_t value = at[0] | (uint32_t)at[1] << 8;
        const uint32_t next = value + (model_random(&random) % 2 == 0 ? 1 : UINT32_MAX);
        at[0] = (uint8_t)next;
        at[1] = (uint8_t)(next >> 8);
    }
}

static void touch(model *m, uint32_t touched) {
    uint64_t random = 7;
    if (touched == STEPS)
        touch_steps(m);
    for (uint32_t t = 0; t < m->count; t++) {
        const uint64_t bytes = m->tensors[t].bytes;
        if (touched == NONE || bytes == 0 || t == 1 || (touched == SMALL && bytes > 1000))
            continue;
        for (uint64_t i = 0; i < 2 + bytes / 2000;
             i++) /* last places, signs, and a run of changes */
            m->tensors[t].data[model_random(&random) % bytes] ^=
                (uint8_t)(1u << model_random(&random) % 8);
        for (uint64_t i = bytes / 2; i < bytes / 2 + bytes / 900; i++)
            m->tensors[t].data[i] ^= 0x5a;
    }
}

typedef struct scene {
    xorcast_context *context;
    model old, new, live;
    xorcast_bundle *bundles[2];
    placed_model placed; /* live */
} scene;

static void scene_open(scene *s, uint32_t touched) {
    s->context = test_weights_context(2);
    golden_model(&s->old);
    golden_model(&s->new);
    golden_model(&s->live);
    touch(&s->new, touched);
    s->bundles[0] = model_bundle(s->context, &s->old, CHUNK, 1);
    s->bundles[1] = model_bundle(s->context, &s->new, CHUNK, 2);
    placed_open(s->context, &s->placed, &s->live, CHUNK, 3);
}

static void scene_close(scene *s) {
    for (unsigned i = 0; i < 2; i++)
        xorcast_bundle_destroy(s->bundles[i]);
    placed_close(s->context, &s->placed);
    xorcast_context_destroy(s->context);
    model_free(&s->old);
    model_free(&s->new);
    model_free(&s->live);
}

/* Leaves the weights in `live`, whatever comes of it. */
static xorcast_status apply(scene *s, const test_bytes *delta, xorcast_delta_info *info) {
    const xorcast_source source = test_source(delta);
    const xorcast_status status = xorcast_delta_apply(s->placed.bundle, &source, info);
    placed_get(s->context, &s->placed);
    return status;
}

static void encode_case(scene *s, size_t i, test_bytes *out) {
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    const xorcast_sink sink = test_sink(out);
    options.encoding.codec = cases[i].codec;
    options.encoding.second_pass = cases[i].second_pass;
    options.encoding.old_weights = cases[i].old_weights;
    options.run = cases[i].run;
    options.base_step = cases[i].base_step;
    options.target_step = cases[i].target_step;
    assert_int_equal(xorcast_delta_encode(s->bundles[0], s->bundles[1], &options, &sink, NULL),
                     XORCAST_OK);
}

/* ---- Files ---- */

static void path_of(const char *name, char path[1024]) {
    snprintf(path, 1024, "%s%s.delta", folder(), name);
}

static void read_golden(const char *name, test_bytes *out) {
    char path[1024];
    uint8_t piece[4096];
    path_of(name, path);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        print_message("%s is missing\n", path);
    assert_non_null(file);
    for (size_t count; (count = fread(piece, 1, sizeof piece, file)) > 0;)
        test_put(out, piece, count);
    fclose(file);
}

static void write_golden(const char *name, const test_bytes *bytes) {
    char path[1024];
    path_of(name, path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes->bytes, 1, bytes->count, file), bytes->count);
    assert_int_equal(fclose(file), 0);
}

/* ---- Good ones ---- */

static void undo_second_pass(const made_record *record, test_bytes *out) {
    uint64_t raw_bytes = 0;
    for (uint32_t i = 0; i < record->sizes_made; i++)
        raw_bytes += record->sizes[i];
    if ((record->flags & MADE_SECOND_PASS) == 0) {
        test_put(out, record->payload, record->payload_bytes);
        return;
    }
    uint8_t *raw = malloc(raw_bytes);
    assert_non_null(raw);
    assert_int_equal(ZSTD_decompress(raw, raw_bytes, record->payload, record->payload_bytes),
                     raw_bytes);
    test_put(out, raw, raw_bytes);
    free(raw);
}

static void same_records(const made_part *a, const made_part *b) {
    static made_record x[8], y[8];
    const uint32_t count = made_records(a, x, 8);
    assert_int_equal(made_records(b, y, 8), count);
    for (uint32_t i = 0; i < count; i++) {
        test_bytes p = {0}, q = {0};
        assert_int_equal(x[i].group, y[i].group);
        assert_memory_equal(x[i].runs, y[i].runs, sizeof x[i].runs);
        assert_memory_equal(x[i].codecs, y[i].codecs, sizeof x[i].codecs);
        assert_memory_equal(x[i].sizes, y[i].sizes, sizeof x[i].sizes);
        undo_second_pass(&x[i], &p);
        undo_second_pass(&y[i], &q);
        assert_int_equal(p.count, q.count);
        assert_memory_equal(p.bytes, q.bytes, p.count);
        test_bytes_free(&p);
        test_bytes_free(&q);
    }
}

static void same_after_decoding(const test_bytes *a, const test_bytes *b) {
    made_delta x, y;
    made_take(&x, a);
    made_take(&y, b);
    assert_int_equal(x.parts_made, y.parts_made);
    for (uint32_t p = 0; p < x.parts_made; p++)
        same_records(&x.parts[p], &y.parts[p]);
    made_free(&x);
    made_free(&y);
    x.payload_bytes = y.payload_bytes = 0;
    memset(x.parts, 0, sizeof x.parts);
    memset(y.parts, 0, sizeof y.parts);
    assert_memory_equal(&x, &y, sizeof x);
}

static void test_good(void **state) {
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        scene s;
        test_bytes now = {0}, kept = {0};
        xorcast_delta_info info;
        scene_open(&s, cases[i].touched);
        encode_case(&s, i, &now);
        if (making())
            write_golden(cases[i].name, &now);
        read_golden(cases[i].name, &kept);
        if (cases[i].second_pass == 0) {
            same_after_decoding(&kept, &now);
        } else {
            assert_int_equal(kept.count, now.count);
            assert_memory_equal(kept.bytes, now.bytes, now.count);
        }
        assert_int_equal(apply(&s, &kept, &info), XORCAST_OK);
        assert_true(model_equal(&s.new, &s.live));
        assert_int_equal(info.format_version, 1);
        assert_string_equal(info.base.run, cases[i].run != NULL ? cases[i].run : "");
        assert_true(info.target.step == cases[i].target_step);
        test_bytes_free(&now);
        test_bytes_free(&kept);
        scene_close(&s);
    }
}

/* ---- Bad ones ---- */

typedef struct broken {
    made_delta made;
    made_record records[4];
    uint32_t count;
} broken;

/* Each changes a good delta in one way. */
static void other_version(broken *b) {
    b->made.version = 2;
}
static void other_head(broken *b) {
    b->made.head_version = 2;
}
static void older_version(broken *b) {
    b->made.version = 0;
}
static void older_head(broken *b) {
    b->made.head_version = 0;
}
static void other_base(broken *b) {
    b->made.base_digest[0]++;
}
static void other_target(broken *b) {
    b->made.target_digest[1]++;
}
static void other_layout(broken *b) {
    b->made.base_fingerprint[7] ^= 1;
}
static void more_bytes(broken *b) {
    b->made.counts[MADE_BYTES]++;
}
static void more_groups(broken *b) {
    b->made.layout_groups++;
}
static void no_such_group(broken *b) {
    b->records[1].group = 2;
}
static void no_such_chunk(broken *b) {
    b->records[1].runs[0].first += 10;
}
static void group_twice(broken *b) {
    b->records[1].group = 0;
}
static void group_missing(broken *b) {
    b->count = 1;
}
static void new_codec(broken *b) {
    b->records[0].codecs[0].first = 0x1e;
}
static void new_flag(broken *b) {
    b->records[0].flags |= 4;
}
static void other_width(broken *b) {
    b->records[0].codecs[0].first ^= 0x30;
}
static void wrong_checksum(broken *b) {
    b->records[0].checksum_flip = 0x100;
}
static void empty_block(broken *b) {
    b->records[0].sizes[0] = 0;
}
static void block_too_large(broken *b) {
    b->records[0].sizes[0] = CHUNK + 1;
}
static void blocks_cut_wrongly(broken *b) {
    b->records[0].sizes[0]++;
    b->records[0].sizes[1]--;
}
static void runs_touch(broken *b) {
    b->records[0].run_count = b->records[0].runs_made = 2;
    b->records[0].runs[0] = (made_pair){0, 1};
    b->records[0].runs[1] = (made_pair){0, 2};
}
static void padding_touched(broken *b) {
    static uint8_t block[107];
    block[101] = 1; /* f.codes ends at 99, g.odd begins at 104 */
    b->records[1] = made_single(1, 0, XORCAST_CODEC_RAW, block, sizeof block);
}
static void bomb(broken *b) {
    static uint8_t zeros[1 << 20], frame[128];
    b->records[0].flags |= MADE_SECOND_PASS;
    b->records[0].stored = b->records[0].payload_bytes =
        ZSTD_compress(frame, sizeof frame, zeros, sizeof zeros, 19);
    b->records[0].payload = frame;
}

/* The payload of the first record, to be changed. Its end are the parameters. */
static uint8_t *payload_of(broken *b) {
    static uint8_t payload[2 * CHUNK];
    made_record *record = &b->records[0];
    assert_true(record->payload_bytes <= sizeof payload);
    memcpy(payload, record->payload, record->payload_bytes);
    record->payload = payload;
    return payload + record->payload_bytes - record->params;
}
static void no_tables(broken *b) {
    payload_of(b)[0] = 0;
}
static void table_of_no_width(broken *b) {
    payload_of(b)[1] |= 7;
}
static void code_oversubscribed(broken *b) {
    uint8_t *params = payload_of(b);
    assert_int_equal(params[2], 0);
    memset(params + 3, 0x11, 2); /* four symbols of one bit */
}
static void chunk_of_another_size(broken *b) {
    uint8_t *params = payload_of(b);
    for (uint64_t i = b->records[0].params; i-- > 2;)
        if (params[i] == 0x01 && params[i - 1] == 0x80 && params[i - 2] == 0x80) { /* 16384 */
            params[i - 2] = 0x81;
            return;
        }
    fail();
}
static void stream_too_short(broken *b) {
    b->records[0].sizes[0]--;
    b->records[0].sizes[1]++;
}
static void parameters_cut(broken *b) {
    b->records[0].params--;
    b->records[0].sizes[b->records[0].sizes_made - 1]++;
}
static void parameters_without_gap(broken *b) {
    for (uint32_t i = 0; i < b->records[0].codecs_made; i++)
        b->records[0].codecs[i].first = (b->records[0].codecs[i].first & 0xf0) | XORCAST_CODEC_RAW;
}
static void gap_without_parameters(broken *b) {
    b->records[0].flags = 0;
    b->records[0].sizes[0] += b->records[0].params;
}

static const struct {
    const char *name;
    void (*make)(broken *b);
    xorcast_status status;
    const char *words;
    const char *of; /* the good one that it is made of; NULL: lz4 */
} bad[] = {
    {"bad-version", other_version, XORCAST_DATA_VERSION, "use a newer library", NULL},
    {"bad-head", other_head, XORCAST_DATA_VERSION, "format version 2", NULL},
    {"bad-version-0", older_version, XORCAST_DATA_VERSION, "make it again", NULL},
    {"bad-head-0", older_head, XORCAST_DATA_VERSION, "format version 0", NULL},
    {"bad-base", other_base, XORCAST_BASE_MISMATCH, "starts from step 3", NULL},
    {"bad-target", other_target, XORCAST_BASE_MISMATCH, "changed positions", NULL},
    {"bad-layout", other_layout, XORCAST_LAYOUT_MISMATCH, "another layout", NULL},
    {"bad-counts", more_bytes, XORCAST_DATA_CORRUPT, "manifest says", NULL},
    {"bad-group-count", more_groups, XORCAST_DATA_CORRUPT, "layout has", NULL},
    {"bad-group", no_such_group, XORCAST_DATA_CORRUPT, "no such group", NULL},
    {"bad-chunk", no_such_chunk, XORCAST_DATA_CORRUPT, "has no chunk", NULL},
    {"bad-group-twice", group_twice, XORCAST_DATA_CORRUPT, "or twice", NULL},
    {"bad-group-missing", group_missing, XORCAST_DATA_CORRUPT, "manifest says", NULL},
    {"bad-codec", new_codec, XORCAST_DATA_VERSION, "uses codec 14", NULL},
    {"bad-flag", new_flag, XORCAST_DATA_VERSION, "flags", NULL},
    {"bad-width", other_width, XORCAST_DATA_CORRUPT, "another width", NULL},
    {"bad-checksum", wrong_checksum, XORCAST_DATA_CORRUPT, "checksum", NULL},
    {"bad-empty-block", empty_block, XORCAST_DATA_CORRUPT, "empty or larger", NULL},
    {"bad-large-block", block_too_large, XORCAST_DATA_CORRUPT, "empty or larger", NULL},
    {"bad-cut", blocks_cut_wrongly, XORCAST_DATA_CORRUPT, "a.weight", NULL},
    {"bad-runs", runs_touch, XORCAST_DATA_CORRUPT, "run of chunks", NULL},
    {"bad-padding", padding_touched, XORCAST_DATA_CORRUPT, "between tensors", NULL},
    {"bad-bomb", bomb, XORCAST_DATA_CORRUPT, "fetch the delta again", NULL},
    {"bad-gap-no-tables", no_tables, XORCAST_DATA_CORRUPT, "the parameters of group 0", "gap"},
    {"bad-gap-width", table_of_no_width, XORCAST_DATA_CORRUPT, "the parameters of group 0", "gap"},
    {"bad-gap-code", code_oversubscribed, XORCAST_DATA_CORRUPT, "the parameters of group 0", "gap"},
    {"bad-gap-size", chunk_of_another_size, XORCAST_DATA_CORRUPT, "does not decode", "gap"},
    {"bad-gap-stream", stream_too_short, XORCAST_DATA_CORRUPT, "does not decode", "gap"},
    {"bad-gap-cut", parameters_cut, XORCAST_DATA_CORRUPT, "the parameters of group 0", "gap"},
    {"bad-gap-none", parameters_without_gap, XORCAST_DATA_CORRUPT, "no gap block", "gap"},
    {"bad-gap-bare", gap_without_parameters, XORCAST_DATA_CORRUPT, "no gap block", "gap"},
    {"bad-gap-base", other_base, XORCAST_BASE_MISMATCH, "starts from step 3", "gap-old-weights"},
    {"bad-gap-old", stream_too_short, XORCAST_DATA_CORRUPT, "does not decode", "gap-old-weights"},
};
#define BAD (sizeof bad / sizeof *bad)

static void make_bad(void) {
    char path[1024];
    snprintf(path, sizeof path, "%sbad.txt", folder());
    FILE *table = fopen(path, "w");
    assert_non_null(table);
    for (size_t i = 0; i < BAD; i++) {
        static broken b;
        test_bytes out = {0}, good = {0};
        made_part part = {{0}, 0, 0, {0}};
        read_golden(bad[i].of != NULL ? bad[i].of : "lz4", &good);
        made_take(&b.made, &good);
        b.count = made_records(&b.made.parts[0], b.records, 4);
        bad[i].make(&b);
        made_set_records(&part, b.records, b.count);
        b.made.group_count = b.count;
        test_bytes_free(&b.made.parts[0].bytes);
        b.made.parts[0] = part;
        made_write(&b.made, &out);
        write_golden(bad[i].name, &out);
        fprintf(table, "%s %s %s\n", bad[i].name, xorcast_status_name(bad[i].status), bad[i].words);
        made_free(&b.made);
        test_bytes_free(&out);
        test_bytes_free(&good);
    }
    fclose(table);
}

static void check_bad(scene *s, const char *name, const char *status_name, const char *words) {
    test_bytes kept = {0};
    xorcast_error error;
    read_golden(name, &kept);
    const xorcast_status status = apply(s, &kept, NULL);
    xorcast_last_error(s->context, &error);
    if (strcmp(xorcast_status_name(status), status_name) != 0 || strstr(error.text, words) == NULL)
        print_message("%s: %s: %s\n", name, xorcast_status_name(status), error.text);
    assert_string_equal(xorcast_status_name(status), status_name);
    assert_non_null(strstr(error.text, words));
    assert_true(model_equal(&s->old, &s->live));
    test_bytes_free(&kept);
}

static void test_bad(void **state) {
    (void)state;
    scene s;
    test_bytes good = {0};
    char path[1024], line[512], name[64], status_name[64];
    unsigned lines = 0;
    scene_open(&s, WHOLE);
    read_golden("lz4", &good);
    if (making())
        make_bad();
    snprintf(path, sizeof path, "%sbad.txt", folder());
    FILE *table = fopen(path, "r");
    assert_non_null(table);
    while (fgets(line, sizeof line, table) != NULL) {
        int words = 0;
        line[strcspn(line, "\n")] = 0;
        assert_int_equal(sscanf(line, "%63s %63s %n", name, status_name, &words), 2);
        check_bad(&s, name, status_name, line + words);
        lines++;
    }
    fclose(table);
    assert_int_equal(lines, BAD);
    /* and the bundle is as good as before */
    assert_int_equal(apply(&s, &good, NULL), XORCAST_OK);
    assert_true(model_equal(&s.new, &s.live));
    test_bytes_free(&good);
    scene_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
