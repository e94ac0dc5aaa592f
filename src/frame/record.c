/* Group records: see record.h. */
#include "frame/record.h"

#include "base/hash.h"

#define FLAG_SECOND_PASS 1u
#define FLAG_PARAMS 2u
#define CHECKSUM_BYTES 4u /* the last of a head */
#define CODEC_BITS                                                                                 \
    4u /* low half of a descriptor; the high half is the logarithm of the element's width */

void xci_record_space_free(xorcast_context *context, xci_record_space *space) {
    xci_release(context, space->blocks);
    *space = (xci_record_space){0};
}

static uint32_t checksum(const uint8_t *head, uint64_t head_bytes, const uint8_t *payload,
                         uint64_t payload_bytes) {
    return (uint32_t)xci_hash64_of(payload, payload_bytes, xci_hash64_of(head, head_bytes, 0));
}

/* ---- Reading ---- */

static xorcast_status bad_record(xorcast_context *context, const xci_record *record,
                                 const xci_reader *reader, const char *what) {
    if (reader->bad)
        FAIL(context, XORCAST_DATA_TRUNCATED,
             "the record of group %llu ends too early or holds a broken number; fetch the delta "
             "again",
             (unsigned long long)record->group);
    FAIL(context, XORCAST_DATA_CORRUPT,
         "the record of group %llu is damaged: %s; fetch the delta again",
         (unsigned long long)record->group, what);
}

/* Which chunks: runs of (chunks to skip, chunks to take). */
static xorcast_status read_runs(xorcast_context *context, xci_reader *reader,
                                xci_record_space *space, xci_record *record) {
    const uint64_t run_count = xci_read_varint(reader);
    if (run_count == 0 || run_count > XCI_RECORD_CHUNKS_MAX)
        return bad_record(context, record, reader, "its number of chunk runs is out of range");
    uint64_t chunk = 0;
    record->block_count = 0;
    for (uint64_t r = 0; r < run_count; r++) {
        const uint64_t skip = xci_read_varint(reader), take = xci_read_varint(reader);
        /* Each chunk has a size of a byte at least further on: memory is taken only for what the
         * bytes can hold. */
        if (reader->bad || take == 0 || (r > 0 && skip == 0) || skip > XCI_RECORD_CHUNKS_MAX ||
            take > XCI_RECORD_CHUNKS_MAX || chunk + skip + take > XCI_RECORD_CHUNKS_MAX ||
            take > xci_reader_left(reader))
            return bad_record(context, record, reader, "a run of chunks is out of range");
        chunk += skip;
        TRY(xci_grow(context, &space->blocks, &space->capacity_bytes,
                     (space->used + record->block_count + take) * sizeof(xci_block)));
        for (uint64_t i = 0; i < take; i++)
            space->blocks[space->used + record->block_count++].chunk = (uint32_t)chunk++;
    }
    record->blocks = space->blocks + space->used;
    return XORCAST_OK;
}

static xorcast_status read_codecs(xorcast_context *context, xci_reader *reader,
                                  xci_record *record) {
    for (uint32_t done = 0; done < record->block_count;) {
        const uint8_t descriptor = xci_read8(reader);
        const uint64_t count = xci_read_varint(reader);
        const uint32_t codec = descriptor & ((1u << CODEC_BITS) - 1),
                       width_log2 = descriptor >> CODEC_BITS;
        if (reader->bad || count == 0 || count > record->block_count - done || width_log2 > 3)
            return bad_record(context, record, reader, "a run of codecs is out of range");
        if (codec < XORCAST_CODEC_RAW || codec > XORCAST_CODEC_GAP)
            FAIL(context, XORCAST_DATA_VERSION,
                 "group %llu uses codec %u, which this library does not know; use a newer one",
                 (unsigned long long)record->group, codec);
        record->codecs |= 1u << codec;
        for (uint64_t i = 0; i < count; i++) {
            record->blocks[done].codec = codec;
            record->blocks[done++].element_bytes = 1u << width_log2;
        }
    }
    return XORCAST_OK;
}

static xorcast_status read_sizes(xorcast_context *context, xci_reader *reader,
                                 const xci_record_limits *limits, xci_record *record) {
    record->raw_bytes = 0;
    bool any_gap = false;
    for (uint32_t i = 0; i < record->block_count; i++) {
        const uint64_t bytes = xci_read_varint(reader);
        any_gap |= record->blocks[i].codec == XORCAST_CODEC_GAP;
        if (reader->bad || bytes > limits->chunk_bytes ||
            (bytes == 0 && record->blocks[i].codec != XORCAST_CODEC_GAP))
            return bad_record(context, record, reader, "a block is empty or larger than a chunk");
        record->blocks[i].bytes = (uint32_t)bytes;
        record->blocks[i].chunk_bytes = 0;
        record->raw_bytes += bytes;
        record->aligned_bytes += xci_round_up(bytes, XCI_RECORD_ALIGNMENT);
    }
    if ((record->params_bytes != 0) != any_gap)
        return bad_record(context, record, reader, "it has parameters and no gap block, or none");
    record->raw_bytes += record->params_bytes;
    if (record->raw_bytes > limits->raw_bytes)
        FAIL(context, XORCAST_DATA_LIMIT,
             "group %llu says that it has %llu bytes where %llu are the most; refuse the delta",
             (unsigned long long)record->group, (unsigned long long)record->raw_bytes,
             (unsigned long long)limits->raw_bytes);
    record->stored_bytes = record->raw_bytes;
    if (record->second_pass) {
        record->stored_bytes = xci_read_varint(reader);
        if (reader->bad || record->stored_bytes == 0 || record->stored_bytes >= record->raw_bytes)
            return bad_record(context, record, reader, "its second pass did not make it smaller");
    }
    return XORCAST_OK;
}

