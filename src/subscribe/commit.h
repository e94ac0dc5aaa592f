/* Commit: the pause. XORs staged blocks into the live weights, in place, and nothing else: no
 * allocation, no network, no waiting. Each chunk has a flag that says whether it is done, so that
 * a commit that stopped can be finished or undone. With a journal (journal.h) the flags outlive
 * the process. */
#ifndef XCI_COMMIT_H
#define XCI_COMMIT_H

#include "subscribe/journal.h"
#include "subscribe/stage.h"

typedef struct xci_commit {
    xorcast_bundle *bundle;
    const xci_ready *ready;
    uint64_t count;
    uint8_t *done;         /* for each, 1 once applied; in the journal if there is one */
    xci_journal *journal;  /* or NULL */
    uint8_t **scratch;     /* for each worker, a chunk and as much again */
    uint64_t flags_capacity;
    uint8_t *flags;        /* `done` when there is no journal */
} xci_commit;

xorcast_status xci_commit_open(xci_commit *commit, xorcast_bundle *bundle, xci_journal *journal);
void xci_commit_close(xci_commit *commit);

/* Everything that commit will need, while generation still goes on: flags, or the journal's copy
 * of the blocks. */
xorcast_status xci_commit_prepare(xci_commit *commit, const xci_stage *stage);
/* Applies what is not done, or takes back what is. WEIGHTS_MIXED if it stops in between: call
 * one of them again. */
xorcast_status xci_commit_apply(xci_commit *commit);
/* The same as worker 0 and no other. */
xorcast_status xci_commit_apply_alone(xci_commit *commit);
xorcast_status xci_commit_undo(xci_commit *commit);

/* Test hook: the n-th chunk from now (0: the next) stops the commit. A negative n switches it
 * off. */
void xci_commit_fail_after(int64_t n);

#endif
