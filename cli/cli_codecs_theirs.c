/* What the format's codecs are compared with, measured on the same bytes: see
 * compare/compare.h. */
#include "cli_codecs.h"

#include "cli_stop.h"

#include <string.h>

static xorcast_status status_of(cli_codecs *codecs, const compare_codec *codec,
                                compare_result result) {
    if (result == COMPARE_NO_MEMORY)
        return cli_fail(codecs->session, XORCAST_NO_HOST_MEMORY, 0, "no memory for %s",
                        codec->name);
    if (result == COMPARE_FAILED)
        return cli_fail(codecs->session, XORCAST_INTERNAL, 0, "%s cannot read what it wrote",
                        codec->name);
    return XORCAST_OK;
}

/* One pass through all three, each with its time. */
static compare_result pass(const compare_codec *codec, const compare_step *step, compare_work *work,
                           uint64_t ns[CLI_CODEC_TIMES]) {
    const uint64_t begin = cli_now_ns();
    COMPARE_TRY(codec->encode(codec, step, work));
    const uint64_t encoded = cli_now_ns();
    COMPARE_TRY(codec->stage(codec, step, work));
    const uint64_t staged = cli_now_ns();
    COMPARE_TRY(codec->commit(codec, step, work));
    ns[CLI_CODEC_ENCODE] = encoded - begin;
    ns[CLI_CODEC_STAGE] = staged - encoded;
    ns[CLI_CODEC_COMMIT] = cli_now_ns() - staged;
    return COMPARE_OK;
}

static void undo(const cli_codec_step *step) {
    for (uint64_t i = 0; i < step->count; i++)
        if (step->tensors[i].bytes > 0)
            memcpy(step->tensors[i].weights, step->tensors[i].from, step->tensors[i].bytes);
}

static xorcast_status repeat(cli_codecs *codecs, const cli_codec_step *step,
                             const compare_codec *codec, compare_work *work, cli_codec_row *row) {
    cli_codec_times times = {.rounds = 0};
    const compare_step all = {step->tensors, step->count};
    while (cli_codecs_again(codecs, &times)) {
        uint64_t now[CLI_CODEC_TIMES];
        const compare_result result = pass(codec, &all, work, now);
        if (result == COMPARE_NO_ROOM) {
            row->no_room = true;
            return XORCAST_OK;
        }
        CLI_TRY(status_of(codecs, codec, result));
        CLI_TRY(cli_codecs_check(codecs, step, false, codec->name));
        undo(step);
        cli_codecs_add_round(&times, now);
    }
    row->bytes[CLI_CODEC_CPU] += work->encoded.count;
    cli_codecs_add_medians(&times, row->ns[CLI_CODEC_CPU]);
    return XORCAST_OK;
}

xorcast_status cli_codecs_theirs(cli_codecs *codecs, cli_codec_step *step, uint32_t *row) {
    xorcast_status status = XORCAST_OK;
    const compare_codec *codec;
    for (uint32_t i = 0; status == XORCAST_OK && (codec = compare_codec_at(i)) != NULL; i++) {
        cli_codec_row *at = cli_codecs_row(codecs, row, codec->name, codec->text, true);
        if (at == NULL)
            continue;
        compare_work work;
        memset(&work, 0, sizeof work);
        status = repeat(codecs, step, codec, &work, at);
        compare_work_free(&work);
    }
    return status;
}
