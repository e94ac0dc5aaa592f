/* A sampler: two threads, one bundle of weights.
 *
 * The main thread generates rollouts, straight from the bytes of the bundle, or from a copy of
 * them if they live on a GPU. The follower polls and
 * stages the next version meanwhile; staging only reads the weights. When the rollouts are out and
 * the version is staged, the main thread commits it: that is the only time it does not generate for
 * the sake of syncing. The two hand the subscriber to each other under a lock, so that one thread
 * at a time uses it. */
#include "sampler.h"

#include "children.h"
#include "stopwatch.h"
#include "weights_bundle.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define POLL_SLICE_MS 100

typedef enum follow_state {
    FOLLOW_IDLE,
    FOLLOW_WANTED, /* the follower polls and stages */
    FOLLOW_STAGED,
    FOLLOW_FAILED,
    FOLLOW_QUIT
} follow_state;

typedef struct sampler {
    const settings *run;
    uint64_t index;
    exported *weights;
    policy *model;
    weights_bundle sync;
    xorcast_subscriber *subscriber;
    char why[1024];

    pthread_mutex_t lock; /* of `state`; in WANTED the follower may use the subscriber and what */
    pthread_cond_t turn;  /* follows here, in all other states the main thread may */
    follow_state state;
    uint64_t wanted_step;
    uint64_t follow_begin_ns, follow_end_ns;
    char follow_why[1024];
} sampler;

static bool failed(sampler *self, const char *what, xorcast_status status) {
    weights_bundle_explain(&self->sync, what, status, self->why, sizeof self->why);
    return false;
}

static bool follow_failed(sampler *self, const char *what, xorcast_status status) {
    weights_bundle_explain(&self->sync, what, status, self->follow_why, sizeof self->follow_why);
    return false;
}

static stamp present(sampler *self) {
    xorcast_version version;
    xorcast_subscriber_current(self->subscriber, &version);
    return weights_stamp(&version);
}

/* ---- The follower -----------------------------------------------------------------------------*/

static bool still_wanted(sampler *self) {
    (void)pthread_mutex_lock(&self->lock);
    const bool wanted = self->state == FOLLOW_WANTED;
    (void)pthread_mutex_unlock(&self->lock);
    return wanted;
}

/* Polls in slices, so that the process can end while the trainer publishes nothing. */
static bool stage_wanted(sampler *self) {
    const uint64_t deadline = now_ns() + DEADLINE_MS * UINT64_C(1000000);
    xorcast_status status = XORCAST_NOTHING_NEW;
    uint64_t newest = 0;
    while (status == XORCAST_NOTHING_NEW && now_ns() < deadline && still_wanted(self))
        status = xorcast_subscriber_poll(self->subscriber, POLL_SLICE_MS, &newest);
    if (status != XORCAST_OK)
        return follow_failed(self, "waiting for the next version", status);
    status = xorcast_subscriber_stage(self->subscriber, self->wanted_step, DEADLINE_MS);
    if (status != XORCAST_OK)
        return follow_failed(self, "staging the next version", status);
    return true;
}

