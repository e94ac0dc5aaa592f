/* Chains: see chain.h. */
#include "subscribe/chain.h"

#include <errno.h>
#include <string.h>

/* Links take memory while the publisher says that there is one more. A log holds some tens. */
#define LINKS_MAX 16384u

static void free_link(xorcast_context *context, xci_chain_link *link) {
    for (uint64_t p = 0; p < link->part_count && link->parts != NULL; p++)
        xci_blob_drop(link->parts[p]);
    xci_release(context, link->parts);
    xci_manifest_free(context, &link->manifest);
    xci_blob_drop(link->manifest_blob);
}

void xci_chain_close(xci_chain *chain) {
    if (chain->context == NULL)
        return;
    for (uint64_t i = 0; i < chain->count; i++)
        free_link(chain->context, &chain->links[i]);
    xci_release(chain->context, chain->links);
    *chain = (xci_chain){0};
}

static xorcast_status add_link(xci_chain *chain, xci_feed *feed, uint64_t step,
                               uint64_t deadline_ns) {
    TRY(xci_grow(chain->context, &chain->links, &chain->capacity,
                 (chain->count + 1) * sizeof(xci_chain_link)));
    xci_chain_link *link = &chain->links[chain->count];
    memset(link, 0, sizeof *link);
    TRY(xci_feed_manifest(feed, step, XCI_FORM_PLAIN, deadline_ns, &link->manifest,
                          &link->manifest_blob));
    link->part_count = link->manifest.info.part_count;
    chain->delta_bytes += link->manifest.info.delta_bytes;
    chain->count++;
    return XORCAST_OK;
}

static void oldest_first(xci_chain *chain) {
    for (uint64_t i = 0; i < chain->count / 2; i++) {
        const xci_chain_link link = chain->links[i];
        chain->links[i] = chain->links[chain->count - 1 - i];
        chain->links[chain->count - 1 - i] = link;
    }
}

static xorcast_status walk_back(xci_chain *chain, xci_feed *feed, uint64_t from, uint64_t to,
                                uint64_t bound_bytes, uint64_t deadline_ns) {
    for (uint64_t step = to; step > from;) {
        if (chain->count == LINKS_MAX)
            FAIL(chain->context, XORCAST_VERSION_GONE,
                 "more than %u versions lie between step %llu and step %llu; take a keyframe",
                 LINKS_MAX, (unsigned long long)from, (unsigned long long)to);
        TRY(add_link(chain, feed, step, deadline_ns));
        if (chain->count > 1 && chain->delta_bytes > bound_bytes)
            FAIL(chain->context, XORCAST_VERSION_GONE,
                 "%llu deltas with more than %llu bytes lead to step %llu; a keyframe is "
                 "cheaper",
                 (unsigned long long)chain->count, (unsigned long long)bound_bytes,
                 (unsigned long long)to);
        step = chain->links[chain->count - 1].manifest.info.base.step;
        if (step < from)
            FAIL(chain->context, XORCAST_BASE_MISMATCH,
                 "no version starts from step %llu, which these weights are; take a keyframe",
                 (unsigned long long)from);
    }
    oldest_first(chain);
    return XORCAST_OK;
}

xorcast_status xci_chain_open(xci_chain *chain, xci_feed *feed, uint64_t from, uint64_t to,
                              uint64_t bound_bytes, uint64_t deadline_ns) {
    *chain = (xci_chain){.context = feed->context};
    const xorcast_status status = walk_back(chain, feed, from, to, bound_bytes, deadline_ns);
    if (status < 0)
        xci_chain_close(chain);
    return status;
}

xorcast_status xci_chain_take_beside(xci_chain *chain, xci_feed *feed, uint64_t deadline_ns) {
    xci_chain_link link = {.form = XCI_FORM_BESIDE};
    TRY(xci_feed_manifest(feed, chain->links[0].manifest.info.target.step, link.form, deadline_ns,
                          &link.manifest, &link.manifest_blob));
    link.part_count = link.manifest.info.part_count;
    free_link(chain->context, &chain->links[0]);
    chain->links[0] = link;
    return XORCAST_OK;
}

/* ---- Parts ---- */

typedef struct fetch {
    xci_chain_link *link;
    xorcast_status (*take)(void *user, uint64_t part, xci_blob *blob);
    void *user;
} fetch;

static void part_name(void *user, uint64_t index, char name[XCI_OBJECT_NAME_BYTES]) {
    const fetch *f = user;
    xci_name_part(f->link->manifest.info.target.step, f->link->form, index, name);
}

static uint64_t part_limit(void *user, uint64_t index) {
    const fetch *f = user;
    return f->link->manifest.parts[index].bytes;
}

static xorcast_status take_part(void *user, uint64_t index, xci_blob *blob) {
    const fetch *f = user;
    if (f->take != NULL)
        return f->take(f->user, index, blob);
    f->link->parts[index] = xci_blob_hold(blob);
    return XORCAST_OK;
}

xorcast_status xci_chain_fetch(xci_chain *chain, xci_feed *feed, uint64_t index,
                               uint64_t deadline_ns,
                               xorcast_status (*take)(void *user, uint64_t part, xci_blob *blob),
                               void *user) {
    fetch f = {&chain->links[index], take, user};
    const xci_series series = {f.link->part_count, part_name, part_limit, take_part, &f};
    if (take == NULL) {
        void *memory;
        TRY(xci_allocate_array(chain->context, f.link->part_count, sizeof(xci_blob *), &memory));
        xci_release(chain->context, f.link->parts);
        f.link->parts = memory;
    }
    return xci_feed_get_series(feed, &series, deadline_ns);
}

/* ---- As a source ---- */

/* Copies what [offset, offset + count) has of a piece that stands at `at`. */
static void copy_overlap(uint64_t at, const void *bytes, uint64_t size, uint64_t offset,
                         uint8_t *out, uint64_t count) {
    const uint64_t begin = xci_max(at, offset), end = xci_min(at + size, offset + count);
    if (begin < end)
        memcpy(out + (begin - offset), (const uint8_t *)bytes + (begin - at), end - begin);
}

static int read_link(void *user, uint64_t offset, void *buffer, uint64_t count) {
    const xci_chain_link *link = user;
    uint8_t head[XCI_HEAD_BYTES];
    uint64_t at = XCI_HEAD_BYTES;
    if (count > link->manifest.info.delta_bytes || offset > link->manifest.info.delta_bytes - count)
        return EINVAL;
    xci_head_write(head);
    copy_overlap(0, head, sizeof head, offset, buffer, count);
    for (uint64_t p = 0; p < link->part_count; p++) {
        const xci_blob *part = link->parts[p];
        if (part->size != link->manifest.parts[p].bytes)
            return EIO;
        copy_overlap(at, part->bytes, part->size, offset, buffer, count);
        at += part->size;
    }
    copy_overlap(at, link->manifest_blob->bytes, link->manifest_blob->size, offset, buffer, count);
    return 0;
}

xorcast_source xci_chain_source(xci_chain_link *link) {
    return (xorcast_source){
        .size = link->manifest.info.delta_bytes, .read = read_link, .user = link};
}
