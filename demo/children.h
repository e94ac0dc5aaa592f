/* The sampler processes: started from this program's own file, watched, and ended. */
#ifndef DEMO_CHILDREN_H
#define DEMO_CHILDREN_H

#include "settings.h"

#include <sys/types.h>

typedef struct child {
    pid_t process; /* 0: not running */
    int socket;    /* -1: none */
} child;

#define CHILD_SOCKET 3 /* where a sampler finds its end of the socket pair */

/* Starts sampler `index`, which connects to `url`. False: a message was printed. */
bool child_start(child *sampler, const settings *run, uint64_t index, const char *url);

/* Waits for the process to end by itself, at most DEADLINE_MS, and says how it ended: "ended with
 * code 1". True if it was a good end. Ends it by force after that. */
bool child_reap(child *sampler, char *how, size_t how_bytes);

/* Ends the process at once if it is running. */
void child_kill(child *sampler);

#endif
