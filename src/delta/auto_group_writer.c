/* Groups in the codec `auto`: see auto_group_writer.h.
 *
 * Every chunk is encoded in all codecs. Without the second pass each takes the cheapest. With it
 * the mixture of these, and the group in LZ4 alone, are compressed as well, because what is longer
 * before the second pass may be shorter after it: where changes repeat themselves, which gap does
 * not see. Only if that comes near, Snappy and raw are tried too, which take many times as long. */
#include "delta/auto_group_writer.h"

#include <string.h>

#include "backend/backend.h"
#include "delta/group_reader.h"

/* A group in one codec alone: raw, LZ4 or Snappy. */
typedef struct form {
    uint8_t *payload;
    xci_block *blocks;
    const uint8_t **places; /* of each block in the payload */
    uint64_t payload_capacity, blocks_capacity, places_capacity, bytes;
} form;

#define FORMS 3u /* by codec, from raw on */
#define NEAR 2u  /* times the least price so far */

struct xci_auto_group_writer {
    xci_prices prices;
    xci_gap_group_writer *gap;
    xci_group_reader reader; /* of what a device has written */
    form forms[FORMS];
    xci_gap_rival *rivals;
    uint8_t *zeros, *packed[2]; /* the best frame so far and the next one */
    uint64_t rivals_capacity, zeros_capacity, packed_capacity[2];
};

xorcast_status xci_auto_group_writer_open(xorcast_context *context, const xci_prices *prices,
                                          xci_auto_group_writer **writer_out) {
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_auto_group_writer), &memory));
    xci_auto_group_writer *writer = memory;
    const xorcast_status status = xci_gap_group_writer_open(context, &writer->gap);
    writer->prices = *prices;
    xci_group_reader_open(&writer->reader, context);
    if (status < 0) {
        xci_release(context, memory);
        return status;
    }
    *writer_out = writer;
    return XORCAST_OK;
}

void xci_auto_group_writer_close(xorcast_context *context, xci_auto_group_writer *writer) {
    if (writer == NULL)
        return;
    for (uint32_t f = 0; f < FORMS; f++) {
        xci_release(context, writer->forms[f].payload);
        xci_release(context, writer->forms[f].blocks);
        xci_release(context, writer->forms[f].places);
    }
    xci_gap_group_writer_close(context, writer->gap);
    xci_group_reader_close(&writer->reader);
    xci_release(context, writer->rivals);
    xci_release(context, writer->zeros);
    xci_release(context, writer->packed[0]);
    xci_release(context, writer->packed[1]);
    xci_release(context, writer);
}

/* ---- Room ---- */

static xorcast_status reserve(xorcast_context *context, xci_auto_group_writer *writer,
                              const xci_record *listed) {
    const uint64_t count = listed->block_count, zeros_before = writer->zeros_capacity;
    uint64_t bytes = 0, most = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += listed->blocks[i].chunk_bytes;
        most = xci_max(most, listed->blocks[i].chunk_bytes);
    }
    for (uint32_t f = 0; f < FORMS; f++) {
        form *of = &writer->forms[f];
        TRY(xci_grow(context, &of->payload, &of->payload_capacity, bytes + XCI_BLOCK_SLACK));
        TRY(xci_grow(context, &of->blocks, &of->blocks_capacity, count * sizeof *of->blocks));
        TRY(xci_grow(context, &of->places, &of->places_capacity, count * sizeof *of->places));
    }
    TRY(xci_grow(context, &writer->rivals, &writer->rivals_capacity,
                 count * sizeof *writer->rivals));
    TRY(xci_grow(context, &writer->zeros, &writer->zeros_capacity, most));
    if (writer->zeros_capacity != zeros_before)
        memset(writer->zeros, 0, writer->zeros_capacity);
    return XORCAST_OK;
}

/* ---- Each codec alone ---- */

/* Reading a record's parameters changes its blocks, hence the copy. */
static xorcast_status list_raw(xorcast_context *context, xci_auto_group_writer *writer,
                               const xci_record *listed) {
    form *raw = &writer->forms[0];
    xci_record copy = *listed;
    const uint8_t *from;
    TRY(reserve(context, writer, listed));
    uint8_t *at = raw->payload;
    copy.blocks = raw->blocks;
    memcpy(copy.blocks, listed->blocks, listed->block_count * sizeof *copy.blocks);
    TRY(xci_group_read(&writer->reader, XCI_NOWHERE, &copy, &from));
    for (uint32_t i = 0; i < listed->block_count; i++) {
        const xci_block *block = &listed->blocks[i];
        TRY(xci_block_decode(&writer->reader, XCI_NOWHERE, &copy, i, from, NULL, at,
                             block->chunk_bytes));
        raw->blocks[i] = *block;
        raw->blocks[i].codec = XORCAST_CODEC_RAW;
        raw->blocks[i].bytes = block->chunk_bytes;
        raw->places[i] = at;
        at += block->chunk_bytes;
        from += block->bytes;
    }
    raw->bytes = (uint64_t)(at - raw->payload);
    writer->forms[1].bytes = writer->forms[2].bytes = 0; /* not made yet */
    return XORCAST_OK;
}

