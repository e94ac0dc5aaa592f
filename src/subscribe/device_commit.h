/* Commit for weights in memory of one device: one launch on a stream XORs all staged blocks in
 * place. Nothing is allocated, nothing waited for. A counter on the device says afterwards how many
 * chunks are done, so that a call that failed in between is told from one that worked. */
#ifndef XCI_DEVICE_COMMIT_H
#define XCI_DEVICE_COMMIT_H

#include "subscribe/device_stage.h"

typedef struct xci_device_commit {
    xorcast_context *context;
    xorcast_bundle *bundle;       /* a share */
    const xci_cuda_block *blocks; /* the list of what is staged; the stage's */
    xci_device_memory progress; /* 8 bytes, and on the host: */
    xci_device_memory pinned;
    void *stream;               /* our own, for what does not belong to the pause */
    void *begun, *done;         /* events round the pause */
    uint64_t count;
    bool undoing;               /* the last pass takes back */
    bool launched;              /* `done` is recorded; else there is nothing to wait for */
} xci_device_commit;

xorcast_status xci_device_commit_open(xci_device_commit *commit, xorcast_bundle *bundle);
void xci_device_commit_close(xci_device_commit *commit);

/* Everything that commit will need, while generation still goes on. */
xorcast_status xci_device_commit_prepare(xci_device_commit *commit, xci_stage_share *stage);
/* Puts the XOR on `stream`. DEVICE_FAILED, BAD_STATE: nothing is changed. WEIGHTS_MIXED: something
 * may be; settle tells. */
xorcast_status xci_device_commit_apply(xci_device_commit *commit, void *stream);
/* Waits until it is done. TIMED_OUT: not yet. WEIGHTS_MIXED: the device failed. */
xorcast_status xci_device_commit_wait(xci_device_commit *commit, uint64_t deadline_ns,
                                      uint64_t *pause_ns_out);
/* After WEIGHTS_MIXED: whether the weights are the new version (true) or the old one. WEIGHTS_MIXED
 * if they are neither, or if the device does not answer. */
xorcast_status xci_device_commit_settle(xci_device_commit *commit, bool *applied_out);
/* Takes back what was applied, and waits. */
xorcast_status xci_device_commit_undo(xci_device_commit *commit);

#endif