xorcast_status xci_record_read(xorcast_context *context, xci_reader *reader,
                               const xci_record_limits *limits, xci_record_space *space,
                               xci_record *record_out) {
    const uint8_t *head = reader->at;
    xci_record record = {0};
    record.group = xci_read_varint(reader);
    const uint8_t flags = xci_read8(reader);
    if (reader->bad || record.group >= limits->group_count)
        return bad_record(context, &record, reader, "there is no such group");
    if ((flags & ~(FLAG_SECOND_PASS | FLAG_PARAMS)) != 0)
        FAIL(context, XORCAST_DATA_VERSION,
             "group %llu has flags that this library does not know; use a newer one",
             (unsigned long long)record.group);
    record.second_pass = (flags & FLAG_SECOND_PASS) != 0;
    if ((flags & FLAG_PARAMS) != 0) {
        record.params_bytes = xci_read_varint(reader);
        if (reader->bad || record.params_bytes == 0 || record.params_bytes > limits->raw_bytes)
            return bad_record(context, &record, reader, "its parameters have no size");
    }
    TRY(read_runs(context, reader, space, &record));
    TRY(read_codecs(context, reader, &record));
    TRY(read_sizes(context, reader, limits, &record));
    record.head = head;
    record.head_bytes = (uint32_t)(reader->at - head);
    record.checksum = xci_read32(reader);
    record.payload = xci_read_bytes(reader, record.stored_bytes);
    if (reader->bad)
        return bad_record(context, &record, reader, "");
    space->used += record.block_count;
    *record_out = record;
    return XORCAST_OK;
}

xorcast_status xci_record_check(xorcast_context *context, xci_place place,
                                const xci_record *record) {
    if (checksum(record->head, record->head_bytes, record->payload, record->stored_bytes) !=
        record->checksum)
        FAIL_AT(context, XORCAST_DATA_CORRUPT, place,
                "the record of group %llu is damaged: its checksum does not fit; fetch the delta "
                "again",
                (unsigned long long)record->group);
    return XORCAST_OK;
}

/* ---- Writing ---- */

uint64_t xci_record_head_bound(uint64_t block_count) {
    /* a run, a codec run and a size for each block at worst */
    return 64 + block_count * (2 * 3 + 4 + 4);
}

static unsigned descriptor_of(const xci_block *block) {
    return block->codec | (unsigned)__builtin_ctz(block->element_bytes) << CODEC_BITS;
}

static uint32_t run_length(const xci_record *record, uint32_t from) {
    uint32_t end = from + 1;
    while (end < record->block_count &&
           record->blocks[end].chunk == record->blocks[end - 1].chunk + 1)
        end++;
    return end - from;
}

static uint32_t codec_run_length(const xci_record *record, uint32_t from) {
    uint32_t end = from + 1;
    while (end < record->block_count &&
           descriptor_of(&record->blocks[end]) == descriptor_of(&record->blocks[from]))
        end++;
    return end - from;
}

static uint8_t *write_runs(const xci_record *record, uint8_t *at) {
    uint64_t run_count = 0;
    for (uint32_t i = 0; i < record->block_count; i += run_length(record, i))
        run_count++;
    at += xci_varint_put(at, run_count);
    uint32_t chunk = 0;
    for (uint32_t i = 0; i < record->block_count;) {
        const uint32_t take = run_length(record, i);
        at += xci_varint_put(at, record->blocks[i].chunk - chunk);
        at += xci_varint_put(at, take);
        chunk = record->blocks[i].chunk + take;
        i += take;
    }
    return at;
}

uint64_t xci_record_write_open(const xci_record *record, uint8_t *out) {
    uint8_t *at = out;
    at += xci_varint_put(at, record->group);
    *at++ = (uint8_t)((record->second_pass ? FLAG_SECOND_PASS : 0) |
                      (record->params_bytes != 0 ? FLAG_PARAMS : 0));
    if (record->params_bytes != 0)
        at += xci_varint_put(at, record->params_bytes);
    at = write_runs(record, at);
    for (uint32_t i = 0; i < record->block_count;) {
        const uint32_t count = codec_run_length(record, i);
        *at++ = (uint8_t)descriptor_of(&record->blocks[i]);
        at += xci_varint_put(at, count);
        i += count;
    }
    for (uint32_t i = 0; i < record->block_count; i++)
        at += xci_varint_put(at, record->blocks[i].bytes);
    if (record->second_pass)
        at += xci_varint_put(at, record->stored_bytes);
    return (uint64_t)(at - out) + CHECKSUM_BYTES;
}

void xci_record_close(uint8_t *head, uint64_t head_bytes, const uint8_t *payload,
                      uint64_t payload_bytes) {
    const uint64_t covered = head_bytes - CHECKSUM_BYTES;
    xci_store32(head + covered, checksum(head, covered, payload, payload_bytes));
}

uint64_t xci_record_write_head(const xci_record *record, uint8_t *out) {
    const uint64_t head_bytes = xci_record_write_open(record, out);
    xci_record_close(out, head_bytes, record->payload, record->stored_bytes);
    return head_bytes;
}
