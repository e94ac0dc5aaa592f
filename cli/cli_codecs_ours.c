/* The format's own codecs, a line each, measured as a trainer and a sampler use them: publisher and
 * subscriber in this process. Owns both while it measures. */
#include "cli_codecs.h"

#include "cli_stop.h"

#include <string.h>
#include <unistd.h>

#define DEADLINE_MS 60000u
enum { NO_SECOND_PASS = 1 };

static const struct {
    const char *name, *text;
    xorcast_encoding encoding;
} codecs_of_the_format[] = {
    {"raw", "XOR of changed chunks", {.codec = XORCAST_CODEC_RAW, .second_pass = NO_SECOND_PASS}},
    {"lz4", "zero-run LZ4", {.codec = XORCAST_CODEC_LZ4, .second_pass = NO_SECOND_PASS}},
    {"snappy", "zero-run Snappy", {.codec = XORCAST_CODEC_SNAPPY, .second_pass = NO_SECOND_PASS}},
    {"lz4+zstd", "and zstd 1 over groups", {.codec = XORCAST_CODEC_LZ4}},
    {"snappy+zstd", "and zstd 1 over groups", {.codec = XORCAST_CODEC_SNAPPY}},
    {"gap", "gaps and values", {.codec = XORCAST_CODEC_GAP, .second_pass = NO_SECOND_PASS}},
    {"gap+old",
     "beside the old weights",
     {.codec = XORCAST_CODEC_GAP, .second_pass = NO_SECOND_PASS, .old_weights = 1}},
    {"auto", "the best for each chunk", {.codec = XORCAST_CODEC_AUTO}},
    {"auto+old", "beside the old weights", {.codec = XORCAST_CODEC_AUTO, .old_weights = 1}},
};

typedef struct channel {
    cli_codecs *codecs;
    const cli_codec_pair *pair;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    xorcast_publisher_stats stats;
    uint64_t version;
} channel;

static xorcast_status trainer_must(channel *ch, xorcast_status status) {
    return cli_codecs_must(ch->codecs, ch->pair->trainer, status);
}

static xorcast_status sampler_must(channel *ch, xorcast_status status) {
    return cli_codecs_must(ch->codecs, ch->pair->sampler, status);
}

static xorcast_status open_channel(channel *ch, xorcast_encoding encoding) {
    static uint64_t channels; /* names of this process */
    char url[64];
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    snprintf(url, sizeof url, "inproc:codecs-%ld-%llu", (long)getpid(),
             (unsigned long long)channels++);
    encoding.struct_size = sizeof encoding;
    options.run = "codecs";
    options.encoding = encoding;
    options.log_bytes = 4 * ch->pair->from->layout.delta_bound_bytes;
    CLI_TRY(trainer_must(
        ch, xorcast_publisher_open(ch->pair->from->bundle, url, &options, &ch->publisher)));
    return sampler_must(ch, xorcast_subscriber_open(ch->pair->weights->bundle,
                                                    xorcast_publisher_url(ch->publisher), NULL,
                                                    &ch->subscriber));
}

/* One version, to the new weights or back to the old ones. */
static xorcast_status publish(channel *ch, bool back, uint64_t *ns_out) {
    const cli_codec_pair *p = ch->pair;
    const uint64_t begin = cli_now_ns();
    CLI_TRY(trainer_must(ch, xorcast_publisher_begin(ch->publisher, ++ch->version)));
    CLI_TRY(trainer_must(
        ch, back ? xorcast_publisher_put(ch->publisher, 0, NULL, NULL)
                 : xorcast_publisher_put(ch->publisher, p->count, p->indices, p->data)));
    CLI_TRY(trainer_must(ch, xorcast_publisher_finish(ch->publisher, &ch->stats)));
    *ns_out = cli_now_ns() - begin;
    return XORCAST_OK;
}

static xorcast_status take(channel *ch, uint64_t version, uint64_t *stage_ns_out,
                           uint64_t *commit_ns_out) {
    uint64_t newest;
    const uint64_t begin = cli_now_ns();
    const xorcast_status polled = xorcast_subscriber_poll(ch->subscriber, DEADLINE_MS, &newest);
    CLI_TRY(sampler_must(ch, polled));
    if (polled != XORCAST_OK || newest != ch->version)
        return cli_fail(ch->codecs->session, XORCAST_INTERNAL, 0,
                        "the version that was published does not arrive");
    CLI_TRY(sampler_must(ch, xorcast_subscriber_stage(ch->subscriber, version, DEADLINE_MS)));
    const uint64_t staged = cli_now_ns();
    CLI_TRY(sampler_must(ch, xorcast_subscriber_commit(ch->subscriber, NULL)));
    CLI_TRY(sampler_must(ch, xorcast_subscriber_wait(ch->subscriber, DEADLINE_MS)));
    *stage_ns_out = staged - begin;
    *commit_ns_out = cli_now_ns() - staged;
    return XORCAST_OK;
}

