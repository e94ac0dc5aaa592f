/* The trainer: learns a step, publishes it, and lets the samplers follow while they generate.
 *
 * Step t learns from batch t, then orders batch t+1 and publishes version t. The samplers draw
 * batch t+1 from version t-1, which they hold, stage version t meanwhile and commit it when the
 * batch is out. So rollouts are one version old when they are learned from, always: the run is the
 * same every time.
 *
 * Owns all processes and checks: every rollout's stamp must be the version expected, its chances
 * are computed again from a copy of that version, and at the end all bytes are compared. */
#include "trainer.h"

#include "children.h"
#include "display.h"
#include "learner.h"
#include "stopwatch.h"
#include "weights_bundle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REWARD_WINDOW 5

typedef struct trainer {
    const settings *run;
    learner *student;
    exported *weights; /* the student's: the version being published */
    exported *before;  /* a copy of the version that the next rollouts are drawn from */
    stamp stamp_before, stamp_present;
    policy *examiner; /* computes chances again */
    weights_bundle sync;
    xorcast_publisher *publisher;
    child samplers[SAMPLERS];
    stamp drawn_from[SAMPLERS]; /* of `rollouts` */
    rollout rollouts[SAMPLERS]; /* that the next step learns from */
    float *rewards;             /* by step */
    uint64_t rollouts_checked;
    display *screen;
    char why[1280];
} trainer;

/* ---- Samplers ---------------------------------------------------------------------------------*/

static bool sampler_failed(trainer *self, size_t index, const char *doing) {
    char how[128];
    (void)child_reap(&self->samplers[index], how, sizeof how);
    (void)fprintf(
        stderr,
        "demo: sampler %zu, while %s: %s. The process %s. The other processes were stopped; run "
        "the demo again.\n",
        index, doing, self->why, how);
    return false;
}

static bool send_order(trainer *self, size_t index, uint64_t batch, uint64_t follow) {
    const order_message order = {batch, follow};
    if (message_send(self->samplers[index].socket, MESSAGE_ORDER, &order, sizeof order, self->why,
                     sizeof self->why))
        return true;
    return sampler_failed(self, index, "it was to get an order");
}

static bool send_orders(trainer *self, uint64_t batch, uint64_t follow) {
    for (size_t i = 0; i < SAMPLERS; i++)
        if (!send_order(self, i, batch, follow))
            return false;
    return true;
}

static bool wrong_version(size_t index, const char *what, const stamp *found,
                          const stamp *expected) {
    (void)fprintf(
        stderr,
        "demo: sampler %zu %s version %llu with digest %016llx%016llx, not version %llu with "
        "%016llx%016llx. That is a defect; please report it with the seed.\n",
        index, what, (unsigned long long)found->step, (unsigned long long)found->digest[0],
        (unsigned long long)found->digest[1], (unsigned long long)expected->step,
        (unsigned long long)expected->digest[0], (unsigned long long)expected->digest[1]);
    return false;
}

static bool receive_rollout(trainer *self, size_t index, uint64_t batch, const exported *weights,
                            const stamp *expected) {
    rollout_message message;
    if (!message_receive(self->samplers[index].socket, MESSAGE_ROLLOUT, &message, sizeof message,
                         self->why, sizeof self->why))
        return sampler_failed(self, index, "it generated rollouts");
    if (message.batch != batch || !stamps_equal(&message.drawn_from, expected))
        return wrong_version(index, "drew its rollouts from", &message.drawn_from, expected);
    self->drawn_from[index] = message.drawn_from;
    self->rollouts[index] = message.data;
    /* One sampler in turn: checking costs as much as generating. */
    if (batch % SAMPLERS != index)
        return true;
    self->rollouts_checked += ROLLOUT_SEQUENCES;
    if (rollout_verify(self->examiner, weights, &message.data))
        return true;
    (void)fprintf(
        stderr,
        "demo: sampler %zu says it drew batch %llu from version %llu, but these weights give "
        "other chances. That is a defect; please report it with the seed.\n",
        index, (unsigned long long)batch, (unsigned long long)expected->step);
    return false;
}

static bool receive_synced(trainer *self, size_t index, synced_message *synced_out) {
    if (!message_receive(self->samplers[index].socket, MESSAGE_SYNCED, synced_out,
                         sizeof *synced_out, self->why, sizeof self->why))
        return sampler_failed(self, index, "it followed the new version");
    if (stamps_equal(&synced_out->version, &self->stamp_present))
        return true;
    return wrong_version(index, "committed", &synced_out->version, &self->stamp_present);
}

/* ---- Publishing -------------------------------------------------------------------------------*/

static bool publisher_failed(trainer *self, const char *what, xorcast_status status) {
    weights_bundle_explain(&self->sync, what, status, self->why, sizeof self->why);
    (void)fprintf(stderr, "demo: %s\n", self->why);
    return false;
}

