/* A long run in short: a trainer publishes version after version over TCP; one sampler follows all
 * of them, one closes and opens its subscriber again and again, one is killed and starts anew with
 * other weights. In the end all weights are compared by their digests, and a row for each tenth of
 * the run shows what the processes hold: memory, threads, open files. What grows there would grow
 * for a month.
 *
 * The process that the user starts has no thread and does not use the library: it starts the
 * others, kills, waits, and prints. They report through memory that all share. */
#include <dirent.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gen/gen.h"
#include "gen/measure.h"
#include "gen/testbed.h"

#define TENTHS 10u
#define WAIT_MS 60000u

enum { TRAINER, STEADY, REOPENING, KILLED, PROCESSES };
static const char *const names[] = {"trainer", "steady sampler", "reopening sampler",
                                    "killed sampler"};

static const char help[] =
    "usage: soak [options]\n"
    "\n"
    "  --versions N          (20000)\n"
    "  --bytes N[k|m|g]      of weights (4m)\n"
    "  --log N[k|m|g]        bytes that the trainer keeps for late samplers (its own choice)\n"
    "  --dense N             every so many versions, a tenth of all elements changes (1000)\n"
    "  --reopen N            a sampler opens its subscriber again after so many versions (50)\n"
    "  --kill MILLISECONDS   a sampler is killed every so many (2000)\n"
    "  --pause MILLISECONDS  between versions (0)\n";

typedef struct options {
    uint64_t versions, bytes, log, dense, reopen, kill, pause;
} options;

typedef struct sample {
    uint64_t step, resident_bytes, library_bytes, threads, files;
} sample;

typedef struct report {
    sample tenths[TENTHS];
    xorcast_digest digest; /* of the weights at the end */
    uint64_t commits, keyframes, opened;
} report;

typedef struct shared {
    char url[128];
    _Atomic uint64_t published;
    report reports[PROCESSES];
} shared;

/* ---- What a process holds ---------------------------------------------------------------------*/

static uint64_t status_number(const char *key) {
    char line[256];
    uint64_t number = 0;
    FILE *in = fopen("/proc/self/status", "r");
    while (in != NULL && fgets(line, sizeof line, in) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            number = strtoull(line + strlen(key), NULL, 10);
        }
    }
    if (in != NULL) {
        fclose(in);
    }
    return number;
}

static uint64_t open_files(void) {
    uint64_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL) {
        count++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count > 3 ? count - 3 : 0; /* without ".", ".." and the folder itself */
}

/* Once in each tenth of the run, as soon as `step` is in it. */
static void take_sample(report *r, xorcast_context *context, uint64_t step, const options *o) {
    const uint64_t tenth = (step - 1) * TENTHS / o->versions;
    if (step == 0 || r->tenths[tenth].step != 0) {
        return;
    }
    xorcast_memory memory;
    xorcast_context_memory(context, &memory);
    r->tenths[tenth] = (sample){step, 1024 * status_number("VmRSS:"), memory.now_bytes,
                                status_number("Threads:"), open_files()};
}

/* ---- The trainer and the samplers -------------------------------------------------------------*/

typedef struct weights {
    gen_plan plan;
    uint64_t *offsets;
    uint64_t memory_bytes;
    uint8_t *memory;
    xorcast_context *context;
    xorcast_bundle *bundle;
} weights;

/* All zero. */
static weights make_weights(const options *o) {
    weights w = {0};
    if (gen_plan_model(&w.plan, GEN_BF16, o->bytes) != 0) {
        testbed_must(NULL, XORCAST_NO_HOST_MEMORY, "plan");
    }
    w.offsets = testbed_offsets(&w.plan, &w.memory_bytes);
    w.memory = measure_allocate(w.memory_bytes);
    if (w.memory == NULL) {
        testbed_must(NULL, XORCAST_NO_HOST_MEMORY, "weights");
    }
    w.context = testbed_context(1);
    w.bundle = testbed_bundle(w.context, &w.plan, w.offsets, w.memory);
    testbed_must(w.context, xorcast_bundle_seal(w.bundle, NULL), "seal");
    return w;
}

static void free_weights(weights *w, report *r) {
    testbed_must(w->context, xorcast_bundle_digest(w->bundle, &r->digest), "digest");
    xorcast_bundle_destroy(w->bundle);
    xorcast_context_destroy(w->context);
    measure_free(w->memory, w->memory_bytes);
    free(w->offsets);
    gen_plan_free(&w->plan);
}

/* Every seventh changes nothing. */
static void optimizer_step(weights *w, uint64_t step, const options *o) {
    if (step % 7 == 0) {
        return;
    }
    gen_plan_set_density(&w->plan, GEN_BF16, step % o->dense == 0 ? 0.1 : 2e-4);
    testbed_advance(&(gen_run){.plan = &w->plan, .seed = 1}, w->offsets, step, w->memory);
}

