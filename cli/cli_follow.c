/* xorcast follow: a sampler without a model. Holds a checkpoint's weights in memory, keeps them in
 * step with a publisher, and may write them to disk at the end. */
#include "cli_commands.h"
#include "cli_files.h"
#include "cli_info.h"
#include "cli_stop.h"
#include "cli_weights.h"
#include "cli_words.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define LOOK_MS 200u  /* how long a poll may keep a signal waiting */
#define AGAIN_MS 100u /* before something that failed for a moment is tried again */

typedef struct follower {
    cli_session *session;
    cli_weights weights;
    xorcast_subscriber *subscriber;
    xorcast_version version; /* of the weights */
    uint64_t versions;       /* brought so far */
    uint64_t keyframe_bytes; /* received before the version that is brought */
    uint64_t news_ns;        /* when something last happened */
    xorcast_error trouble;   /* that is being retried; status OK: none */
} follower;

/* ---- Words ------------------------------------------------------------------------------------*/

/* null: the weights are no version that the publisher knows. */
static void put_version(cli_json *json, const follower *f) {
    if (f->version.step == XORCAST_NO_STEP)
        cli_json_null(json, "version");
    else
        cli_version_json(json, "version", &f->version);
}

static void print_opened(const follower *f) {
    const cli_options *o = &f->session->options;
    if (o->quiet)
        return;
    if (o->json) {
        cli_json json = cli_json_begin(stdout);
        cli_json_text(&json, "event", "open");
        put_version(&json, f);
        cli_json_count(&json, "total_bytes", f->weights.layout.total_bytes);
        cli_json_count(&json, "tensor_count", f->weights.layout.tensor_count);
        cli_json_end(&json);
        return;
    }
    printf("%s in %s tensors, ", cli_bytes((double)f->weights.layout.total_bytes).text,
           cli_count(f->weights.layout.tensor_count).text);
    if (f->version.step == XORCAST_NO_STEP) {
        puts("no version that the publisher knows");
    } else {
        fputs("run ", stdout);
        cli_put_plain(stdout, f->version.run);
        printf(", step %" PRIu64 "\n", f->version.step);
    }
    printf("%8s %-10s %9s %9s %9s %9s %9s  %s\n", "step", "by", "changed", "wire", "ship", "stage",
           "pause", "digest");
    fflush(stdout);
}

/* A keyframe compares and copies: the library counts its bytes, and no changes or times. */
static void put_known(cli_json *json, const char *key, bool keyframe, uint64_t count) {
    if (keyframe)
        cli_json_null(json, key);
    else
        cli_json_count(json, key, count);
}

static void print_version_json(const xorcast_subscriber_stats *stats, bool keyframe,
                               uint64_t wire_bytes, bool audited) {
    cli_json json = cli_json_begin(stdout);
    cli_json_text(&json, "event", "version");
    cli_version_json(&json, "version", &stats->version);
    cli_json_text(&json, "by", keyframe ? "keyframe" : "delta");
    cli_json_count(&json, "deltas_folded", keyframe ? 0 : stats->deltas_folded);
    put_known(&json, "bits_changed", keyframe, stats->counts.bits_changed);
    put_known(&json, "bytes_changed", keyframe, stats->counts.bytes_changed);
    put_known(&json, "elements_changed", keyframe, stats->counts.elements_changed);
    put_known(&json, "bytes_covered", keyframe, stats->counts.bytes_covered);
    cli_json_count(&json, "wire_bytes", wire_bytes);
    put_known(&json, "ship_ns", keyframe, stats->ship_ns);
    put_known(&json, "stage_ns", keyframe, stats->stage_ns);
    put_known(&json, "pause_ns", keyframe, stats->commit_ns);
    cli_json_count(&json, "keyframes", stats->keyframes);
    cli_json_count(&json, "keyframe_bytes", stats->keyframe_bytes);
    cli_json_count(&json, "memory_high_water_bytes", stats->memory.high_water_bytes);
    cli_json_bool(&json, "audited", audited);
    cli_json_end(&json);
}

static void print_version(follower *f, bool keyframe) {
    const cli_options *o = &f->session->options;
    xorcast_subscriber_stats stats;
    char by[32] = "delta";
    xorcast_subscriber_get_stats(f->subscriber, &stats);
    const uint64_t wire_bytes =
        keyframe ? stats.keyframe_bytes - f->keyframe_bytes : stats.wire_bytes;
    f->keyframe_bytes = stats.keyframe_bytes;
    if (o->quiet)
        return;
    if (o->json) {
        print_version_json(&stats, keyframe, wire_bytes, o->audit);
        return;
    }
    if (keyframe)
        snprintf(by, sizeof by, "keyframe");
    else if (stats.deltas_folded > 1)
        snprintf(by, sizeof by, "%" PRIu64 " deltas", stats.deltas_folded);
    const xorcast_counts *counts = &stats.counts;
    const cli_words unknown = {"-"};
    const cli_words changed =
        cli_percent((double)counts->bytes_changed, (double)counts->bytes_covered);
    printf("%8" PRIu64 " %-10s %9s %9s %9s %9s %9s  %s\n", f->version.step, by,
           (keyframe ? unknown : changed).text, cli_bytes((double)wire_bytes).text,
           (keyframe ? unknown : cli_time(stats.ship_ns)).text,
           (keyframe ? unknown : cli_time(stats.stage_ns)).text,
           (keyframe ? unknown : cli_time(stats.commit_ns)).text,
           cli_digest(f->version.digest).text);
    fflush(stdout);
}

