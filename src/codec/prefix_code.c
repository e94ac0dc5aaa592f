/* Making, describing and reading prefix codes: see prefix_code.h.
 *
 * The description lists the lengths of symbols 0, 1, ... in nibbles, low nibble first, until the
 * code is complete:
 *
 *     0 .. 12   the length of one symbol, 0 if it is not used
 *     13 a      a + 2 symbols that are not used
 *     14 a b    a + 16 b + 18 symbols that are not used
 *     15 a      the length before, which is not 0, for a + 3 more symbols */
#include "codec/prefix_code.h"

#define SKIP_FEW 13u
#define SKIP_FEW_BASE 2u
#define SKIP_MANY 14u
#define SKIP_MANY_BASE 18u
#define REPEAT 15u
#define REPEAT_BASE 3u
#define SINGLE_MARK 1u
#define COMPLETE (1u << XCI_PREFIX_LONGEST)

/* ---- Making ---- */

/* A leaf or an inner node; `up` is the node above it. */
typedef struct tree {
    uint64_t keys[XCI_PREFIX_SYMBOLS]; /* count << 10 | symbol of each leaf, rising */
    uint64_t weights[2 * XCI_PREFIX_SYMBOLS];
    uint16_t up[2 * XCI_PREFIX_SYMBOLS];
    uint8_t depths[2 * XCI_PREFIX_SYMBOLS];
    uint32_t leaf_count;
} tree;

/* Keys differ, so that every way of sorting gives the same. */
static void sort_keys(uint64_t *keys, uint32_t count) {
    uint32_t step = 1;
    while (step < count / 3)
        step = 3 * step + 1;
    for (; step > 0; step /= 3)
        for (uint32_t i = step; i < count; i++) {
            const uint64_t key = keys[i];
            uint32_t at = i;
            for (; at >= step && keys[at - step] > key; at -= step)
                keys[at] = keys[at - step];
            keys[at] = key;
        }
}

static void list_leaves(const uint32_t *counts, uint32_t symbol_count, tree *t) {
    t->leaf_count = 0;
    for (uint32_t s = 0; s < symbol_count; s++)
        if (counts[s] != 0)
            t->keys[t->leaf_count++] = (uint64_t)counts[s] << 10 | s;
    sort_keys(t->keys, t->leaf_count);
    for (uint32_t i = 0; i < t->leaf_count; i++)
        t->weights[i] = t->keys[i] >> 10;
}

/* Joins the two lightest nodes again and again, a leaf before an inner node of its weight. Returns
 * the depth of the deepest leaf. */
static uint32_t grow_tree(tree *t) {
    const uint32_t leaves = t->leaf_count, root = 2 * leaves - 2;
    uint32_t leaf = 0, inner = leaves;
    for (uint32_t next = leaves; next <= root; next++) {
        t->weights[next] = 0;
        for (uint32_t side = 0; side < 2; side++) {
            const bool take_leaf =
                leaf < leaves && (inner == next || t->weights[leaf] <= t->weights[inner]);
            const uint32_t taken = take_leaf ? leaf++ : inner++;
            t->weights[next] += t->weights[taken];
            t->up[taken] = (uint16_t)next;
        }
    }
    uint32_t deepest = 0;
    t->depths[root] = 0;
    for (uint32_t node = root; node-- > 0;) {
        const uint32_t depth = t->depths[t->up[node]] + 1u;
        t->depths[node] = (uint8_t)(depth < 255 ? depth : 255);
        deepest = node < leaves && depth > deepest ? depth : deepest;
    }
    return deepest;
}