static void *follow(void *argument) {
    sampler *self = argument;
    (void)pthread_mutex_lock(&self->lock);
    while (self->state != FOLLOW_QUIT) {
        if (self->state != FOLLOW_WANTED) {
            (void)pthread_cond_wait(&self->turn, &self->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&self->lock);
        const bool staged = stage_wanted(self);
        (void)pthread_mutex_lock(&self->lock);
        self->follow_end_ns = now_ns();
        if (self->state == FOLLOW_WANTED)
            self->state = staged ? FOLLOW_STAGED : FOLLOW_FAILED;
        (void)pthread_cond_broadcast(&self->turn);
    }
    (void)pthread_mutex_unlock(&self->lock);
    return NULL;
}

static void set_state(sampler *self, follow_state state) {
    (void)pthread_mutex_lock(&self->lock);
    self->state = state;
    (void)pthread_cond_broadcast(&self->turn);
    (void)pthread_mutex_unlock(&self->lock);
}

/* The follower's calls have deadlines, so this wait ends. */
static bool wait_staged(sampler *self) {
    (void)pthread_mutex_lock(&self->lock);
    while (self->state == FOLLOW_WANTED)
        (void)pthread_cond_wait(&self->turn, &self->lock);
    const bool staged = self->state == FOLLOW_STAGED;
    (void)pthread_mutex_unlock(&self->lock);
    if (!staged)
        (void)snprintf(self->why, sizeof self->why, "%s", self->follow_why);
    return staged;
}

/* ---- Orders -----------------------------------------------------------------------------------*/

static bool generate(sampler *self, uint64_t batch, const stamp *drawn_from) {
    rollout_message message = {.drawn_from = *drawn_from, .batch = batch};
    rollout_generate(self->model, self->weights, self->run->seed, batch, self->index,
                     &message.data);
    return message_send(CHILD_SOCKET, MESSAGE_ROLLOUT, &message, sizeof message, self->why,
                        sizeof self->why);
}

/* From the GPU, if the weights live there: the policy computes on the host. */
static bool load(sampler *self, uint64_t *load_ns_out) {
    const uint64_t begin = now_ns();
    const xorcast_status status = weights_bundle_load(&self->sync);
    *load_ns_out = self->sync.on_gpu != NULL ? now_ns() - begin : 0;
    return status == XORCAST_OK || failed(self, "copying weights from the GPU", status);
}

static bool commit(sampler *self, uint64_t *pause_ns_out) {
    const uint64_t begin = now_ns();
    xorcast_status status = xorcast_subscriber_commit(self->subscriber, NULL);
    if (status != XORCAST_OK)
        return failed(self, "committing", status);
    status = xorcast_subscriber_wait(self->subscriber, DEADLINE_MS);
    if (status != XORCAST_OK)
        return failed(self, "waiting for the commit", status);
    *pause_ns_out = now_ns() - begin;
    return true;
}

static bool finish_follow(sampler *self, uint64_t generate_begin, uint64_t generate_end) {
    if (!wait_staged(self))
        return false;
    synced_message message = {0};
    if (!commit(self, &message.pause_ns) || !load(self, &message.load_ns))
        return false;
    xorcast_subscriber_stats stats;
    xorcast_subscriber_get_stats(self->subscriber, &stats);
    message.version = present(self);
    message.wire_bytes = stats.wire_bytes;
    message.ship_ns = stats.ship_ns;
    message.stage_ns = stats.stage_ns;
    message.commit_ns = stats.commit_ns;
    message.follow_ns = self->follow_end_ns - self->follow_begin_ns;
    const uint64_t begin =
        self->follow_begin_ns > generate_begin ? self->follow_begin_ns : generate_begin;
    const uint64_t end = self->follow_end_ns < generate_end ? self->follow_end_ns : generate_end;
    message.overlap_ns = end > begin ? end - begin : 0;
    set_state(self, FOLLOW_IDLE);
    return message_send(CHILD_SOCKET, MESSAGE_SYNCED, &message, sizeof message, self->why,
                        sizeof self->why);
}

static bool carry_out(sampler *self, const order_message *order) {
    const stamp drawn_from = present(self);
    const bool follows = order->follow != FOLLOW_NOTHING;
    if (follows) {
        self->wanted_step = order->follow;
        self->follow_begin_ns = now_ns();
        set_state(self, FOLLOW_WANTED);
    }
    const uint64_t begin = now_ns();
    const bool generated = generate(self, order->batch, &drawn_from);
    const uint64_t end = now_ns();
    return generated && (!follows || finish_follow(self, begin, end));
}

/* Where the live weights are on a GPU, the host's copy is made anew from them. */
static bool send_weights(sampler *self) {
    uint64_t ignored;
    memset(self->weights->memory, 0, self->weights->memory_bytes * (self->sync.on_gpu != NULL));
    if (!load(self, &ignored))
        return false;
    for (size_t i = 0; i < self->weights->tensor_count; i++) {
        const export_tensor *tensor = &self->weights->tensors[i];
        if (!message_send(CHILD_SOCKET, MESSAGE_TENSOR, tensor->data, tensor->bytes, self->why,
                          sizeof self->why))
            return false;
    }
    return true;
}

static bool obey(sampler *self) {
    const stamp first = present(self);
    if (!message_send(CHILD_SOCKET, MESSAGE_READY, &first, sizeof first, self->why,
                      sizeof self->why))
        return false;
    for (;;) {
        order_message order;
        if (!message_receive(CHILD_SOCKET, MESSAGE_ORDER, &order, sizeof order, self->why,
                             sizeof self->why))
            return false;
        if (order.batch == NO_BATCH)
            return send_weights(self);
        if (!carry_out(self, &order))
            return false;
    }
}

/* ---- Begin and end ----------------------------------------------------------------------------*/

/* A sampler starts with no weights at all: the publisher knows no such version, so it takes a
 * keyframe. */
static bool connect_to(sampler *self, const char *url) {
    xorcast_status status = weights_bundle_create(&self->sync, self->weights, self->run->backend,
                                                  self->why, sizeof self->why);
    if (status != XORCAST_OK)
        return false;
    status = xorcast_subscriber_open(self->sync.bundle, url, NULL, &self->subscriber);
    if (status != XORCAST_OK)
        return failed(self, "connecting to the trainer", status);
    if (present(self).step == XORCAST_NO_STEP) {
        status = xorcast_subscriber_keyframe(self->subscriber, DEADLINE_MS);
        if (status != XORCAST_OK)
            return failed(self, "fetching the first weights", status);
    }
    uint64_t ignored;
    return load(self, &ignored);
}

static bool work(sampler *self, const char *url) {
    self->weights = export_create(self->run->format);
    self->model = policy_create(ROLLOUT_SEQUENCES);
    if (self->weights == NULL || self->model == NULL) {
        (void)snprintf(self->why, sizeof self->why, "out of memory");
        return false;
    }
    if (!connect_to(self, url))
        return false;
    pthread_t follower;
    if (pthread_create(&follower, NULL, follow, self) != 0) {
        (void)snprintf(self->why, sizeof self->why, "no second thread");
        return false;
    }
    const bool done = obey(self);
    set_state(self, FOLLOW_QUIT);
    (void)pthread_join(follower, NULL);
    return done;
}

int sampler_run(const settings *run, uint64_t index, const char *url) {
    sampler self = {.run = run,
                    .index = index,
                    .lock = PTHREAD_MUTEX_INITIALIZER,
                    .turn = PTHREAD_COND_INITIALIZER,
                    .state = FOLLOW_IDLE};
    const bool done = work(&self, url);
    if (!done) {
        char ignored[128];
        (void)message_send(CHILD_SOCKET, MESSAGE_FAILED, self.why, strlen(self.why), ignored,
                           sizeof ignored);
    }
    if (self.subscriber != NULL)
        xorcast_subscriber_close(self.subscriber);
    weights_bundle_destroy(&self.sync);
    policy_destroy(self.model);
    export_destroy(self.weights);
    return done ? 0 : 1;
}
