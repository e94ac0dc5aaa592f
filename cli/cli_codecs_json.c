/* The rows of xorcast bench codecs as JSON. Owns nothing. */
#include "cli_codecs.h"

#include "cli_device.h"

static void put_gpu(const cli_codecs *c, cli_json *json) {
    if (!c->gpu.there) {
        cli_json_null(json, "device");
        return;
    }
    cli_json_open(json, "device");
    cli_json_count(json, "copies", c->gpu.copies);
    cli_json_count(json, "weight_bytes", c->weight_bytes[CLI_CODEC_GPU]);
    cli_device_json(json, &c->gpu.device, &c->gpu.rates);
    cli_json_close(json);
}

static void put_steps(const cli_codecs *c, const char *directory) {
    const xorcast_counts *n = &c->counts;
    const uint64_t threads = c->session->options.threads;
    cli_json json = cli_json_begin(stdout);
    cli_json_text(&json, "event", "steps");
    cli_json_text(&json, "path", directory);
    cli_json_count(&json, "steps", c->steps);
    cli_json_count(&json, "weight_bytes", c->weight_bytes[CLI_CODEC_CPU]);
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
    put_gpu(c, &json);
    cli_json_end(&json);
}

static void put_times(const cli_codecs *c, const cli_codec_row *row, uint32_t place,
                      cli_json *json) {
    static const char *const names[CLI_CODEC_TIMES] = {"encode", "stage", "commit"};
    for (uint32_t i = 0; i < CLI_CODEC_TIMES; i++) {
        if (row->ns[place][i] == 0) {
            cli_json_null(json, names[i]);
            continue;
        }
        cli_json_open(json, names[i]);
        cli_json_count(json, "ns", row->ns[place][i]);
        cli_json_real(json, "gigabytes_per_second", cli_codecs_speed(c, row, place, i));
        cli_json_close(json);
    }
}

static void put_row(const cli_codecs *c, const cli_codec_row *row) {
    const uint64_t bytes = row->bytes[CLI_CODEC_CPU];
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
    cli_json_count(&json, "bytes", bytes);
    cli_json_real(&json, "ratio", (double)c->weight_bytes[CLI_CODEC_CPU] / (double)bytes);
    cli_json_real(&json, "of_order0_bound", (double)bytes / c->bounds.order0);
    cli_json_real(&json, "of_conditional_bound", (double)bytes / c->bounds.conditional);
    cli_json_text(&json, "backend", "cpu");
    put_times(c, row, CLI_CODEC_CPU, &json);
    if (c->gpu.there && !row->compared) {
        cli_json_open(&json, "device");
        cli_json_count(&json, "bytes", row->bytes[CLI_CODEC_GPU]);
        put_times(c, row, CLI_CODEC_GPU, &json);
        cli_json_close(&json);
    } else {
        cli_json_null(&json, "device");
    }
    cli_json_end(&json);
}

void cli_codecs_json(const cli_codecs *codecs, const char *directory) {
    put_steps(codecs, directory);
    for (uint32_t i = 0; i < codecs->count; i++)
        put_row(codecs, &codecs->rows[i]);
}
