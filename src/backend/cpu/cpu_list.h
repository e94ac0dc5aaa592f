/* Applies lists of changed bytes (codec/list_block.h), of several chunks one after the other. A
 * change is made when XCI_LIST_AHEAD changes more, of whatever chunk, have been asked for. */
#ifndef XCI_CPU_LIST_H
#define XCI_CPU_LIST_H

#include "backend/cpu/cpu_walk.h"

#define XCI_LIST_AHEAD 64u

XCI_CPU_INLINE void xci_apply_entry(void *state, uint32_t entry) {
    uint8_t *const weights = state;
    weights[entry >> 8] ^= (uint8_t)entry;
}

/* A place in the lists of consecutive jobs. */
typedef struct xci_list_cursor {
    const xci_block_job *job, *end; /* the next one, and behind the last */
    const uint8_t *weights;
    const uint32_t *entry;
    uint32_t left; /* entries of a job's list; 0: behind the last job's */
} xci_list_cursor;

XCI_CPU_INLINE void xci_list_skip(xci_list_cursor *cursor, uint32_t entries) {
    cursor->entry += entries;
    cursor->left -= entries;
    for (; cursor->left == 0 && cursor->job < cursor->end; ++cursor->job) {
        cursor->weights = cursor->job->weights;
        cursor->entry = cursor->job->list;
        cursor->left = cursor->job->list_bytes / XCI_LIST_ENTRY;
    }
}

/* Asks for the first changes. */
static xci_list_cursor xci_list_begin(const xci_block_job *jobs, uint64_t count) {
    static const uint32_t nothing; /* an address to which zero may be added */
    xci_list_cursor ahead = {.job = jobs, .end = jobs + count, .entry = &nothing};
    xci_list_skip(&ahead, 0);
    for (uint32_t fetched = 0; fetched < XCI_LIST_AHEAD && ahead.left > 0;) {
        const uint32_t run = (uint32_t)xci_min(XCI_LIST_AHEAD - fetched, ahead.left);
        for (uint32_t i = 0; i < run; ++i)
            xci_fetch(ahead.weights, ahead.entry[i] >> 8);
        fetched += run;
        xci_list_skip(&ahead, run);
    }
    return ahead;
}

static void xci_apply_list(const xci_block_job *job, xci_list_cursor *ahead) {
    const uint32_t *entry = job->list;
    uint32_t left = job->list_bytes / XCI_LIST_ENTRY;
    while (left > 0 && ahead->left > 0) {
        const uint32_t run = (uint32_t)xci_min(left, ahead->left);
        for (uint32_t i = 0; i < run; ++i) {
            xci_fetch(ahead->weights, ahead->entry[i] >> 8);
            xci_apply_entry(job->weights, entry[i]);
        }
        xci_list_skip(ahead, run);
        entry += run;
        left -= run;
    }
    for (uint32_t i = 0; i < left; ++i)
        xci_apply_entry(job->weights, entry[i]);
}

static void xci_apply_lists(const xci_block_job *jobs, uint64_t count) {
    xci_list_cursor ahead = xci_list_begin(jobs, count);
    for (uint64_t i = 0; i < count; ++i)
        xci_apply_list(&jobs[i], &ahead);
}

#endif
