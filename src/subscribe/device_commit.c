/* Committing on a device: see device_commit.h. */
#include "subscribe/device_commit.h"

#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "bundle/device_map.h"
#include "delta/device_load.h"

#define POLL_NS 20000 /* a fraction of the shortest pause */

static xorcast_status open_parts(xci_device_commit *commit) {
    xorcast_context *context = commit->context;
    const xci_device *device = context->shared->device;
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &commit->stream));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &commit->begun));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &commit->done));
    TRY(xci_device_allocate(context, sizeof(uint64_t), &commit->progress));
    return xci_pinned_allocate(context, sizeof(uint64_t), &commit->pinned);
}

xorcast_status xci_device_commit_open(xci_device_commit *commit, xorcast_bundle *bundle) {
    *commit = (xci_device_commit){.context = bundle->context, .bundle = bundle};
    const xorcast_status status = open_parts(commit);
    if (status < 0)
        xci_device_commit_close(commit);
    return status;
}

void xci_device_commit_close(xci_device_commit *commit) {
    xorcast_context *context = commit->context;
    if (context == NULL)
        return;
    xci_stream_close(context, &commit->stream);
    xci_event_close(context, &commit->begun);
    xci_event_close(context, &commit->done);
    xci_device_release(context, &commit->progress);
    xci_pinned_release(context, &commit->pinned);
    *commit = (xci_device_commit){0};
}

/* A list of what the stage did not have in one, in the place of that. */
static xorcast_status send_list(xci_device_commit *commit, xci_stage_share *stage) {
    xorcast_context *context = commit->context;
    const xci_device *device = context->shared->device;
    const uint64_t bytes = stage->ready_count * sizeof(xci_cuda_block);
    xci_device_memory *list = &stage->loader.list;
    void *memory;
    TRY(xci_device_reserve(context, list, bytes));
    TRY(xci_allocate(context, bytes, &memory));
    xci_cuda_block *table = memory;
    for (uint64_t i = 0; i < stage->ready_count; i++) {
        const xci_ready *ready = &stage->ready[i];
        table[i] =
            (xci_cuda_block){ready->block, ready->block_bytes, ready->block_codec, ready->chunk};
    }
    xorcast_status status = XORCAST_OK;
    if (bytes > 0)
        status = xci_device_result(
            context, device->ops->copy_now(device->handle, list->at, table, bytes), "copy a table");
    xci_release(context, memory);
    commit->blocks = (const xci_cuda_block *)(const void *)list->at;
    return status;
}

xorcast_status xci_device_commit_prepare(xci_device_commit *commit, xci_stage_share *stage) {
    const xci_device_loader *loader = &stage->loader;
    commit->count = 0;
    commit->launched = false;
    if (loader->list_whole)
        commit->blocks = (const xci_cuda_block *)(const void *)loader->list.at;
    else
        TRY(send_list(commit, stage));
    commit->count = stage->ready_count;
    return XORCAST_OK;
}

/* ---- The pause ---- */

static xci_cuda_block_call call_of(const xci_device_commit *commit) {
    const xci_device_map *map = commit->bundle->map;
    return (xci_cuda_block_call){.grid = map->grid,
                                 .places = map->places,
                                 .blocks = commit->blocks,
                                 .count = commit->count,
                                 .progress = (uint64_t *)(void *)commit->progress.at};
}

/* What comes before the weights are touched. */
static xorcast_status begin(xci_device_commit *commit, void *stream) {
    const xci_device *device = commit->context->shared->device;
    const xci_cuda_block_call call = call_of(commit);
    XCI_DEVICE(commit->context, "mark a stream",
               device->ops->event_record(device->handle, commit->begun, stream));
    XCI_DEVICE(commit->context, "clear a counter",
               device->ops->fill(device->handle, commit->progress.at, 0, sizeof(uint64_t), stream));
    XCI_DEVICE(commit->context, "apply blocks", device->ops->apply(device->handle, &call, stream));
    return XORCAST_OK;
}

static xorcast_status end(xci_device_commit *commit, void *stream) {
    const xci_device *device = commit->context->shared->device;
    XCI_DEVICE(commit->context, "copy a counter",
               device->ops->copy(device->handle, commit->pinned.at, commit->progress.at,
                                 sizeof(uint64_t), stream));
    XCI_DEVICE(commit->context, "mark a stream",
               device->ops->event_record(device->handle, commit->done, stream));
    commit->launched = true;
    return XORCAST_OK;
}

