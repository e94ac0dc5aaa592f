/* See cli_options.h. */
#include "cli_options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_MOST 1e9

typedef enum value_kind {
    FLAG,        /* bool */
    TEXT,        /* const char *, at most `most` bytes; 0: any number */
    COUNT,       /* uint64_t, `least` to `most` */
    SIZE,        /* uint64_t of bytes: 7000000, 512k, 7m, 4g, in powers of 1000 */
    SECONDS,     /* uint64_t of milliseconds */
    SHARE,       /* double, more than 0 and up to 0.5 */
    CODEC,       /* uint32_t, xorcast_codec */
    SECOND_PASS, /* uint32_t as in xorcast_encoding */
    RECEIVER,    /* uint32_t, xorcast_receiver */
    LEVEL        /* int32_t, `least` to `most` */
} value_kind;

typedef struct option_row {
    const char *name;
    char letter; /* or 0 */
    value_kind kind;
    uint32_t commands;
    size_t place; /* in cli_options */
    uint64_t least, most;
    const char *value, *help; /* of the value, NULL for flags; lines after the first are indented */
} option_row;

#define AT(field) offsetof(cli_options, field)
#define ENCODERS (CLI_DIFF | CLI_FOLD | CLI_PUBLISH)
#define LINKED (CLI_PUBLISH | CLI_FOLLOW)