static void print_end(const follower *f, bool saved) {
    const cli_options *o = &f->session->options;
    if (o->quiet)
        return;
    if (o->json) {
        cli_json json = cli_json_begin(stdout);
        cli_json_text(&json, "event", "end");
        put_version(&json, f);
        cli_json_count(&json, "versions", f->versions);
        cli_json_text(&json, "output", saved ? o->output : NULL);
        cli_json_end(&json);
    } else if (saved) {
        printf("wrote step %" PRIu64 " to %s\n", f->version.step, o->output);
    }
}

/* For people; JSON says it with "output":null. */
static void print_not_written(const follower *f) {
    const cli_options *o = &f->session->options;
    if (o->json)
        return;
    fprintf(stderr, "xorcast follow: %s not written: ", o->output);
    if (o->until == CLI_NO_NUMBER)
        fprintf(stderr, "%" PRIu64 " of %" PRIu64 " versions came\n", f->versions, o->versions);
    else if (f->version.step == XORCAST_NO_STEP)
        fprintf(stderr, "no step of %" PRIu64 " was reached\n", o->until);
    else
        fprintf(stderr, "step %" PRIu64 " of %" PRIu64 " was reached\n", f->version.step, o->until);
}

/* ---- Versions ---------------------------------------------------------------------------------*/

static bool needs_keyframe(xorcast_status status) {
    return status == XORCAST_VERSION_GONE || status == XORCAST_BASE_MISMATCH;
}

/* What may be well a moment later, with the same publisher. */
static bool may_pass(xorcast_status status) {
    return status == XORCAST_LINK_DOWN || status == XORCAST_LINK_REFUSED ||
           status == XORCAST_TIMED_OUT || status == XORCAST_DATA_TRUNCATED ||
           status == XORCAST_DATA_CORRUPT || status == XORCAST_WEIGHTS_WRONG;
}

/* Takes the weights to `step` or, by keyframe, to the newest. */
static xorcast_status bring(follower *f, uint64_t step, bool *keyframe_out) {
    const uint64_t timeout_ms = f->session->options.timeout_ms;
    const bool has_version = f->version.step != XORCAST_NO_STEP;
    const xorcast_status status = has_version
                                      ? xorcast_subscriber_stage(f->subscriber, step, timeout_ms)
                                      : XORCAST_VERSION_GONE;
    *keyframe_out = needs_keyframe(status);
    if (*keyframe_out)
        return xorcast_subscriber_keyframe(f->subscriber, timeout_ms);
    CLI_TRY(status);
    CLI_TRY(xorcast_subscriber_commit(f->subscriber, NULL));
    return xorcast_subscriber_wait(f->subscriber, timeout_ms);
}

static xorcast_status take_one(follower *f) {
    uint64_t step = 0;
    bool keyframe = false;
    if (f->version.step != XORCAST_NO_STEP) {
        const xorcast_status status = xorcast_subscriber_poll(f->subscriber, LOOK_MS, &step);
        if (status != XORCAST_OK && !needs_keyframe(status))
            return status;
    }
    const xorcast_status status = bring(f, step, &keyframe);
    xorcast_subscriber_current(f->subscriber, &f->version);
    CLI_TRY(status);
    if (f->session->options.audit)
        CLI_TRY(xorcast_subscriber_audit(f->subscriber, 0));
    f->versions++;
    print_version(f, keyframe);
    return XORCAST_OK;
}

static bool has_goal(const cli_options *o) {
    return o->until != CLI_NO_NUMBER || o->versions != CLI_NO_NUMBER;
}

static bool is_done(const follower *f) {
    const cli_options *o = &f->session->options;
    const bool there = o->until != CLI_NO_NUMBER && f->version.step != XORCAST_NO_STEP &&
                       f->version.step >= o->until;
    return there || (o->versions != CLI_NO_NUMBER && f->versions >= o->versions);
}

