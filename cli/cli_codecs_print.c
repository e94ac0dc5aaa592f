/* The rows of xorcast bench codecs as a table and as JSON. Owns nothing. */
#include "cli_codecs.h"

#include "cli_words.h"

#include <string.h>

static double per_step(const cli_codecs *c, double all) {
    return all / (double)c->steps;
}

static double gigabytes_per_second(const cli_codecs *c, const cli_codec_row *row, uint32_t time) {
    return (double)c->weight_bytes / (double)row->ns[time];
}

static const cli_codec_row *named(const cli_codecs *c, const char *name) {
    for (uint32_t i = 0; i < c->count; i++)
        if (strcmp(c->rows[i].name, name) == 0)
            return &c->rows[i];
    return NULL;
}

/* "1.62x", or nothing to compare with. */
static cli_words times_bound(const cli_codec_row *row, double bound) {
    cli_words out;
    if (bound > 0)
        snprintf(out.text, sizeof out.text, "%.2fx", (double)row->bytes / bound);
    else
        snprintf(out.text, sizeof out.text, "-");
    return out;
}

/* ---- For people -------------------------------------------------------------------------------*/

static void print_head(const cli_codecs *c, const char *directory) {
    const xorcast_counts *n = &c->counts;
    const uint64_t threads = c->session->options.threads;
    printf("%llu steps of %s, %s of weights each; bytes are those of a step\n",
           (unsigned long long)c->steps, directory,
           cli_bytes(per_step(c, (double)c->weight_bytes)).text);
    printf("changed: %s of bytes, %s of bits, %s of elements\n",
           cli_percent((double)n->bytes_changed, (double)n->bytes_covered).text,
           cli_percent((double)n->bits_changed, 8 * (double)n->bytes_covered).text,
           cli_percent((double)n->elements_changed, (double)n->elements_covered).text);
    printf("bounds: %s order 0, %s given the old weights; %s and %s when the counts must be\n"
           "learnt, tensor by tensor\n",
           cli_count((uint64_t)per_step(c, c->bounds.order0)).text,
           cli_count((uint64_t)per_step(c, c->bounds.conditional)).text,
           cli_count((uint64_t)per_step(c, c->bounds.order0_charged)).text,
           cli_count((uint64_t)per_step(c, c->bounds.conditional_charged)).text);
    printf("speeds: GB of weights a second on the CPU, threads of the format's codecs: %llu, of\n"
           "the others: 1; median of %llu\n\n",
           (unsigned long long)(threads == 0 ? 1 : threads),
           (unsigned long long)c->session->options.repeat);
    printf("%-12s %12s %9s %8s %8s %9s %9s %9s\n", "", "bytes", "ratio", "order 0", "given old",
           "encode", "stage", "commit");
}

static void print_row(const cli_codecs *c, const cli_codec_row *row) {
    if (row->no_room) {
        printf("%-12s %12s  a tensor has more elements than it can count\n", row->name, "-");
        return;
    }
    printf("%-12s %12s %9s %8s %9s %9.2f %9.2f %9.2f   %s\n", row->name,
           cli_count((uint64_t)per_step(c, (double)row->bytes)).text,
           cli_ratio((double)c->weight_bytes, (double)row->bytes).text,
           times_bound(row, c->bounds.order0).text, times_bound(row, c->bounds.conditional).text,
           gigabytes_per_second(c, row, CLI_CODEC_ENCODE),
           gigabytes_per_second(c, row, CLI_CODEC_STAGE),
           gigabytes_per_second(c, row, CLI_CODEC_COMMIT), row->text);
}

/* Why one is smaller than the other, in this data's own numbers. */
static void explain_zeros(const cli_codecs *c) {
    const compare_runs *r = &c->runs;
    const cli_codec_row *lz4 = named(c, "lz4"), *snappy = named(c, "snappy");
    const cli_codec_row *lz4_zstd = named(c, "lz4+zstd"), *snappy_zstd = named(c, "snappy+zstd");
    if (r->runs == 0 || lz4 == NULL || snappy == NULL || lz4_zstd == NULL || snappy_zstd == NULL)
        return;
    const double lz4_bytes = per_step(c, (double)r->lz4_bytes);
    const double snappy_bytes = per_step(c, (double)r->snappy_bytes);
    printf(
        "\nWhy LZ4 and not Snappy: between the changes lie %s runs of zeros a step, %.0f bytes\n"
        "long on average. LZ4 writes a run, and the literals before it, with 3 bytes and 1 more\n"
        "for each 255 zeros; Snappy copies at most 64 bytes at a time, 3 bytes each, and the\n"
        "literals need a byte too. At best that is 255 to 1 against 21 to 1. Here the runs take\n"
        "%s bytes in LZ4 and %s in Snappy, %.1f times as much: %s more, and the\n"
        "blocks differ by %s (LZ4 %s, Snappy %s). Copies that repeat are what a\n"
        "second pass squeezes best: with zstd, Snappy is still %.2f times as large.\n",
        cli_count((uint64_t)per_step(c, (double)r->runs)).text,
        (double)r->zero_bytes / (double)r->runs, cli_count((uint64_t)lz4_bytes).text,
        cli_count((uint64_t)snappy_bytes).text, snappy_bytes / lz4_bytes,
        cli_count((uint64_t)(snappy_bytes - lz4_bytes)).text,
        cli_count((uint64_t)per_step(c, (double)snappy->bytes - (double)lz4->bytes)).text,
        cli_count((uint64_t)per_step(c, (double)lz4->bytes)).text,
        cli_count((uint64_t)per_step(c, (double)snappy->bytes)).text,
        (double)snappy_zstd->bytes / (double)lz4_zstd->bytes);
}

