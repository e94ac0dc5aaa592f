/* Making, describing and reading prefix codes: see prefix_code.h. The description lists the lengths
 * of symbols 0, 1, ... until the code is complete (prefix_items.h). */
#include "codec/prefix_items.h"

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

uint32_t xci_prefix_write(const xci_prefix_code *code, uint8_t *out) {
    uint8_t number[XCI_VARINT_BYTES];
    if (code->single) {
        const uint32_t bytes = xci_varint_put(number, code->single_symbol);
        if (out != NULL) {
            out[0] = XCI_PREFIX_SINGLE;
            memcpy(out + 1, number, bytes);
        }
        return 1 + bytes;
    }
    xci_nibble_writer list = {out != NULL ? out + 1 : NULL, 0};
    uint32_t sum = 0;
    if (out != NULL)
        out[0] = 0;
    for (uint32_t at = 0; sum < XCI_PREFIX_COMPLETE;) {
        const uint32_t length = code->lengths[at],
                       run = xci_put_item(&list, code->lengths, code->symbol_count, at);
        sum += length != 0 ? run * (XCI_PREFIX_COMPLETE >> length) : 0;
        at += run;
    }
    return 1 + (list.count + 1) / 2;
}

/* ---- Reading ---- */

static bool read_lengths(xci_reader *bytes, uint32_t symbol_count,
                         uint8_t lengths[XCI_PREFIX_SYMBOLS]) {
    xci_nibble_reader reader = {bytes, 0, false};
    uint32_t at = 0, sum = 0, before = 0;
    while (sum < XCI_PREFIX_COMPLETE) {
        uint32_t run;
        const uint32_t length = xci_take_item(&reader, before, &run);
        if (bytes->bad || run > symbol_count - at)
            return false;
        memset(lengths + at, (int)length, run);
        at += run;
        sum += length != 0 ? run * (XCI_PREFIX_COMPLETE >> length) : 0;
        before = length;
    }
    return sum == XCI_PREFIX_COMPLETE && (!reader.half || reader.byte >> 4 == 0);
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
            for (uint32_t at = reverse(code, XCI_PREFIX_LONGEST); at < XCI_PREFIX_COMPLETE;
                 at += 1u << length)
                table->entries[at] = (uint16_t)(s << 4 | length);
            code += XCI_PREFIX_COMPLETE >> length;
        }
}

bool xci_prefix_read(xci_reader *reader, uint32_t symbol_count, xci_prefix_table *table) {
    uint8_t lengths[XCI_PREFIX_SYMBOLS] = {0};
    const uint8_t mark = xci_read8(reader);
    if (reader->bad || mark > XCI_PREFIX_SINGLE)
        return false;
    if (mark == XCI_PREFIX_SINGLE) {
        const uint64_t symbol = xci_read_varint(reader);
        for (uint32_t i = 0; i < XCI_PREFIX_COMPLETE; i++)
            table->entries[i] = (uint16_t)(symbol << 4);
        return !reader->bad && symbol < symbol_count;
    }
    if (!read_lengths(reader, symbol_count, lengths))
        return false;
    fill_table(lengths, symbol_count, table);
    return true;
}
