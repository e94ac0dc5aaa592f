/* Committing on several devices: see device_commits.h. */
#include "subscribe/device_commits.h"

#include "base/bytes.h"
#include "base/clock.h"

static xorcast_status open_parts(xci_device_commits *commits, const xorcast_bundle *bundle) {
    xorcast_context *context = commits->context;
    const xci_device *device = context->shared->device;
    void *memory;
    TRY(xci_allocate_array(context, bundle->share_count, sizeof(xci_commit_share), &memory));
    commits->shares = memory;
    for (uint32_t s = 0; s < bundle->share_count; s++) {
        TRY(xci_device_commit_open(&commits->shares[s].commit, bundle->shares[s]));
        commits->count++;
    }
    if (commits->count > 1 || bundle->shares[0]->context != context)
        XCI_DEVICE(context, "make an event",
                   device->ops->event_open(device->handle, &commits->ready));
    return XORCAST_OK;
}

xorcast_status xci_device_commits_open(xci_device_commits *commits, xorcast_bundle *bundle) {
    *commits = (xci_device_commits){.context = bundle->context};
    const xorcast_status status = open_parts(commits, bundle);
    if (status < 0)
        xci_device_commits_close(commits);
    return status;
}

void xci_device_commits_close(xci_device_commits *commits) {
    if (commits->context == NULL)
        return;
    for (uint32_t s = 0; s < commits->count; s++)
        xci_device_commit_close(&commits->shares[s].commit);
    xci_event_close(commits->context, &commits->ready);
    xci_release(commits->context, commits->shares);
    *commits = (xci_device_commits){0};
}

xorcast_status xci_device_commits_prepare(xci_device_commits *commits, const xci_stage *stage) {
    for (uint32_t s = 0; s < commits->count; s++) {
        xci_commit_share *share = &commits->shares[s];
        share->applied = share->unsure = false;
        TRY(xci_device_commit_prepare(&share->commit, &stage->device->shares[s]));
    }
    return XORCAST_OK;
}

/* ---- The pause ---- */

static bool is_elsewhere(const xci_device_commits *commits, const xci_commit_share *share) {
    return share->commit.context != commits->context;
}

/* What comes before any weights are touched: work on all streams runs when it is put there, and the
 * caller's is marked. */
static xorcast_status begin(const xci_device_commits *commits, void *stream) {
    const xci_device *device = commits->context->shared->device;
    TRY(xci_stream_need_free(commits->context, stream));
    if (commits->ready == NULL)
        return XORCAST_OK;
    for (uint32_t s = 0; s < commits->count; s++)
        if (is_elsewhere(commits, &commits->shares[s]))
            TRY(xci_stream_need_free(commits->shares[s].commit.context, NULL));
    return xci_device_result(commits->context,
                             device->ops->event_record(device->handle, commits->ready, stream),
                             "mark a stream");
}

static xorcast_status apply_elsewhere(xci_device_commits *commits, xci_device_commit *commit,
                                      void *stream) {
    const xci_device *device = commit->context->shared->device;
    const xci_device *own = commits->context->shared->device;
    XCI_DEVICE(commit->context, "order two streams",
               device->ops->stream_after(device->handle, NULL, commits->ready));
    TRY(xci_device_commit_apply(commit, NULL));
    /* The weights are being changed: what fails now leaves them mixed. */
    if (xci_device_result(commits->context,
                          own->ops->stream_after(own->handle, stream, commit->done),
                          "order two streams") < 0)
        return XORCAST_WEIGHTS_MIXED;
    return XORCAST_OK;
}

static xorcast_status apply_share(xci_device_commits *commits, xci_commit_share *share,
                                  void *stream) {
    if (share->applied)
        return XORCAST_OK;
    const xorcast_status status = is_elsewhere(commits, share)
                                      ? apply_elsewhere(commits, &share->commit, stream)
                                      : xci_device_commit_apply(&share->commit, stream);
    share->applied = status == XORCAST_OK;
    share->unsure = status == XORCAST_OK || status == XORCAST_WEIGHTS_MIXED;
    return status;
}

/* A failure of one share: nothing is changed only if no other share is, or may be. */
static xorcast_status stopped(const xci_device_commits *commits, xorcast_status status) {
    bool changed = status == XORCAST_WEIGHTS_MIXED;
    for (uint32_t s = 0; s < commits->count; s++)
        changed = changed || commits->shares[s].applied;
    if (!changed || status == XORCAST_WEIGHTS_MIXED)
        return status;
    xorcast_error cause;
    xorcast_last_error(commits->context, &cause);
    return xci_fail_from(commits->context, XORCAST_WEIGHTS_MIXED, &cause,
                         "the commit stopped between two devices: %.300s; commit again or undo",
                         cause.text);
}

xorcast_status xci_device_commits_apply(xci_device_commits *commits, void *stream) {
    xorcast_status status = begin(commits, stream);
    for (uint32_t s = 0; s < commits->count && status == XORCAST_OK; s++)
        status = apply_share(commits, &commits->shares[s], stream);
    return status < 0 ? stopped(commits, status) : XORCAST_OK;
}

xorcast_status xci_device_commits_wait(xci_device_commits *commits, uint64_t deadline_ns,
                                       uint64_t *pause_ns_out) {
    *pause_ns_out = 0;
    for (uint32_t s = 0; s < commits->count; s++) {
        xci_commit_share *share = &commits->shares[s];
        uint64_t pause_ns;
        TRY(xci_device_commit_wait(&share->commit, deadline_ns, &pause_ns));
        share->unsure = false;
        *pause_ns_out = xci_max(*pause_ns_out, pause_ns);
    }
    return XORCAST_OK;
}

/* ---- After a failure, and back ---- */

xorcast_status xci_device_commits_settle(xci_device_commits *commits) {
    for (uint32_t s = 0; s < commits->count; s++) {
        xci_commit_share *share = &commits->shares[s];
        if (share->unsure)
            TRY(xci_device_commit_settle(&share->commit, &share->applied));
        share->unsure = false;
    }
    return XORCAST_OK;
}

/* A pass that cannot be put on a stream clears the device's count all the same: where a failure of
 * another share makes somebody ask for it, it must be known before. */
static xorcast_status be_sure(xci_device_commits *commits) {
    uint64_t pause_ns;
    return commits->count == 1 ? XORCAST_OK
                               : xci_device_commits_wait(commits, XCI_FOREVER, &pause_ns);
}

xorcast_status xci_device_commits_undo(xci_device_commits *commits) {
    bool changed = false;
    TRY(be_sure(commits));
    for (uint32_t s = 0; s < commits->count; s++) {
        xci_commit_share *share = &commits->shares[s];
        if (!share->applied)
            continue;
        const xorcast_status status = xci_device_commit_undo(&share->commit);
        share->applied = status < 0;
        share->unsure = status == XORCAST_WEIGHTS_MIXED || (status < 0 && share->unsure);
        if (status < 0)
            return changed ? stopped(commits, status) : status;
        changed = true;
    }
    return XORCAST_OK;
}