/* Nothing new for too long: the trouble that is the reason, or that there was none. */
static xorcast_status check_patience(follower *f) {
    const uint64_t patience_ns = f->session->options.timeout_ms * 1000000;
    if (cli_now_ns() - f->news_ns < patience_ns)
        return XORCAST_OK;
    if (f->trouble.status == XORCAST_LINK_REFUSED) /* by an address that did answer before */
        return cli_fail(f->session, XORCAST_LINK_DOWN, f->trouble.os_error,
                        "the publisher is gone and did not come back: %.400s", f->trouble.text);
    if (f->trouble.status != XORCAST_OK) {
        f->session->failure = f->trouble;
        return f->trouble.status;
    }
    return cli_fail(f->session, XORCAST_TIMED_OUT, 0,
                    "no new version for %s; --timeout waits longer", cli_time(patience_ns).text);
}

static xorcast_status follow(follower *f) {
    f->news_ns = cli_now_ns();
    while (!is_done(f)) {
        CLI_TRY(cli_stop_check(f->session));
        const xorcast_status status = take_one(f);
        if (status == XORCAST_OK) {
            f->news_ns = cli_now_ns();
            f->trouble.status = XORCAST_OK;
            continue;
        }
        if (may_pass(status)) {
            f->trouble = cli_failure(f->session, status);
            cli_sleep_ms(AGAIN_MS);
        } else if (status == XORCAST_NOTHING_NEW) {
            f->trouble.status = XORCAST_OK;
        }
        CLI_TRY(may_pass(status) || status > 0 ? XORCAST_OK : status);
        CLI_TRY(check_patience(f));
    }
    return XORCAST_OK;
}

/* ---- The command ------------------------------------------------------------------------------*/

static bool is_empty(const char *path) {
    DIR *directory = opendir(path);
    bool empty = true;
    if (directory == NULL)
        return true; /* whoever writes there says what is wrong */
    for (struct dirent *entry; empty && (entry = readdir(directory)) != NULL;)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(directory);
    return empty;
}

/* The library refuses this too, but only when the checkpoint is written, at the very end. */
static xorcast_status check_output(cli_session *session) {
    const cli_options *o = &session->options;
    struct stat in, out;
    if (o->output == NULL || cli_same_file(o->output, o->operands[1]) ||
        stat(o->operands[1], &in) != 0)
        return XORCAST_OK;
    if (stat(o->output, &out) != 0)
        return cli_output_place(session, o->output);
    if (S_ISDIR(in.st_mode) ? !S_ISDIR(out.st_mode) : !S_ISREG(out.st_mode))
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "%.200s is no %s, as %.200s is; choose another output", o->output,
                        S_ISDIR(in.st_mode) ? "directory" : "regular file", o->operands[1]);
    if (S_ISDIR(out.st_mode) && !is_empty(o->output))
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "%.400s is a directory with files in it; choose another output", o->output);
    return XORCAST_OK;
}

static xorcast_status open_all(follower *f) {
    const cli_options *o = &f->session->options;
    xorcast_subscriber_options options = XORCAST_SUBSCRIBER_OPTIONS_INIT;
    options.insecure = o->insecure;
    options.timeout_ms = o->timeout_ms;
    CLI_TRY(cli_weights_open(f->session, o->operands[1], &f->weights));
    CLI_TRY(xorcast_subscriber_open(f->weights.bundle, o->operands[0], &options, &f->subscriber));
    xorcast_subscriber_current(f->subscriber, &f->version);
    print_opened(f);
    return XORCAST_OK;
}

/* Whole weights are worth keeping however the following ended, unless it was to end elsewhere. */
static xorcast_status save(follower *f, xorcast_status ended, bool *saved_out) {
    const cli_options *o = &f->session->options;
    const bool wanted = ended == XORCAST_OK || !has_goal(o);
    *saved_out = false;
    if (o->output == NULL || !wanted || f->version.step == XORCAST_NO_STEP)
        return XORCAST_OK;
    CLI_TRY(cli_weights_save(f->session, &f->weights, o->operands[1], o->output));
    *saved_out = true;
    return XORCAST_OK;
}

xorcast_status cli_follow(cli_session *session) {
    follower f = {.session = session};
    CLI_TRY(cli_refuse_inproc(session, session->options.operands[0]));
    CLI_TRY(cli_stop_catch(session));
    CLI_TRY(check_output(session));
    xorcast_status status = open_all(&f);
    if (status == XORCAST_OK) {
        bool saved;
        status = follow(&f);
        const xorcast_error failure = cli_failure(session, status);
        const xorcast_status saving = save(&f, status, &saved);
        print_end(&f, saved);
        if (status < 0 && has_goal(&session->options) && session->options.output != NULL)
            print_not_written(&f);
        if (status < 0)
            session->failure = failure; /* the first failure is the one to report */
        else
            status = saving;
    }
    xorcast_subscriber_close(f.subscriber);
    cli_weights_close(&f.weights);
    return status;
}
