/* A sampler process: generates rollouts with weights that it keeps in step with the trainer's. */
#ifndef DEMO_SAMPLER_H
#define DEMO_SAMPLER_H

#include "settings.h"

/* Runs sampler `index` on the trainer's orders until the trainer ends or says so; `url` is the
 * publisher's. The exit code of the process. */
int sampler_run(const settings *run, uint64_t index, const char *url);

#endif