static const option_row rows[] = {
    {"output", 'o', TEXT, CLI_DIFF | CLI_FOLD, AT(output), 0, 0, "DELTA",
     "the file to write, at once and whole; - is standard output"},
    {"output", 'o', TEXT, CLI_APPLY, AT(output), 0, 0, "OUT",
     "write the new checkpoint there; without it, over the old one"},
    {"output", 'o', TEXT, CLI_FOLLOW, AT(output), 0, 0, "OUT",
     "at the end write the weights there, files and headers as in\nCHECKPOINT, which may be OUT "
     "itself"},
    {"codec", 0, CODEC, ENCODERS | CLI_BENCH, AT(encoding.codec), 0, 0, "NAME",
     "raw, lz4, snappy, gap, or auto: the best for each chunk (lz4)"},
    {"link-rate", 0, SIZE, ENCODERS | CLI_BENCH, AT(encoding.link_bytes_per_second), 1, UINT64_MAX,
     "BYTES", "with auto: least time on a link of so many bytes a second"},
    {"receiver", 0, RECEIVER, ENCODERS | CLI_BENCH, AT(encoding.receiver), 0, 0, "NAME",
     "with auto and a rate: the weakest receiver: cpu, gpu, or engine (cpu)"},
    {"old-weights", 0, FLAG, CLI_DIFF | CLI_PUBLISH | CLI_BENCH, AT(old_weights), 0, 0, NULL,
     "with gap or auto: the form for receivers that hold the old weights whole"},
    {"second-pass", 0, SECOND_PASS, ENCODERS | CLI_BENCH, AT(encoding.second_pass), 0, 0, "NAME",
     "zstd, where it helps, or none (zstd)"},
    {"level", 0, LEVEL, ENCODERS | CLI_BENCH, AT(encoding.zstd_level), 1, 19, "N",
     "of zstd, 1 to 19 (1)"},
    {"run", 0, TEXT, ENCODERS, AT(run), 0, XORCAST_RUN_BYTES - 1, "NAME",
     "the run that the versions belong to, at most 63 bytes"},
    {"base", 0, COUNT, CLI_DIFF, AT(base_step), 0, UINT64_MAX - 1, "N",
     "the step of the old weights"},
    {"target", 0, COUNT, CLI_DIFF, AT(target_step), 0, UINT64_MAX - 1, "N",
     "the step of the new weights"},
    {"bound", 0, FLAG, CLI_DIFF, AT(bound), 0, 0, NULL, "also compute the entropy bound"},
    {"listen", 0, TEXT, CLI_PUBLISH, AT(listen), 0, 0, "URL",
     "where to serve (tcp:127.0.0.1:0, a free port)"},
    {"url-file", 0, TEXT, CLI_PUBLISH, AT(url_file), 0, 0, "FILE",
     "also write the URL to FILE, once it can be opened"},
    {"interval", 0, SECONDS, CLI_PUBLISH, AT(interval_ms), 0, 0, "SECONDS",
     "wait between versions (0)"},
    {"wait-peers", 0, COUNT, CLI_PUBLISH, AT(wait_peers), 0, 100000, "N",
     "publish nothing before N followers are connected (0)"},
    {"linger", 0, SECONDS, CLI_PUBLISH, AT(linger_ms), 0, 0, "SECONDS",
     "serve so long after the last version; without it, until every\nconnected follower has it, 30 "
     "s at most"},
    {"log", 0, SIZE, CLI_PUBLISH, AT(log_bytes), 1, INT64_MAX, "BYTES",
     "deltas kept for followers that are behind (a quarter of the\nweights)"},
    {"until", 0, COUNT, CLI_FOLLOW, AT(until), 0, UINT64_MAX - 1, "STEP",
     "end when the weights are step STEP or later"},
    {"versions", 0, COUNT, CLI_FOLLOW, AT(versions), 1, UINT64_MAX - 1, "N",
     "end after N versions"},
    {"backend", 0, TEXT, LINKED, AT(backend), 0, 0, "NAME",
     "cuda: the weights lie in the memory of a GPU; cpu (cpu)"},
    {"backend", 0, TEXT, CLI_CODECS, AT(backend), 0, 0, "NAME",
     "cuda: there must be a GPU; cpu: no GPU (a GPU too, if there is one)"},
    {"audit", 0, FLAG, CLI_FOLLOW, AT(audit), 0, 0, NULL,
     "after each version read all weights back and compare digests"},
    {"timeout", 0, SECONDS, LINKED, AT(timeout_ms), 1, 0, "SECONDS",
     "give up when nothing happens for so long (30)"},
    {"insecure", 0, FLAG, LINKED, AT(insecure), 0, 0, NULL,
     "allow addresses other than loopback: nothing is encrypted"},
    {"bytes", 0, SIZE, CLI_BENCH, AT(bytes), 1 << 20, INT64_MAX, "N",
     "of the weights, at least 1048576 (256m); four times as much\nmemory is needed"},
    {"bytes", 0, SIZE, CLI_CODECS, AT(gpu_bytes), 1, INT64_MAX, "N",
     "on a GPU, as many copies of the tensors as fit (1g), in an\neighth of its free memory"},
    {"density", 0, SHARE, CLI_BENCH, AT(density), 0, 0, "D",
     "share of bytes that a version changes, above 0, at most 0.5\n(0.006)"},
    {"only", 0, TEXT, CLI_CODECS, AT(only), 0, 0, "NAMES",
     "these codecs, by the names in the table, separated by commas\n(all)"},
    {"svg", 0, TEXT, CLI_CODECS, AT(svg), 0, 0, "FILE",
     "also draw it: size against the speed of encoding and of the\npause"},
    {"repeat", 0, COUNT, CLI_BENCH | CLI_CODECS, AT(repeat), 1, 100, "N",
     "versions to measure, 1 to 100; medians are shown (5)"},
    {"threads", 't', COUNT, CLI_CODECS, AT(threads), 1, 256, "N",
     "worker threads of the format's codecs, 1 to 256 (1; beside a\nGPU one for each CPU); the "
     "others have one"},
    {"device", 0, FLAG, CLI_INSPECT, AT(device), 0, 0, NULL,
     "tell what GPU this machine has for the library, and what it can do"},
    {"device", 0, FLAG, CLI_BENCH, AT(device), 0, 0, NULL,
     "with the weights of both sides in the memory of this machine's GPU"},
    {"threads", 't', COUNT, CLI_EVERY & ~CLI_CODECS, AT(threads), 1, 256, "N",
     "worker threads, 1 to 256 (one for each CPU)"},
    {"scratch", 0, SIZE, CLI_EVERY, AT(scratch_bytes), 1, INT64_MAX, "BYTES",
     "most memory that the library may take (no limit)"},
    {"json", 0, FLAG, CLI_EVERY, AT(json), 0, 0, NULL,
     "one JSON object a line: results on standard output, errors on\nstandard error"},
    {"quiet", 'q', FLAG, CLI_EVERY, AT(quiet), 0, 0, NULL, "only errors"},
    {"help", 'h', FLAG, CLI_EVERY, AT(help), 0, 0, NULL, "this text"},
};
enum { ROWS = sizeof rows / sizeof *rows, FIRST_VALUE = 256 /* above every letter */ };

/* ---- Values -----------------------------------------------------------------------------------*/

static bool read_count(const char *text, const char **end_out, uint64_t *count_out) {
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    const unsigned long long count = strtoull(text, &end, 10);
    *end_out = end;
    *count_out = count;
    return errno == 0;
}

static bool read_size(const char *text, uint64_t *bytes_out) {
    static const char letters[] = "kmgt";
    const char *end;
    uint64_t bytes;
    if (!read_count(text, &end, &bytes))
        return false;
    if (*end != '\0') {
        const char *letter = strchr(letters, *end >= 'A' && *end <= 'Z' ? *end - 'A' + 'a' : *end);
        if (letter == NULL || end[1] != '\0')
            return false;
        for (const char *at = letters; at <= letter; at++)
            if (__builtin_mul_overflow(bytes, UINT64_C(1000), &bytes))
                return false;
    }
    *bytes_out = bytes;
    return true;
}

