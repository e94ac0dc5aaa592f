/* The subscriber: which version live weights are, and the way to the next one. The steps themselves
 * are elsewhere: catchup.c and stage.c make ready, commit.c is the pause, keyframe.c starts over,
 * audit.c proves. */
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "subscribe/audit.h"
#include "subscribe/catchup.h"
#include "subscribe/commit.h"
#include "subscribe/device_commits.h"
#include "subscribe/keyframe.h"

#define DEFAULT_TIMEOUT_MS 30000u
#define RECONNECT_PAUSE_MS 50u

typedef enum subscriber_state {
    NOTHING_STAGED,
    STAGED,    /* ready for commit */
    MIXED,     /* a commit or an undo stopped in the middle */
    COMMITTED, /* applied, not stamped yet */
    STAMPED    /* applied and stamped; undo is still possible */
} subscriber_state;

struct xorcast_subscriber {
    xorcast_context *context;
    xorcast_bundle *bundle;
    xorcast_subscriber_options options;
    xci_feed feed;
    bool connected; /* the feed is open */
    xci_journal *journal;
    xci_stage stage;
    xci_commit commit;               /* of weights in host memory */
    xci_device_commits device_commit; /* of weights in device memory */
    subscriber_state state;
    xorcast_version version, previous;
    xci_chunk_digests digests;
    xci_audit audit;
    uint64_t staged_wire_bytes, staged_deltas, staged_ship_ns, staged_stage_ns;
    xorcast_subscriber_stats stats;
};

static uint64_t timeout_of(const xorcast_subscriber *subscriber) {
    return subscriber->options.timeout_ms ? subscriber->options.timeout_ms : DEFAULT_TIMEOUT_MS;
}

static void no_version(xorcast_subscriber *subscriber) {
    subscriber->version.step = XORCAST_NO_STEP;
    memset(&subscriber->version.digest, 0, sizeof subscriber->version.digest);
}

/* ---- Opening ---- */

static xorcast_status check_layout(xorcast_subscriber *subscriber) {
    const xorcast_layout *own = &subscriber->bundle->layout;
    const xci_about *theirs = &subscriber->feed.about;
    if (memcmp(own->fingerprint, theirs->fingerprint, sizeof own->fingerprint) == 0)
        return XORCAST_OK;
    FAIL(subscriber->context, XORCAST_LAYOUT_MISMATCH,
         "the publisher has %llu tensors with %llu bytes in chunks of %llu, these weights "
         "%llu with %llu in chunks of %llu; names, dtypes, shapes and chunk size must be the same "
         "on both sides",
         (unsigned long long)theirs->tensor_count, (unsigned long long)theirs->total_bytes,
         (unsigned long long)theirs->chunk_bytes, (unsigned long long)own->tensor_count,
         (unsigned long long)own->total_bytes, (unsigned long long)own->chunk_bytes);
}

static xorcast_status identify(xorcast_subscriber *subscriber, const xorcast_digest *digest,
                               uint64_t deadline_ns) {
    uint64_t step;
    const xorcast_status status = xci_feed_whois(&subscriber->feed, digest, deadline_ns, &step);
    if (status == XORCAST_NOT_FOUND)
        return status;
    TRY(status);
    subscriber->version.step = step;
    subscriber->version.digest = *digest;
    xci_feed_acknowledge(&subscriber->feed, step, deadline_ns);
    return XORCAST_OK;
}

