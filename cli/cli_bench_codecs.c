/* xorcast bench codecs: the steps of a directory, one after another, through every codec. Owns the
 * contexts and the weights of the step at hand. */
#include "cli_codecs.h"

#include "cli_commands.h"
#include "cli_steps.h"
#include "cli_stop.h"

#include <stdlib.h>
#include <string.h>

#define ENOUGH_NS UINT64_C(3000000000) /* for the repetitions of a codec in a step */

/* ---- Rows -------------------------------------------------------------------------------------*/

/* Is it among the names that --only gives? */
static bool is_wanted(const char *only, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = only; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return only == NULL;
}

cli_codec_row *cli_codecs_row(cli_codecs *codecs, uint32_t *row, const char *name, const char *text,
                              bool compared) {
    if (!is_wanted(codecs->session->options.only, name))
        return NULL;
    cli_codec_row *at = &codecs->rows[(*row)++];
    at->name = name;
    at->text = text;
    at->compared = compared;
    return at;
}

static int by_size(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

bool cli_codecs_again(const cli_codecs *codecs, cli_codec_times *times) {
    if (times->rounds == 0)
        times->began_ns = cli_now_ns();
    return times->count == 0 || (times->count < codecs->session->options.repeat &&
                                 cli_now_ns() - times->began_ns < ENOUGH_NS);
}

void cli_codecs_add_round(cli_codec_times *times, const uint64_t ns[CLI_CODEC_TIMES]) {
    if (times->rounds++ == 0 && cli_now_ns() - times->began_ns < ENOUGH_NS)
        return;
    for (uint32_t i = 0; i < CLI_CODEC_TIMES; i++)
        times->ns[i][times->count] = ns[i];
    times->count++;
}

void cli_codecs_add_medians(cli_codec_times *times, uint64_t sums[CLI_CODEC_TIMES]) {
    for (uint32_t i = 0; i < CLI_CODEC_TIMES; i++) {
        qsort(times->ns[i], times->count, sizeof *times->ns[i], by_size);
        sums[i] += times->ns[i][times->count / 2];
    }
}

double cli_codecs_speed(const cli_codecs *codecs, const cli_codec_row *row, uint32_t place,
                        uint32_t time) {
    const uint64_t ns = row->ns[place][time];
    return ns == 0 ? 0 : (double)codecs->weight_bytes[place] / (double)ns;
}

xorcast_status cli_codecs_must(cli_codecs *codecs, cli_session *side, xorcast_status status) {
    if (status < 0)
        codecs->session->failure = cli_failure(side, status);
    return status;
}

xorcast_status cli_codecs_check(cli_codecs *codecs, const cli_codec_step *step, bool back,
                                const char *name) {
    for (uint64_t i = 0; i < step->count; i++) {
        const compare_tensor *t = &step->tensors[i];
        if (t->bytes > 0 && memcmp(t->weights, back ? t->from : t->to, t->bytes) != 0)
            return cli_fail(codecs->session, XORCAST_WEIGHTS_WRONG, 0,
                            "%s does not lead to the %s weights", name, back ? "old" : "new");
    }
    return XORCAST_OK;
}

/* ---- A step -----------------------------------------------------------------------------------*/

xorcast_status cli_codecs_context(cli_codecs *codecs, cli_session *side, const char *backend,
                                  uint32_t threads) {
    const cli_options *o = &codecs->session->options;
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    side->command = codecs->session->command;
    side->options = *o;
    side->options.backend = backend;
    options.backend = backend;
    options.threads = threads;
    options.scratch_limit_bytes = o->scratch_bytes;
    options.log_level = XORCAST_LOG_ERROR;
    return xorcast_context_create(&options, &side->context);
}

static uint64_t elements_of(const xorcast_tensor *tensor) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        elements *= tensor->shape[i];
    return elements;
}

