/* xorcast publish: a directory of consecutive checkpoints, replayed as a trainer would publish
 * them. Loads each into memory and serves it as a version. */
#include "cli_commands.h"
#include "cli_files.h"
#include "cli_info.h"
#include "cli_steps.h"
#include "cli_stop.h"
#include "cli_weights.h"
#include "cli_words.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define LOOK_MS 20u          /* how often peers are counted while waiting for them */
#define LAST_PEERS_MS 30000u /* for followers to take the last version */

typedef struct publication {
    cli_session *session;
    cli_steps steps;
    cli_weights weights;
    xorcast_publisher *publisher;
} publication;

/* ---- Words ------------------------------------------------------------------------------------*/

static void print_opened(const publication *p, const char *url) {
    const cli_options *o = &p->session->options;
    xorcast_publisher_stats stats;
    xorcast_publisher_get_stats(p->publisher, &stats);
    if (o->json) {
        cli_json json = cli_json_begin(stdout);
        cli_json_text(&json, "event", "open");
        cli_json_text(&json, "url", url);
        cli_version_json(&json, "version", &stats.version);
        cli_json_count(&json, "total_bytes", p->weights.layout.total_bytes);
        cli_json_count(&json, "tensor_count", p->weights.layout.tensor_count);
        cli_json_count(&json, "steps", p->steps.count);
        cli_json_end(&json);
        return;
    }
    printf("%s\n", url);
    if (!o->quiet) {
        printf("run %s, step %" PRIu64 ", %s in %s tensors, digest %s\n", stats.version.run,
               stats.version.step, cli_bytes((double)p->weights.layout.total_bytes).text,
               cli_count(p->weights.layout.tensor_count).text,
               cli_digest(stats.version.digest).text);
        printf("%8s %9s %9s %9s %9s %8s %9s %9s %6s  %s\n", "step", "bits", "bytes", "elements",
               "wire", "ratio", "bound", "encode", "peers", "digest");
    }
    fflush(stdout);
}

static void print_version_json(const xorcast_publisher_stats *stats) {
    cli_json json = cli_json_begin(stdout);
    cli_json_text(&json, "event", "version");
    cli_version_json(&json, "version", &stats->version);
    cli_json_open(&json, "delta");
    cli_info_json(&json, &stats->delta);
    cli_json_close(&json);
    cli_json_count(&json, "encode_ns", stats->encode_ns);
    cli_json_count(&json, "frame_ns", stats->frame_ns);
    cli_json_count(&json, "log_bytes", stats->log_bytes);
    cli_json_count(&json, "log_versions", stats->log_versions);
    cli_json_count(&json, "oldest_step", stats->oldest_step);
    cli_json_count(&json, "sent_bytes", stats->sent_bytes);
    cli_json_count(&json, "peers", stats->peers);
    cli_json_count(&json, "memory_high_water_bytes", stats->memory.high_water_bytes);
    cli_json_end(&json);
}

static void print_version(const cli_options *o, const xorcast_publisher_stats *stats) {
    const xorcast_counts *counts = &stats->delta.counts;
    const double bytes = (double)counts->bytes_covered;
    if (o->quiet)
        return;
    if (o->json) {
        print_version_json(stats);
        return;
    }
    printf("%8" PRIu64 " %9s %9s %9s %9s %8s %9s %9s %6" PRIu64 "  %s\n", stats->version.step,
           cli_percent((double)counts->bits_changed, 8 * bytes).text,
           cli_percent((double)counts->bytes_changed, bytes).text,
           cli_percent((double)counts->elements_changed, (double)counts->elements_covered).text,
           cli_bytes((double)stats->delta.delta_bytes).text,
           cli_ratio(bytes, (double)stats->delta.delta_bytes).text,
           cli_bytes(stats->delta.entropy_bound_bytes).text, cli_time(stats->encode_ns).text,
           stats->peers, cli_digest(stats->version.digest).text);
    fflush(stdout);
}

static void print_end(const publication *p) {
    xorcast_publisher_stats stats;
    xorcast_publisher_get_stats(p->publisher, &stats);
    if (!p->session->options.json || p->session->options.quiet)
        return;
    cli_json json = cli_json_begin(stdout);
    cli_json_text(&json, "event", "end");
    cli_version_json(&json, "version", &stats.version);
    cli_json_count(&json, "sent_bytes", stats.sent_bytes);
    cli_json_count(&json, "peers", stats.peers);
    cli_json_count(&json, "peers_current", stats.peers_current);
    cli_json_end(&json);
}

/* ---- Work -------------------------------------------------------------------------------------*/

static xorcast_status write_url(cli_session *session, const char *path, const char *url) {
    cli_output output;
    CLI_TRY(cli_output_open(session, path, NULL, 0, &output));
    int error = output.sink.write(output.sink.user, url, strlen(url));
    if (error == 0)
        error = output.sink.write(output.sink.user, "\n", 1);
    if (error == 0)
        return cli_output_finish(&output);
    cli_output_abandon(&output);
    return cli_fail_os(session, error, "write the URL to", path);
}

