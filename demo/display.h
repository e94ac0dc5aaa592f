/* What a run shows: one line for each step, a live line below them on a terminal, a summary; or one
 * JSON object for each on a line of its own. Owns wording and layout; knows nothing of how the
 * numbers come about. */
#ifndef DEMO_DISPLAY_H
#define DEMO_DISPLAY_H

#include "messages.h"
#include "settings.h"
#include "weights_bundle.h"

typedef struct sampler_report {
    stamp drawn_from; /* version of the rollouts that this step learned from */
    synced_message synced;
    uint64_t pid;
} sampler_report;

typedef struct step_report {
    uint64_t step;
    bool warmup;
    double rate;
    double reward; /* of the rollouts that this step learned from */
    double bits_percent, bytes_percent, elements_percent; /* changed */
    uint64_t bytes_changed, full_bytes, wire_bytes;       /* of one sampler */
    double bound_bytes;
    uint64_t encode_ns;  /* diff and encode, second pass and checksums, shadow */
    uint64_t publish_ns; /* from begin to finish, with the measuring of the bound and the store */
    uint64_t store_ns; /* new weights from the host to the GPU, if they are published from there */
    uint64_t learn_ns;
    stamp version;
    sampler_report samplers[SAMPLERS];
} step_report;

typedef struct end_report {
    uint64_t seconds_ns;
    /* Means over the first and the last `reward_window` steps, and over the first of the RL phase;
     * NAN: there are no such steps. */
    double first_reward, last_reward, rl_reward;
    uint64_t reward_window;
    uint64_t sampler_bytes_equal[SAMPLERS]; /* of full_bytes */
    uint64_t full_bytes, versions;
    uint64_t rollouts_checked; /* whose chances were computed again and found equal */
    bool equal;
} end_report;

typedef struct display display;

/* NULL: out of memory. */
display *display_create(const settings *run);
void display_destroy(display *self);

void display_begin(display *self, const weights_bundle *sync, const char *url);
void display_step(display *self, const step_report *report);
void display_end(display *self, const end_report *report);

#endif
