/* Layouts of changed elements: where they are, and what they become. Positions are those of
 * elements in a tensor; numbers of tensors and counts are varints before them.
 *
 *     index   for each changed tensor: int32 positions, new values
 *     gaps    of all tensors: gaps less one (u16; u32 where one does not fit), then XOR values by
 *             their width; all of it one zstd frame
 *     coo     for each changed tensor: differences of rows, columns (the difference within a row),
 *             each in the smallest of u8, u16 and int32 that holds all of them, new values; all of
 *             it one zstd frame
 *
 * Staged, all three are the same: for each changed tensor a head, u32 positions, values. */
#include "compare/layout_parts.h"

#include <string.h>

typedef struct ready_head {
    uint64_t tensor, count;
} ready_head;

static uint32_t width_of(const compare_tensor *t) {
    const uint32_t width = t->element_bytes;
    return width == 2 || width == 4 || width == 8 ? width : 1;
}

static uint64_t padded(uint64_t bytes) {
    return (bytes + 7) / 8 * 8;
}

/* The positions of changed elements, as u32, in place of what `out` held. */
static compare_result collect(const compare_tensor *t, uint64_t limit, compare_bytes *out) {
    const uint32_t width = width_of(t);
    out->count = 0;
    if (t->bytes / width > limit)
        return COMPARE_NO_ROOM;
    for (uint64_t at = 0; at < t->bytes; at += 64) {
        const uint64_t part = t->bytes - at < 64 ? t->bytes - at : 64;
        if (memcmp(t->from + at, t->to + at, part) == 0)
            continue;
        if (!compare_reserve(out, 64 * sizeof(uint32_t)))
            return COMPARE_NO_MEMORY;
        for (uint64_t i = at; i < at + part; i += width) {
            const uint32_t index = (uint32_t)(i / width);
            if (memcmp(t->from + i, t->to + i, width) != 0) {
                memcpy(out->at + out->count, &index, sizeof index);
                out->count += sizeof index;
            }
        }
    }
    return COMPARE_OK;
}

static inline uint32_t index_at(const compare_bytes *indices, uint64_t i) {
    uint32_t index;
    memcpy(&index, indices->at + i * sizeof index, sizeof index);
    return index;
}

/* Adds the elements' values, new or XORed. */
static bool put_values(const compare_tensor *t, const compare_bytes *indices, bool as_xor,
                       compare_bytes *out) {
    const uint32_t width = width_of(t);
    const uint64_t count = indices->count / sizeof(uint32_t);
    if (!compare_reserve(out, count * width))
        return false;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t at = (uint64_t)index_at(indices, i) * width;
        uint64_t from = 0, to = 0;
        memcpy(&from, t->from + at, width);
        memcpy(&to, t->to + at, width);
        to ^= as_xor ? from : 0;
        memcpy(out->at + out->count, &to, width);
        out->count += width;
    }
    return true;
}

static bool put_small(compare_bytes *out, uint32_t number, uint32_t width) {
    return compare_put(out, &number, width);
}

static uint32_t take_small(const uint8_t **at, uint32_t width) {
    uint32_t number = 0;
    memcpy(&number, *at, width);
    *at += width;
    return number;
}

/* Room in work->ready for a staged tensor; where its positions and values go. */
static compare_result begin_ready(const compare_step *step, compare_work *work, uint64_t tensor,
                                  uint64_t count, uint8_t **indices_out, uint8_t **values_out) {
    const ready_head head = {tensor, count};
    const uint64_t indices = padded(count * 4);
    const uint64_t values = padded(count * width_of(&step->tensors[tensor]));
    compare_bytes *out = &work->ready;
    if (!compare_put(out, &head, sizeof head) || !compare_reserve(out, indices + values))
        return COMPARE_NO_MEMORY;
    *indices_out = out->at + out->count;
    *values_out = *indices_out + indices;
    out->count += indices + values;
    return COMPARE_OK;
}

/* ---- Index and value --------------------------------------------------------------------------*/

