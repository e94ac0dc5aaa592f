/* The journal of weights that outlive the process: a file beside them that says which version is
 * being committed, with the ready blocks, a flag for each chunk, and for each worker a copy of
 * the chunk it is changing. Whoever opens it after a kill -9 puts torn chunks back from their
 * copies and finishes the commit, without a publisher.
 *
 * Written before the pause; in the pause only flags and copies are. It survives the death of the
 * process, not of the machine: then the scan at open finds what is wrong and a keyframe repairs
 * it. Owns its file. */
#ifndef XCI_JOURNAL_H
#define XCI_JOURNAL_H

#include "bundle/bundle.h"
#include "subscribe/stage.h"

typedef struct xci_journal xci_journal;

/* Opens or creates. An interrupted commit that it finds is finished first; `finished_out` tells. A
 * file that is not a journal of this layout, or is damaged, is DATA_CORRUPT: the caller says to
 * remove it. */
xorcast_status xci_journal_open(xorcast_bundle *bundle, const char *path, xci_journal **journal_out,
                                bool *finished_out);
void xci_journal_close(xci_journal *journal); /* NULL is allowed */

/* Copies the staged blocks in; the journal stays idle. */
xorcast_status xci_journal_prepare(xci_journal *journal, const xci_stage *stage);
/* The flags of the prepared blocks, in the file. */
uint8_t *xci_journal_flags(xci_journal *journal);
/* The commit begins, or is complete (or wholly undone). Cannot fail. */
void xci_journal_begin(xci_journal *journal);
void xci_journal_end(xci_journal *journal);
/* The worker is about to change a chunk, whose bytes are kept until the next call. */
void xci_journal_keep(xci_journal *journal, uint32_t worker, uint64_t ready_index,
                      const uint8_t *old_bytes, uint32_t bytes);

#endif
