/* Frames: manifests with and without what checkpoints add, records at their smallest and largest,
 * the description of a publisher, and names of objects. Hostile bytes are in tests/attacks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "frame/about.h"
#include "frame/delta_reader.h"
#include "support/model.h"

static xci_manifest full_manifest(xci_part *parts, uint64_t part_count) {
    xci_manifest m = {.layout_group_count = 1000, .layout_chunk_count = 70000, .parts = parts};
    m.info.format_version = XCI_FORMAT_VERSION;
    memset(m.info.base.run, 'r', XORCAST_RUN_BYTES - 1);
    memcpy(m.info.target.run, m.info.base.run, XORCAST_RUN_BYTES);
    m.info.base.step = 0;
    m.info.target.step = UINT64_MAX - 1;
    m.info.base.digest = (xorcast_digest){{1, UINT64_MAX}};
    m.info.target.digest = (xorcast_digest){{UINT64_MAX, 1}};
    memset(m.info.base_fingerprint, 0xb0, 16);
    memset(m.info.target_fingerprint, 0x7a, 16);
    m.info.chunk_bytes = 1 << 20;
    m.info.group_bytes = 64 << 20;
    m.info.counts = (xorcast_counts){UINT64_MAX, 2, 3, 4, UINT64_MAX, 6};
    m.info.payload_bytes = UINT64_MAX;
    m.info.part_count = part_count;
    for (uint64_t p = 0; p < part_count; p++) {
        parts[p] = (xci_part){.bytes = 1 + p * 1000, .group_count = 1 + p};
        memset(parts[p].hash.bytes, (int)p, sizeof parts[p].hash.bytes);
        m.info.group_count += 1 + p;
    }
    const uint32_t size = (uint32_t)sizeof(xorcast_encoding);
    m.encoding = (xorcast_encoding){size, XORCAST_CODEC_SNAPPY, 1, -7, 0, 0, 0};
    if (part_count % 2 == 1) /* only with auto they are written */
        m.encoding = (xorcast_encoding){size, XORCAST_CODEC_AUTO, 0, 1, 0, UINT64_MAX, 2};
    m.info.asked = m.encoding;
    return m;
}

static void round_trip(const xci_manifest *m) {
    xorcast_context *context = test_context(1);
    uint8_t *bytes;
    uint64_t count;
    xci_manifest back;
    xorcast_memory before, after;
    xorcast_context_memory(context, &before);
    assert_int_equal(xci_manifest_write(context, m, &bytes, &count), XORCAST_OK);
    assert_int_equal(xci_manifest_read(context, bytes, count, &back), XORCAST_OK);
    assert_int_equal(back.layout_group_count, m->layout_group_count);
    assert_int_equal(back.layout_chunk_count, m->layout_chunk_count);
    assert_int_equal(back.encoding.zstd_level, m->encoding.zstd_level);
    assert_int_equal(back.attachment_bytes, m->attachment_bytes);
    if (m->attachment_bytes > 0)
        assert_memory_equal(back.attachment, m->attachment, m->attachment_bytes);
    for (uint64_t p = 0; p < m->info.part_count; p++)
        assert_memory_equal(&back.parts[p], &m->parts[p], sizeof(xci_part));
    back.info.delta_bytes = m->info.delta_bytes; /* a sum of what was read */
    assert_memory_equal(&back.info, &m->info, sizeof m->info);
    for (uint64_t cut = 0; cut < count; cut++)
        assert_true(xci_manifest_read(context, bytes, cut, &back) < 0);
    xci_manifest_free(context, &back);
    xci_release(context, bytes);
    xorcast_context_memory(context, &after);
    assert_int_equal(after.now_bytes, before.now_bytes);
    xorcast_context_destroy(context);
}

static void test_manifests(void **state) {
    (void)state;
    static xci_part parts[20];
    static const uint8_t attachment[] = "structure of files";
    xci_manifest m = full_manifest(parts, 0);
    round_trip(&m);
    m = full_manifest(parts, 20);
    round_trip(&m);
    m.info.has_files = 1;
    m.attachment = attachment;
    round_trip(&m); /* files without any structure */
    m.attachment_bytes = sizeof attachment;
    round_trip(&m);
    m.info.base.step = m.info.target.step = XORCAST_NO_STEP;
    memset(m.info.base.run, 0, XORCAST_RUN_BYTES);
    memset(m.info.target.run, 0, XORCAST_RUN_BYTES);
    round_trip(&m);
}

