/* Entropy bounds between two checkpoints, tensor by tensor and in all: compare/entropy.h says what
 * they are. Reads one tensor of each at a time, through the public API. Owns that memory and the
 * counts of each dtype. Tensors that only one side has, or that were resized, are named and left
 * out: a delta sends them whole. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/entropy.h"
#include "gen/measure.h"
#include "gen/testbed.h"

#define DTYPES 64u

static const char help[] =
    "usage: bounds OLD NEW [--json] [--totals]\n"
    "\n"
    "What an ideal coder needs for the step from one checkpoint to the other, in bytes:\n"
    "\n"
    "  order 0       which places changed, and the XOR values there. Places are bytes; byte "
    "planes\n"
    "                of 4- and 8-byte elements, each by itself; nibbles of packed U8 and F4\n"
    "  conditional   which elements changed and by how many steps, up or down, given the exponent\n"
    "                of the old element (of packed E2M1, its code without sign)\n"
    "  charged       the same by a coder that learns the counts on the way (KT estimator for each\n"
    "                binary decision), so that small tensors get no tables for nothing\n"
    "\n"
    "A line for each tensor that changed, then sums for each dtype, the same with one model for\n"
    "all tensors of a dtype ('one model'), and in all.\n"
    "\n"
    "  --json     one JSON object a line\n"
    "  --totals   no lines for single tensors\n";

/* Of one dtype. `pool` has the counts of all its tensors. */
typedef struct group {
    char dtype[16];
    uint64_t tensors, tensors_changed, bytes;
    compare_bounds sum;
    compare_counts *pool;
} group;

typedef struct bounds {
    xorcast_context *context;
    xorcast_checkpoint *sides[2];
    void *memory[2];
    compare_counts *counts;
    group groups[DTYPES];
    uint32_t group_count;
    uint64_t left_out;
    bool json, totals;
} bounds;

static _Noreturn void give_up(const char *why) {
    fprintf(stderr, "bounds: %s\n", why);
    exit(1);
}

static void *needed(void *memory) {
    if (memory == NULL)
        give_up("no memory");
    return memory;
}

/* ---- Reading ----------------------------------------------------------------------------------*/

static uint32_t element_bytes(const xorcast_tensor *tensor) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        elements *= tensor->shape[i];
    return elements == 0 || tensor->bytes < elements ? 1 : (uint32_t)(tensor->bytes / elements);
}

/* Brings one tensor of a checkpoint into memory. */
static void load(bounds *b, uint32_t side, xorcast_tensor tensor) {
    xorcast_bundle *bundle;
    b->memory[side] = needed(realloc(b->memory[side], tensor.bytes));
    tensor.data = b->memory[side];
    testbed_must(b->context, xorcast_bundle_create(b->context, NULL, &bundle), tensor.name);
    testbed_must(b->context, xorcast_bundle_add(bundle, &tensor), tensor.name);
    testbed_must(b->context, xorcast_bundle_seal(bundle, NULL), tensor.name);
    testbed_must(b->context, xorcast_checkpoint_load(b->sides[side], bundle), tensor.name);
    xorcast_bundle_destroy(bundle);
}

static bool same_kind(const xorcast_tensor *a, const xorcast_tensor *b) {
    return a->bytes == b->bytes && strcmp(a->dtype, b->dtype) == 0;
}

static bool find(bounds *b, uint32_t side, const char *name, xorcast_tensor *tensor_out) {
    uint64_t index;
    xorcast_bundle *bundle = xorcast_checkpoint_bundle(b->sides[side]);
    return xorcast_bundle_find(bundle, name, &index) == XORCAST_OK &&
           xorcast_bundle_describe(bundle, index, tensor_out) == XORCAST_OK;
}

static void leave_out(bounds *b, const char *name) {
    fprintf(stderr, "bounds: %s is not the same kind of tensor on both sides; left out\n", name);
    b->left_out++;
}

/* ---- Counting ---------------------------------------------------------------------------------*/

static void add_bounds(compare_bounds *to, compare_bounds more) {
    to->order0 += more.order0;
    to->order0_charged += more.order0_charged;
    to->conditional += more.conditional;
    to->conditional_charged += more.conditional_charged;
}

static group *group_of(bounds *b, const xorcast_tensor *tensor) {
    for (uint32_t i = 0; i < b->group_count; i++)
        if (strcmp(b->groups[i].dtype, tensor->dtype) == 0)
            return &b->groups[i];
    if (b->group_count == DTYPES)
        give_up("more dtypes than there are");
    group *g = &b->groups[b->group_count++];
    snprintf(g->dtype, sizeof g->dtype, "%s", tensor->dtype);
    g->pool = needed(compare_counts_new(tensor->dtype, element_bytes(tensor)));
    return g;
}