static void encode_form(const xci_backend *backend, xci_auto_group_writer *writer, uint32_t codec,
                        uint32_t count) {
    const form *raw = &writer->forms[0];
    form *to = &writer->forms[codec - XORCAST_CODEC_RAW];
    uint8_t *at = to->payload;
    for (uint32_t i = 0; i < count; i++) {
        xci_encode_job job = {.old_bytes = writer->zeros,
                              .new_bytes = raw->places[i],
                              .bytes = raw->blocks[i].bytes,
                              .element_bytes = raw->blocks[i].element_bytes,
                              .codec = codec,
                              .block = at};
        backend->encode(&job, 1);
        to->blocks[i] = raw->blocks[i];
        to->blocks[i].codec = job.block_codec;
        to->blocks[i].bytes = job.block_bytes;
        to->places[i] = at;
        at += job.block_bytes;
    }
    to->bytes = (uint64_t)(at - to->payload);
}

static uint64_t price_of(const xci_prices *prices, const xci_block *block) {
    return prices->wire * block->bytes + prices->weights[block->codec] * block->chunk_bytes;
}

/* The cheapest of the forms for each chunk, and the size below which gap is cheaper still. */
static void list_rivals(xci_auto_group_writer *writer, uint32_t count, bool beside) {
    const xci_prices *prices = &writer->prices;
    const uint64_t gap = beside ? prices->old_weights : prices->weights[XORCAST_CODEC_GAP];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t best = 0;
        for (uint32_t f = 1; f < FORMS; f++)
            if (price_of(prices, &writer->forms[f].blocks[i]) <
                price_of(prices, &writer->forms[best].blocks[i]))
                best = f;
        const xci_block *block = &writer->forms[best].blocks[i];
        const uint64_t least = price_of(prices, block), fixed = gap * block->chunk_bytes;
        const uint64_t below = least > fixed ? xci_divide_up(least - fixed, prices->wire) : 0;
        writer->rivals[i] =
            (xci_gap_rival){writer->forms[best].places[i], block->codec, block->bytes,
                            (uint32_t)xci_min(below, block->chunk_bytes)};
    }
}

/* ---- The second pass ---- */

static uint64_t price_of_all(const xci_prices *prices, const xci_record *record) {
    uint64_t price = prices->wire * record->stored_bytes;
    for (uint32_t i = 0; i < record->block_count; i++)
        price += prices->weights[record->blocks[i].codec] * record->blocks[i].chunk_bytes;
    return price + (record->second_pass ? prices->second_pass * record->raw_bytes : 0);
}

/* Whether `candidate` can be cheaper than `best` once it is compressed: no frame is shorter than a
 * byte. */
static bool may_win(const xci_prices *prices, const xci_record *candidate, const xci_record *best) {
    xci_record packed = *candidate;
    packed.second_pass = true;
    packed.stored_bytes = 1;
    return price_of_all(prices, &packed) < price_of_all(prices, best);
}

/* Takes `candidate`, compressed, in place of `best` if that is cheaper. Gives its price, if it can
 * be cheaper at all. */
static xorcast_status try_packed(xorcast_context *context, xci_auto_group_writer *writer,
                                 xci_zstd_encoder *zstd, const xci_record *candidate,
                                 xci_record *best, uint64_t *price_out) {
    const uint32_t room = best->payload == writer->packed[0] ? 1 : 0;
    xci_record packed = *candidate;
    *price_out = UINT64_MAX;
    if (!may_win(&writer->prices, candidate, best))
        return XORCAST_OK;
    TRY(xci_grow(context, &writer->packed[room], &writer->packed_capacity[room], packed.raw_bytes));
    TRY(xci_zstd_encode(context, zstd, candidate->payload, packed.raw_bytes, writer->packed[room],
                        &packed.stored_bytes));
    if (packed.stored_bytes == 0)
        return XORCAST_OK;
    packed.second_pass = true;
    packed.payload = writer->packed[room];
    *price_out = price_of_all(&writer->prices, &packed);
    if (*price_out < price_of_all(&writer->prices, best))
        *best = packed;
    return XORCAST_OK;
}