/* Until the end of `wait_for`, a pipe: samplers may still fetch. */
static void train(const options *o, shared *all, int tell, int wait_for) {
    report *r = &all->reports[TRAINER];
    weights w = make_weights(o);
    xorcast_publisher_options publishing = XORCAST_PUBLISHER_OPTIONS_INIT;
    xorcast_publisher *publisher;
    char nothing;
    publishing.log_bytes = o->log;
    testbed_fill(&(gen_run){.plan = &w.plan, .seed = 1}, w.offsets, w.memory);
    testbed_must(w.context,
                 xorcast_publisher_open(w.bundle, "tcp:127.0.0.1:0", &publishing, &publisher),
                 "publisher");
    r->opened = 1;
    snprintf(all->url, sizeof all->url, "%s", xorcast_publisher_url(publisher));
    close(tell);
    for (uint64_t step = 1; step <= o->versions; step++) {
        optimizer_step(&w, step, o);
        testbed_must(w.context, xorcast_publisher_begin(publisher, step), "begin");
        testbed_must(w.context, xorcast_publisher_put(publisher, 0, NULL, NULL), "put");
        testbed_must(w.context, xorcast_publisher_finish(publisher, NULL), "finish");
        all->published = step;
        take_sample(r, w.context, step, o);
        usleep((useconds_t)(o->pause * 1000));
    }
    while (read(wait_for, &nothing, 1) > 0) {
    }
    xorcast_publisher_close(publisher);
    free_weights(&w, r);
}

/* Returns the step of the weights. */
static uint64_t follow_one(weights *w, xorcast_subscriber *subscriber) {
    xorcast_version now;
    uint64_t step;
    xorcast_status status = xorcast_subscriber_poll(subscriber, WAIT_MS, &step);
    if (status == XORCAST_OK) {
        status = xorcast_subscriber_stage(subscriber, step, WAIT_MS);
    }
    if (status == XORCAST_VERSION_GONE || status == XORCAST_BASE_MISMATCH) {
        testbed_must(w->context, xorcast_subscriber_keyframe(subscriber, WAIT_MS), "keyframe");
    } else {
        testbed_must(w->context, status, "poll and stage");
        testbed_must(w->context, xorcast_subscriber_commit(subscriber, NULL), "commit");
        testbed_must(w->context, xorcast_subscriber_wait(subscriber, WAIT_MS), "wait");
    }
    xorcast_subscriber_current(subscriber, &now);
    return now.step;
}

static void sample_and_follow(const options *o, const char *url, report *r, uint64_t reopen) {
    weights w = make_weights(o);
    xorcast_subscriber *subscriber;
    xorcast_subscriber_stats stats;
    for (uint64_t step = 0; step != o->versions; r->opened++) {
        testbed_must(w.context, xorcast_subscriber_open(w.bundle, url, NULL, &subscriber), "open");
        for (uint64_t i = 0; step != o->versions && (reopen == 0 || i < reopen); i++) {
            step = follow_one(&w, subscriber);
            take_sample(r, w.context, step, o);
        }
        xorcast_subscriber_get_stats(subscriber, &stats);
        r->commits += stats.commits;
        r->keyframes += stats.keyframes;
        xorcast_subscriber_close(subscriber);
    }
    free_weights(&w, r);
}

/* ---- The process that starts them -------------------------------------------------------------*/

/* Returns in the child, 0. */
static pid_t start(void) {
    const pid_t pid = fork();
    if (pid < 0) {
        testbed_must(NULL, XORCAST_NO_HOST_MEMORY, "fork");
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return pid;
}

static pid_t start_sampler(const options *o, shared *all, int which) {
    const pid_t pid = start();
    if (pid == 0) {
        sample_and_follow(o, all->url, &all->reports[which], which == REOPENING ? o->reopen : 0);
        _exit(0);
    }
    return pid;
}

static void ended_well(pid_t pid, int which) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (status != 0) {
        fprintf(stderr, "the %s ended with status %d\n", names[which], status);
        exit(1);
    }
}

/* Has it ended? Its status stays to be fetched. */
static bool is_over(pid_t pid) {
    siginfo_t facts = {0};
    return waitid(P_PID, (id_t)pid, &facts, WEXITED | WNOHANG | WNOWAIT) != 0 || facts.si_pid != 0;
}

/* Until the trainer has published all, a sampler is killed now and then. Returns how often. */
static uint64_t kill_now_and_then(const options *o, shared *all, pid_t trainer, pid_t *sampler) {
    uint64_t kills = 0;
    double last = measure_now();
    while (all->published < o->versions && !is_over(trainer)) {
        usleep(20000);
        if (measure_now() - last < 1e-3 * (double)o->kill || o->kill == 0) {
            continue;
        }
        last = measure_now();
        kill(*sampler, SIGKILL);
        waitpid(*sampler, NULL, 0);
        *sampler = start_sampler(o, all, KILLED);
        kills++;
    }
    return kills;
}