compare_result compare_index_encode(const compare_codec *codec, const compare_step *step,
                                    compare_work *work) {
    (void)codec;
    compare_bytes *out = &work->encoded, *indices = &work->scratch;
    if (!compare_begin(out))
        return COMPARE_NO_MEMORY;
    for (uint64_t i = 0, due = 0; i < step->count; i++) {
        const compare_tensor *t = &step->tensors[i];
        COMPARE_TRY(collect(t, INT32_MAX, indices));
        if (indices->count == 0)
            continue;
        if (!compare_put_number(out, i - due) || !compare_put_number(out, indices->count / 4) ||
            !compare_put(out, indices->at, indices->count) || !put_values(t, indices, false, out))
            return COMPARE_NO_MEMORY;
        due = i + 1;
    }
    return COMPARE_OK;
}

compare_result compare_index_stage(const compare_codec *codec, const compare_step *step,
                                   compare_work *work) {
    (void)codec;
    const uint8_t *at = work->encoded.at, *end = at + work->encoded.count;
    if (!compare_begin(&work->ready))
        return COMPARE_NO_MEMORY;
    for (uint64_t tensor = 0; at < end; tensor++) {
        uint8_t *indices, *values;
        tensor += compare_take_number(&at);
        const uint64_t count = compare_take_number(&at);
        const uint32_t width = width_of(&step->tensors[tensor]);
        COMPARE_TRY(begin_ready(step, work, tensor, count, &indices, &values));
        memcpy(indices, at, count * 4);
        memcpy(values, at + count * 4, count * width);
        at += count * (4 + width);
    }
    return COMPARE_OK;
}

/* ---- Gaps -------------------------------------------------------------------------------------*/

enum { WIDTHS = 4 }; /* 1, 2, 4, 8 */

static uint32_t width_class(const compare_tensor *t) {
    return (uint32_t)__builtin_ctz(width_of(t));
}

/* Gaps less one; the first counts from before the first element. */
static compare_result put_gaps(const compare_bytes *indices, compare_bytes *head,
                               compare_bytes *gaps) {
    const uint64_t count = indices->count / 4;
    uint32_t largest = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t gap = index_at(indices, i) - (i == 0 ? 0 : index_at(indices, i - 1) + 1);
        largest = gap > largest ? gap : largest;
    }
    const uint32_t width = largest <= UINT16_MAX ? 2 : 4;
    bool good = compare_put_number(head, count) && compare_put_number(head, width);
    for (uint64_t i = 0; i < count && good; i++)
        good = put_small(gaps, index_at(indices, i) - (i == 0 ? 0 : index_at(indices, i - 1) + 1),
                         width);
    return good ? COMPARE_OK : COMPARE_NO_MEMORY;
}

typedef struct sections {
    compare_bytes head, gaps, values[WIDTHS];
} sections;

static compare_result fill_sections(const compare_step *step, compare_work *work, sections *s) {
    compare_bytes *indices = &work->scratch;
    for (uint64_t i = 0, due = 0; i < step->count; i++) {
        const compare_tensor *t = &step->tensors[i];
        COMPARE_TRY(collect(t, UINT32_MAX, indices));
        if (indices->count == 0)
            continue;
        if (!compare_put_number(&s->head, i - due))
            return COMPARE_NO_MEMORY;
        COMPARE_TRY(put_gaps(indices, &s->head, &s->gaps));
        if (!put_values(t, indices, true, &s->values[width_class(t)]))
            return COMPARE_NO_MEMORY;
        due = i + 1;
    }
    return COMPARE_OK;
}

/* The sizes of the sections, the sections, as one frame. */
static compare_result pack_sections(const compare_codec *codec, compare_work *work,
                                    const sections *s) {
    compare_bytes *plain = &work->ready, *out = &work->encoded;
    bool good = compare_begin(plain) && compare_begin(out) &&
                compare_put_number(plain, s->head.count) &&
                compare_put_number(plain, s->gaps.count);
    for (uint32_t i = 0; i < WIDTHS; i++)
        good = good && compare_put_number(plain, s->values[i].count);
    good = good && compare_put(plain, s->head.at, s->head.count) &&
           compare_put(plain, s->gaps.at, s->gaps.count);
    for (uint32_t i = 0; i < WIDTHS; i++)
        good = good && compare_put(plain, s->values[i].at, s->values[i].count);
    return good ? compare_put_frame(work, codec->level, plain, out) : COMPARE_NO_MEMORY;
}