static bool read_real(const char *text, double least, double most, double *real_out) {
    char *end;
    const double real = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(real) || real < least || real > most)
        return false;
    *real_out = real;
    return true;
}

/* Of a choice, in the order of their numbers. */
static const char *const codecs[] = {"raw", "lz4", "snappy", "gap", "auto", NULL};
static const char *const passes[] = {"zstd", "none", NULL};
static const char *const receivers[] = {"cpu", "gpu", "engine", NULL};

static const char *const *words_of(value_kind kind) {
    return kind == CODEC         ? codecs
           : kind == SECOND_PASS ? passes
           : kind == RECEIVER    ? receivers
                                 : NULL;
}

static bool read_word(const char *text, const char *const *words, uint32_t *at_out) {
    for (uint32_t i = 0; words[i] != NULL; i++)
        if (strcmp(text, words[i]) == 0) {
            *at_out = i;
            return true;
        }
    return false;
}

static bool read_value(const option_row *row, const char *text, void *place) {
    uint64_t number;
    double real;
    const char *end;
    uint32_t at;
    switch (row->kind) {
    case FLAG:
        *(bool *)place = true;
        return true;
    case TEXT:
        *(const char **)place = text;
        return *text != '\0' && (row->most == 0 || strlen(text) <= row->most);
    case COUNT:
    case LEVEL:
        if (!read_count(text, &end, &number) || *end != '\0' || number < row->least ||
            number > row->most)
            return false;
        if (row->kind == LEVEL)
            *(int32_t *)place = (int32_t)number;
        else
            *(uint64_t *)place = number;
        return true;
    case SIZE:
        return read_size(text, place) && *(uint64_t *)place >= row->least &&
               *(uint64_t *)place <= row->most;
    case SECONDS:
        if (!read_real(text, 0, SECONDS_MOST, &real))
            return false;
        *(uint64_t *)place = (uint64_t)ceil(real * 1e3);
        return *(uint64_t *)place >= row->least;
    case SHARE:
        return read_real(text, 1e-9, 0.5, place);
    case CODEC:
    case SECOND_PASS:
    case RECEIVER:
        if (!read_word(text, words_of(row->kind), &at))
            return false;
        *(uint32_t *)place = row->kind == CODEC ? at + XORCAST_CODEC_RAW : at;
        return true;
    }
    return false;
}

typedef struct wanted {
    char text[120];
} wanted;

static wanted wanted_word(const char *const *words) {
    wanted out = {"one of "};
    for (size_t i = 0; words[i] != NULL; i++) {
        const size_t length = strlen(out.text);
        snprintf(out.text + length, sizeof out.text - length, "%s%s", words[i],
                 words[i + 1] != NULL ? ", " : "");
    }
    return out;
}

static wanted wanted_number(const option_row *row) {
    const bool size = row->kind == SIZE;
    wanted out;
    int length = snprintf(out.text, sizeof out.text, "a %s, %" PRIu64,
                          size ? "number of bytes" : "whole number", row->least);
    if (row->most >= INT64_MAX) /* whatever there is room for */
        length += snprintf(out.text + length, sizeof out.text - (size_t)length, " or more");
    else
        length += snprintf(out.text + length, sizeof out.text - (size_t)length, " to %" PRIu64,
                           row->most);
    if (size)
        snprintf(out.text + length, sizeof out.text - (size_t)length,
                 ", as in 7000000, 512k, 7m, 4g or 1t");
    return out;
}

/* What a value may be: read_value in words. */
static wanted wanted_value(const option_row *row) {
    wanted out = {""};
    switch (row->kind) {
    case COUNT:
    case LEVEL:
    case SIZE:
        return wanted_number(row);
    case SECONDS:
        snprintf(out.text, sizeof out.text, "a number of seconds, %g to %.0f, as in 0.5 or 30",
                 (double)row->least / 1e3, SECONDS_MOST);
        break;
    case SHARE:
        snprintf(out.text, sizeof out.text, "a share of one, above 0 and at most 0.5");
        break;
    case TEXT:
        if (row->most == 0)
            snprintf(out.text, sizeof out.text, "a text that is not empty");
        else
            snprintf(out.text, sizeof out.text, "a text of 1 to %" PRIu64 " bytes", row->most);
        break;
    case CODEC:
    case SECOND_PASS:
    case RECEIVER:
        return wanted_word(words_of(row->kind));
    case FLAG: /* has none */
        break;
    }
    return out;
}

/* ---- The command line -------------------------------------------------------------------------*/

static void set_defaults(cli_options *o) {
    static const xorcast_encoding encoding = XORCAST_ENCODING_INIT;
    *o = (cli_options){.encoding = encoding,
                       .base_step = XORCAST_NO_STEP,
                       .target_step = XORCAST_NO_STEP,
                       .linger_ms = CLI_NO_NUMBER,
                       .timeout_ms = 30000,
                       .until = CLI_NO_NUMBER,
                       .versions = CLI_NO_NUMBER,
                       .listen = "tcp:127.0.0.1:0",
                       .bytes = 256000000,
                       .gpu_bytes = 1000000000,
                       .repeat = 5,
                       .density = 0.006};
}

