/* The demo's output for people: a table that grows by a line each step, on a terminal with a live
 * line under it, and a summary. json_lines.c writes the same reports for machines. */
#include "display.h"

#include "json_lines.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LONGEST_LINE                                                                               \
    240 /* of the reward's curve, in characters; wider terminals leave the rest empty */

/* Sums over the steps of a phase. */
typedef struct phase_sums {
    uint64_t steps, wire_bytes, full_bytes, pause_ns;
    double bytes_percent;
} phase_sums;

struct display {
    const settings *run;
    bool live; /* standard output is a terminal */
    float *rewards;
    uint64_t steps;
    phase_sums warmup, rl;
    uint64_t longest_pause_ns;
    uint64_t follow_ns, overlap_ns; /* fetching and staging; of that, beside generation */
};

display *display_create(const settings *run) {
    display *self = calloc(1, sizeof *self);
    if (self == NULL)
        return NULL;
    self->run = run;
    self->live = !run->json && isatty(STDOUT_FILENO) == 1;
    self->rewards = calloc(run->steps + 1, sizeof *self->rewards);
    if (self->rewards != NULL)
        return self;
    free(self);
    return NULL;
}

/* Leaves the cursor on a line of its own, also when the run broke off under a live line. */
void display_destroy(display *self) {
    if (self == NULL)
        return;
    if (self->live && self->steps > 0)
        (void)fputs("\r\033[K", stdout);
    (void)fflush(stdout);
    free(self->rewards);
    free(self);
}

/* ---- Numbers ----------------------------------------------------------------------------------*/

typedef struct words {
    char text[24];
} words;

static words bytes_in_words(double bytes) {
    words out;
    if (bytes < 1e3)
        (void)snprintf(out.text, sizeof out.text, "%.0f B", bytes);
    else if (bytes < 1e6)
        (void)snprintf(out.text, sizeof out.text, "%.1f kB", bytes / 1e3);
    else if (bytes < 1e9)
        (void)snprintf(out.text, sizeof out.text, "%.2f MB", bytes / 1e6);
    else
        (void)snprintf(out.text, sizeof out.text, "%.2f GB", bytes / 1e9);
    return out;
}

static words time_in_words(uint64_t ns) {
    words out;
    if (ns < 1000000)
        (void)snprintf(out.text, sizeof out.text, "%.0f us", (double)ns / 1e3);
    else if (ns < 1000000000)
        (void)snprintf(out.text, sizeof out.text, "%.1f ms", (double)ns / 1e6);
    else
        (void)snprintf(out.text, sizeof out.text, "%.2f s", (double)ns / 1e9);
    return out;
}

static double ratio(uint64_t full, uint64_t wire) {
    return wire == 0 ? 0.0 : (double)full / (double)wire;
}

/* ---- The live line ----------------------------------------------------------------------------*/

static size_t terminal_width(void) {
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 80;
    return size.ws_col;
}

/* The reward's curve, the newest steps at the right end. */
static void draw_curve(const display *self, size_t width) {
    /* Blocks of one to eight eighths, U+2581 to U+2588 in UTF-8. */
    static const char *const heights[8] = {"\xE2\x96\x81", "\xE2\x96\x82", "\xE2\x96\x83",
                                           "\xE2\x96\x84", "\xE2\x96\x85", "\xE2\x96\x86",
                                           "\xE2\x96\x87", "\xE2\x96\x88"};
    width = width < LONGEST_LINE ? width : LONGEST_LINE;
    const uint64_t first = self->steps > width ? self->steps - width : 0;
    for (uint64_t i = first; i < self->steps; i++) {
        const size_t height = (size_t)(self->rewards[i] * 8.0F);
        (void)fputs(heights[height < 8 ? height : 7], stdout);
    }
}

static void draw_live_line(const display *self) {
    char ending[64];
    (void)snprintf(ending, sizeof ending, " %.3f  step %llu of %llu",
                   (double)self->rewards[self->steps - 1], (unsigned long long)self->steps,
                   (unsigned long long)self->run->steps);
    const size_t taken = strlen("reward ") + strlen(ending) + 1;
    const size_t width = terminal_width();
    if (width <= taken)
        return;
    (void)fputs("reward ", stdout);
    draw_curve(self, width - taken);
    (void)fputs(ending, stdout);
}

/* ---- Reports ----------------------------------------------------------------------------------*/

static void print_place(const settings *run, const weights_bundle *sync) {
    const xorcast_device *device = &sync->device;
    if (sync->on_gpu != NULL)
        (void)printf("Published weights and the samplers' live weights are on the GPU: %s %d, %s "
                     "(%s);\nthe policy computes on the host, from copies.\n",
                     device->backend, device->number, device->name, device->architecture);
    else
        (void)printf("Published weights and the samplers' live weights are in host memory.\n");
    if (run->no_gpu[0] != 0)
        (void)printf("All of this works without a GPU. None is used here: %s.\n", run->no_gpu);
}