compare_result compare_gaps_encode(const compare_codec *codec, const compare_step *step,
                                   compare_work *work) {
    sections s;
    memset(&s, 0, sizeof s);
    compare_result result = fill_sections(step, work, &s);
    if (result == COMPARE_OK)
        result = pack_sections(codec, work, &s);
    compare_free(&s.head);
    compare_free(&s.gaps);
    for (uint32_t i = 0; i < WIDTHS; i++)
        compare_free(&s.values[i]);
    return result;
}

compare_result compare_gaps_stage(const compare_codec *codec, const compare_step *step,
                                  compare_work *work) {
    (void)codec;
    uint64_t sizes[2 + WIDTHS];
    const uint8_t *values[WIDTHS];
    COMPARE_TRY(compare_open_frame(work));
    const uint8_t *head = work->scratch.at;
    for (uint32_t i = 0; i < 2 + WIDTHS; i++)
        sizes[i] = compare_take_number(&head);
    const uint8_t *head_end = head + sizes[0], *gaps = head_end, *next = gaps + sizes[1];
    for (uint32_t i = 0; i < WIDTHS; next += sizes[2 + i++])
        values[i] = next;
    if (!compare_begin(&work->ready))
        return COMPARE_NO_MEMORY;
    for (uint64_t tensor = 0; head < head_end; tensor++) {
        uint8_t *indices, *places;
        tensor += compare_take_number(&head);
        const uint64_t count = compare_take_number(&head);
        const uint32_t width = (uint32_t)compare_take_number(&head);
        const compare_tensor *t = &step->tensors[tensor];
        COMPARE_TRY(begin_ready(step, work, tensor, count, &indices, &places));
        for (uint64_t i = 0, index = 0; i < count; i++, index++) {
            index += take_small(&gaps, width);
            const uint32_t narrow = (uint32_t)index;
            memcpy(indices + 4 * i, &narrow, 4);
        }
        memcpy(places, values[width_class(t)], count * width_of(t));
        values[width_class(t)] += count * width_of(t);
    }
    return COMPARE_OK;
}

/* ---- Rows and columns -------------------------------------------------------------------------*/

static uint32_t width_for(uint32_t largest) {
    return largest <= UINT8_MAX ? 1 : largest <= UINT16_MAX ? 2 : 4;
}

typedef struct place {
    uint32_t row, column; /* differences, as they are written */
} place;

/* `last` is the position before, or one that is in no row. */
static inline place place_of(uint64_t columns, uint32_t index, uint64_t last_row,
                             uint64_t last_column) {
    const uint64_t row = index / columns, column = index % columns;
    return (place){(uint32_t)(row - last_row),
                   (uint32_t)(row == last_row ? column - last_column : column)};
}

static bool put_coo(const compare_tensor *t, const compare_bytes *indices, compare_bytes *out) {
    const uint64_t count = indices->count / 4;
    uint32_t rows = 0, columns = 0;
    bool good = true;
    for (uint32_t pass = 0; pass < 3; pass++) { /* how wide, rows, columns */
        uint64_t row = 0, column = 0;
        if (pass == 1)
            good = compare_put_number(out, count) && compare_put_number(out, width_for(rows)) &&
                   compare_put_number(out, width_for(columns));
        for (uint64_t i = 0; i < count && good; i++) {
            const uint32_t index = index_at(indices, i);
            const place p = place_of(t->columns, index, row, column);
            row = index / t->columns, column = index % t->columns;
            rows = p.row > rows ? p.row : rows;
            columns = p.column > columns ? p.column : columns;
            if (pass > 0)
                good = put_small(out, pass == 1 ? p.row : p.column,
                                 width_for(pass == 1 ? rows : columns));
        }
    }
    return good && put_values(t, indices, false, out);
}