/* Codes count up within a length, and from each length to the next; the first bit is the lowest. */
static void number_codes(xci_prefix_code *code) {
    uint32_t used[XCI_PREFIX_LONGEST + 1] = {0}, next[XCI_PREFIX_LONGEST + 1] = {0};
    for (uint32_t s = 0; s < code->symbol_count; s++)
        used[code->lengths[s]]++;
    for (uint32_t length = 2; length <= XCI_PREFIX_LONGEST; length++)
        next[length] = (next[length - 1] + used[length - 1]) << 1;
    for (uint32_t s = 0; s < code->symbol_count; s++) {
        uint32_t reversed = 0, value = code->lengths[s] != 0 ? next[code->lengths[s]]++ : 0;
        for (uint32_t i = 0; i < code->lengths[s]; i++, value >>= 1)
            reversed = reversed << 1 | (value & 1);
        code->codes[s] = (uint16_t)reversed;
    }
}

void xci_prefix_build(const uint32_t *counts, uint32_t symbol_count, xci_prefix_code *code) {
    tree t;
    list_leaves(counts, symbol_count, &t);
    memset(code->lengths, 0, sizeof code->lengths);
    memset(code->codes, 0, sizeof code->codes);
    code->symbol_count = symbol_count;
    code->single = t.leaf_count == 1;
    code->single_symbol = (uint32_t)(t.keys[0] % XCI_PREFIX_SYMBOLS);
    if (code->single)
        return;
    /* A code that is too long is made of flatter counts. Halving keeps the leaves in order. */
    while (grow_tree(&t) > XCI_PREFIX_LONGEST)
        for (uint32_t i = 0; i < t.leaf_count; i++)
            t.weights[i] = t.weights[i] / 2 | 1;
    for (uint32_t i = 0; i < t.leaf_count; i++)
        code->lengths[t.keys[i] % XCI_PREFIX_SYMBOLS] = t.depths[i];
    number_codes(code);
}

uint64_t xci_prefix_bits(const xci_prefix_code *code, const uint32_t *counts) {
    uint64_t bits = 0;
    for (uint32_t s = 0; s < code->symbol_count; s++)
        bits += (uint64_t)counts[s] * code->lengths[s];
    return bits;
}

/* ---- Describing ---- */

typedef struct nibbles {
    uint8_t *out; /* or NULL */
    uint32_t count;
} nibbles;

static void put_nibble(nibbles *list, uint32_t value) {
    if (list->out != NULL) {
        if (list->count % 2 == 0)
            list->out[list->count / 2] = 0;
        list->out[list->count / 2] |= (uint8_t)(value << list->count % 2 * 4);
    }
    list->count++;
}

/* The symbols from `at` on that have one length, as many as one item can hold. */
static uint32_t put_run(nibbles *list, const xci_prefix_code *code, uint32_t at) {
    const uint32_t length = code->lengths[at];
    uint32_t run = 1;
    while (at + run < code->symbol_count && code->lengths[at + run] == length)
        run++;
    if (length == 0 && run >= SKIP_MANY_BASE) {
        run = run < SKIP_MANY_BASE + 255 ? run : SKIP_MANY_BASE + 255;
        put_nibble(list, SKIP_MANY);
        put_nibble(list, (run - SKIP_MANY_BASE) & 15);
        put_nibble(list, (run - SKIP_MANY_BASE) >> 4);
    } else if (length == 0 && run >= SKIP_FEW_BASE) {
        put_nibble(list, SKIP_FEW);
        put_nibble(list, run - SKIP_FEW_BASE);
    } else if (length != 0 && at > 0 && code->lengths[at - 1] == length && run >= REPEAT_BASE) {
        run = run < REPEAT_BASE + 15 ? run : REPEAT_BASE + 15;
        put_nibble(list, REPEAT);
        put_nibble(list, run - REPEAT_BASE);
    } else {
        put_nibble(list, length);
        run = 1;
    }
    return run;
}

