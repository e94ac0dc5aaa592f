/* Taking deltas apart: see delta_maker.h. Of good bytes only, so that anything odd fails the test.
 */
#include "support/delta_maker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

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
        uint64_t blocks = 0, described = 0;
        record->group = take_varint(&c);
        record->flags = *take(&c, 1);
        record->params = record->flags & MADE_PARAMS ? take_varint(&c) : 0;
        uint64_t raw_bytes = record->params;
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
    if (made->codec == XORCAST_CODEC_AUTO) {
        made->receiver = *take(c, 1);
        made->link = take_number(c, 8);
    }
}

void made_take(made_delta *made, const test_bytes *delta) {
    memset(made, 0, sizeof *made);
    const uint8_t *end = delta->bytes + delta->count;
    cursor c = {delta->bytes + 8, end};
    made->head_version = (uint32_t)take_number(&c, 4);
    c = (cursor){end - 32, end};
    const uint64_t manifest_bytes = take_number(&c, 8);
    c = (cursor){end - 32 - manifest_bytes, end - 32};
    take_identity(&c, made);
    for (unsigned i = 0; i < 6; i++)
        made->counts[i] = take_varint(&c);
    uint64_t *const numbers[] = {&made->payload_bytes, &made->encoded_bytes, &made->layout_groups,
                                 &made->layout_chunks, &made->group_count,   &made->part_count};
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