static xorcast_status check(channel *ch, const cli_codec_step *step, bool back, const char *name) {
    return ch->pair->place == CLI_CODEC_GPU ? cli_codecs_gpu_check(ch->codecs, step, back, name)
                                            : cli_codecs_check(ch->codecs, step, back, name);
}

/* There and back again, both published before the first is taken: a version that is not the newest
 * comes from the log, as every version does over a link, where the newest would go from GPU to GPU
 * without its second pass. The size is what the sampler received: a publisher may offer a version
 * in more than one form. */
static xorcast_status repeat(channel *ch, const cli_codec_step *step, cli_codec_row *row) {
    cli_codec_times times = {.rounds = 0};
    while (cli_codecs_again(ch->codecs, &times)) {
        uint64_t now[CLI_CODEC_TIMES], back[CLI_CODEC_TIMES];
        xorcast_subscriber_stats forward;
        CLI_TRY(publish(ch, false, &now[CLI_CODEC_ENCODE]));
        CLI_TRY(publish(ch, true, &back[CLI_CODEC_ENCODE]));
        CLI_TRY(take(ch, ch->version - 1, &now[CLI_CODEC_STAGE], &now[CLI_CODEC_COMMIT]));
        xorcast_subscriber_get_stats(ch->subscriber, &forward);
        if (times.rounds == 0) {
            CLI_TRY(check(ch, step, false, row->name));
            row->bytes[ch->pair->place] += forward.wire_bytes;
        }
        CLI_TRY(take(ch, ch->version, &back[CLI_CODEC_STAGE], &back[CLI_CODEC_COMMIT]));
        cli_codecs_add_round(&times, now);
    }
    cli_codecs_add_medians(&times, row->ns[ch->pair->place]);
    if (!ch->pair->encodes)
        row->ns[ch->pair->place][CLI_CODEC_ENCODE] = 0;
    return check(ch, step, true, row->name);
}

static xorcast_status measure(cli_codecs *codecs, const cli_codec_step *step,
                              const cli_codec_pair *pair, xorcast_encoding encoding,
                              cli_codec_row *row) {
    channel ch = {.codecs = codecs, .pair = pair};
    xorcast_status status = open_channel(&ch, encoding);
    if (status == XORCAST_OK)
        status = repeat(&ch, step, row);
    xorcast_subscriber_close(ch.subscriber);
    xorcast_publisher_close(ch.publisher);
    return status;
}

/* Snappy is what no GPU encodes. */
static xorcast_status measure_gpu(cli_codecs *codecs, cli_codec_step *step,
                                  xorcast_encoding encoding, cli_codec_row *row) {
    cli_codec_pair pair;
    if (!codecs->gpu.there)
        return XORCAST_OK;
    CLI_TRY(cli_codecs_gpu_pair(codecs, step, encoding.codec != XORCAST_CODEC_SNAPPY, &pair));
    return measure(codecs, step, &pair, encoding, row);
}

xorcast_status cli_codecs_ours(cli_codecs *codecs, cli_codec_step *step, uint32_t *row) {
    const cli_codec_pair pair = {.place = CLI_CODEC_CPU,
                                 .encodes = true,
                                 .trainer = &codecs->trainer,
                                 .sampler = &codecs->sampler,
                                 .from = &step->from,
                                 .weights = &step->weights,
                                 .count = step->count,
                                 .indices = step->indices,
                                 .data = step->data};
    const size_t all = sizeof codecs_of_the_format / sizeof *codecs_of_the_format;
    for (size_t i = 0; i < all; i++) {
        const xorcast_encoding encoding = codecs_of_the_format[i].encoding;
        cli_codec_row *at = cli_codecs_row(codecs, row, codecs_of_the_format[i].name,
                                           codecs_of_the_format[i].text, false);
        if (at == NULL)
            continue;
        CLI_TRY(measure(codecs, step, &pair, encoding, at));
        CLI_TRY(measure_gpu(codecs, step, encoding, at));
    }
    return XORCAST_OK;
}
