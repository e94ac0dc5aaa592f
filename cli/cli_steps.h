/* A directory of consecutive checkpoints: which entries are steps, their order and numbers. Owns
 * the list. Does not open them. */
#ifndef CLI_STEPS_H
#define CLI_STEPS_H

#include "cli_session.h"

typedef struct cli_step_entry {
    char *path;
    uint64_t step;
} cli_step_entry;

typedef struct cli_steps {
    cli_step_entry *at;
    uint64_t count, room;
} cli_steps;

/* Lists the directories and .safetensors files in `directory`. If all names end in numbers that
 * differ (step_000012), these are the steps; else the steps are 0, 1, 2 in the order of the
 * names. */
xorcast_status cli_steps_list(cli_session *session, const char *directory, cli_steps *steps);
void cli_steps_free(cli_steps *steps);

#endif