/* Every second chunk with another codec each: as many runs as there can be. */
static void test_records(void **state) {
    (void)state;
    enum { BLOCKS = XCI_RECORD_CHUNKS_MAX / 2 };
    static xci_block blocks[BLOCKS];
    static uint8_t payload[BLOCKS], bytes[64 + 14 * BLOCKS];
    xorcast_context *context = test_context(1);
    for (uint32_t count = 1; count <= BLOCKS;
         count = count * 7 + 2 > BLOCKS && count < BLOCKS ? BLOCKS : count * 7 + 2) {
        for (uint32_t i = 0; i < count; i++)
            blocks[i] = (xci_block){2 * i + 1, 1 + i % 3, 1u << i % 4, 1, 0};
        const xci_record record = {.group = 5,
                                   .block_count = count,
                                   .blocks = blocks,
                                   .raw_bytes = count,
                                   .stored_bytes = count,
                                   .payload = payload};
        const uint64_t head = xci_record_write_head(&record, bytes);
        assert_true(head <= xci_record_head_bound(count));
        assert_true(head + count <= sizeof bytes);
        memcpy(bytes + head, payload, count);
        const xci_record_limits limits = {6, 16384, 1 << 20}, fewer = {5, 16384, 1 << 20},
                                less = {6, 16384, count - 1};
        xci_record_space space = {NULL, 0, 0};
        xci_record back;
        xci_reader reader = {bytes, bytes + head + count, false};
        assert_int_equal(xci_record_read(context, &reader, &limits, &space, &back), XORCAST_OK);
        assert_int_equal(xci_reader_left(&reader), 0);
        assert_int_equal(back.block_count, count);
        assert_memory_equal(back.blocks, blocks, count * sizeof *blocks);
        reader = (xci_reader){bytes, bytes + head + count, false};
        assert_int_equal(xci_record_read(context, &reader, &fewer, &space, &back),
                         XORCAST_DATA_CORRUPT);
        reader = (xci_reader){bytes, bytes + head + count, false};
        assert_int_equal(xci_record_read(context, &reader, &less, &space, &back),
                         XORCAST_DATA_LIMIT);
        xci_record_space_free(context, &space);
    }
    xorcast_context_destroy(context);
}

static void test_about(void **state) {
    (void)state;
    xorcast_context *context = test_context(1);
    uint8_t bytes[XCI_ABOUT_BYTES + 1];
    xci_about about = {.chunk_bytes = 1,
                       .group_bytes = 2,
                       .tensor_count = 3,
                       .total_bytes = UINT64_MAX},
              back;
    memcpy(about.run, "a run", 6);
    memset(about.fingerprint, 9, 16);
    xci_about_write(&about, bytes);
    assert_int_equal(xci_about_read(context, bytes, XCI_ABOUT_BYTES, &back), XORCAST_OK);
    assert_memory_equal(&about, &back, sizeof about);
    assert_int_equal(xci_about_read(context, bytes, XCI_ABOUT_BYTES + 1, &back),
                     XORCAST_DATA_CORRUPT);
    for (uint64_t cut = 0; cut < XCI_ABOUT_BYTES; cut++)
        assert_int_equal(xci_about_read(context, bytes, cut, &back), XORCAST_DATA_CORRUPT);
    bytes[0] = 1;
    assert_int_equal(xci_about_read(context, bytes, XCI_ABOUT_BYTES, &back), XORCAST_DATA_VERSION);
    bytes[0] = 0;
    memset(bytes + 4, 'x', XORCAST_RUN_BYTES); /* a name without an end */
    assert_int_equal(xci_about_read(context, bytes, XCI_ABOUT_BYTES, &back), XORCAST_DATA_CORRUPT);
    xorcast_context_destroy(context);
}

static void test_names(void **state) {
    (void)state;
    char name[XCI_OBJECT_NAME_BYTES];
    uint64_t numbers[2];
    const xorcast_digest digest = {{UINT64_MAX, 0}};
    xci_name_digests(UINT64_MAX, 12, name);
    assert_true(xci_name_numbers(name, "digests/", 10, numbers, 2));
    assert_true(numbers[0] == UINT64_MAX && numbers[1] == 12);
    xci_name_whois(&digest, name);
    assert_true(xci_name_numbers(name, "whois/", 16, numbers, 2));
    assert_true(numbers[0] == UINT64_MAX && numbers[1] == 0);
    xci_name_group(7, name);
    assert_true(xci_name_numbers(name, "group/", 10, numbers, 1));
    static const char *const wrong[] = {"group/",
                                        "group/ 7",
                                        "group/\t7",
                                        "group/\n7",
                                        "group/+7",
                                        "group/-7",
                                        "group/7/",
                                        "group/7/8",
                                        "group/7 ",
                                        "group/0x7",
                                        "groups/7",
                                        "group//7",
                                        "group/18446744073709551616",
                                        "group/7a",
                                        "Group/7",
                                        ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(xci_name_numbers(wrong[i], "group/", 10, numbers, 1));
    assert_false(xci_name_numbers("digests/7", "digests/", 10, numbers, 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manifests),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_about),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