/* A failure of the device while the weights may be in between: the number stays in the record. */
static xorcast_status mixed(xci_device_commit *commit) {
    xorcast_error cause;
    xorcast_last_error(commit->context, &cause);
    return xci_fail_from(commit->context, XORCAST_WEIGHTS_MIXED, &cause,
                         "the commit may have stopped in the middle: %.300s; commit again or undo",
                         cause.text);
}

static xorcast_status run_pass(xci_device_commit *commit, void *stream, bool undoing) {
    TRY(begin(commit, stream));
    commit->launched = false;
    commit->undoing = undoing;
    return end(commit, stream) < 0 ? mixed(commit) : XORCAST_OK;
}

xorcast_status xci_device_commit_apply(xci_device_commit *commit, void *stream) {
    TRY(xci_stream_need_free(commit->context, stream));
    return run_pass(commit, stream, false);
}

static xorcast_status wait_done(xci_device_commit *commit, uint64_t deadline_ns) {
    xorcast_context *context = commit->context;
    const xci_device *device = context->shared->device;
    const struct timespec pause = {0, POLL_NS};
    for (bool done = false; !done;) {
        XCI_DEVICE(context, "commit", device->ops->event_done(device->handle, commit->done, &done));
        if (done)
            break;
        if (xci_now_ns() >= deadline_ns)
            FAIL(context, XORCAST_TIMED_OUT,
                 "the commit's stream has not come to it yet; call xorcast_subscriber_wait again");
        nanosleep(&pause, NULL);
    }
    return XORCAST_OK;
}

static bool all_done(const xci_device_commit *commit) {
    return xci_load64(commit->pinned.at) == commit->count;
}

xorcast_status xci_device_commit_wait(xci_device_commit *commit, uint64_t deadline_ns,
                                      uint64_t *pause_ns_out) {
    xorcast_context *context = commit->context;
    const xci_device *device = context->shared->device;
    double milliseconds = 0;
    *pause_ns_out = 0;
    if (!commit->launched)
        return XORCAST_OK;
    const xorcast_status status = wait_done(commit, deadline_ns);
    if (status == XORCAST_TIMED_OUT)
        return status;
    if (status < 0 || xci_device_result(context,
                                        device->ops->event_elapsed(device->handle, commit->begun,
                                                                   commit->done, &milliseconds),
                                        "measure the pause") < 0)
        return mixed(commit);
    if (!all_done(commit))
        FAIL(context, XORCAST_WEIGHTS_MIXED,
             "the device applied %llu of %llu chunks; the weights are no version, take a keyframe",
             (unsigned long long)xci_load64(commit->pinned.at), (unsigned long long)commit->count);
    *pause_ns_out = (uint64_t)(milliseconds * 1e6);
    return XORCAST_OK;
}

/* ---- After a failure, and back ---- */

xorcast_status xci_device_commit_settle(xci_device_commit *commit, bool *applied_out) {
    xorcast_context *context = commit->context;
    const xci_device *device = context->shared->device;
    uint64_t progress;
    /* The stream is the caller's and may be gone: the whole device comes to rest. */
    if (xci_device_result(context, device->ops->quiet(device->handle), "come to rest") < 0 ||
        xci_device_result(
            context,
            device->ops->copy_now(device->handle, &progress, commit->progress.at, sizeof progress),
            "copy a counter") < 0)
        return mixed(commit);
    if (progress != 0 && progress != commit->count)
        FAIL(context, XORCAST_WEIGHTS_MIXED,
             "the device applied %llu of %llu chunks; the weights are no version, take a keyframe",
             (unsigned long long)progress, (unsigned long long)commit->count);
    commit->launched = false;
    *applied_out = (progress == commit->count) != commit->undoing;
    return XORCAST_OK;
}

xorcast_status xci_device_commit_undo(xci_device_commit *commit) {
    xorcast_context *context = commit->context;
    const xci_device *device = context->shared->device;
    if (commit->launched)
        XCI_DEVICE(context, "order two streams",
                   device->ops->stream_after(device->handle, commit->stream, commit->done));
    TRY(run_pass(commit, commit->stream, true));
    if (xci_device_result(context, device->ops->stream_wait(device->handle, commit->stream),
                          "take a commit back") < 0)
        return mixed(commit);
    if (!all_done(commit))
        FAIL(context, XORCAST_WEIGHTS_MIXED,
             "the device took back %llu of %llu chunks; the weights are no version, take a "
             "keyframe",
             (unsigned long long)xci_load64(commit->pinned.at), (unsigned long long)commit->count);
    return XORCAST_OK;
}
