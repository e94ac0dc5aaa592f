/* The rows of xorcast bench codecs as tables, and what they say. Owns nothing. */
#include "cli_codecs.h"

#include "cli_device.h"
#include "cli_words.h"

#include <string.h>

#define GROUP_BYTES ((double)(4 << 20)) /* of a bundle, if it is not told another size */

static double per_step(const cli_codecs *c, double all) {
    return all / (double)c->steps;
}

static double bytes_of(const cli_codec_row *row) {
    return (double)row->bytes[CLI_CODEC_CPU];
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
        snprintf(out.text, sizeof out.text, "%.2fx", bytes_of(row) / bound);
    else
        snprintf(out.text, sizeof out.text, "-");
    return out;
}

/* GB of weights a second, two digits that matter, or nothing. */
static cli_words speed(const cli_codecs *c, const cli_codec_row *row, uint32_t place,
                       uint32_t time) {
    const double rate = cli_codecs_speed(c, row, place, time);
    cli_words out;
    if (rate > 0)
        snprintf(out.text, sizeof out.text, "%.*f", rate < 0.01 ? 4 : rate < 0.1 ? 3 : 2, rate);
    else
        snprintf(out.text, sizeof out.text, "-");
    return out;
}

static void print_head(const cli_codecs *c, const char *directory) {
    const xorcast_counts *n = &c->counts;
    const uint64_t threads = c->session->options.threads;
    printf("%llu step%s of ", (unsigned long long)c->steps, c->steps == 1 ? "" : "s");
    cli_put_plain(stdout, directory);
    printf(", %s of weights each; bytes are those of a step\n",
           cli_bytes(per_step(c, (double)c->weight_bytes[CLI_CODEC_CPU])).text);
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
           "the others: 1; median of %llu, or of as many as 3 s are enough for\n\n",
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
    const double bytes = bytes_of(row);
    printf("%-12s %12s %9s %8s %9s", row->name, cli_count((uint64_t)per_step(c, bytes)).text,
           cli_ratio((double)c->weight_bytes[CLI_CODEC_CPU], bytes).text,
           times_bound(row, c->bounds.order0).text, times_bound(row, c->bounds.conditional).text);
    for (uint32_t i = 0; i < CLI_CODEC_TIMES; i++)
        printf(" %9s", speed(c, row, CLI_CODEC_CPU, i).text);
    printf("   %s\n", row->text);
}

/* ---- The GPU ----------------------------------------------------------------------------------*/

static void print_gpu_head(const cli_codecs *c) {
    const cli_codecs_gpu *gpu = &c->gpu;
    const uint64_t threads = c->session->options.threads;
    printf("\non a GPU: the tensors %s%s in its memory, %s, and ",
           gpu->copies == 1 ? "once" : cli_count(gpu->copies).text,
           gpu->copies == 1 ? "" : " times",
           cli_bytes(per_step(c, (double)c->weight_bytes[CLI_CODEC_GPU])).text);
    if (threads == 0)
        printf("a thread for each CPU\n");
    else
        printf("%llu threads\n", (unsigned long long)threads);
    cli_device_line(&gpu->device, &gpu->rates);
    printf("%-12s %31s %31s\n", "", "GB of weights a second", "time of a step");
    printf("%-12s %11s %9s %9s %11s %9s %9s\n", "", "encode", "stage", "commit", "encode", "stage",
           "commit");
}

/* A second pass goes over a group. */
static bool copies_meet(const cli_codecs *c) {
    return c->gpu.copies > 1 && per_step(c, (double)c->weight_bytes[CLI_CODEC_CPU]) < GROUP_BYTES;
}

static void print_gpu_row(const cli_codecs *c, const cli_codec_row *row) {
    const uint64_t *ns = row->ns[CLI_CODEC_GPU];
    printf("%-12s", row->name);
    for (uint32_t i = 0; i < CLI_CODEC_TIMES; i++)
        printf(" %*s", i == 0 ? 11 : 9, speed(c, row, CLI_CODEC_GPU, i).text);
    for (uint32_t i = 0; i < CLI_CODEC_TIMES; i++)
        printf(" %*s", i == 0 ? 11 : 9, ns[i] == 0 ? "-" : cli_time(ns[i] / c->steps).text);
    putchar('\n');
}

/* What these numbers do and do not say. */
static void print_gpu(const cli_codecs *c) {
    if (!c->gpu.there) {
        printf("\nno GPU: %s\n", c->gpu.why_not);
        return;
    }
    print_gpu_head(c);
    for (uint32_t i = 0; i < c->count; i++)
        if (!c->rows[i].compared)
            print_gpu_row(c, &c->rows[i]);
    printf(
        "A step costs a GPU its launches and waits however small it is: hence the copies, more\n"
        "with --bytes. Both versions are read at %s of weights at best, and encode ends when\n"
        "the publisher has the bytes in host memory, hashed. Stage takes them from there, as over\n"
        "a link; from GPU to GPU in one process takes less. Snappy is encoded by the CPU, and\n"
        "decoded there.\n",
        cli_rate((double)c->gpu.rates.memory / 2, 1e9).text);
    if (copies_meet(c))
        printf("Groups of %s hold several copies here, and zstd finds one in another.\n",
               cli_bytes(GROUP_BYTES).text);
}

/* ---- Why --------------------------------------------------------------------------------------*/

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
        cli_count((uint64_t)per_step(c, bytes_of(snappy) - bytes_of(lz4))).text,
        cli_count((uint64_t)per_step(c, bytes_of(lz4))).text,
        cli_count((uint64_t)per_step(c, bytes_of(snappy))).text,
        bytes_of(snappy_zstd) / bytes_of(lz4_zstd));
}

void cli_codecs_print(const cli_codecs *codecs, const char *directory) {
    print_head(codecs, directory);
    for (uint32_t i = 0; i < codecs->count; i++) {
        if (i > 0 && codecs->rows[i].compared && !codecs->rows[i - 1].compared)
            printf("\nfor comparison\n");
        print_row(codecs, &codecs->rows[i]);
    }
    print_gpu(codecs);
    explain_zeros(codecs);
}