uint32_t xci_prefix_write(const xci_prefix_code *code, uint8_t *out) {
    uint8_t number[XCI_VARINT_BYTES];
    if (code->single) {
        const uint32_t bytes = xci_varint_put(number, code->single_symbol);
        if (out != NULL) {
            out[0] = SINGLE_MARK;
            memcpy(out + 1, number, bytes);
        }
        return 1 + bytes;
    }
    nibbles list = {out != NULL ? out + 1 : NULL, 0};
    uint32_t sum = 0;
    if (out != NULL)
        out[0] = 0;
    for (uint32_t at = 0; sum < COMPLETE;) {
        const uint32_t length = code->lengths[at], run = put_run(&list, code, at);
        sum += length != 0 ? run * (COMPLETE >> length) : 0;
        at += run;
    }
    return 1 + (list.count + 1) / 2;
}

/* ---- Reading ---- */

typedef struct nibble_reader {
    xci_reader *bytes;
    uint8_t byte;
    bool half;
} nibble_reader;

static uint32_t take_nibble(nibble_reader *reader) {
    reader->half = !reader->half;
    if (!reader->half)
        return reader->byte >> 4;
    reader->byte = xci_read8(reader->bytes);
    return reader->byte & 15;
}

/* One item: `run` symbols of the length that is returned. */
static uint32_t take_run(nibble_reader *reader, uint32_t before, uint32_t *run) {
    const uint32_t item = take_nibble(reader);
    *run = 1;
    if (item <= XCI_PREFIX_LONGEST)
        return item;
    *run = take_nibble(reader);
    if (item == REPEAT) {
        *run += REPEAT_BASE;
        reader->bytes->bad |= before == 0;
        return before;
    }
    *run += item == SKIP_FEW ? SKIP_FEW_BASE : SKIP_MANY_BASE + 16 * take_nibble(reader);
    return 0;
}

static bool read_lengths(xci_reader *bytes, uint32_t symbol_count,
                         uint8_t lengths[XCI_PREFIX_SYMBOLS]) {
    nibble_reader reader = {bytes, 0, false};
    uint32_t at = 0, sum = 0, before = 0;
    while (sum < COMPLETE) {
        uint32_t run;
        const uint32_t length = take_run(&reader, before, &run);
        if (bytes->bad || run > symbol_count - at)
            return false;
        memset(lengths + at, (int)length, run);
        at += run;
        sum += length != 0 ? run * (COMPLETE >> length) : 0;
        before = length;
    }
    return sum == COMPLETE && (!reader.half || reader.byte >> 4 == 0);
}

static uint32_t reverse(uint32_t value, uint32_t bits) {
    uint32_t reversed = 0;
    for (uint32_t i = 0; i < bits; i++, value >>= 1)
        reversed = reversed << 1 | (value & 1);
    return reversed;
}

static void fill_table(const uint8_t *lengths, uint32_t symbol_count, xci_prefix_table *table) {
    uint32_t code = 0; /* of XCI_PREFIX_LONGEST bits, the first one highest */
    for (uint32_t length = 1; length <= XCI_PREFIX_LONGEST; length++)
        for (uint32_t s = 0; s < symbol_count; s++) {
            if (lengths[s] != length)
                continue;
            for (uint32_t at = reverse(code, XCI_PREFIX_LONGEST); at < COMPLETE; at += 1u << length)
                table->entries[at] = (uint16_t)(s << 4 | length);
            code += COMPLETE >> length;
        }
}

bool xci_prefix_read(xci_reader *reader, uint32_t symbol_count, xci_prefix_table *table) {
    uint8_t lengths[XCI_PREFIX_SYMBOLS] = {0};
    const uint8_t mark = xci_read8(reader);
    if (reader->bad || mark > SINGLE_MARK)
        return false;
    if (mark == SINGLE_MARK) {
        const uint64_t symbol = xci_read_varint(reader);
        for (uint32_t i = 0; i < COMPLETE; i++)
            table->entries[i] = (uint16_t)(symbol << 4);
        return !reader->bad && symbol < symbol_count;
    }
    if (!read_lengths(reader, symbol_count, lengths))
        return false;
    fill_table(lengths, symbol_count, table);
    return true;
}
