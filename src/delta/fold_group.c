/* Groups of a fold: see fold_group.h. */
#include "delta/fold_group.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/pool.h"
#include "codec/codec.h"
#include "codec/lz4_block.h"

/* A block of the present group. */
typedef struct xci_fold_entry {
    const xci_record *record;
    uint32_t index; /* of the block in the record */
    const xci_block *block;
    const uint8_t *bytes;
    uint64_t input;
    uint32_t chunk_bytes; /* as the block says itself; 0: it is damaged */
} xci_fold_entry;

/* ---- Scratch ---- */

static uint64_t mask_space(const xci_fold *fold) {
    return 3 * fold->chunk_bytes;
}

xorcast_status xci_fold_groups_open(xci_fold *fold) {
    const uint64_t threads = xci_context_threads(fold->context);
    void *memory;
    fold->whole.bytes = (uint32_t)fold->chunk_bytes;
    TRY(xci_allocate_zeroed(fold->context, threads * mask_space(fold), &memory));
    fold->masks = memory;
    return XORCAST_OK;
}

void xci_fold_groups_close(xci_fold *fold) {
    void *const parts[] = {fold->entries, fold->firsts, fold->results,
                           fold->slots,   fold->blocks, fold->masks};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        xci_release(fold->context, parts[i]);
}

/* ---- One chunk ---- */

static uint64_t lz4_size(const uint8_t *block, uint32_t block_bytes, uint32_t most) {
    xci_lz4_walk walk = xci_lz4_begin(block, block_bytes, most);
    xci_lz4_sequence sequence;
    while (xci_lz4_next(&walk, &sequence)) /* stops behind the last sequence, or at damage */
        continue;
    return walk.produced;
}

/* Without a bundle only the block tells how large its chunk is. Decoding it to that size proves
 * it. */
static xorcast_status measure_entry(void *user, uint64_t index, uint32_t worker) {
    xci_fold *fold = user;
    xci_fold_entry *entry = &fold->entries[index];
    const xci_block *block = entry->block;
    xci_reader reader = {entry->bytes, entry->bytes + block->bytes, false};
    uint64_t size = block->bytes;
    (void)worker;
    if (block->codec == XORCAST_CODEC_LZ4)
        size = lz4_size(entry->bytes, block->bytes, (uint32_t)fold->chunk_bytes);
    else if (block->codec == XORCAST_CODEC_SNAPPY)
        size = xci_read_varint(&reader);
    else if (block->codec == XORCAST_CODEC_GAP)
        size = block->chunk_bytes;
    entry->chunk_bytes = size <= fold->chunk_bytes ? (uint32_t)size : 0;
    return XORCAST_OK;
}

static xorcast_status bad_block(const xci_fold *fold, const xci_fold_entry *entry) {
    const xorcast_status status =
        xci_fail(fold->context, XORCAST_DATA_CORRUPT, XCI_NOWHERE,
                 "group %llu, chunk %u of it: the block does not decode; fetch the delta again",
                 (unsigned long long)fold->group, entry->block->chunk);
    return xci_source_blame(fold->inputs[entry->input].reader.source, status);
}

static xorcast_status decode(const xci_fold *fold, const xci_fold_entry *entry, uint8_t *mask) {
    const xorcast_status status =
        xci_block_decode(&fold->inputs[entry->input].group, XCI_NOWHERE, entry->record,
                         entry->index, entry->bytes, NULL, mask, entry->chunk_bytes);
    return status == XORCAST_DATA_CORRUPT ? bad_block(fold, entry) : status;
}

static xorcast_status fold_chunk(void *user, uint64_t index, uint32_t worker) {
    xci_fold *fold = user;
    uint8_t *sum = fold->masks + worker * mask_space(fold);
    uint8_t *more = sum + fold->chunk_bytes, *zeros = more + fold->chunk_bytes;
    xci_encode_job *result = &fold->results[index];
    const uint64_t first = fold->firsts[index];
    TRY(decode(fold, &fold->entries[first], sum));
    for (uint64_t e = first + 1; e < fold->firsts[index + 1]; e++) {
        TRY(decode(fold, &fold->entries[e], more));
        xci_xor_into(sum, more, result->bytes);
    }
    result->old_bytes = zeros;
    result->new_bytes = sum;
    fold->context->shared->backend->encode(result, 1);
    return XORCAST_OK;
}

/* ---- One group ---- */

static int by_chunk(const void *a, const void *b) {
    const xci_fold_entry *x = a, *y = b;
    if (x->block->chunk != y->block->chunk)
        return x->block->chunk < y->block->chunk ? -1 : 1;
    return x->input < y->input ? -1 : x->input > y->input;
}

/* Lists the blocks of the present group, of all inputs that have it. */
static xorcast_status list_entries(xci_fold *fold) {
    fold->entry_count = 0;
    for (uint64_t i = 0; i < fold->input_count; i++) {
        xci_fold_input *input = &fold->inputs[i];
        if (input->next == input->records.count ||
            input->records.records[input->next].group != fold->group)
            continue;
        const xci_record *record = &input->records.records[input->next];
        const uint8_t *bytes;
        TRY(xci_source_blame(input->reader.source,
                             xci_group_read(&input->group, XCI_NOWHERE, record, &bytes)));
        TRY(xci_grow(fold->context, &fold->entries, &fold->entries_capacity,
                     (fold->entry_count + record->block_count) * sizeof(xci_fold_entry)));
        for (uint32_t b = 0; b < record->block_count; b++) {
            fold->entries[fold->entry_count++] =
                (xci_fold_entry){record, b, &record->blocks[b], bytes, i, 0};
            bytes += record->blocks[b].bytes;
        }
    }
    qsort(fold->entries, fold->entry_count, sizeof *fold->entries, by_chunk);
    return XORCAST_OK;
}

