/* Inside of xorcast bench codecs: every codec of the format, and what others do, over the steps of
 * a directory of checkpoints. cli_bench_codecs.c walks the steps, cli_codecs_ours.c measures the
 * library by its public calls, cli_codecs_theirs.c what bench/compare has; cli_codecs_print.c and
 * cli_codecs_svg.c show the rows. */
#ifndef CLI_CODECS_H
#define CLI_CODECS_H

#include "cli_files.h"
#include "cli_session.h"
#include "cli_weights.h"
#include "compare/compare.h"
#include "compare/entropy.h"

enum { CLI_CODEC_ENCODE, CLI_CODEC_STAGE, CLI_CODEC_COMMIT, CLI_CODEC_TIMES };
enum { CLI_CODECS_MOST = 64, CLI_CODECS_REPEATS = 100 };

/* Sums over the steps; times are sums of medians. */
typedef struct cli_codec_row {
    const char *name, *text;
    bool compared; /* not of the format */
    bool no_room;  /* it has no place for these tensors: no figures */
    uint64_t bytes;
    uint64_t ns[CLI_CODEC_TIMES];
} cli_codec_row;

/* A step in memory. The sampler has its own context, as a process of its own would. */
typedef struct cli_codec_step {
    cli_weights from, to; /* of the trainer */
    cli_weights weights;  /* of the sampler: `from`, and `to` after each commit */
    compare_tensor *tensors;
    uint64_t count;
    const void **data; /* of `to`, and which tensors these are: all */
    uint64_t *indices;
} cli_codec_step;

typedef struct cli_codecs {
    cli_session *session;
    cli_session trainer, sampler;
    cli_codec_row rows[CLI_CODECS_MOST];
    uint32_t count;
    uint64_t steps, weight_bytes; /* of all steps */
    xorcast_counts counts;
    compare_bounds bounds;
    compare_runs runs;
} cli_codecs;

/* A failure on one side is the failure of the whole. */
xorcast_status cli_codecs_must(cli_codecs *codecs, cli_session *side, xorcast_status status);

/* Measures a step and adds to the rows, which the first step makes. Both leave the sampler's
 * weights as they were and fail with WEIGHTS_WRONG if a commit does not give the new ones. */
xorcast_status cli_codecs_ours(cli_codecs *codecs, cli_codec_step *step, uint32_t *row);
xorcast_status cli_codecs_theirs(cli_codecs *codecs, cli_codec_step *step, uint32_t *row);

/* Row number *row, the next time the one after it; NULL if nobody asked for it. */
cli_codec_row *cli_codecs_row(cli_codecs *codecs, uint32_t *row, const char *name, const char *text,
                              bool compared);
/* Adds the medians of `count` times, which are sorted. */
void cli_codecs_add_times(cli_codec_row *row, uint64_t times[CLI_CODEC_TIMES][CLI_CODECS_REPEATS],
                          uint64_t count);
/* Another repetition? Slow codecs, a second or more, get one alone. */
bool cli_codecs_again(const cli_codecs *codecs, uint64_t done, uint64_t last_ns);
/* Are the sampler's weights the new ones? */
xorcast_status cli_codecs_check(cli_codecs *codecs, const cli_codec_step *step, const char *name);

void cli_codecs_print(const cli_codecs *codecs, const char *directory);
void cli_codecs_json(const cli_codecs *codecs, const char *directory);
/* Writes the picture. */
xorcast_status cli_codecs_svg(const cli_codecs *codecs, const cli_output *output);

#endif
