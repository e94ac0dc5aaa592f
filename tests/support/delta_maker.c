/* Writing deltas by hand: see delta_maker.h. Needs no test framework, so that fuzz targets use it
 * too. */
#include "support/delta_maker.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

/* ---- Writing ---- */

void test_put(test_bytes *to, const void *bytes, uint64_t count) {
    if (count == 0)
        return;
    if (to->count + count > to->capacity) {
        to->capacity = 2 * (to->count + count);
        to->bytes = realloc(to->bytes, to->capacity);
        if (to->bytes == NULL)
            abort();
    }
    memcpy(to->bytes + to->count, bytes, count);
    to->count += count;
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
    if (record->flags & MADE_PARAMS)
        test_put_varint(to, record->params);
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
                                made->layout_chunks, made->group_count,   made->part_count};
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
    if (made->codec == XORCAST_CODEC_AUTO) {
        put_number(to, made->receiver, 1);
        put_number(to, made->link, 8);
    }
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
    free(manifest.bytes);
}

void made_set_bytes(made_part *part, const uint8_t *bytes, uint64_t count) {
    test_bytes hash = {0}, copy = {0};
    test_put(&copy, bytes, count);
    free(part->bytes.bytes);
    part->bytes = copy;
    part->declared_bytes = count;
    put_hash(&hash, copy.bytes, count);
    memcpy(part->hash, hash.bytes, 16);
    free(hash.bytes);
}

void made_set_records(made_part *part, const made_record *records, uint32_t count) {
    test_bytes bytes = {0};
    for (uint32_t i = 0; i < count; i++)
        put_record(&bytes, &records[i]);
    made_set_bytes(part, bytes.bytes, bytes.count);
    part->declared_groups = count;
    free(bytes.bytes);
}

made_record made_single(uint64_t group, uint64_t chunk, uint8_t descriptor, const uint8_t *block,
                        uint64_t bytes) {
    made_record record = {.group = group,
                          .run_count = 1,
                          .runs_made = 1,
                          .codecs_made = 1,
                          .sizes_made = 1,
                          .payload = block,
                          .payload_bytes = bytes};
    record.runs[0] = (made_pair){chunk, 1};
    record.codecs[0] = (made_pair){descriptor, 1};
    record.sizes[0] = bytes;
    return record;
}