static xorcast_status open_publisher(publication *p) {
    const cli_options *o = &p->session->options;
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    options.run = o->run;
    options.step = p->steps.at[0].step;
    options.log_bytes = o->log_bytes;
    options.encoding = o->encoding;
    options.insecure = o->insecure;
    options.measure_bound = 1;
    CLI_TRY(cli_weights_open(p->session, p->steps.at[0].path, &p->weights));
    CLI_TRY(xorcast_publisher_open(p->weights.bundle, o->listen, &options, &p->publisher));
    const char *url = xorcast_publisher_url(p->publisher);
    if (o->url_file != NULL)
        CLI_TRY(write_url(p->session, o->url_file, url));
    print_opened(p, url);
    return XORCAST_OK;
}

static xorcast_status wait_for_peers(publication *p) {
    const cli_options *o = &p->session->options;
    const uint64_t end = cli_now_ns() + o->timeout_ms * 1000000;
    xorcast_publisher_stats stats;
    for (;;) {
        CLI_TRY(cli_stop_check(p->session));
        xorcast_publisher_get_stats(p->publisher, &stats);
        if (stats.peers >= o->wait_peers)
            return XORCAST_OK;
        if (cli_now_ns() >= end)
            return cli_fail(p->session, XORCAST_TIMED_OUT, 0,
                            "%" PRIu64 " of %" PRIu64 " followers came within %s; --timeout waits "
                            "longer",
                            stats.peers, o->wait_peers, cli_time(o->timeout_ms * 1000000).text);
        cli_sleep_ms(LOOK_MS);
    }
}

static xorcast_status publish_step(publication *p, const cli_step_entry *entry) {
    xorcast_publisher_stats stats;
    CLI_TRY(cli_weights_load(p->session, entry->path, &p->weights));
    CLI_TRY(xorcast_publisher_begin(p->publisher, entry->step));
    CLI_TRY(xorcast_publisher_put(p->publisher, p->weights.layout.tensor_count, NULL, NULL));
    CLI_TRY(xorcast_publisher_finish(p->publisher, &stats));
    print_version(&p->session->options, &stats);
    return XORCAST_OK;
}

static xorcast_status publish_all(publication *p) {
    const cli_options *o = &p->session->options;
    CLI_TRY(wait_for_peers(p));
    for (uint64_t i = 1; i < p->steps.count; i++) {
        cli_sleep_ms(o->interval_ms);
        CLI_TRY(cli_stop_check(p->session));
        CLI_TRY(publish_step(p, &p->steps.at[i]));
    }
    return XORCAST_OK;
}

/* For `ms`, or until the followers that are there have the last version. */
static xorcast_status linger(publication *p, uint64_t ms, bool until_current) {
    const uint64_t end = cli_now_ns() + ms * 1000000;
    xorcast_publisher_stats stats;
    xorcast_publisher_get_stats(p->publisher, &stats);
    while (cli_now_ns() < end && !(until_current && stats.peers_current >= stats.peers)) {
        CLI_TRY(cli_stop_check(p->session));
        cli_sleep_ms(LOOK_MS);
        xorcast_publisher_get_stats(p->publisher, &stats);
    }
    return cli_stop_check(p->session);
}

/* A step that cannot be published does not take the one before from those who are fetching it. */
static xorcast_status serve(publication *p) {
    cli_session *session = p->session;
    const uint64_t linger_ms = session->options.linger_ms;
    const xorcast_status status = publish_all(p);
    if (status == XORCAST_OK && linger_ms != CLI_NO_NUMBER)
        return linger(p, linger_ms, false);
    if (status == XORCAST_CANCELLED)
        return status;
    const xorcast_error failure = cli_failure(session, status);
    const xorcast_status lingered = linger(p, LAST_PEERS_MS, true);
    if (status >= 0)
        return lingered;
    session->failure = failure;
    return status;
}

/* Serving a single version has its uses; more often a checkpoint was named, not what holds it. */
static void warn_of_one(const publication *p) {
    const char *directory = p->session->options.operands[0], *step = p->steps.at[0].path;
    struct stat facts;
    const bool is_file = stat(step, &facts) == 0 && S_ISREG(facts.st_mode);
    char text[1200];
    snprintf(text, sizeof text, "%.400s holds one step, %.400s, and no version will follow it%s",
             directory, step,
             is_file ? "; if it is one checkpoint itself, give the directory that holds it" : "");
    cli_warn(p->session, text);
}

xorcast_status cli_publish(cli_session *session) {
    publication p = {.session = session};
    CLI_TRY(cli_refuse_inproc(session, session->options.listen));
    CLI_TRY(cli_stop_catch(session));
    xorcast_status status = cli_steps_list(session, session->options.operands[0], &p.steps);
    if (status == XORCAST_OK && p.steps.count == 1)
        warn_of_one(&p);
    if (status == XORCAST_OK)
        status = open_publisher(&p);
    if (status == XORCAST_OK)
        status = serve(&p);
    if (p.publisher != NULL)
        print_end(&p);
    xorcast_publisher_close(p.publisher);
    cli_weights_close(&p.weights);
    cli_steps_free(&p.steps);
    return status;
}