/* What getopt wants to know, from the table. `letters` has room for two characters a row. */
static void fill_tables(uint32_t command_bit, struct option *names, char *letters) {
    *letters++ = ':';
    for (int i = 0; i < ROWS; i++) {
        if (!(rows[i].commands & command_bit))
            continue;
        const bool flag = rows[i].kind == FLAG;
        *names++ = (struct option){rows[i].name, flag ? no_argument : required_argument, NULL,
                                   FIRST_VALUE + i};
        if (rows[i].letter != 0) {
            *letters++ = rows[i].letter;
            if (!flag)
                *letters++ = ':';
        }
    }
    *names = (struct option){NULL, 0, NULL, 0};
    *letters = '\0';
}

static const option_row *row_of(int found, uint32_t command_bit) {
    if (found >= FIRST_VALUE)
        return &rows[found - FIRST_VALUE];
    for (int i = 0; i < ROWS; i++)
        if (rows[i].letter == found && (rows[i].commands & command_bit))
            return &rows[i];
    return NULL;
}

/* What options do not go together, or NULL. */
static const char *conflict(const cli_options *o) {
    const xorcast_encoding *e = &o->encoding;
    if (o->old_weights && e->codec != XORCAST_CODEC_GAP && e->codec != XORCAST_CODEC_AUTO)
        return "--old-weights goes with --codec gap or --codec auto";
    if (e->link_bytes_per_second != 0 && e->codec != XORCAST_CODEC_AUTO)
        return "--link-rate goes with --codec auto";
    if (e->receiver != XORCAST_RECEIVER_CPU && e->link_bytes_per_second == 0)
        return "--receiver goes with --codec auto and --link-rate";
    if (e->zstd_level != 0 && e->second_pass != 0)
        return "--level goes with --second-pass zstd";
    return NULL;
}

bool cli_options_parse(const char *command, uint32_t command_bit, int count, char **arguments,
                       cli_options *options_out, char *problem, size_t problem_bytes) {
    struct option names[ROWS + 1];
    char letters[2 * ROWS + 2];
    fill_tables(command_bit, names, letters);
    set_defaults(options_out);
    opterr = 0;
    optind = 1;
    for (int found; (found = getopt_long(count, arguments, letters, names, NULL)) != -1;) {
        const option_row *row = row_of(found, command_bit);
        if (found == '?' && optopt > 0 && optopt < FIRST_VALUE)
            snprintf(problem, problem_bytes,
                     "there is no option -%c; 'xorcast %s --help' lists them", optopt, command);
        else if (found == '?' && optopt >= FIRST_VALUE)
            snprintf(problem, problem_bytes,
                     "--%s takes no value; see 'xorcast %s --help'",
                     rows[optopt - FIRST_VALUE].name, command);
        else if (found == '?')
            snprintf(problem, problem_bytes,
                     "there is no option %.*s; 'xorcast %s --help' lists them",
                     (int)strcspn(arguments[optind - 1], "="), arguments[optind - 1], command);
        else if (found == ':')
            snprintf(problem, problem_bytes, "a value must follow %s; see 'xorcast %s --help'",
                     arguments[optind - 1], command);
        else if (!read_value(row, optarg, (char *)options_out + row->place))
            snprintf(problem, problem_bytes,
                     "--%s cannot be '%.100s': it is %s; see 'xorcast %s --help'", row->name,
                     optarg, wanted_value(row).text, command);
        else
            continue;
        return false;
    }
    const char *wrong = conflict(options_out);
    if (wrong != NULL && !options_out->help) {
        snprintf(problem, problem_bytes, "%s; see 'xorcast %s --help'", wrong, command);
        return false;
    }
    options_out->encoding.old_weights = options_out->old_weights;
    options_out->operands = arguments + optind;
    options_out->operand_count = count - optind;
    return true;
}

void cli_options_print(FILE *file, uint32_t command_bit) {
    for (int i = 0; i < ROWS; i++) {
        if (!(rows[i].commands & command_bit))
            continue;
        char left[40], letter[8] = "    ";
        if (rows[i].letter != 0)
            snprintf(letter, sizeof letter, "-%c, ", rows[i].letter);
        snprintf(left, sizeof left, "%s--%s %s", letter, rows[i].name,
                 rows[i].value == NULL ? "" : rows[i].value);
        fprintf(file, "  %-24s", left);
        for (const char *c = rows[i].help; *c != '\0'; c++) {
            fputc(*c, file);
            if (*c == '\n')
                fprintf(file, "%26s", "");
        }
        fputc('\n', file);
    }
}
