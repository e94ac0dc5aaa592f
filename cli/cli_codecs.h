/* Inside of xorcast bench codecs: every codec of the format, and what others do, over the steps of
 * a directory of checkpoints. cli_bench_codecs.c walks the steps, cli_codecs_ours.c measures the
 * library by its public calls, cli_codecs_gpu.c gives it weights on a GPU too, cli_codecs_theirs.c
 * measures what bench/compare has; cli_codecs_print.c, cli_codecs_json.c and cli_codecs_svg.c show
 * the rows. */
#ifndef CLI_CODECS_H
#define CLI_CODECS_H

#include "cli_files.h"
#include "cli_session.h"
#include "cli_weights.h"
#include "compare/compare.h"
#include "compare/entropy.h"

enum { CLI_CODEC_ENCODE, CLI_CODEC_STAGE, CLI_CODEC_COMMIT, CLI_CODEC_TIMES };
enum { CLI_CODEC_CPU, CLI_CODEC_GPU, CLI_CODEC_PLACES }; /* where the weights lie */
enum { CLI_CODECS_MOST = 64, CLI_CODECS_REPEATS = 100 };

/* Sums over the steps; times are sums of medians. */
typedef struct cli_codec_row {
    const char *name, *text;
    bool compared; /* not of the format */
    bool no_room;  /* it has no place for these tensors: no figures */
    uint64_t bytes[CLI_CODEC_PLACES];
    uint64_t ns[CLI_CODEC_PLACES][CLI_CODEC_TIMES]; /* 0: not measured there */
} cli_codec_row;

/* The machine's GPU. A step is small there, and most of its time would be launches and waits: its
 * tensors are repeated until there is enough to do. */
typedef struct cli_codecs_gpu {
    bool there;
    char why_not[256];
    xorcast_device device;
    xorcast_device_rates rates;
    cli_session trainer, sampler;
    uint64_t copies; /* of the tensors */
} cli_codecs_gpu;

/* The weights of a step, all copies of them. */
typedef struct cli_codec_stacks {
    cli_weights from, to; /* of the trainer, on the GPU */
    cli_weights on_host;  /* `from` in host memory, once a codec is encoded by the CPU alone */
    cli_weights weights;  /* of the sampler, on the GPU */
    uint64_t count;       /* tensors */
    uint64_t *indices;
    const void **data, **host_data; /* of `to`; in host memory one copy will do */
} cli_codec_stacks;

/* A step in memory. The sampler has its own context, as a process of its own would. */
typedef struct cli_codec_step {
    cli_weights from, to; /* of the trainer */
    cli_weights weights;  /* of the sampler: `from`, and `to` after each commit */
    compare_tensor *tensors;
    uint64_t count;
    const void **data; /* of `to`, and which tensors these are: all */
    uint64_t *indices;
    cli_codec_stacks gpu;
} cli_codec_step;

/* A step as a publisher and a subscriber get it. */
typedef struct cli_codec_pair {
    uint32_t place;
    bool encodes; /* the publisher's weights lie there too */
    cli_session *trainer, *sampler;
    const cli_weights *from, *weights;
    uint64_t count;
    const uint64_t *indices;
    const void *const *data;
} cli_codec_pair;

typedef struct cli_codecs {
    cli_session *session;
    cli_session trainer, sampler;
    cli_codecs_gpu gpu;
    cli_codec_row rows[CLI_CODECS_MOST];
    uint32_t count;
    uint64_t steps;
    uint64_t weight_bytes[CLI_CODEC_PLACES]; /* of all steps; on the GPU of all copies */
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
/* Of a row in a step: what has been measured so far. Zeroed. */
typedef struct cli_codec_times {
    uint64_t ns[CLI_CODEC_TIMES][CLI_CODECS_REPEATS];
    uint64_t began_ns, rounds, count; /* rounds that were done, and those of them that count */
} cli_codec_times;
/* Another round? No codec gets more than a few seconds for all of them. */
bool cli_codecs_again(const cli_codecs *codecs, cli_codec_times *times);
/* Adds a round. The first one touches all memory; it counts only if it is slow, and then alone. */
void cli_codecs_add_round(cli_codec_times *times, const uint64_t ns[CLI_CODEC_TIMES]);
/* Adds the medians, for which the times are sorted. */
void cli_codecs_add_medians(cli_codec_times *times, uint64_t sums[CLI_CODEC_TIMES]);
/* Are the sampler's weights the new ones or, `back`, the old ones? */
xorcast_status cli_codecs_check(cli_codecs *codecs, const cli_codec_step *step, bool back,
                                const char *name);
/* A context for one side of a step. */
xorcast_status cli_codecs_context(cli_codecs *codecs, cli_session *side, const char *backend,
                                  uint32_t threads);

/* Finds the GPU and opens its contexts. There may be none, unless it was asked for. */
xorcast_status cli_codecs_gpu_find(cli_codecs *codecs);
void cli_codecs_gpu_leave(cli_codecs *codecs);
/* Brings a step there, if there is a GPU. Close it whatever open returns. */
xorcast_status cli_codecs_gpu_open(cli_codecs *codecs, cli_codec_step *step);
void cli_codecs_gpu_close(cli_codec_step *step);
/* With the sampler's weights on the GPU, and the trainer's too if it `encodes`. */
xorcast_status cli_codecs_gpu_pair(cli_codecs *codecs, cli_codec_step *step, bool encodes,
                                   cli_codec_pair *pair_out);
/* As cli_codecs_check. */
xorcast_status cli_codecs_gpu_check(cli_codecs *codecs, const cli_codec_step *step, bool back,
                                    const char *name);

/* GB of weights a second; 0 where it was not measured. */
double cli_codecs_speed(const cli_codecs *codecs, const cli_codec_row *row, uint32_t place,
                        uint32_t time);
void cli_codecs_print(const cli_codecs *codecs, const char *directory);
void cli_codecs_json(const cli_codecs *codecs, const char *directory);
/* Writes the picture. */
xorcast_status cli_codecs_svg(const cli_codecs *codecs, const cli_output *output);

#endif