static bool open_publisher(trainer *self) {
    if (weights_bundle_create(&self->sync, self->weights, self->run->backend, self->why,
                              sizeof self->why) != XORCAST_OK) {
        (void)fprintf(stderr, "demo: %s\n", self->why);
        return false;
    }
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    options.run = "demo";
    options.measure_bound = 1;
    const xorcast_status status =
        xorcast_publisher_open(self->sync.bundle, "tcp:127.0.0.1:0", &options, &self->publisher);
    if (status != XORCAST_OK)
        return publisher_failed(self, "opening the publisher", status);
    xorcast_publisher_stats stats;
    xorcast_publisher_get_stats(self->publisher, &stats);
    self->stamp_before = self->stamp_present = weights_stamp(&stats.version);
    return true;
}

static double percent(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0.0 : 100.0 * (double)part / (double)whole;
}

static bool publish(trainer *self, step_report *report) {
    xorcast_publisher_stats stats;
    const uint64_t begin = now_ns();
    xorcast_status status = weights_bundle_store(&self->sync);
    report->store_ns = self->sync.on_gpu != NULL ? now_ns() - begin : 0;
    if (status == XORCAST_OK)
        status = xorcast_publisher_begin(self->publisher, report->step);
    if (status == XORCAST_OK)
        status = xorcast_publisher_put(self->publisher, self->weights->tensor_count, NULL, NULL);
    if (status == XORCAST_OK)
        status = xorcast_publisher_finish(self->publisher, &stats);
    if (status != XORCAST_OK)
        return publisher_failed(self, "publishing", status);
    report->publish_ns = now_ns() - begin;
    report->encode_ns = stats.encode_ns + stats.frame_ns;
    const xorcast_counts *counts = &stats.delta.counts;
    report->bits_percent = percent(counts->bits_changed, 8 * counts->bytes_covered);
    report->bytes_percent = percent(counts->bytes_changed, counts->bytes_covered);
    report->elements_percent = percent(counts->elements_changed, counts->elements_covered);
    report->bytes_changed = counts->bytes_changed;
    report->full_bytes = self->weights->total_bytes;
    report->wire_bytes = stats.delta.delta_bytes;
    report->bound_bytes = stats.delta.entropy_bound_bytes;
    report->version = self->stamp_present = weights_stamp(&stats.version);
    return true;
}

/* ---- Steps ------------------------------------------------------------------------------------*/

/* Copies the present version, from which the rollouts after the next step will be drawn. */
static void keep_before(trainer *self) {
    for (size_t i = 0; i < self->weights->tensor_count; i++)
        memcpy(self->before->tensors[i].data, self->weights->tensors[i].data,
               self->weights->tensors[i].bytes);
    self->stamp_before = self->stamp_present;
}

static bool take_step(trainer *self, uint64_t step) {
    step_report report = {.step = step, .warmup = step <= self->run->warmup_steps};
    report.rate = report.warmup ? self->run->warmup_rate : self->run->rl_rate;
    self->rewards[step] = learner_reward(self->rollouts, SAMPLERS);
    report.reward = (double)self->rewards[step];
    for (size_t i = 0; i < SAMPLERS; i++) {
        report.samplers[i].drawn_from = self->drawn_from[i];
        report.samplers[i].pid = (uint64_t)self->samplers[i].process;
    }
    keep_before(self);
    const uint64_t begin = now_ns();
    learner_step(self->student, self->rollouts, (float)report.rate);
    report.learn_ns = now_ns() - begin;

    if (!send_orders(self, step + 1, step) || !publish(self, &report))
        return false;
    for (size_t i = 0; i < SAMPLERS; i++)
        if (!receive_rollout(self, i, step + 1, self->before, &self->stamp_before))
            return false;
    for (size_t i = 0; i < SAMPLERS; i++)
        if (!receive_synced(self, i, &report.samplers[i].synced))
            return false;
    display_step(self->screen, &report);
    return true;
}

static bool all_steps(trainer *self) {
    for (size_t i = 0; i < SAMPLERS; i++) {
        stamp first;
        if (!message_receive(self->samplers[i].socket, MESSAGE_READY, &first, sizeof first,
                             self->why, sizeof self->why))
            return sampler_failed(self, i, "it connected");
        if (!stamps_equal(&first, &self->stamp_present))
            return wrong_version(i, "started with", &first, &self->stamp_present);
    }
    if (!send_orders(self, 1, FOLLOW_NOTHING))
        return false;
    for (size_t i = 0; i < SAMPLERS; i++)
        if (!receive_rollout(self, i, 1, self->weights, &self->stamp_present))
            return false;
    for (uint64_t step = 1; step <= self->run->steps; step++)
        if (!take_step(self, step))
            return false;
    return true;
}

