/* The log: see version_log.h. A list from the oldest version to the newest; a version can be
 * followed if it is the base of one that is still there, or the newest. */
#include "publish/version_log.h"

#include "frame/about.h"

/* What an object takes in memory beside its bytes: names, places in lists, a context of its own. It
 * counts, or a long run of versions with hardly a change would take many times the bound. */
#define OBJECT_BYTES 1024u

typedef struct log_entry {
    struct log_entry *next;
    uint64_t base_step, step, bytes; /* of its objects, all told */
    uint64_t part_counts[2]; /* of each form */
    xorcast_digest base, target;
} log_entry;

struct xci_version_log {
    xorcast_context *context;
    const xci_link *link;
    xci_host *host;
    pthread_mutex_t lock;
    log_entry *oldest, *newest;
    uint64_t bound_bytes, bytes, count;
    uint64_t newest_step; /* also when nothing has been published yet */
    xorcast_digest newest_digest;
};

xorcast_status xci_version_log_open(xorcast_context *context, const xci_link *link,
                                    uint64_t bound_bytes, const xorcast_version *first,
                                    xci_version_log **log_out) {
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_version_log), &memory));
    xci_version_log *log = memory;
    log->context = context;
    log->link = link;
    log->bound_bytes = bound_bytes;
    log->newest_step = first->step;
    log->newest_digest = first->digest;
    pthread_mutex_init(&log->lock, NULL);
    *log_out = log;
    return XORCAST_OK;
}

void xci_version_log_attach(xci_version_log *log, xci_host *host) { log->host = host; }

static void drop_form(xci_version_log *log, const log_entry *entry, xci_form form) {
    char name[XCI_OBJECT_NAME_BYTES];
    xci_name_manifest(entry->step, form, name);
    log->link->host_drop(log->host, name);
    for (uint64_t p = 0; p < entry->part_counts[form]; p++) {
        xci_name_part(entry->step, form, p, name);
        log->link->host_drop(log->host, name);
    }
}

static void drop_objects(xci_version_log *log, const log_entry *entry) {
    drop_form(log, entry, XCI_FORM_PLAIN);
    drop_form(log, entry, XCI_FORM_BESIDE);
}

static void forget_oldest(xci_version_log *log) {
    log_entry *entry = log->oldest;
    log->oldest = entry->next;
    log->bytes -= entry->bytes;
    log->count--;
    if (log->oldest == NULL)
        log->newest = NULL;
    xci_release(log->context, entry);
}

/* The objects went with the host, which is closed before. */
void xci_version_log_close(xci_version_log *log) {
    if (log == NULL)
        return;
    while (log->oldest != NULL)
        forget_oldest(log);
    pthread_mutex_destroy(&log->lock);
    xci_release(log->context, log);
}

/* Of parts and manifest. */
static uint64_t bytes_of_form(const xorcast_delta_info *info) {
    return info != NULL ? info->delta_bytes + (1 + info->part_count) * OBJECT_BYTES : 0;
}

xorcast_status xci_version_log_add(xci_version_log *log, const xorcast_delta_info *info,
                                   const xorcast_delta_info *beside) {
    void *memory;
    TRY(xci_allocate_zeroed(log->context, sizeof(log_entry), &memory));
    log_entry *entry = memory;
    *entry = (log_entry){NULL,
                         info->base.step,
                         info->target.step,
                         bytes_of_form(info) + bytes_of_form(beside),
                         {info->part_count, beside != NULL ? beside->part_count : 0},
                         info->base.digest,
                         info->target.digest};
    pthread_mutex_lock(&log->lock);
    if (log->newest != NULL)
        log->newest->next = entry;
    else
        log->oldest = entry;
    log->newest = entry;
    log->bytes += entry->bytes;
    log->count++;
    log->newest_step = entry->step;
    log->newest_digest = entry->target;
    while (log->bytes > log->bound_bytes && log->count > 1) {
        drop_objects(log, log->oldest);
        forget_oldest(log);
    }
    pthread_mutex_unlock(&log->lock);
    return XORCAST_OK;
}

static bool same_digest(const xorcast_digest *a, const xorcast_digest *b) {
    return a->lane[0] == b->lane[0] && a->lane[1] == b->lane[1];
}

xorcast_status xci_version_log_find(xci_version_log *log, xorcast_context *context,
                                    const xorcast_digest *digest, uint64_t *step_out) {
    bool found = false;
    pthread_mutex_lock(&log->lock);
    if (same_digest(digest, &log->newest_digest)) {
        *step_out = log->newest_step;
        found = true;
    }
    for (const log_entry *entry = log->oldest; entry != NULL && !found; entry = entry->next)
        if (same_digest(digest, &entry->base)) {
            *step_out = entry->base_step;
            found = true;
        }
    pthread_mutex_unlock(&log->lock);
    if (!found)
        FAIL(context, XORCAST_NOT_FOUND,
             "no version in the log has these bytes; a keyframe is needed");
    return XORCAST_OK;
}

void xci_version_log_stats(xci_version_log *log, uint64_t *bytes_out, uint64_t *versions_out,
                           uint64_t *oldest_step_out) {
    pthread_mutex_lock(&log->lock);
    *bytes_out = log->bytes;
    *versions_out = log->count;
    *oldest_step_out = log->oldest != NULL ? log->oldest->base_step : log->newest_step;
    pthread_mutex_unlock(&log->lock);
}
