/* A directory of consecutive checkpoints: which entries are steps, their order and numbers. Owns
 * the list. Does not open them. */
#ifndef CLI_STEPS_H
#define CLI_STEPS_H

#include "cli_session.h"

typedef struct cli_step_entry {
    char *path;
    uint64_t step;
    /* Which file or directory it is, and whether by a symbolic link. */
    uint64_t device, inode;
    bool is_link;
} cli_step_entry;

typedef struct cli_steps {
    cli_step_entry *at;
    uint64_t count, room;
} cli_steps;

/* Lists the checkpoints in `directory`: .safetensors files, and directories that hold some. If all
 * names end in numbers that differ (step_000012), these are the steps; else the steps are 0, 1, 2
 * in the order of the names, and a warning says so, as it does of what is left out: directories
 * without weights, names that end in .tmp, and links to what is in the list already. */
xorcast_status cli_steps_list(cli_session *session, const char *directory, cli_steps *steps);
void cli_steps_free(cli_steps *steps);

#endif
