/* The entropy bound: see bound.h. A histogram of 256 values for each stream of each tensor that
 * changed, made on first use. */
#include "publish/bound.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "codec/codec.h"

#define VALUES 256u
#define LINE 64u

struct xci_bound {
    pthread_mutex_t lock;
    uint64_t tensor_count;
    uint64_t *histograms[]; /* for each tensor, VALUES counts for each stream; NULL: unchanged */
};

/* How a tensor is looked at: how many byte planes it has, or whether two numbers share a byte. */
typedef struct view {
    uint32_t planes;
    bool nibbles;
} view;

static view view_of(const xci_tensor *tensor) {
    const uint32_t width = tensor->element_bytes;
    const bool packed = strcmp(tensor->dtype, "U8") == 0 || strcmp(tensor->dtype, "F4") == 0;
    return (view){width == 4 || width == 8 ? width : 1, packed};
}

xorcast_status xci_bound_open(xorcast_bundle *bundle, xci_bound **bound_out) {
    void *memory;
    TRY(xci_allocate_zeroed(
        bundle->context, sizeof(xci_bound) + bundle->tensor_count * sizeof(uint64_t *), &memory));
    xci_bound *bound = memory;
    pthread_mutex_init(&bound->lock, NULL);
    bound->tensor_count = bundle->tensor_count;
    *bound_out = bound;
    return XORCAST_OK;
}

void xci_bound_close(xorcast_context *context, xci_bound *bound) {
    if (bound == NULL)
        return;
    for (uint64_t t = 0; t < bound->tensor_count; t++)
        xci_release(context, bound->histograms[t]);
    pthread_mutex_destroy(&bound->lock);
    xci_release(context, bound);
}

void xci_bound_reset(xci_bound *bound, const xorcast_bundle *bundle) {
    for (uint64_t t = 0; t < bound->tensor_count; t++)
        if (bound->histograms[t] != NULL)
            memset(bound->histograms[t], 0,
                   view_of(&bundle->tensors[t]).planes * VALUES * sizeof(uint64_t));
}

static bool is_zero(const uint8_t line[LINE]) {
    uint64_t any = 0;
    for (unsigned i = 0; i < LINE; i += 8)
        any |= xci_load64(line + i);
    return any == 0;
}

/* Up to eight bytes, the first of them byte `at` of the tensor's elements. */
static void count_word(const view *v, uint64_t *histogram, uint64_t at, uint64_t word) {
    while (word != 0) {
        const uint32_t i = (uint32_t)__builtin_ctzll(word) / 8;
        const uint32_t value = word >> (8 * i) & 0xff;
        uint64_t *plane = histogram + (at + i) % v->planes * VALUES;
        plane[v->nibbles ? value & 15 : value]++;
        if (v->nibbles)
            plane[value >> 4]++;
        word &= ~(UINT64_C(0xff) << (8 * i));
    }
}

/* Nearly all of a mask is zero, and nobody asks for how much: value 0 is not counted.
 * `mask` begins at a whole element of the tensor. */
static xorcast_status count_bytes(xci_bound *bound, xorcast_bundle *bundle, uint64_t tensor,
                                  const uint8_t *mask, uint64_t count) {
    const view v = view_of(&bundle->tensors[tensor]);
    uint64_t **histogram = &bound->histograms[tensor];
    if (*histogram == NULL) {
        void *memory;
        TRY(xci_allocate_zeroed(bundle->context, v.planes * VALUES * sizeof(uint64_t), &memory));
        *histogram = memory;
    }
    for (uint64_t i = 0; i < count;) {
        if (count - i >= LINE && is_zero(mask + i)) {
            i += LINE;
            continue;
        }
        for (const uint64_t end = xci_min(count, i + LINE); i < end; i += 8) {
            uint64_t word = 0;
            if (end - i >= 8)
                word = xci_load64(mask + i);
            else
                memcpy(&word, mask + i, end - i);
            count_word(&v, *histogram, i, word);
        }
    }
    return XORCAST_OK;
}

static xorcast_status count_mask(xci_bound *bound, xorcast_bundle *bundle, const xci_chunk *chunk,
                                 const uint8_t *mask) {
    if (!chunk->packed)
        return count_bytes(bound, bundle, chunk->tensor, mask, chunk->bytes);
    for (uint32_t i = 0; i < chunk->tensor_count; i++)
        TRY(count_bytes(bound, bundle, chunk->tensors[i], mask + chunk->places[i].offset,
                        chunk->places[i].bytes));
    return XORCAST_OK;
}

static xorcast_status add_block(xci_bound *bound, xorcast_bundle *bundle, uint64_t index,
                                const xci_block *block, const uint8_t *bytes, uint8_t *mask) {
    xci_chunk chunk;
    const xci_place place = {XORCAST_NO_INDEX, index, 0};
    xci_bundle_chunk(bundle, index, NULL, &chunk);
    TRY(xci_codec_decode(bundle->context, place, block->codec, bytes, block->bytes, mask,
                         chunk.bytes));
    pthread_mutex_lock(&bound->lock);
    const xorcast_status status = count_mask(bound, bundle, &chunk, mask);
    pthread_mutex_unlock(&bound->lock);
    return status;
}

xorcast_status xci_bound_add(xci_bound *bound, xorcast_bundle *bundle, const xci_record *record) {
    void *mask;
    TRY(xci_allocate(bundle->context, UINT64_C(1) << bundle->chunk_log2, &mask));
    xorcast_status status = XORCAST_OK;
    const uint8_t *at = record->payload;
    for (uint32_t i = 0; i < record->block_count && status == XORCAST_OK; i++) {
        const uint64_t index = bundle->group_first[record->group] + record->blocks[i].chunk;
        status = add_block(bound, bundle, index, &record->blocks[i], at, mask);
        at += record->blocks[i].bytes;
    }
    xci_release(bundle->context, mask);
    return status;
}

static double entropy_bits(double count, double total) {
    return count > 0 ? count * log2(total / count) : 0;
}

/* Of one stream: which of its `places` changed, and to what. */
static double stream_bits(const uint64_t *histogram, double places) {
    double changed = 0, bits = 0;
    for (uint32_t v = 1; v < VALUES; v++)
        changed += (double)histogram[v];
    for (uint32_t v = 1; v < VALUES; v++)
        bits += entropy_bits((double)histogram[v], changed);
    return bits + entropy_bits(changed, places) + entropy_bits(places - changed, places);
}

double xci_bound_bytes(const xci_bound *bound, const xorcast_bundle *bundle) {
    double bits = 0;
    for (uint64_t t = 0; t < bound->tensor_count; t++) {
        const view v = view_of(&bundle->tensors[t]);
        const uint64_t places = bundle->tensors[t].bytes / v.planes * (v.nibbles ? 2 : 1);
        for (uint32_t p = 0; p < v.planes && bound->histograms[t] != NULL; p++)
            bits += stream_bits(bound->histograms[t] + p * VALUES, (double)places);
    }
    return bits / 8;
}
