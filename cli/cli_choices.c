/* See cli_choices.h. */
#include "cli_choices.h"

#include <stdio.h>

#include "cli_words.h"

static const char *codec_name(uint32_t codec) {
    static const char *const names[] = {"", "raw", "lz4", "snappy", "gap", "auto"};
    return codec < sizeof names / sizeof *names ? names[codec] : "unknown";
}

static const char *receiver_name(uint32_t receiver) {
    static const char *const names[] = {"cpu", "gpu", "engine"};
    return receiver < sizeof names / sizeof *names ? names[receiver] : "unknown";
}

static void print_asked(const xorcast_encoding *asked) {
    printf("%-12s%s", "asked", codec_name(asked->codec));
    if (asked->old_weights == 1)
        printf(" beside the old weights");
    if (asked->codec == XORCAST_CODEC_AUTO && asked->link_bytes_per_second == 0)
        printf(", fewest bytes");
    else if (asked->codec == XORCAST_CODEC_AUTO)
        printf(", least time over %s/s to a %s",
               cli_bytes((double)asked->link_bytes_per_second).text,
               receiver_name(asked->receiver));
    if (asked->second_pass == 0)
        printf("; zstd level %d where it helps\n", (int)asked->zstd_level);
    else
        printf("; no second pass\n");
}

void cli_choices_print(const xorcast_delta_info *info, const xorcast_delta_choices *choices) {
    print_asked(&info->asked);
    const char *label = "chosen";
    for (uint32_t c = XORCAST_CODEC_RAW; c <= XORCAST_CODEC_GAP; c++) {
        if (choices->chunks[c] == 0)
            continue;
        printf("%-12s%s for %s chunks, %s", label, codec_name(c),
               cli_count(choices->chunks[c]).text, cli_bytes((double)choices->encoded[c]).text);
        if (c == XORCAST_CODEC_GAP)
            printf(" and %s of parameters; dense %s, beside old weights %s",
                   cli_bytes((double)choices->params_bytes).text,
                   cli_count(choices->gap_dense).text, cli_count(choices->gap_old_weights).text);
        printf("\n");
        label = "";
    }
    printf("%-12ssecond pass for %s of %s groups, saves %s\n", label,
           cli_count(choices->second_pass_groups).text, cli_count(info->group_count).text,
           cli_bytes((double)choices->second_pass_bytes).text);
}

void cli_choices_json(cli_json *json, const xorcast_delta_info *info,
                      const xorcast_delta_choices *choices) {
    const xorcast_encoding *asked = &info->asked;
    cli_json_open(json, "asked");
    cli_json_text(json, "codec", codec_name(asked->codec));
    cli_json_bool(json, "second_pass", asked->second_pass == 0);
    cli_json_count(json, "zstd_level", (uint64_t)asked->zstd_level);
    cli_json_bool(json, "old_weights", info->needs_old_weights != 0);
    cli_json_count(json, "link_bytes_per_second", asked->link_bytes_per_second);
    cli_json_text(json, "receiver", receiver_name(asked->receiver));
    cli_json_close(json);
    cli_json_open(json, "choices");
    for (uint32_t c = XORCAST_CODEC_RAW; c <= XORCAST_CODEC_GAP; c++) {
        cli_json_open(json, codec_name(c));
        cli_json_count(json, "chunks", choices->chunks[c]);
        cli_json_count(json, "bytes", choices->encoded[c]);
        cli_json_close(json);
    }
    cli_json_count(json, "gap_dense", choices->gap_dense);
    cli_json_count(json, "gap_old_weights", choices->gap_old_weights);
    cli_json_count(json, "params_bytes", choices->params_bytes);
    cli_json_count(json, "second_pass_groups", choices->second_pass_groups);
    cli_json_count(json, "second_pass_bytes", choices->second_pass_bytes);
    cli_json_close(json);
}