/* Where a tensor's bytes lie in all three. */
static xorcast_status add_tensor(cli_codecs *codecs, cli_codec_step *step, uint64_t i) {
    xorcast_tensor from, to, weights;
    CLI_TRY(xorcast_bundle_describe(step->from.bundle, i, &from));
    CLI_TRY(xorcast_bundle_describe(step->to.bundle, i, &to));
    CLI_TRY(xorcast_bundle_describe(step->weights.bundle, i, &weights));
    const uint64_t elements = elements_of(&from), width = elements == 0 ? 1 : from.bytes / elements;
    const uint64_t columns = from.rank < 2 ? elements : from.shape[from.rank - 1];
    step->tensors[i] = (compare_tensor){.element_bytes = width == 0 ? 1 : (uint32_t)width,
                                        .bytes = from.bytes,
                                        .columns = columns == 0 ? 1 : columns,
                                        .from = from.data,
                                        .to = to.data,
                                        .weights = weights.data};
    step->data[i] = to.data;
    step->indices[i] = i;
    compare_counts *counts = compare_counts_new(from.dtype, step->tensors[i].element_bytes);
    if (counts == NULL)
        return cli_fail(codecs->session, XORCAST_NO_HOST_MEMORY, 0, "no memory for counts");
    compare_counts_add(counts, from.data, to.data, from.bytes);
    const compare_bounds bounds = compare_counts_bounds(counts);
    codecs->bounds.order0 += bounds.order0;
    codecs->bounds.order0_charged += bounds.order0_charged;
    codecs->bounds.conditional += bounds.conditional;
    codecs->bounds.conditional_charged += bounds.conditional_charged;
    compare_counts_free(counts);
    return XORCAST_OK;
}

static int discard(void *user, const void *bytes, uint64_t count) {
    (void)user;
    (void)bytes;
    (void)count;
    return 0;
}

/* What changes, as the library counts it. */
static xorcast_status add_counts(cli_codecs *codecs, const cli_codec_step *step) {
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    const xorcast_sink sink = {discard, NULL};
    xorcast_delta_info info;
    options.encoding.second_pass = 1;
    CLI_TRY(xorcast_delta_encode(step->from.bundle, step->to.bundle, &options, &sink, &info));
    xorcast_counts *to = &codecs->counts;
    to->bits_changed += info.counts.bits_changed;
    to->bytes_changed += info.counts.bytes_changed;
    to->elements_changed += info.counts.elements_changed;
    to->bytes_covered += info.counts.bytes_covered;
    to->elements_covered += info.counts.elements_covered;
    return XORCAST_OK;
}

static xorcast_status list_tensors(cli_codecs *codecs, cli_codec_step *step, const char *path) {
    if (memcmp(step->from.layout.fingerprint, step->to.layout.fingerprint, 16) != 0)
        return cli_fail(codecs->session, XORCAST_LAYOUT_MISMATCH, 0,
                        "%.300s has other tensors than the step before; codecs are compared over "
                        "steps of one run",
                        path);
    const uint64_t count = step->from.layout.tensor_count;
    step->tensors = calloc(count + 1, sizeof *step->tensors);
    step->data = calloc(count + 1, sizeof *step->data);
    step->indices = calloc(count + 1, sizeof *step->indices);
    if (step->tensors == NULL || step->data == NULL || step->indices == NULL)
        return cli_fail(codecs->session, XORCAST_NO_HOST_MEMORY, 0, "no memory for a list");
    step->count = count;
    for (uint64_t i = 0; i < count; i++)
        CLI_TRY(cli_codecs_must(codecs, &codecs->trainer, add_tensor(codecs, step, i)));
    CLI_TRY(cli_codecs_must(codecs, &codecs->trainer, add_counts(codecs, step)));
    const compare_step all = {step->tensors, step->count};
    compare_runs_add(&codecs->runs, &all);
    codecs->weight_bytes[CLI_CODEC_CPU] += step->from.layout.total_bytes;
    codecs->steps++;
    return XORCAST_OK;
}

static void close_step(cli_codec_step *step) {
    cli_codecs_gpu_close(step);
    cli_weights_close(&step->from);
    cli_weights_close(&step->to);
    cli_weights_close(&step->weights);
    free(step->tensors);
    free(step->data);
    free(step->indices);
}

/* How many names --only lists; 0 without it. */
static uint32_t names_in(const char *only) {
    uint32_t names = only != NULL;
    for (; only != NULL && *only != '\0'; only++)
        names += *only == ',';
    return names;
}