static xorcast_status open_all(xorcast_subscriber *subscriber, const char *url) {
    xorcast_context *context = subscriber->context;
    xorcast_bundle *bundle = subscriber->bundle;
    bool finished = false;
    no_version(subscriber);
    if (subscriber->options.journal_path != NULL)
        TRY(xci_journal_open(bundle, subscriber->options.journal_path, &subscriber->journal,
                             &finished));
    if (finished)
        xci_log(context, XORCAST_LOG_WARNING, "finished a commit that %s says was interrupted",
                subscriber->options.journal_path);
    TRY(xci_feed_open(&subscriber->feed, context, url, subscriber->options.insecure != 0,
                         xci_deadline(timeout_of(subscriber))));
    subscriber->connected = true;
    TRY(check_layout(subscriber));
    memcpy(subscriber->version.run, subscriber->feed.about.run, XORCAST_RUN_BYTES);
    TRY(xci_stage_open(&subscriber->stage, bundle));
    subscriber->stage.for_journal = subscriber->journal != NULL;
    TRY(bundle->on_device ? xci_device_commits_open(&subscriber->device_commit, bundle)
                          : xci_commit_open(&subscriber->commit, bundle, subscriber->journal));
    TRY(xci_chunk_digests_open(&subscriber->digests, bundle));
    TRY(xci_audit_open(&subscriber->audit, &subscriber->digests));
    TRY(xci_chunk_digests_scan(&subscriber->digests));
    if (!bundle->complete)
        return XORCAST_OK;
    const xorcast_status status =
        identify(subscriber, &subscriber->digests.sum, xci_deadline(timeout_of(subscriber)));
    return status == XORCAST_NOT_FOUND ? XORCAST_OK : status;
}

static xorcast_status check_bundle(xorcast_bundle *bundle,
                                   const xorcast_subscriber_options *options) {
    TRY(xci_bundle_need_sealed(bundle));
    if (bundle->on_device && options->journal_path != NULL)
        FAIL(bundle->context, XORCAST_UNSUPPORTED,
             "weights in device memory do not outlive the process: leave journal_path out");
    for (uint64_t t = 0; t < bundle->tensor_count; t++)
        for (uint32_t i = 0; i < bundle->tensors[t].region_count; i++)
            if (bundle->tensors[t].regions[i].kind > XCI_KIND_DEVICE)
                FAIL(bundle->context, XORCAST_UNSUPPORTED,
                     "tensor %s lies in a file that is only read; load the checkpoint into memory",
                     bundle->tensors[t].name);
    return XORCAST_OK;
}

xorcast_status xorcast_subscriber_open(xorcast_bundle *bundle, const char *url,
                                       const xorcast_subscriber_options *options,
                                       xorcast_subscriber **subscriber_out) {
    static const xorcast_subscriber_options defaults = XORCAST_SUBSCRIBER_OPTIONS_INIT;
    if (options == NULL)
        options = &defaults;
    if (options->struct_size != sizeof *options)
        FAIL(bundle->context, XORCAST_BAD_ARGUMENT,
             "subscriber options are not initialised; use XORCAST_SUBSCRIBER_OPTIONS_INIT");
    TRY(check_bundle(bundle, options));
    void *memory;
    TRY(xci_allocate_zeroed(bundle->context, sizeof(xorcast_subscriber), &memory));
    xorcast_subscriber *subscriber = memory;
    subscriber->context = bundle->context;
    subscriber->bundle = bundle;
    subscriber->options = *options;
    const xorcast_status status = open_all(subscriber, url);
    subscriber->options.journal_path = NULL; /* the caller's string; the journal has a copy */
    if (status < 0) {
        xorcast_subscriber_close(subscriber);
        return status;
    }
    *subscriber_out = subscriber;
    return XORCAST_OK;
}

void xorcast_subscriber_close(xorcast_subscriber *subscriber) {
    if (subscriber == NULL)
        return;
    if (subscriber->connected)
        xci_feed_close(&subscriber->feed);
    xci_audit_close(&subscriber->audit);
    xci_chunk_digests_close(&subscriber->digests);
    xci_device_commits_close(&subscriber->device_commit);
    xci_commit_close(&subscriber->commit);
    xci_stage_close(&subscriber->stage);
    xci_journal_close(subscriber->journal);
    xci_release(subscriber->context, subscriber);
}

xorcast_status xorcast_subscriber_adopt(xorcast_subscriber *subscriber,
                                        const xorcast_digest *digest) {
    if (subscriber->bundle->complete &&
        memcmp(digest, &subscriber->digests.sum, sizeof *digest) != 0)
        FAIL(subscriber->context, XORCAST_BAD_ARGUMENT,
             "these weights are whole and have another digest; adopt is for ranks with boxes");
    const xorcast_status status =
        identify(subscriber, digest, xci_deadline(timeout_of(subscriber)));
    if (status == XORCAST_NOT_FOUND)
        FAIL(subscriber->context, XORCAST_VERSION_GONE,
             "the publisher's log has no version with this digest; take a keyframe");
    return status;
}

