/* The trainer process: starts the samplers, learns from their rollouts, publishes every version. */
#ifndef DEMO_TRAINER_H
#define DEMO_TRAINER_H

#include "settings.h"

/* Runs the whole demo. 0 only if every check held and all samplers' bytes equal the trainer's. */
int trainer_run(const settings *run);

#endif