static void print_row(const bounds *b, const char *row, const char *name, const char *dtype,
                      uint64_t bytes, uint64_t changed, compare_bounds of) {
    if (b->json) {
        printf("{\"row\":\"%s\"", row);
        measure_text("name", name);
        measure_text("dtype", dtype);
        measure_count("bytes", bytes);
        measure_count("changed", changed);
        measure_number("order0_bytes", of.order0);
        measure_number("order0_charged_bytes", of.order0_charged);
        measure_number("conditional_bytes", of.conditional);
        measure_number("conditional_charged_bytes", of.conditional_charged);
        measure_row_end();
        return;
    }
    printf("%-48s %-8s %13" PRIu64 " %11" PRIu64 " %11.0f %11.0f %11.0f %11.0f\n", name, dtype,
           bytes, changed, of.order0, of.order0_charged, of.conditional, of.conditional_charged);
}

static void measure_tensor(bounds *b, const xorcast_tensor *tensor) {
    group *g = group_of(b, tensor);
    compare_counts_begin(b->counts, tensor->dtype, element_bytes(tensor));
    if (tensor->bytes > 0) {
        load(b, 0, *tensor);
        load(b, 1, *tensor);
        compare_counts_add(b->counts, b->memory[0], b->memory[1], tensor->bytes);
    }
    const compare_bounds of = compare_counts_bounds(b->counts);
    const bool changed = !compare_counts_same(b->counts);
    compare_counts_merge(g->pool, b->counts);
    add_bounds(&g->sum, of);
    g->tensors++;
    g->tensors_changed += changed;
    g->bytes += tensor->bytes;
    if (changed && !b->totals)
        print_row(b, "tensor", tensor->name, tensor->dtype, tensor->bytes,
                  compare_counts_changed(b->counts), of);
}

static void measure_all(bounds *b) {
    xorcast_tensor old, now;
    xorcast_bundle *bundle = xorcast_checkpoint_bundle(b->sides[0]);
    for (uint64_t i = 0; xorcast_bundle_describe(bundle, i, &old) == XORCAST_OK; i++) {
        if (find(b, 1, old.name, &now) && same_kind(&old, &now))
            measure_tensor(b, &old);
        else
            leave_out(b, old.name);
    }
    bundle = xorcast_checkpoint_bundle(b->sides[1]);
    for (uint64_t i = 0; xorcast_bundle_describe(bundle, i, &now) == XORCAST_OK; i++)
        if (!find(b, 0, now.name, &old))
            leave_out(b, now.name);
}

/* Which tensors changed at all is told too: learnt, a bit or less for each. */
static void print_totals(bounds *b) {
    compare_bounds all = {0, 0, 0, 0}, pooled = {0, 0, 0, 0};
    uint64_t bytes = 0, changed = 0, tensors = 0, tensors_changed = 0;
    for (uint32_t i = 0; i < b->group_count; i++) {
        const group *g = &b->groups[i];
        const uint64_t here = compare_counts_changed(g->pool);
        const compare_bounds one = compare_counts_bounds(g->pool);
        print_row(b, "dtype", "sum of tensors", g->dtype, g->bytes, here, g->sum);
        print_row(b, "dtype_one_model", "one model", g->dtype, g->bytes, here, one);
        add_bounds(&all, g->sum);
        add_bounds(&pooled, one);
        bytes += g->bytes, changed += here;
        tensors += g->tensors, tensors_changed += g->tensors_changed;
    }
    const double flags = compare_adaptive_bits(tensors_changed, tensors - tensors_changed) / 8;
    all.order0_charged += flags;
    all.conditional_charged += flags;
    print_row(b, "all", "in all", "", bytes, changed, all);
    print_row(b, "all_one_model", "in all, one model for each dtype", "", bytes, changed, pooled);
}

static void measure(bounds *b, char **paths) {
    b->context = testbed_context(0);
    for (uint32_t side = 0; side < 2; side++)
        testbed_must(b->context,
                     xorcast_checkpoint_open(b->context, paths[side], NULL, &b->sides[side]),
                     paths[side]);
    b->counts = needed(compare_counts_new("U8", 1));
    if (!b->json)
        printf("%-48s %-8s %13s %11s %11s %11s %11s %11s\n", "bytes", "dtype", "weights", "changed",
               "order 0", "charged", "conditional", "charged");
    measure_all(b);
    print_totals(b);
    for (uint32_t i = 0; i < b->group_count; i++)
        compare_counts_free(b->groups[i].pool);
    compare_counts_free(b->counts);
    for (uint32_t side = 0; side < 2; side++) {
        xorcast_checkpoint_close(b->sides[side]);
        free(b->memory[side]);
    }
    xorcast_context_destroy(b->context);
}

int main(int argc, char **argv) {
    static const struct option table[] = {
        {"json", 0, NULL, 'j'}, {"totals", 0, NULL, 't'}, {"help", 0, NULL, 'h'}, {0, 0, NULL, 0}};
    bounds b = {.json = false};
    bool good = true;
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        b.json = b.json || c == 'j';
        b.totals = b.totals || c == 't';
        if (c == 'h') {
            fputs(help, stdout);
            return 0;
        }
        good = good && c != '?';
    }
    if (!good || argc - optind != 2) {
        fputs(help, stderr);
        return 2;
    }
    measure(&b, argv + optind);
    if (b.left_out > 0 || fflush(stdout) != 0 || ferror(stdout))
        return 1;
    return 0;
}