static xorcast_status try_form(xorcast_context *context, xci_auto_group_writer *writer,
                               xci_zstd_encoder *zstd, uint32_t codec, const xci_record *listed,
                               xci_record *best, uint64_t *price_out) {
    form *of = &writer->forms[codec - XORCAST_CODEC_RAW];
    xci_record alone = *listed;
    if (of->bytes == 0)
        encode_form(context->shared->backend, writer, codec, listed->block_count);
    alone.blocks = of->blocks;
    alone.payload = of->payload;
    alone.raw_bytes = of->bytes;
    alone.params_bytes = 0;
    return try_packed(context, writer, zstd, &alone, best, price_out);
}

/* Raw is listed. */
static xorcast_status try_forms(xorcast_context *context, xci_auto_group_writer *writer,
                                xci_zstd_encoder *zstd, const xci_record *listed,
                                xci_record *best) {
    uint64_t price;
    TRY(try_form(context, writer, zstd, XORCAST_CODEC_LZ4, listed, best, &price));
    if (price / NEAR > price_of_all(&writer->prices, best))
        return XORCAST_OK;
    TRY(try_form(context, writer, zstd, XORCAST_CODEC_SNAPPY, listed, best, &price));
    return try_form(context, writer, zstd, XORCAST_CODEC_RAW, listed, best, &price);
}

/* The mixture of the cheapest blocks, of which the forms are made. */
static xorcast_status mix(xorcast_context *context, xci_auto_group_writer *writer,
                          const xci_record *listed, const uint8_t *const *old,
                          xci_record *mixed_out) {
    list_rivals(writer, listed->block_count, old != NULL);
    TRY(xci_gap_group_write(context, writer->gap, listed, old, writer->rivals, mixed_out));
    mixed_out->second_pass = false;
    mixed_out->stored_bytes = mixed_out->raw_bytes;
    mixed_out->lz4_bytes = writer->forms[1].bytes;
    return XORCAST_OK;
}

xorcast_status xci_auto_group_mix(xorcast_context *context, xci_auto_group_writer *writer,
                                  const xci_record *listed, const uint8_t *const *old,
                                  xci_record *record_out) {
    const xci_backend *backend = context->shared->backend;
    TRY(list_raw(context, writer, listed));
    encode_form(backend, writer, XORCAST_CODEC_LZ4, listed->block_count);
    encode_form(backend, writer, XORCAST_CODEC_SNAPPY, listed->block_count);
    return mix(context, writer, listed, old, record_out);
}

xorcast_status xci_auto_group_write(xorcast_context *context, xci_auto_group_writer *writer,
                                    xci_zstd_encoder *zstd, const xci_record *listed,
                                    const uint8_t *const *old, xci_record *record_out) {
    xci_record mixed;
    uint64_t price;
    TRY(xci_auto_group_mix(context, writer, listed, old, &mixed));
    *record_out = mixed;
    if (zstd == NULL)
        return XORCAST_OK;
    TRY(try_packed(context, writer, zstd, &mixed, record_out, &price));
    return try_forms(context, writer, zstd, listed, record_out);
}

/* Whether the group in LZ4, which is tried first, can be cheaper than `best` once it is compressed:
 * as if no block of it were raw, or, where that is cheaper, all. */
static bool lz4_may_win(const xci_prices *prices, const xci_record *plain, const xci_record *best) {
    const uint64_t weight =
        xci_min(prices->weights[XORCAST_CODEC_RAW], prices->weights[XORCAST_CODEC_LZ4]);
    uint64_t chunk_bytes = 0;
    for (uint32_t i = 0; i < plain->block_count; i++)
        chunk_bytes += plain->blocks[i].chunk_bytes;
    return prices->wire + weight * chunk_bytes + prices->second_pass * plain->lz4_bytes <
           price_of_all(prices, best);
}

xorcast_status xci_auto_group_pack(xorcast_context *context, xci_auto_group_writer *writer,
                                   xci_zstd_encoder *zstd, const xci_record *mixed,
                                   const xci_record *plain, xci_record *record_out) {
    *record_out = *mixed;
    record_out->stored_bytes = mixed->raw_bytes;
    const xci_record unpacked = *record_out;
    uint64_t price;
    if (zstd == NULL)
        return XORCAST_OK;
    TRY(try_packed(context, writer, zstd, &unpacked, record_out, &price));
    if (!lz4_may_win(&writer->prices, plain, record_out))
        return XORCAST_OK;
    TRY(list_raw(context, writer, plain));
    return try_forms(context, writer, zstd, plain, record_out);
}