static xorcast_status measure_step(cli_codecs *codecs, const char *from, const char *to) {
    cli_codec_step step;
    memset(&step, 0, sizeof step);
    uint32_t row = 0;
    cli_session *trainer = &codecs->trainer, *sampler = &codecs->sampler;
    xorcast_status status =
        cli_codecs_must(codecs, trainer, cli_weights_open(trainer, from, &step.from));
    if (status == XORCAST_OK)
        status = cli_codecs_must(codecs, trainer, cli_weights_open(trainer, to, &step.to));
    if (status == XORCAST_OK)
        status = cli_codecs_must(codecs, sampler, cli_weights_open(sampler, from, &step.weights));
    if (status == XORCAST_OK)
        status = list_tensors(codecs, &step, to);
    if (status == XORCAST_OK)
        status = cli_codecs_gpu_open(codecs, &step);
    if (status == XORCAST_OK)
        status = cli_codecs_ours(codecs, &step, &row);
    if (status == XORCAST_OK)
        status = cli_codecs_theirs(codecs, &step, &row);
    codecs->count = row;
    close_step(&step);
    if (status == XORCAST_OK && row < names_in(codecs->session->options.only))
        return cli_fail(codecs->session, XORCAST_BAD_ARGUMENT, 0,
                        "not every name in '%.200s' is a codec's; without --only all are shown",
                        codecs->session->options.only);
    return status;
}

/* ---- All steps --------------------------------------------------------------------------------*/

static xorcast_status measure(cli_codecs *codecs, const cli_steps *steps, const char *directory) {
    if (steps->count < 2)
        return cli_fail(codecs->session, XORCAST_BAD_ARGUMENT, 0,
                        "%.300s holds one checkpoint, and a step is from one to the next; give the "
                        "directory that holds several",
                        directory);
    const uint32_t asked = (uint32_t)codecs->session->options.threads;
    const uint32_t threads = asked == 0 ? 1 : asked;
    CLI_TRY(cli_codecs_gpu_find(codecs));
    CLI_TRY(cli_codecs_context(codecs, &codecs->trainer, "cpu", threads));
    CLI_TRY(cli_codecs_context(codecs, &codecs->sampler, "cpu", threads));
    for (uint64_t i = 1; i < steps->count; i++)
        CLI_TRY(measure_step(codecs, steps->at[i - 1].path, steps->at[i].path));
    return XORCAST_OK;
}

static xorcast_status show(const cli_codecs *codecs, const char *directory, cli_output *picture) {
    const cli_options *o = &codecs->session->options;
    if (o->svg != NULL) {
        CLI_TRY(cli_codecs_svg(codecs, picture));
        CLI_TRY(cli_output_finish(picture));
    }
    if (o->json)
        cli_codecs_json(codecs, directory);
    else if (!o->quiet)
        cli_codecs_print(codecs, directory);
    return XORCAST_OK;
}

/* Before anything is measured, so that nobody waits for a picture that cannot be written. */
static xorcast_status open_picture(cli_session *session, cli_output *picture) {
    const cli_options *o = &session->options;
    memset(picture, 0, sizeof *picture);
    if (o->svg == NULL)
        return XORCAST_OK;
    if (strcmp(o->svg, "-") == 0)
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "--svg needs a file; standard output has the table");
    return cli_output_open(session, o->svg, o->operands, o->operand_count, picture);
}

static xorcast_status run(cli_codecs *codecs, const char *directory, cli_output *picture) {
    cli_steps steps;
    CLI_TRY(cli_steps_list(codecs->session, directory, &steps));
    xorcast_status status = measure(codecs, &steps, directory);
    cli_steps_free(&steps);
    if (status == XORCAST_OK)
        status = show(codecs, directory, picture);
    cli_codecs_gpu_leave(codecs);
    xorcast_context_destroy(codecs->sampler.context);
    xorcast_context_destroy(codecs->trainer.context);
    return status;
}

xorcast_status cli_bench_codecs(cli_session *session) {
    cli_output picture;
    CLI_TRY(open_picture(session, &picture));
    xorcast_status status;
    cli_codecs *codecs = calloc(1, sizeof *codecs);
    if (codecs == NULL) {
        status = cli_fail(session, XORCAST_NO_HOST_MEMORY, 0, "no memory for the benchmark");
    } else {
        codecs->session = session;
        status = run(codecs, session->options.operands[0], &picture);
    }
    free(codecs);
    cli_output_abandon(&picture);
    return status;
}
