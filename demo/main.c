/* The demo's command line. Without --sampler it is the trainer, which starts the samplers from this
 * same program. */
#include "sampler.h"
#include "trainer.h"
#include "weights_bundle.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Enough for an hour; keeps the arrays of a run small. */
#define MOST_STEPS 10000

static const char help[] =
    "usage: demo [--dtype bf16|fp8|nvfp4] [--seed N] [--steps N] [--warmup N] [--rate R]\n"
    "            [--backend cpu|cuda] [--json]\n"
    "\n"
    "Trains a small policy in this process and keeps two sampler processes, which generate its\n"
    "rollouts, in step with it over TCP on this machine. Ends by comparing their weights with the\n"
    "trainer's, byte by byte.\n"
    "\n"
    "  --dtype D    how weights are exported and computed with (bf16)\n"
    "  --seed N     everything but the times is the same for the same seed (1)\n"
    "  --steps N    training steps in all, each publishes a version (50)\n"
    "  --warmup N   of these, steps at the high learning rate 5e-4 (18, or all if fewer)\n"
    "  --rate R     learning rate of the other steps (1e-5)\n"
    "  --backend B  where published weights and the samplers' live weights are kept: cpu, this\n"
    "               machine's memory; cuda, its first GPU; a GPU if there is one, if not given\n"
    "  --json       one JSON object a line instead of a table; demo/README.md lists the fields\n"
    "\n"
    "exit code: 0 if every check held and all weights are equal, 1 if not, 2 for a wrong option\n";

typedef struct command {
    settings run;
    bool is_sampler;
    uint64_t sampler;
    const char *url;
} command;

static bool wrong(const char *option, const char *value, const char *wanted) {
    (void)fprintf(stderr, "demo: %s %s: %s is wanted; demo --help says more\n", option, value,
                  wanted);
    return false;
}

static bool read_number(const char *option, const char *text, uint64_t most, uint64_t *number_out) {
    char *end = NULL;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    char wanted[64];
    (void)snprintf(wanted, sizeof wanted, "a number from 0 to %llu", (unsigned long long)most);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || number > most)
        return wrong(option, text, wanted);
    *number_out = number;
    return true;
}

static bool read_rate(const char *text, double *rate_out) {
    char *end = NULL;
    const double rate = strtod(text, &end);
    if (end == text || *end != '\0' || !(rate >= 0 && rate <= 1))
        return wrong("--rate", text, "a learning rate from 0 to 1, such as 1e-6,");
    *rate_out = rate;
    return true;
}

static bool read_option(command *self, int option, const char *value) {
    switch (option) {
    case 'd':
        return export_format_find(value, &self->run.format) ||
               wrong("--dtype", value, "bf16, fp8 or nvfp4");
    case 's':
        return read_number("--seed", value, UINT64_MAX, &self->run.seed);
    case 'n':
        return read_number("--steps", value, MOST_STEPS, &self->run.steps);
    case 'w':
        return read_number("--warmup", value, MOST_STEPS, &self->run.warmup_steps);
    case 'r':
        return read_rate(value, &self->run.rl_rate);
    case 'b':
        self->run.backend = value;
        return strcmp(value, "cpu") == 0 || strcmp(value, "cuda") == 0 ||
               wrong("--backend", value, "cpu or cuda");
    case 'j':
        self->run.json = true;
        return true;
    case 'i':
        self->is_sampler = true;
        return read_number("--sampler", value, SAMPLERS - 1, &self->sampler);
    case 'u':
        self->url = value;
        return true;
    default:
        (void)fputs("demo --help lists the options\n", stderr);
        return false;
    }
}

int main(int count, char **arguments) {
    static const struct option options[] = {
        {"dtype", required_argument, NULL, 'd'},
        {"seed", required_argument, NULL, 's'},
        {"steps", required_argument, NULL, 'n'},
        {"warmup", required_argument, NULL, 'w'},
        {"rate", required_argument, NULL, 'r'},
        {"backend", required_argument, NULL, 'b'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {"url", required_argument, NULL, 'u'},
        {"sampler", required_argument, NULL, 'i'},
        {NULL, 0, NULL, 0},
    };
    command self = {.run = {.format = EXPORT_BF16,
                            .seed = 1,
                            .steps = 50,
                            .warmup_steps = 18,
                            .warmup_rate = 5e-4,
                            .rl_rate = 1e-5}};
    int option = 0;
    while ((option = getopt_long(count, arguments, "", options, NULL)) != -1) {
        if (option == 'h') {
            (void)fputs(help, stdout);
            return 0;
        }
        if (!read_option(&self, option, optarg))
            return 2;
    }
    if (optind < count) {
        (void)fprintf(stderr, "demo: what is %s? demo --help lists the options\n",
                      arguments[optind]);
        return 2;
    }
    if (self.run.backend == NULL)
        self.run.backend = weights_backend(self.run.no_gpu, sizeof self.run.no_gpu);
    if (self.is_sampler && self.url != NULL)
        return sampler_run(&self.run, self.sampler, self.url);
    if (self.run.warmup_steps > self.run.steps)
        self.run.warmup_steps = self.run.steps;
    return trainer_run(&self.run);
}
