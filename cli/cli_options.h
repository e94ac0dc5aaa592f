/* What a person can ask of a command: one table of options (cli_options.c) that makes the parser
 * and the help texts. Owns nothing; strings point into the argument list. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "xorcast.h"

/* One bit for each command: which options it takes. */
enum {
    CLI_DIFF = 1,
    CLI_APPLY = 2,
    CLI_CHECK = 4,
    CLI_INSPECT = 8,
    CLI_FOLD = 16,
    CLI_PUBLISH = 32,
    CLI_FOLLOW = 64,
    CLI_BENCH = 128,
    CLI_CODECS = 256, /* bench codecs */
    CLI_EVERY = 511
};

#define CLI_NO_NUMBER UINT64_MAX /* a number that was not given */

typedef struct cli_options {
    char *const *operands; /* what is no option, in order */
    int operand_count;
    const char *output;
    xorcast_encoding encoding;
    const char *run;
    uint64_t base_step, target_step;
    bool bound, device, json, quiet, help;
    uint64_t threads, scratch_bytes;
    const char *listen, *url_file;
    uint64_t interval_ms, linger_ms, timeout_ms, wait_peers, log_bytes;
    bool insecure, audit, old_weights;
    uint64_t until, versions;
    uint64_t bytes, gpu_bytes, repeat;
    double density;
    const char *svg, *only, *backend;
} cli_options;

/* Reads the arguments after the command's name into `options_out`. False: `problem` says what is
 * wrong with them and what to do. */
bool cli_options_parse(const char *command, uint32_t command_bit, int count, char **arguments,
                       cli_options *options_out, char *problem, size_t problem_bytes);

/* The options that a command takes, a line or two each. */
void cli_options_print(FILE *file, uint32_t command_bit);

#endif