/* ---- The way to the next version ---- */

static void pause_ms(uint64_t milliseconds) {
    const struct timespec pause = {(time_t)(milliseconds / 1000),
                                   (long)(milliseconds % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

xorcast_status xorcast_subscriber_poll(xorcast_subscriber *subscriber, uint64_t timeout_ms,
                                       uint64_t *step_out) {
    const uint64_t deadline = xci_deadline(timeout_ms);
    for (;;) {
        /* A connection needs time of its own, or a poll that may not wait could never connect. */
        xorcast_status status =
            xci_feed_connect(&subscriber->feed, xci_max(deadline, xci_deadline(1000)));
        if (status == XORCAST_OK)
            status =
                xci_feed_newest(&subscriber->feed, subscriber->version.step, deadline, step_out);
        const bool again = status == XORCAST_LINK_DOWN || status == XORCAST_LINK_REFUSED;
        if (!again || xci_deadline_left_ms(deadline) <= (int)RECONNECT_PAUSE_MS)
            return status;
        pause_ms(RECONNECT_PAUSE_MS);
    }
}

static xorcast_status need_whole(xorcast_subscriber *subscriber) {
    if (subscriber->state == MIXED)
        FAIL(subscriber->context, XORCAST_WEIGHTS_MIXED,
             "a commit stopped in the middle; commit again to finish it, or undo");
    if (subscriber->state == COMMITTED)
        FAIL(subscriber->context, XORCAST_BAD_STATE,
             "a commit is not stamped yet; call xorcast_subscriber_wait first");
    return XORCAST_OK;
}

static xorcast_status check_target(xorcast_subscriber *subscriber, uint64_t step) {
    TRY(need_whole(subscriber));
    if (subscriber->version.step == XORCAST_NO_STEP)
        FAIL(subscriber->context, XORCAST_VERSION_GONE,
             "these weights are no version that the publisher knows; call "
             "xorcast_subscriber_keyframe");
    if (step <= subscriber->version.step || step == XORCAST_NO_STEP)
        FAIL(subscriber->context, XORCAST_VERSION_ORDER,
             "version %llu is not newer than %llu, which the weights are", (unsigned long long)step,
             (unsigned long long)subscriber->version.step);
    return XORCAST_OK;
}

xorcast_status xorcast_subscriber_stage(xorcast_subscriber *subscriber, uint64_t step,
                                        uint64_t timeout_ms) {
    TRY(check_target(subscriber, step));
    const uint64_t begun = xci_now_ns();
    const uint64_t bound = subscriber->options.log_bound_bytes
                               ? subscriber->options.log_bound_bytes
                               : subscriber->bundle->layout.total_bytes;
    subscriber->state = NOTHING_STAGED;
    subscriber->feed.received_bytes = subscriber->feed.waited_ns = 0;
    TRY(xci_catchup(&subscriber->stage, &subscriber->feed, &subscriber->version, step, bound,
                    xci_deadline(timeout_ms), &subscriber->staged_deltas));
    const xorcast_status status =
        subscriber->bundle->on_device
            ? xci_device_commits_prepare(&subscriber->device_commit, &subscriber->stage)
            : xci_commit_prepare(&subscriber->commit, &subscriber->stage);
    if (status < 0) {
        xci_stage_reset(&subscriber->stage);
        return status;
    }
    subscriber->staged_wire_bytes = subscriber->feed.received_bytes;
    subscriber->staged_ship_ns = subscriber->feed.waited_ns;
    subscriber->staged_stage_ns = xci_now_ns() - begun - subscriber->feed.waited_ns;
    subscriber->state = STAGED;
    return XORCAST_OK;
}

static xorcast_status commit_host(xorcast_subscriber *subscriber, void *stream) {
    if (stream != NULL)
        FAIL(subscriber->context, XORCAST_BAD_ARGUMENT,
             "these weights lie in host memory, where there are no streams; pass NULL");
    const uint64_t begun = xci_now_ns();
    const xorcast_status status = xci_commit_apply(&subscriber->commit);
    subscriber->stats.commit_ns = xci_now_ns() - begun;
    subscriber->state = status < 0 ? MIXED : COMMITTED;
    return status;
}

static xorcast_status commit_device(xorcast_subscriber *subscriber, void *stream) {
    xci_device_commits *commit = &subscriber->device_commit;
    if (subscriber->state == MIXED)
        TRY(xci_device_commits_settle(commit));
    const xorcast_status status = xci_device_commits_apply(commit, stream);
    if (status == XORCAST_OK)
        subscriber->state = COMMITTED;
    else /* nothing is changed unless it says so */
        subscriber->state = status == XORCAST_WEIGHTS_MIXED ? MIXED : STAGED;
    return status;
}

xorcast_status xorcast_subscriber_commit(xorcast_subscriber *subscriber, void *stream) {
    if (subscriber->state != STAGED && subscriber->state != MIXED)
        FAIL(subscriber->context, XORCAST_BAD_STATE,
             "nothing is staged; call xorcast_subscriber_stage first");
    return subscriber->bundle->on_device ? commit_device(subscriber, stream)
                                         : commit_host(subscriber, stream);
}

static xorcast_status wait_device(xorcast_subscriber *subscriber, uint64_t deadline_ns) {
    const xorcast_status status = xci_device_commits_wait(&subscriber->device_commit, deadline_ns,
                                                          &subscriber->stats.commit_ns);
    if (status == XORCAST_WEIGHTS_MIXED)
        subscriber->state = MIXED;
    return status;
}

xorcast_status xorcast_subscriber_wait(xorcast_subscriber *subscriber, uint64_t timeout_ms) {
    if (subscriber->state == MIXED)
        FAIL(subscriber->context, XORCAST_WEIGHTS_MIXED,
             "the commit stopped in the middle; commit again to finish it, or undo");
    if (subscriber->state != COMMITTED)
        FAIL(subscriber->context, XORCAST_BAD_STATE, "there is no commit to wait for");
    xorcast_subscriber_stats *stats = &subscriber->stats;
    if (subscriber->bundle->on_device)
        TRY(wait_device(subscriber, xci_deadline(timeout_ms)));
    xci_chunk_digests_move(&subscriber->digests, &subscriber->stage, true);
    subscriber->previous = subscriber->version;
    subscriber->version = subscriber->stage.info.target;
    subscriber->state = STAMPED;
    stats->counts = subscriber->stage.counts;
    stats->deltas_folded = subscriber->staged_deltas;
    stats->wire_bytes = subscriber->staged_wire_bytes;
    stats->ship_ns = subscriber->staged_ship_ns;
    stats->stage_ns = subscriber->staged_stage_ns;
    stats->commits++;
    xci_feed_acknowledge(&subscriber->feed, subscriber->version.step, xci_deadline(timeout_ms));
    if (subscriber->options.after_commit != NULL)
        subscriber->options.after_commit(subscriber->options.user, &subscriber->version);
    return XORCAST_OK;
}

static xorcast_status undo_device(xorcast_subscriber *subscriber) {
    xci_device_commits *commit = &subscriber->device_commit;
    if (subscriber->state == MIXED)
        TRY(xci_device_commits_settle(commit));
    return xci_device_commits_undo(commit);
}

xorcast_status xorcast_subscriber_undo(xorcast_subscriber *subscriber) {
    if (subscriber->state != MIXED && subscriber->state != COMMITTED &&
        subscriber->state != STAMPED)
        FAIL(subscriber->context, XORCAST_BAD_STATE, "there is no commit to undo");
    const bool stamped = subscriber->state == STAMPED;
    const xorcast_status status = subscriber->bundle->on_device
                                      ? undo_device(subscriber)
                                      : xci_commit_undo(&subscriber->commit);
    if (subscriber->bundle->on_device && status < 0 && status != XORCAST_WEIGHTS_MIXED)
        return status; /* nothing is changed */
    if (stamped) {
        xci_chunk_digests_move(&subscriber->digests, &subscriber->stage, false);
        subscriber->version = subscriber->previous;
    }
    subscriber->state = status < 0 ? MIXED : STAGED;
    return status;
}

/* A keyframe stopped. Before its first byte the weights are what they were, and still the version
 * that they were if the scan just proved it; after it they are none, whatever the cause. */
static xorcast_status stop_keyframe(xorcast_subscriber *subscriber, xorcast_status status,
                                    uint64_t fetched, bool scanned, const xorcast_version *before) {
    xorcast_error cause;
    const bool same = memcmp(&subscriber->digests.sum, &before->digest, sizeof before->digest) == 0;
    if (fetched == 0 && scanned && subscriber->bundle->complete && same)
        subscriber->version = *before;
    if (fetched == 0)
        return status;
    xorcast_last_error(subscriber->context, &cause);
    return xci_fail_from(subscriber->context, XORCAST_WEIGHTS_WRONG, &cause,
                         "the keyframe stopped halfway and the weights are no version; call "
                         "xorcast_subscriber_keyframe again. The cause: %s: %.300s",
                         xorcast_status_name(status), cause.text);
}

xorcast_status xorcast_subscriber_keyframe(xorcast_subscriber *subscriber, uint64_t timeout_ms) {
    xorcast_version version;
    const xorcast_version before = subscriber->version;
    uint64_t fetched = 0;
    const uint64_t deadline = xci_deadline(timeout_ms);
    if (subscriber->state == COMMITTED)
        FAIL(subscriber->context, XORCAST_BAD_STATE,
             "a commit is not stamped yet; call xorcast_subscriber_wait first");
    TRY(xci_feed_connect(&subscriber->feed, deadline));
    no_version(subscriber);
    xci_stage_reset(&subscriber->stage);
    subscriber->state = NOTHING_STAGED;
    if (subscriber->journal != NULL)
        xci_journal_end(subscriber->journal); /* what it would finish is overwritten */
    /* What is in memory is compared, not what it should be. */
    xorcast_status status = xci_chunk_digests_scan(&subscriber->digests);
    const bool scanned = status == XORCAST_OK;
    if (scanned)
        status = xci_keyframe(subscriber->bundle, &subscriber->feed, subscriber->digests.chunks,
                              deadline, &version, &fetched);
    xci_chunk_digests_sum(&subscriber->digests);
    if (status < 0)
        return stop_keyframe(subscriber, status, fetched, scanned, &before);
    subscriber->version = version;
    subscriber->audit.next = 0;
    subscriber->stats.keyframes++;
    subscriber->stats.keyframe_bytes += fetched;
    xci_feed_acknowledge(&subscriber->feed, version.step, deadline);
    if (subscriber->options.after_commit != NULL)
        subscriber->options.after_commit(subscriber->options.user, &version);
    return XORCAST_OK;
}

/* ---- Proof ---- */

xorcast_status xorcast_subscriber_audit(xorcast_subscriber *subscriber, uint64_t budget_ms) {
    const uint64_t deadline = budget_ms == 0 ? XCI_FOREVER : xci_deadline(budget_ms);
    TRY(need_whole(subscriber));
    if (subscriber->version.step == XORCAST_NO_STEP)
        FAIL(subscriber->context, XORCAST_BAD_STATE,
             "these weights are no version; call xorcast_subscriber_keyframe");
    const xorcast_status status =
        xci_audit_run(&subscriber->audit, subscriber->version.step, deadline);
    if (status == XORCAST_WEIGHTS_WRONG)
        no_version(subscriber);
    return status;
}

void xorcast_subscriber_current(xorcast_subscriber *subscriber, xorcast_version *version_out) {
    *version_out = subscriber->version;
    if (subscriber->state == MIXED)
        version_out->step = XORCAST_NO_STEP;
}

void xorcast_subscriber_get_stats(xorcast_subscriber *subscriber,
                                  xorcast_subscriber_stats *stats_out) {
    *stats_out = subscriber->stats;
    xorcast_subscriber_current(subscriber, &stats_out->version);
    stats_out->digest = subscriber->digests.sum;
    xci_device_stage_decoding(&subscriber->stage, &stats_out->decoding);
    xorcast_context_memory(subscriber->context, &stats_out->memory);
}