void display_begin(display *self, const weights_bundle *sync, const char *url) {
    const settings *run = self->run;
    const exported *weights = sync->weights;
    if (run->json) {
        json_begin(run, sync, url);
        return;
    }
    (void)printf("A policy of %.1f million parameters learns to say four digits backwards.\n"
                 "%zu tensors, %s as %s; the trainer publishes at %s, %d samplers follow.\n"
                 "%llu steps of warm-up at %g, %llu steps of RL at %g, seed %llu.\n",
                 (double)weights->table.value_count / 1e6, weights->tensor_count,
                 bytes_in_words((double)weights->total_bytes).text, export_format_name(run->format),
                 url, SAMPLERS, (unsigned long long)run->warmup_steps, run->warmup_rate,
                 (unsigned long long)(run->steps - run->warmup_steps), run->rl_rate,
                 (unsigned long long)run->seed);
    print_place(run, sync);
    (void)printf("\n%4s %-5s%7s %8s %8s %8s %9s %8s %9s %8s %8s %8s %8s  %s\n", "step", "phase",
                 "reward", "bits %", "bytes %", "elems %", "wire", "ratio", "bound", "encode",
                 "ship", "stage", "pause", "digest");
    (void)fflush(stdout);
}

static void print_step(const step_report *report, const synced_message *slowest) {
    (void)printf("%4llu %-5s%7.3f %8.4f %8.4f %8.4f %9s %7.1fx %9s %8s %8s %8s %8s  %08llx\n",
                 (unsigned long long)report->step, report->warmup ? "warm" : "rl", report->reward,
                 report->bits_percent, report->bytes_percent, report->elements_percent,
                 bytes_in_words((double)report->wire_bytes).text,
                 ratio(report->full_bytes, report->wire_bytes),
                 bytes_in_words(report->bound_bytes).text, time_in_words(report->encode_ns).text,
                 time_in_words(slowest->ship_ns).text, time_in_words(slowest->stage_ns).text,
                 time_in_words(slowest->pause_ns).text,
                 (unsigned long long)(report->version.digest[0] >> 32));
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Adds the step to the sums; the slowest of the samplers in each time stands for all. */
static synced_message take_in(display *self, const step_report *report) {
    phase_sums *phase = report->warmup ? &self->warmup : &self->rl;
    synced_message slowest = {0};
    for (size_t i = 0; i < SAMPLERS; i++) {
        const synced_message *synced = &report->samplers[i].synced;
        slowest.ship_ns = larger(slowest.ship_ns, synced->ship_ns);
        slowest.stage_ns = larger(slowest.stage_ns, synced->stage_ns);
        slowest.pause_ns = larger(slowest.pause_ns, synced->pause_ns);
        phase->pause_ns += synced->pause_ns;
        self->follow_ns += synced->follow_ns;
        self->overlap_ns += synced->overlap_ns;
    }
    self->longest_pause_ns = larger(self->longest_pause_ns, slowest.pause_ns);
    phase->steps++;
    phase->wire_bytes += report->wire_bytes * SAMPLERS;
    phase->full_bytes += report->full_bytes * SAMPLERS;
    phase->bytes_percent += report->bytes_percent;
    self->rewards[self->steps++] = (float)report->reward;
    return slowest;
}

void display_step(display *self, const step_report *report) {
    const synced_message slowest = take_in(self, report);
    if (self->run->json) {
        json_step(report);
        return;
    }
    if (self->live)
        (void)fputs("\r\033[K", stdout);
    print_step(report, &slowest);
    if (self->live)
        draw_live_line(self);
    (void)fflush(stdout);
}

static void print_phase(const char *name, const phase_sums *phase) {
    if (phase->steps == 0)
        return;
    (void)printf("%-9s %llu versions to %d samplers: %s as deltas, %s as full copies, %.1fx less; "
                 "%.3f %% of bytes changed a step, %s of pause\n",
                 name, (unsigned long long)phase->steps, SAMPLERS,
                 bytes_in_words((double)phase->wire_bytes).text,
                 bytes_in_words((double)phase->full_bytes).text,
                 ratio(phase->full_bytes, phase->wire_bytes),
                 phase->bytes_percent / (double)phase->steps,
                 time_in_words(phase->pause_ns / (phase->steps * SAMPLERS)).text);
}

static void print_rewards(const end_report *report) {
    if (report->reward_window == 0)
        return;
    (void)printf("reward    %.3f at first", report->first_reward);
    if (!isnan(report->rl_reward))
        (void)printf(", %.3f after warm-up", report->rl_reward);
    (void)printf(", %.3f at last (means of %llu steps)\n", report->last_reward,
                 (unsigned long long)report->reward_window);
}

void display_end(display *self, const end_report *report) {
    if (self->run->json) {
        json_end(report);
        return;
    }
    (void)printf("%s\n", self->live ? "\r\033[K" : "");
    print_phase("warm-up", &self->warmup);
    print_phase("RL", &self->rl);
    print_rewards(report);
    (void)printf("pause     %s at most; %.0f %% of fetching and staging went on beside "
                 "generation\n",
                 time_in_words(self->longest_pause_ns).text,
                 self->follow_ns == 0 ? 0.0
                                      : 100.0 * (double)self->overlap_ns / (double)self->follow_ns);
    (void)printf(
        "checked   every rollout's version; %llu rollouts computed again, bit for bit the same\n",
        (unsigned long long)report->rollouts_checked);
    for (size_t i = 0; i < SAMPLERS; i++)
        (void)printf("sampler %zu %llu of %llu bytes equal the trainer's\n", i,
                     (unsigned long long)report->sampler_bytes_equal[i],
                     (unsigned long long)report->full_bytes);
    (void)printf("%s, in %.1f s\n", report->equal ? "All equal" : "NOT EQUAL",
                 (double)report->seconds_ns / 1e9);
    (void)fflush(stdout);
    self->steps = 0; /* no live line is left to be cleared */
}