/* The chunks that the entries belong to, and how large they are: every entry of one must say the
 * same. */
static xorcast_status list_chunks(xci_fold *fold, uint64_t *slots_bytes_out) {
    uint64_t bytes = 0;
    TRY(xci_grow(fold->context, &fold->firsts, &fold->firsts_capacity,
                 (fold->entry_count + 1) * sizeof(uint64_t)));
    fold->chunk_count = 0;
    for (uint64_t e = 0; e < fold->entry_count; e++) {
        const xci_fold_entry *entry = &fold->entries[e], *before = e > 0 ? entry - 1 : NULL;
        const bool first = before == NULL || entry->block->chunk != before->block->chunk;
        if (entry->chunk_bytes == 0)
            return bad_block(fold, entry);
        if (!first && entry->chunk_bytes != before->chunk_bytes)
            FAIL(fold->context, XORCAST_DATA_CORRUPT,
                 "group %llu, chunk %u of it has %u bytes in one delta and %u in another",
                 (unsigned long long)fold->group, entry->block->chunk, before->chunk_bytes,
                 entry->chunk_bytes);
        if (first) {
            fold->firsts[fold->chunk_count++] = e;
            bytes += entry->chunk_bytes;
        }
    }
    fold->firsts[fold->chunk_count] = fold->entry_count;
    if (bytes > fold->group_bytes_max)
        FAIL(fold->context, XORCAST_DATA_LIMIT,
             "the chunks of group %llu have %llu bytes where %llu are the most; refuse the delta",
             (unsigned long long)fold->group, (unsigned long long)bytes,
             (unsigned long long)fold->group_bytes_max);
    *slots_bytes_out = bytes + fold->chunk_count * XCI_BLOCK_SLACK;
    return XORCAST_OK;
}

static xorcast_status make_jobs(xci_fold *fold) {
    uint64_t slots_bytes;
    TRY(list_chunks(fold, &slots_bytes));
    TRY(xci_grow(fold->context, &fold->results, &fold->results_capacity,
                 fold->chunk_count * sizeof(xci_encode_job)));
    TRY(xci_grow(fold->context, &fold->blocks, &fold->blocks_capacity,
                 fold->chunk_count * sizeof(xci_block)));
    TRY(xci_grow(fold->context, &fold->slots, &fold->slots_capacity, slots_bytes));
    uint8_t *slot = fold->slots;
    for (uint64_t i = 0; i < fold->chunk_count; i++) {
        const xci_fold_entry *entry = &fold->entries[fold->firsts[i]];
        fold->results[i] = (xci_encode_job){.bytes = entry->chunk_bytes,
                                            .element_bytes = entry->block->element_bytes,
                                            .codec = xci_group_writer_codec(&fold->writer),
                                            .segments = &fold->whole,
                                            .segment_count = 1,
                                            .block = slot};
        slot += entry->chunk_bytes + XCI_BLOCK_SLACK;
    }
    return XORCAST_OK;
}

static xorcast_status write_group(xci_fold *fold, xci_delta_writer *out) {
    xci_record record = {.group = fold->group, .blocks = fold->blocks, .payload = fold->slots};
    for (uint64_t i = 0; i < fold->chunk_count; i++) {
        const xci_encode_job *result = &fold->results[i];
        if (result->block_bytes == 0)
            continue;
        memmove(fold->slots + record.raw_bytes, result->block, result->block_bytes);
        record.raw_bytes += result->block_bytes;
        record.blocks[record.block_count++] =
            (xci_block){fold->entries[fold->firsts[i]].block->chunk, result->block_codec,
                        result->element_bytes, result->block_bytes, result->bytes};
        fold->counts.bits_changed += result->bits_changed;
        fold->counts.bytes_changed += result->bytes_changed;
        fold->counts.elements_changed += result->elements_changed;
        fold->counts.chunks_changed++;
    }
    if (record.block_count == 0)
        return XORCAST_OK;
    xci_record made;
    xci_written written;
    TRY(xci_group_write(&fold->writer, &record, NULL, &made, &written));
    fold->encoded_bytes += written.raw_bytes;
    const xorcast_status status =
        xci_delta_writer_add(out, written.bytes, written.count, written.payload_bytes);
    xci_group_writer_reset(&fold->writer);
    return status;
}

xorcast_status xci_fold_group(xci_fold *fold, xci_delta_writer *out) {
    xci_pool *pool = fold->context->shared->pool;
    TRY(list_entries(fold));
    TRY(xci_pool_run(pool, fold->entry_count, measure_entry, fold));
    TRY(make_jobs(fold));
    TRY(xci_pool_run(pool, fold->chunk_count, fold_chunk, fold));
    return write_group(fold, out);
}