/* ---- End --------------------------------------------------------------------------------------*/

/* Compares the bytes that a sampler sends with the trainer's own; counts the equal ones. */
static bool compare_weights(trainer *self, size_t index, unsigned char *buffer,
                            uint64_t *equal_out) {
    uint64_t equal = 0;
    if (!send_order(self, index, NO_BATCH, FOLLOW_NOTHING))
        return false;
    for (size_t i = 0; i < self->weights->tensor_count; i++) {
        const export_tensor *tensor = &self->weights->tensors[i];
        if (!message_receive(self->samplers[index].socket, MESSAGE_TENSOR, buffer, tensor->bytes,
                             self->why, sizeof self->why))
            return sampler_failed(self, index, "it sent its weights for comparison");
        for (size_t j = 0; j < tensor->bytes; j++)
            equal += buffer[j] == tensor->data[j];
    }
    *equal_out = equal;
    return true;
}

static bool compare_all(trainer *self, end_report *report) {
    unsigned char *buffer = malloc(self->weights->total_bytes);
    if (buffer == NULL) {
        (void)fprintf(stderr, "demo: no memory for the comparison\n");
        return false;
    }
    report->full_bytes = self->weights->total_bytes;
    report->equal = true;
    bool received = true;
    for (size_t i = 0; received && i < SAMPLERS; i++) {
        received = compare_weights(self, i, buffer, &report->sampler_bytes_equal[i]);
        report->equal = report->equal && report->sampler_bytes_equal[i] == report->full_bytes;
    }
    free(buffer);
    return received;
}

static double mean_reward(const trainer *self, uint64_t first, uint64_t count) {
    double sum = 0;
    for (uint64_t step = first; step < first + count; step++)
        sum += (double)self->rewards[step];
    return count == 0 ? (double)NAN : sum / (double)count;
}

static bool finish(trainer *self, uint64_t begin_ns) {
    end_report report = {.versions = self->run->steps, .rollouts_checked = self->rollouts_checked};
    if (!compare_all(self, &report))
        return false;
    bool ended = true;
    for (size_t i = 0; i < SAMPLERS; i++) {
        char how[128];
        if (!child_reap(&self->samplers[i], how, sizeof how)) {
            (void)fprintf(stderr, "demo: sampler %zu, after its work, %s\n", i, how);
            ended = false;
        }
    }
    const uint64_t steps = self->run->steps;
    report.reward_window = steps < REWARD_WINDOW ? steps : REWARD_WINDOW;
    report.first_reward = mean_reward(self, 1, report.reward_window);
    report.last_reward = mean_reward(self, steps - report.reward_window + 1, report.reward_window);
    /* The first rollouts of the RL phase's own weights reach the learner two steps into it. */
    const uint64_t rl = self->run->warmup_steps + 2;
    report.rl_reward =
        mean_reward(self, rl, rl + report.reward_window <= steps ? report.reward_window : 0);
    report.seconds_ns = now_ns() - begin_ns;
    display_end(self->screen, &report);
    return report.equal && ended;
}

static bool work(trainer *self) {
    const uint64_t begin = now_ns();
    self->student = learner_create(self->run->format, self->run->seed, SAMPLERS);
    self->before = export_create(self->run->format);
    self->examiner = policy_create(ROLLOUT_SEQUENCES);
    self->rewards = calloc(self->run->steps + 1, sizeof *self->rewards);
    self->screen = display_create(self->run);
    if (self->student == NULL || self->before == NULL || self->examiner == NULL ||
        self->rewards == NULL || self->screen == NULL) {
        (void)fprintf(stderr, "demo: out of memory; 300 MB are needed in all\n");
        return false;
    }
    self->weights = learner_weights(self->student);
    if (!open_publisher(self))
        return false;
    const char *url = xorcast_publisher_url(self->publisher);
    for (size_t i = 0; i < SAMPLERS; i++)
        if (!child_start(&self->samplers[i], self->run, i, url))
            return false;
    display_begin(self->screen, &self->sync, url);
    return all_steps(self) && finish(self, begin);
}

int trainer_run(const settings *run) {
    trainer *self = calloc(1, sizeof *self);
    if (self == NULL) {
        (void)fprintf(stderr, "demo: out of memory\n");
        return 1;
    }
    self->run = run;
    for (size_t i = 0; i < SAMPLERS; i++)
        self->samplers[i].socket = -1;
    const bool good = work(self);
    for (size_t i = 0; i < SAMPLERS; i++)
        child_kill(&self->samplers[i]);
    xorcast_publisher_close(self->publisher);
    weights_bundle_destroy(&self->sync);
    display_destroy(self->screen);
    learner_destroy(self->student);
    export_destroy(self->before);
    policy_destroy(self->examiner);
    free(self->rewards);
    free(self);
    return good ? 0 : 1;
}
