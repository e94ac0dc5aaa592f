/* What trainer and samplers tell each other besides weights, over one socket pair for each sampler:
 * orders, rollouts, reports, and at the very end the samplers' bytes for comparison. Weights are
 * synced through xorcast only.
 *
 *     trainer                          sampler
 *        | <----------------- READY ----- |   connected, at the first version
 *        | -- ORDER (batch, follow) ----> |   generate, and meanwhile stage version `follow`
 *        | <----------------- ROLLOUT --- |   stamped with the version it was drawn from
 *        | <----------------- SYNCED ---- |   committed `follow`
 *        |              ...               |
 *        | -- ORDER (no batch) ---------> |   the end
 *        | <----------------- TENSOR ---- |   one for each tensor
 *
 * FAILED with a text may take the place of any answer. Both ends are the same binary on one
 * machine, so structures travel as they are. Every call has a deadline. */
#ifndef DEMO_MESSAGES_H
#define DEMO_MESSAGES_H

#include "rollout.h"

typedef enum message_type {
    MESSAGE_READY = 1,
    MESSAGE_ORDER,
    MESSAGE_ROLLOUT,
    MESSAGE_SYNCED,
    MESSAGE_TENSOR,
    MESSAGE_FAILED
} message_type;

/* A version of the weights. */
typedef struct stamp {
    uint64_t step;
    uint64_t digest[2];
} stamp;

#define NO_BATCH 0
#define FOLLOW_NOTHING UINT64_MAX

typedef struct order_message {
    uint64_t batch;  /* to generate, or NO_BATCH */
    uint64_t follow; /* version to stage meanwhile and to commit afterwards, or FOLLOW_NOTHING */
} order_message;

typedef struct rollout_message {
    stamp drawn_from;
    uint64_t batch;
    rollout data;
} rollout_message;

typedef struct synced_message {
    stamp version;
    uint64_t wire_bytes;
    uint64_t ship_ns, stage_ns, commit_ns; /* as the library counts them */
    uint64_t follow_ns;  /* from the order to the staged version: polling, fetching, staging */
    uint64_t overlap_ns; /* of that, while rollouts were generated */
    uint64_t pause_ns;   /* that the sampler could not generate: commit and wait */
    uint64_t load_ns;    /* and then, from its GPU to the host, where this policy computes */
} synced_message;

/* Sends one message within DEADLINE_MS. False: `why` says what happened. */
bool message_send(int socket, message_type type, const void *body, size_t bytes, char *why,
                  size_t why_bytes);

/* Receives one message of that type and size within DEADLINE_MS. False: `why` is the text of a
 * FAILED message, or says what happened; the socket is of no more use then. */
bool message_receive(int socket, message_type type, void *body, size_t bytes, char *why,
                     size_t why_bytes);

#endif
