/* Group records and parts of them. The first byte of the input picks: one record, or a part under a
 * manifest with one part; the next two are limits. Checksums are not known to a fuzzer, so a record
 * whose checksum is wrong is given the right one and read again. What was read must be written as
 * the same record. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "frame/delta_reader.h"
#include "support/fuzzing.h"

/* Where the head ends: the reader's own steps, with no judgement. 0: it does not. */
static uint64_t head_bytes(const uint8_t *bytes, uint64_t count, uint64_t *payload_out) {
    xci_reader r = {bytes, bytes + count, false};
    uint64_t blocks = 0, described = 0, raw = 0;
    (void)xci_read_varint(&r);
    const bool second_pass = (xci_read8(&r) & 1) != 0;
    for (uint64_t runs = xci_read_varint(&r); runs > 0 && !r.bad; runs--) {
        (void)xci_read_varint(&r);
        blocks += xci_min(xci_read_varint(&r), 1 << 20);
    }
    while (described < blocks && !r.bad) {
        (void)xci_read8(&r);
        described += xci_min(xci_read_varint(&r), 1 << 20);
    }
    for (uint64_t i = 0; i < blocks && !r.bad; i++)
        raw += xci_min(xci_read_varint(&r), 1 << 30);
    *payload_out = second_pass ? xci_read_varint(&r) : raw;
    return r.bad ? 0 : count - xci_reader_left(&r);
}

/* Gives the record at `bytes` its right checksum; returns the record's size, or 0. */
static uint64_t correct(uint8_t *bytes, uint64_t count) {
    uint64_t payload;
    const uint64_t head = head_bytes(bytes, count, &payload);
    if (head == 0 || count - head < 4 || payload > count - head - 4)
        return 0;
    const uint64_t seed = xci_hash64_of(bytes, head, 0);
    xci_store32(bytes + head, (uint32_t)xci_hash64_of(bytes + head + 4, payload, seed));
    return head + 4 + payload;
}

static void same_blocks(const xci_record *a, const xci_record *b) {
    must(a->group == b->group && a->block_count == b->block_count && a->raw_bytes == b->raw_bytes);
    must(a->stored_bytes == b->stored_bytes && a->second_pass == b->second_pass);
    must(memcmp(a->blocks, b->blocks, a->block_count * sizeof(xci_block)) == 0);
    must(memcmp(a->payload, b->payload, a->stored_bytes) == 0);
}

static void write_again(const xci_record *record, const xci_record_limits *limits) {
    xci_record_space space = {NULL, 0, 0};
    uint8_t *bytes = malloc(xci_record_head_bound(record->block_count) + record->stored_bytes);
    must(bytes != NULL);
    const uint64_t head = xci_record_write_head(record, bytes);
    must(head <= xci_record_head_bound(record->block_count));
    memcpy(bytes + head, record->payload, record->stored_bytes);
    xci_reader reader = {bytes, bytes + head + record->stored_bytes, false};
    xci_record again;
    must(xci_record_read(the_context(), &reader, limits, &space, &again) == XORCAST_OK);
    must(reader.at == reader.end);
    same_blocks(record, &again);
    xci_record_space_free(the_context(), &space);
    free(bytes);
}

static void read_one(const uint8_t *bytes, uint64_t count, const xci_record_limits *limits) {
    xci_record_space space = {NULL, 0, 0};
    xci_record record;
    xci_reader reader = {bytes, bytes + count, false};
    const xorcast_status status = xci_record_read(the_context(), &reader, limits, &space, &record);
    must(reader.at >= bytes && reader.at <= reader.end);
    if (status == XORCAST_OK) {
        must(record.group < limits->group_count && record.block_count > 0);
        must(record.raw_bytes <= limits->raw_bytes &&
             record.payload + record.stored_bytes <= bytes + count);
        for (uint32_t i = 1; i < record.block_count; i++)
            must(record.blocks[i].chunk > record.blocks[i - 1].chunk);
        write_again(&record, limits);
    }
    xci_record_space_free(the_context(), &space);
}

static void read_part(const uint8_t *bytes, uint64_t count, const xci_record_limits *limits,
                      uint64_t group_count) {
    xci_part part = {count, group_count, xci_hash_of(bytes, count)};
    xci_manifest manifest = {.layout_group_count = limits->group_count, .parts = &part};
    xci_part_records records = {0};
    manifest.info.part_count = 1;
    manifest.info.chunk_bytes = limits->chunk_bytes;
    manifest.info.group_bytes = limits->raw_bytes - limits->chunk_bytes;
    for (unsigned i = 0; i < 2; i++) /* twice: space is used again */
        if (xci_part_parse(the_context(), &manifest, 0, bytes, count, UINT64_MAX, &records) ==
            XORCAST_OK) {
            must(records.count == group_count);
            must(xci_part_check(the_context(), &manifest, 0, bytes, count) == XORCAST_OK);
            for (uint64_t r = 0; r < records.count; r++)
                write_again(&records.records[r], limits);
        }
    xci_part_records_free(the_context(), &records);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    xorcast_memory before, after;
    if (count < 3)
        return 0;
    const uint64_t chunk_bytes = UINT64_C(1) << (14 + bytes[1] % 7);
    const xci_record_limits limits = {1 + bytes[2], chunk_bytes,
                                      (UINT64_C(1) << (20 + bytes[1] / 7 % 7)) + chunk_bytes};
    const bool is_part = bytes[0] % 2 == 1;
    const uint64_t size = count - 3;
    uint8_t *copy = malloc(size + 1);
    must(copy != NULL);
    uint8_t *at = copy + 1;
    if (size > 0)
        memcpy(at, bytes + 3, size);
    xorcast_context_memory(the_context(), &before);
    read_one(at, size, &limits);
    uint64_t records = 0;
    for (uint64_t done = 0, step = 1; step > 0 && done<size; done += step, records += step> 0)
        step = correct(at + done, size - done);
    if (is_part)
        read_part(at, size, &limits, records);
    else
        read_one(at, size, &limits);
    xorcast_context_memory(the_context(), &after);
    must(before.now_bytes == after.now_bytes);
    free(copy);
    return 0;
}