/* Returns how often a sampler was killed, when all have ended. */
static uint64_t run_all(const options *o, shared *all) {
    pid_t pids[PROCESSES];
    int url_ready[2], all_done[2];
    char nothing;
    if (pipe(url_ready) != 0 || pipe(all_done) != 0) {
        testbed_must(NULL, XORCAST_NO_HOST_MEMORY, "pipe");
    }
    if ((pids[TRAINER] = start()) == 0) {
        close(all_done[1]);
        train(o, all, url_ready[1], all_done[0]);
        _exit(0);
    }
    close(url_ready[1]);
    while (read(url_ready[0], &nothing, 1) > 0) {
    }
    if (all->url[0] == '\0') {
        ended_well(pids[TRAINER], TRAINER);
    }
    for (int i = STEADY; i < PROCESSES; i++) {
        pids[i] = start_sampler(o, all, i);
    }
    const uint64_t kills = kill_now_and_then(o, all, pids[TRAINER], &pids[KILLED]);
    if (all->published < o->versions) {
        ended_well(pids[TRAINER], TRAINER);
    }
    for (int i = STEADY; i < PROCESSES; i++) {
        ended_well(pids[i], i);
    }
    close(all_done[1]);
    ended_well(pids[TRAINER], TRAINER);
    return kills;
}

/* ---- Rows -------------------------------------------------------------------------------------*/

static void print_tenths(const shared *all, int which, int argc, char **argv) {
    for (uint32_t i = 0; i < TENTHS; i++) {
        const sample *s = &all->reports[which].tenths[i];
        if (s->step == 0) {
            continue; /* it went from one tenth to the next but one */
        }
        measure_row("soak_tenth", argc, argv);
        measure_text("process", names[which]);
        measure_count("step", s->step);
        measure_count("resident_bytes", s->resident_bytes);
        measure_count("library_bytes", s->library_bytes);
        measure_count("threads", s->threads);
        measure_count("files", s->files);
        measure_row_end();
    }
}

static bool print_end(const options *o, const shared *all, uint64_t kills, double seconds, int argc,
                      char **argv) {
    const report *trainer = &all->reports[TRAINER];
    bool equal = true;
    for (int i = STEADY; i < PROCESSES; i++) {
        equal &= memcmp(&all->reports[i].digest, &trainer->digest, sizeof trainer->digest) == 0;
    }
    measure_row("soak", argc, argv);
    measure_count("versions", all->published);
    measure_count("weight_bytes", o->bytes);
    measure_number("seconds", seconds);
    measure_count("kills", kills);
    measure_count("reopened", all->reports[REOPENING].opened - 1);
    measure_count("commits", all->reports[STEADY].commits);
    measure_count("keyframes_killed", all->reports[KILLED].keyframes);
    measure_text("digests", equal ? "equal" : "different");
    measure_row_end();
    const sample *half = &trainer->tenths[TENTHS / 2], *end = &trainer->tenths[TENTHS - 1];
    fprintf(stderr,
            "%llu versions in %.0f s, %llu kills: digests %s; the trainer held %.1f MB at half of "
            "the run, %.1f MB at its end\n",
            (unsigned long long)all->published, seconds, (unsigned long long)kills,
            equal ? "equal" : "DIFFERENT", 1e-6 * (double)half->resident_bytes,
            1e-6 * (double)end->resident_bytes);
    return equal;
}

static bool parse(int argc, char **argv, options *o) {
    static const struct option table[] = {
        {"versions", 1, NULL, 'v'}, {"bytes", 1, NULL, 'b'},  {"log", 1, NULL, 'l'},
        {"dense", 1, NULL, 'd'},    {"reopen", 1, NULL, 'r'}, {"kill", 1, NULL, 'k'},
        {"pause", 1, NULL, 'p'},    {"help", 0, NULL, 'h'},   {NULL, 0, NULL, 0}};
    static const char letters[] = "vbldrkp";
    uint64_t *const values[] = {&o->versions, &o->bytes, &o->log,  &o->dense,
                                &o->reopen,   &o->kill,  &o->pause};
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        const char *at = strchr(letters, c);
        if (at == NULL) {
            fputs(help, c == 'h' ? stdout : stderr);
            exit(c == 'h' ? 0 : 2);
        }
        *values[at - letters] = testbed_size(optarg);
    }
    return optind == argc && o->versions >= TENTHS && o->dense > 0 && o->reopen > 0;
}

int main(int argc, char **argv) {
    options o = {.versions = 20000, .bytes = 4000000, .dense = 1000, .reopen = 50, .kill = 2000};
    if (!parse(argc, argv, &o)) {
        fputs(help, stderr);
        return 2;
    }
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        testbed_must(NULL, XORCAST_NO_HOST_MEMORY, "shared memory");
    }
    const double start_time = measure_now();
    const uint64_t kills = run_all(&o, all);
    for (int i = TRAINER; i < PROCESSES; i++) {
        print_tenths(all, i, argc, argv);
    }
    return print_end(&o, all, kills, measure_now() - start_time, argc, argv) ? 0 : 1;
}
