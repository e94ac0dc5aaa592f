/* What a run of the demo was asked to do; the same in the trainer and in its samplers. */
#ifndef DEMO_SETTINGS_H
#define DEMO_SETTINGS_H

#include "export.h"

enum {
    SAMPLERS = 2,
    /* Nothing here takes more than a second; a sanitizer or a busy machine may make it thirty times
       that. */
    DEADLINE_MS = 60000
};

typedef struct settings {
    export_format format;
    uint64_t seed;
    uint64_t steps;        /* in all; each publishes one version */
    uint64_t warmup_steps; /* of these, at the high rate */
    double warmup_rate, rl_rate;
    bool json;
    const char *backend; /* "cpu" or "cuda" */
    char no_gpu[512];    /* why a GPU was looked for and not taken, or empty */
} settings;

#endif