void cli_codecs_print(const cli_codecs *codecs, const char *directory) {
    print_head(codecs, directory);
    for (uint32_t i = 0; i < codecs->count; i++) {
        if (i > 0 && codecs->rows[i].compared && !codecs->rows[i - 1].compared)
            printf("\nfor comparison\n");
        print_row(codecs, &codecs->rows[i]);
    }
    explain_zeros(codecs);
}

/* ---- For machines -----------------------------------------------------------------------------*/

static void put_steps(const cli_codecs *c, const char *directory) {
    const xorcast_counts *n = &c->counts;
    const uint64_t threads = c->session->options.threads;
    cli_json json = cli_json_begin(stdout);
    cli_json_text(&json, "event", "steps");
    cli_json_text(&json, "path", directory);
    cli_json_count(&json, "steps", c->steps);
    cli_json_count(&json, "weight_bytes", c->weight_bytes);
    cli_json_count(&json, "threads", threads == 0 ? 1 : threads);
    cli_json_count(&json, "repeat", c->session->options.repeat);
    cli_json_count(&json, "bytes_changed", n->bytes_changed);
    cli_json_count(&json, "bits_changed", n->bits_changed);
    cli_json_count(&json, "elements_changed", n->elements_changed);
    cli_json_count(&json, "elements_covered", n->elements_covered);
    cli_json_real(&json, "order0_bound_bytes", c->bounds.order0);
    cli_json_real(&json, "order0_charged_bytes", c->bounds.order0_charged);
    cli_json_real(&json, "conditional_bound_bytes", c->bounds.conditional);
    cli_json_real(&json, "conditional_charged_bytes", c->bounds.conditional_charged);
    cli_json_open(&json, "zero_runs");
    cli_json_count(&json, "changed_chunks", c->runs.changed_chunks);
    cli_json_count(&json, "count", c->runs.runs);
    cli_json_count(&json, "bytes", c->runs.zero_bytes);
    cli_json_count(&json, "lz4_bytes", c->runs.lz4_bytes);
    cli_json_count(&json, "snappy_bytes", c->runs.snappy_bytes);
    cli_json_close(&json);
    cli_json_end(&json);
}

static void put_row(const cli_codecs *c, const cli_codec_row *row) {
    static const char *const times[CLI_CODEC_TIMES] = {"encode", "stage", "commit"};
    cli_json json = cli_json_begin(stdout);
    cli_json_text(&json, "event", "codec");
    cli_json_text(&json, "name", row->name);
    cli_json_text(&json, "text", row->text);
    cli_json_bool(&json, "of_the_format", !row->compared);
    if (row->no_room) {
        cli_json_null(&json, "bytes");
        cli_json_end(&json);
        return;
    }
    cli_json_count(&json, "bytes", row->bytes);
    cli_json_real(&json, "ratio", (double)c->weight_bytes / (double)row->bytes);
    cli_json_real(&json, "of_order0_bound", (double)row->bytes / c->bounds.order0);
    cli_json_real(&json, "of_conditional_bound", (double)row->bytes / c->bounds.conditional);
    cli_json_text(&json, "backend", "cpu");
    for (uint32_t i = 0; i < CLI_CODEC_TIMES; i++) {
        cli_json_open(&json, times[i]);
        cli_json_count(&json, "ns", row->ns[i]);
        cli_json_real(&json, "gigabytes_per_second", gigabytes_per_second(c, row, i));
        cli_json_close(&json);
    }
    cli_json_end(&json);
}

void cli_codecs_json(const cli_codecs *codecs, const char *directory) {
    put_steps(codecs, directory);
    for (uint32_t i = 0; i < codecs->count; i++)
        put_row(codecs, &codecs->rows[i]);
}
