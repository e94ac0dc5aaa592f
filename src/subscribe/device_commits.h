/* Commit for weights in device memory: each share of the bundle (bundle/shares.h) commits on its
 * own device, all of them between what is on the caller's stream before and what comes there
 * behind. That stream is of the context's device; on another device the work is put on the default
 * stream, after what is there. Each share is wholly old or new, or says that it is neither, so that
 * a commit that stopped between devices can be finished or undone. */
#ifndef XCI_DEVICE_COMMITS_H
#define XCI_DEVICE_COMMITS_H

#include "subscribe/device_commit.h"

typedef struct xci_commit_share {
    xci_device_commit commit;
    bool applied; /* what was put on a stream last counts as done */
    bool unsure;  /* only the device knows */
} xci_commit_share;

typedef struct xci_device_commits {
    xorcast_context *context;
    void *ready; /* event behind what is on the caller's stream; only of several devices */
    xci_commit_share *shares;
    uint32_t count;
} xci_device_commits;

xorcast_status xci_device_commits_open(xci_device_commits *commits, xorcast_bundle *bundle);
void xci_device_commits_close(xci_device_commits *commits);

/* Everything that commit will need, while generation still goes on. */
xorcast_status xci_device_commits_prepare(xci_device_commits *commits, const xci_stage *stage);
/* Puts the XOR of the shares that are not applied on `stream`. DEVICE_FAILED, BAD_STATE: nothing is
 * changed. WEIGHTS_MIXED: something may be; settle, then apply again, or undo. */
xorcast_status xci_device_commits_apply(xci_device_commits *commits, void *stream);
/* Waits until it is done. TIMED_OUT: not yet. WEIGHTS_MIXED: a device failed. */
xorcast_status xci_device_commits_wait(xci_device_commits *commits, uint64_t deadline_ns,
                                       uint64_t *pause_ns_out);
/* After WEIGHTS_MIXED: finds out which shares are applied. WEIGHTS_MIXED if one is neither, or if a
 * device does not answer. */
xorcast_status xci_device_commits_settle(xci_device_commits *commits);
/* Takes back the shares that are applied, and waits. */
xorcast_status xci_device_commits_undo(xci_device_commits *commits);

#endif