compare_result compare_coo_encode(const compare_codec *codec, const compare_step *step,
                                  compare_work *work) {
    compare_bytes *plain = &work->ready, *out = &work->encoded, *indices = &work->scratch;
    if (!compare_begin(plain) || !compare_begin(out))
        return COMPARE_NO_MEMORY;
    for (uint64_t i = 0, due = 0; i < step->count; i++) {
        COMPARE_TRY(collect(&step->tensors[i], INT32_MAX, indices));
        if (indices->count == 0)
            continue;
        if (!compare_put_number(plain, i - due) || !put_coo(&step->tensors[i], indices, plain))
            return COMPARE_NO_MEMORY;
        due = i + 1;
    }
    return compare_put_frame(work, codec->level, plain, out);
}

compare_result compare_coo_stage(const compare_codec *codec, const compare_step *step,
                                 compare_work *work) {
    (void)codec;
    COMPARE_TRY(compare_open_frame(work));
    const uint8_t *at = work->scratch.at, *end = at + work->scratch.count;
    if (!compare_begin(&work->ready))
        return COMPARE_NO_MEMORY;
    for (uint64_t tensor = 0; at < end; tensor++) {
        uint8_t *indices, *values;
        tensor += compare_take_number(&at);
        const compare_tensor *t = &step->tensors[tensor];
        const uint64_t count = compare_take_number(&at);
        const uint32_t row_width = (uint32_t)compare_take_number(&at);
        const uint32_t column_width = (uint32_t)compare_take_number(&at);
        const uint8_t *rows = at, *columns = rows + count * row_width;
        uint64_t row = 0, column = 0;
        at = columns + count * column_width;
        COMPARE_TRY(begin_ready(step, work, tensor, count, &indices, &values));
        for (uint64_t i = 0; i < count; i++) {
            const uint32_t down = take_small(&rows, row_width);
            row += down;
            column = (down == 0 ? column : 0) + take_small(&columns, column_width);
            const uint32_t index = (uint32_t)(row * t->columns + column);
            memcpy(indices + 4 * i, &index, 4);
        }
        memcpy(values, at, count * width_of(t));
        at += count * width_of(t);
    }
    return COMPARE_OK;
}

/* ---- Commit -----------------------------------------------------------------------------------*/

/* Always inlined with a constant width. */
static inline void scatter(uint8_t *weights, const uint8_t *indices, const uint8_t *values,
                           uint64_t count, uint32_t width, bool as_xor) {
    for (uint64_t i = 0; i < count; i++) {
        uint32_t index;
        uint64_t value = 0, old = 0;
        memcpy(&index, indices + 4 * i, 4);
        memcpy(&value, values + width * i, width);
        uint8_t *at = weights + (uint64_t)index * width;
        memcpy(&old, at, width);
        value ^= as_xor ? old : 0;
        memcpy(at, &value, width);
    }
}

static void scatter_all(const compare_step *step, const compare_bytes *ready, bool as_xor) {
    const uint8_t *at = ready->at, *end = at + ready->count;
    while (at < end) {
        ready_head head;
        memcpy(&head, at, sizeof head);
        const compare_tensor *t = &step->tensors[head.tensor];
        const uint8_t *indices = at + sizeof head, *values = indices + padded(4 * head.count);
        switch (width_of(t)) {
        case 1:
            scatter(t->weights, indices, values, head.count, 1, as_xor);
            break;
        case 2:
            scatter(t->weights, indices, values, head.count, 2, as_xor);
            break;
        case 4:
            scatter(t->weights, indices, values, head.count, 4, as_xor);
            break;
        default:
            scatter(t->weights, indices, values, head.count, 8, as_xor);
            break;
        }
        at = values + padded(head.count * width_of(t));
    }
}

compare_result compare_elements_set(const compare_codec *codec, const compare_step *step,
                                    compare_work *work) {
    (void)codec;
    scatter_all(step, &work->ready, false);
    return COMPARE_OK;
}

compare_result compare_elements_xor(const compare_codec *codec, const compare_step *step,
                                    compare_work *work) {
    (void)codec;
    scatter_all(step, &work->ready, true);
    return COMPARE_OK;
}
