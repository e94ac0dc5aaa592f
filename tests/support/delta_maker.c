/* Deltas by hand: see delta_maker.h. */
#include "support/delta_maker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

/* ---- Writing ---- */

void test_put(test_bytes *to, const void *bytes, uint64_t count) {
    const xorcast_sink sink = test_sink(to);
    if (count > 0)
        assert_int_equal(sink.write(sink.user, bytes, count), 0);
}

static void put_number(test_bytes *to, uint64_t value, unsigned bytes) {
    uint8_t out[8];
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
    test_put(to, out, bytes);
}

void test_put_varint(test_bytes *to, uint64_t value) {
    do {
        const uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        test_put(to, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

static void put_hash(test_bytes *to, const void *bytes, uint64_t count) {
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(bytes, count));
    test_put(to, hash.digest, sizeof hash.digest);
}

static void put_record(test_bytes *to, const made_record *record) {
    const uint64_t head = to->count;
    test_put_varint(to, record->group);
    put_number(to, record->flags, 1);
    test_put_varint(to, record->run_count);
    for (uint32_t i = 0; i < record->runs_made; i++) {
        test_put_varint(to, record->runs[i].first);
        test_put_varint(to, record->runs[i].second);
    }
    for (uint32_t i = 0; i < record->codecs_made; i++) {
        put_number(to, record->codecs[i].first, 1);
        test_put_varint(to, record->codecs[i].second);
    }
    for (uint32_t i = 0; i < record->sizes_made; i++)
        test_put_varint(to, record->sizes[i]);
    if (record->flags & MADE_SECOND_PASS)
        test_put_varint(to, record->stored);
    const uint64_t seed = XXH3_64bits(to->bytes + head, to->count - head);
    const uint64_t sum = XXH3_64bits_withSeed(record->payload, record->payload_bytes, seed);
    put_number(to, (uint32_t)sum ^ record->checksum_flip, 4);
    test_put(to, record->payload, record->payload_bytes);
}

static void put_manifest(test_bytes *to, const made_delta *made) {
    const uint64_t numbers[] = {made->payload_bytes, made->encoded_bytes, made->layout_groups,
                                made->layout_chunks, made->group_count, made->part_count};
    put_number(to, made->version, 4);
    put_number(to, made->flags, 4);
    put_number(to, made->run_bytes, 1);
    test_put(to, made->run, made->run_bytes);
    put_number(to, made->base_step, 8);
    put_number(to, made->target_step, 8);
    for (unsigned i = 0; i < 4; i++)
        put_number(to, i < 2 ? made->base_digest[i] : made->target_digest[i - 2], 8);
    test_put(to, made->base_fingerprint, 16);
    test_put(to, made->target_fingerprint, 16);
    put_number(to, made->chunk_log2, 1);
    put_number(to, made->group_log2, 1);
    put_number(to, made->codec, 1);
    put_number(to, made->second_pass, 1);
    put_number(to, made->zstd_level, 4);
    for (unsigned i = 0; i < 6; i++)
        test_put_varint(to, made->counts[i]);
    for (unsigned i = 0; i < 6; i++)
        test_put_varint(to, numbers[i]);
    for (uint32_t p = 0; p < made->parts_made; p++) {
        test_put_varint(to, made->parts[p].declared_bytes);
        test_put_varint(to, made->parts[p].declared_groups);
        test_put(to, made->parts[p].hash, 16);
    }
}

void made_write(const made_delta *made, test_bytes *out) {
    out->count = 0;
    test_put(out, "XORCAST", 8);
    put_number(out, made->head_version, 4);
    put_number(out, 0, 4);
    for (uint32_t p = 0; p < made->parts_made; p++)
        test_put(out, made->parts[p].bytes.bytes, made->parts[p].bytes.count);
    test_bytes manifest = {0};
    put_manifest(&manifest, made);
    test_put(out, manifest.bytes, manifest.count);
    put_number(out, made->manifest_bytes_lie ? made->manifest_bytes_lie : manifest.count, 8);
    put_hash(out, manifest.bytes, manifest.count);
    test_put(out, "XORCEND", 8);
    test_bytes_free(&manifest);
}

void made_set_bytes(made_part *part, const uint8_t *bytes, uint64_t count) {
    test_bytes hash = {0}, copy = {0};
    test_put(&copy, bytes, count);
    test_bytes_free(&part->bytes);
    part->bytes = copy;
    part->declared_bytes = count;
    put_hash(&hash, copy.bytes, count);
    memcpy(part->hash, hash.bytes, 16);
    test_bytes_free(&hash);
}

void made_set_records(made_part *part, const made_record *records, uint32_t count) {
    test_bytes bytes = {0};
    for (uint32_t i = 0; i < count; i++)
        put_record(&bytes, &records[i]);
    made_set_bytes(part, bytes.bytes, bytes.count);
    part->declared_groups = count;
    test_bytes_free(&bytes);
}

made_record made_single(uint64_t group, uint64_t chunk, uint8_t descriptor, const uint8_t *block,
                        uint64_t bytes) {
    made_record record = {.group = group, .run_count = 1, .runs_made = 1, .codecs_made = 1,
                          .sizes_made = 1, .payload = block, .payload_bytes = bytes};
    record.runs[0] = (made_pair){chunk, 1};
    record.codecs[0] = (made_pair){descriptor, 1};
    record.sizes[0] = bytes;
    return record;
}

/* ---- Reading: of good bytes only, so that anything odd fails the test ---- */

typedef struct cursor {
    const uint8_t *at, *end;
} cursor;

static const uint8_t *take(cursor *c, uint64_t count) {
    assert_true(count <= (uint64_t)(c->end - c->at));
    const uint8_t *bytes = c->at;
    c->at += count;
    return bytes;
}

static uint64_t take_number(cursor *c, unsigned bytes) {
    const uint8_t *at = take(c, bytes);
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static uint64_t take_varint(cursor *c) {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        const uint8_t byte = *take(c, 1);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
}

uint32_t made_records(const made_part *part, made_record *records, uint32_t most) {
    cursor c = {part->bytes.bytes, part->bytes.bytes + part->bytes.count};
    uint32_t count = 0;
    for (; c.at != c.end; count++) {
        assert_true(count < most);
        made_record *record = &records[count];
        memset(record, 0, sizeof *record);
        uint64_t blocks = 0, described = 0, raw_bytes = 0;
        record->group = take_varint(&c);
        record->flags = *take(&c, 1);
        record->run_count = take_varint(&c);
        assert_true(record->run_count <= MADE_RUNS_MAX);
        for (; record->runs_made < record->run_count; record->runs_made++) {
            made_pair *run = &record->runs[record->runs_made];
            run->first = take_varint(&c);
            run->second = take_varint(&c);
            blocks += run->second;
        }
        assert_true(blocks <= MADE_BLOCKS_MAX);
        for (; described < blocks; record->codecs_made++) {
            assert_true(record->codecs_made < MADE_RUNS_MAX);
            made_pair *codec = &record->codecs[record->codecs_made];
            codec->first = *take(&c, 1);
            codec->second = take_varint(&c);
            described += codec->second;
        }
        for (; record->sizes_made < blocks; record->sizes_made++)
            raw_bytes += record->sizes[record->sizes_made] = take_varint(&c);
        record->stored = record->flags & MADE_SECOND_PASS ? take_varint(&c) : raw_bytes;
        take(&c, 4);
        record->payload_bytes = record->stored;
        record->payload = take(&c, record->stored);
    }
    return count;
}

static void take_identity(cursor *c, made_delta *made) {
    made->version = (uint32_t)take_number(c, 4);
    made->flags = (uint32_t)take_number(c, 4);
    made->run_bytes = *take(c, 1);
    memcpy(made->run, take(c, made->run_bytes), made->run_bytes);
    made->base_step = take_number(c, 8);
    made->target_step = take_number(c, 8);
    for (unsigned i = 0; i < 4; i++)
        *(i < 2 ? &made->base_digest[i] : &made->target_digest[i - 2]) = take_number(c, 8);
    memcpy(made->base_fingerprint, take(c, 16), 16);
    memcpy(made->target_fingerprint, take(c, 16), 16);
    made->chunk_log2 = *take(c, 1);
    made->group_log2 = *take(c, 1);
    made->codec = *take(c, 1);
    made->second_pass = *take(c, 1);
    made->zstd_level = (uint32_t)take_number(c, 4);
}

void made_take(made_delta *made, const test_bytes *delta) {
    memset(made, 0, sizeof *made);
    const uint8_t *end = delta->bytes + delta->count;
    cursor c = {end - 32, end};
    const uint64_t manifest_bytes = take_number(&c, 8);
    c = (cursor){end - 32 - manifest_bytes, end - 32};
    take_identity(&c, made);
    for (unsigned i = 0; i < 6; i++)
        made->counts[i] = take_varint(&c);
    uint64_t *const numbers[] = {&made->payload_bytes, &made->encoded_bytes, &made->layout_groups,
                                 &made->layout_chunks, &made->group_count, &made->part_count};
    for (unsigned i = 0; i < 6; i++)
        *numbers[i] = take_varint(&c);
    cursor parts = {delta->bytes + 16, end};
    assert_true(made->part_count <= MADE_PARTS_MAX);
    for (; made->parts_made < made->part_count; made->parts_made++) {
        made_part *part = &made->parts[made->parts_made];
        const uint64_t bytes = take_varint(&c);
        made_set_bytes(part, take(&parts, bytes), bytes);
        part->declared_groups = take_varint(&c);
        assert_memory_equal(part->hash, take(&c, 16), 16);
    }
    assert_true(c.at == c.end);
}

void made_free(made_delta *made) {
    for (uint32_t p = 0; p < made->parts_made; p++)
        test_bytes_free(&made->parts[p].bytes);
    made->parts_made = 0;
}
