/* The publisher: versions from begin to finish, and what it answers to subscribers. Encoding is
 * pending.c's and encode.c's, the copy of what is published shadow.c's, retention version_log.c's,
 * sockets the link's. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/digest.h"
#include "frame/about.h"
#include "publish/bound.h"
#include "publish/parts.h"
#include "publish/pending.h"
#include "publish/version_log.h"
#include "ship/link.h"

struct xorcast_publisher {
    xorcast_context *context;
    xorcast_bundle *bundle;
    const xci_link *link;
    xci_host *host;
    xci_shadow *shadow;
    xci_version_log *log;
    xci_pending pending;
    xorcast_encoding encoding;
    xorcast_version version; /* published last */
    uint64_t open_step;
    bool is_open;            /* between begin and finish */
    bool spoiled;            /* a put failed: the open version can only be dropped */
    uint64_t keeps;          /* its share of memory that stays with the context */
    xorcast_publisher_stats stats;
};

/* ---- Answers ---- */

static xorcast_status answer_about(const xorcast_publisher *publisher, xorcast_context *context,
                                   xci_blob **blob_out) {
    const xorcast_layout *layout = &publisher->bundle->layout;
    xci_about about = {.chunk_bytes = layout->chunk_bytes, .group_bytes = layout->group_bytes,
                       .tensor_count = layout->tensor_count, .total_bytes = layout->total_bytes};
    uint8_t bytes[XCI_ABOUT_BYTES];
    memcpy(about.run, publisher->version.run, sizeof about.run);
    memcpy(about.fingerprint, layout->fingerprint, sizeof about.fingerprint);
    xci_about_write(&about, bytes);
    return xci_blob_copy(context, bytes, sizeof bytes, blob_out);
}

static xorcast_status answer_whois(xorcast_publisher *publisher, xorcast_context *context,
                                   const uint64_t lanes[2], xci_blob **blob_out) {
    const xorcast_digest digest = {{lanes[0], lanes[1]}};
    uint64_t step;
    uint8_t bytes[8];
    TRY(xci_version_log_find(publisher->log, context, &digest, &step));
    xci_store64(bytes, step);
    return xci_blob_copy(context, bytes, sizeof bytes, blob_out);
}

/* Runs on a thread of the link; touches only what does not change after open, the shadow and the
 * log. */
static xorcast_status serve(void *user, xorcast_context *context, const char *name,
                            xci_blob **blob_out) {
    xorcast_publisher *publisher = user;
    uint64_t numbers[2];
    if (strcmp(name, "about") == 0)
        return answer_about(publisher, context, blob_out);
    if (xci_name_numbers(name, "whois/", 16, numbers, 2))
        return answer_whois(publisher, context, numbers, blob_out);
    if (xci_name_numbers(name, "group/", 10, numbers, 1))
        return xci_shadow_group(publisher->shadow, context, numbers[0], blob_out);
    if (xci_name_numbers(name, "digests/", 10, numbers, 2) && numbers[1] <= XCI_DIGEST_GROUPS_MAX)
        return xci_shadow_digests(publisher->shadow, context, numbers[0], numbers[1], blob_out);
    if (strncmp(name, "version/", strlen("version/")) == 0)
        FAIL(context, XORCAST_VERSION_GONE, "%s is no longer in the publisher's log, or never was",
             name);
    FAIL(context, XORCAST_NOT_FOUND, "the publisher has no object %.100s", name);
}

/* ---- Opening ---- */

static xorcast_status check_options(xorcast_bundle *bundle,
                                    const xorcast_publisher_options *options) {
    xorcast_context *context = bundle->context;
    TRY(xci_bundle_need_sealed(bundle));
    if (options->struct_size != sizeof *options)
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "publisher options are not initialised; use XORCAST_PUBLISHER_OPTIONS_INIT");
    if (options->run != NULL && (options->run[0] == 0 || strlen(options->run) >= XORCAST_RUN_BYTES))
        FAIL(context, XORCAST_BAD_ARGUMENT, "a run's name has 1 to %d bytes",
             XORCAST_RUN_BYTES - 1);
    if (options->step == XORCAST_NO_STEP)
        FAIL(context, XORCAST_BAD_ARGUMENT, "the first version needs a step");
    if (bundle->on_device && options->encoding.codec == XORCAST_CODEC_SNAPPY)
        FAIL(context, XORCAST_UNSUPPORTED,
             "weights in device memory are not encoded as snappy; take another codec");
    if (!bundle->complete)
        FAIL(context, XORCAST_UNSUPPORTED,
             "a publisher needs whole tensors; this bundle has boxes that leave holes");
    for (uint64_t t = 0; bundle->share_count > 1 && t < bundle->tensor_count; t++)
        for (uint32_t i = 0; i < bundle->tensors[t].region_count; i++)
            if (bundle->tensors[t].regions[i].replica)
                FAIL(context, XORCAST_UNSUPPORTED,
                     "tensor %s has a replica, which a publisher on several devices does not read; "
                     "leave it out",
                     bundle->tensors[t].name);
    return XORCAST_OK;
}

static xorcast_status name_run(xorcast_publisher *publisher, const char *run) {
    uint64_t number;
    if (run != NULL) {
        strncpy(publisher->version.run, run, XORCAST_RUN_BYTES - 1);
        return XORCAST_OK;
    }
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        FAIL(publisher->context, XORCAST_INTERNAL,
             "the system gives no random numbers; name the run yourself");
    snprintf(publisher->version.run, XORCAST_RUN_BYTES, "run-%016llx", (unsigned long long)number);
    return XORCAST_OK;
}

static xorcast_status open_all(xorcast_publisher *publisher, const char *url,
                               const xorcast_publisher_options *options) {
    xorcast_context *context = publisher->context;
    const xci_serve answers = {serve, publisher};
    const xci_host_options host_options = {options->max_peers, options->peer_timeout_ms,
                                           options->insecure != 0};
    const uint64_t log_bytes =
        options->log_bytes ? options->log_bytes : publisher->bundle->layout.total_bytes / 4;
    TRY(xci_encoding_check(context, &options->encoding, &publisher->encoding));
    TRY(xci_link_find(context, url, &publisher->link));
    TRY(name_run(publisher, options->run));
    TRY(xci_shadow_open(publisher->bundle, options->step, options->shadow_in_host != 0,
                        &publisher->shadow));
    publisher->version.step = options->step;
    publisher->version.digest = xci_shadow_digest(publisher->shadow);
    TRY(xci_pending_open(&publisher->pending, publisher->bundle, publisher->shadow,
                         &publisher->encoding, options->measure_bound != 0, options->stream,
                         publisher->link->one_process));
    /* The log is complete before the link answers anyone; it gets its host right after. */
    TRY(xci_version_log_open(context, publisher->link, log_bytes, &publisher->version,
                             &publisher->log));
    TRY(publisher->link->host_open(context, url, &host_options, &answers, &publisher->host));
    xci_version_log_attach(publisher->log, publisher->host);
    publisher->link->host_announce(publisher->host, publisher->version.step);
    return XORCAST_OK;
}

xorcast_status xorcast_publisher_open(xorcast_bundle *bundle, const char *url,
                                      const xorcast_publisher_options *options,
                                      xorcast_publisher **publisher_out) {
    static const xorcast_publisher_options defaults = XORCAST_PUBLISHER_OPTIONS_INIT;
    if (options == NULL)
        options = &defaults;
    TRY(check_options(bundle, options));
    void *memory;
    TRY(xci_allocate_zeroed(bundle->context, sizeof(xorcast_publisher), &memory));
    xorcast_publisher *publisher = memory;
    publisher->context = bundle->context;
    publisher->bundle = bundle;
    const xorcast_status status = open_all(publisher, url, options);
    if (status < 0) {
        xorcast_publisher_close(publisher);
        return status;
    }
    *publisher_out = publisher;
    return XORCAST_OK;
}

void xorcast_publisher_close(xorcast_publisher *publisher) {
    if (publisher == NULL)
        return;
    if (publisher->host != NULL)
        publisher->link->host_close(publisher->host);
    xci_version_log_close(publisher->log);
    xci_pending_close(&publisher->pending);
    xci_shadow_close(publisher->shadow);
    xci_keep(publisher->context, &publisher->keeps, 0);
    xci_release(publisher->context, publisher);
}

const char *xorcast_publisher_url(xorcast_publisher *publisher) {
    return publisher->link->host_url(publisher->host);
}

/* ---- A version ---- */

xorcast_status xorcast_publisher_begin(xorcast_publisher *publisher, uint64_t step) {
    xorcast_context *context = publisher->context;
    if (publisher->is_open)
        FAIL(context, XORCAST_BAD_STATE, "version %llu is still open; finish or abort it first",
             (unsigned long long)publisher->open_step);
    if (step <= publisher->version.step || step == XORCAST_NO_STEP)
        FAIL(context, XORCAST_VERSION_ORDER,
             "step %llu does not follow %llu, which is published; steps only grow",
             (unsigned long long)step, (unsigned long long)publisher->version.step);
    TRY(xci_shadow_check(publisher->shadow, context));
    TRY(xci_pending_begin(&publisher->pending));
    publisher->open_step = step;
    publisher->is_open = true;
    publisher->spoiled = false;
    return XORCAST_OK;
}

static xorcast_status put(xorcast_publisher *publisher, uint64_t count, const uint64_t *indices,
                          const void *const *data, bool keep) {
    xorcast_context *context = publisher->context;
    if (!publisher->is_open)
        FAIL(context, XORCAST_BAD_STATE, "no version is open; call xorcast_publisher_begin first");
    if (publisher->spoiled)
        FAIL(context, XORCAST_BAD_STATE,
             "an earlier put of version %llu failed; abort it and begin again",
             (unsigned long long)publisher->open_step);
    if (indices == NULL)
        count = publisher->bundle->tensor_count;
    const xorcast_status status = xci_pending_put(&publisher->pending, count, indices, data, keep);
    publisher->spoiled = status < 0 && status != XORCAST_BAD_ARGUMENT;
    return status;
}

xorcast_status xorcast_publisher_put(xorcast_publisher *publisher, uint64_t count,
                                     const uint64_t *indices, const void *const *data) {
    return put(publisher, count, indices, data, false);
}

xorcast_status xorcast_publisher_keep(xorcast_publisher *publisher, uint64_t count,
                                      const uint64_t *indices) {
    return put(publisher, count, indices, NULL, true);
}

void xorcast_publisher_abort(xorcast_publisher *publisher) {
    if (publisher->is_open)
        xci_shadow_take_back(publisher->shadow);
    publisher->is_open = false;
}

/* ---- Publishing ---- */

/* One form of the version; there may be another beside it. */
typedef struct publication {
    xorcast_publisher *publisher;
    xci_form form;
    xci_delta_writer writer;
    xci_manifest manifest;
    uint64_t part_count;
} publication;

static xorcast_status deliver_part(void *user, uint64_t index, xci_blob *part) {
    publication *p = user;
    xorcast_publisher *publisher = p->publisher;
    char name[XCI_OBJECT_NAME_BYTES];
    xci_name_part(publisher->open_step, p->form, index, name);
    TRY(publisher->link->host_put(publisher->host, name, part));
    p->part_count++;
    return XORCAST_OK;
}

static void fill_manifest(xorcast_publisher *publisher, xci_form form, xci_manifest *manifest) {
    const bool beside = form == XCI_FORM_BESIDE;
    const xorcast_layout *layout = &publisher->bundle->layout;
    xorcast_delta_info *info = &manifest->info;
    xci_put_sums sums;
    xci_pending_sums(&publisher->pending, &sums);
    info->base = info->target = publisher->version;
    info->target.step = publisher->open_step;
    xci_digest_merge(&info->target.digest, &sums.change);
    memcpy(info->base_fingerprint, layout->fingerprint, sizeof layout->fingerprint);
    memcpy(info->target_fingerprint, layout->fingerprint, sizeof layout->fingerprint);
    info->counts = sums.counts;
    info->chunk_bytes = layout->chunk_bytes;
    info->group_bytes = layout->group_bytes;
    info->needs_old_weights = beside;
    info->offers_old_weights = !beside && publisher->encoding.old_weights == 1;
    info->chunk_encoded_bytes = sums.encoded_bytes[form];
    manifest->encoding = info->asked = publisher->encoding;
    manifest->layout_group_count = layout->group_count;
    manifest->layout_chunk_count = layout->chunk_count;
}

/* Parts, then the manifest, as objects of the link. */
static xorcast_status put_objects(publication *p) {
    xorcast_publisher *publisher = p->publisher;
    fill_manifest(publisher, p->form, &p->manifest);
    TRY(xci_parts_write(&publisher->pending.parts[p->form], &p->writer));
    xci_blob *manifest;
    char name[XCI_OBJECT_NAME_BYTES];
    TRY(xci_delta_writer_finish(&p->writer, &p->manifest, &manifest));
    xci_name_manifest(publisher->open_step, p->form, name);
    const xorcast_status status = publisher->link->host_put(publisher->host, name, manifest);
    xci_blob_drop(manifest);
    return status;
}

static void drop_objects(publication *p) {
    xorcast_publisher *publisher = p->publisher;
    char name[XCI_OBJECT_NAME_BYTES];
    xci_name_manifest(publisher->open_step, p->form, name);
    publisher->link->host_drop(publisher->host, name);
    for (uint64_t i = 0; i <= p->part_count; i++) {
        xci_name_part(publisher->open_step, p->form, i, name);
        publisher->link->host_drop(publisher->host, name);
    }
}

/* Memory that parts like those of this version take: the last, or only, one may have room for as
 * much as any. */
static uint64_t room_of(const publication *p) {
    return xci_kept_total(p->manifest.info.delta_bytes) + XCI_PART_ROOM;
}

/* Everything that can fail comes before the version is in the log; from then on it is published. */
static xorcast_status publish(publication *p, publication *beside) {
    xorcast_publisher *publisher = p->publisher;
    const bool two = publisher->encoding.old_weights == 1;
    TRY(xci_pending_check(&publisher->pending));
    TRY(xci_pending_plan(&publisher->pending));
    if (two)
        TRY(put_objects(beside));
    TRY(put_objects(p));
    /* What the log drops now becomes the parts of the next version. */
    xci_keep(publisher->context, &publisher->keeps, room_of(p) + (two ? room_of(beside) : 0));
    TRY(xci_version_log_add(publisher->log, &p->manifest.info,
                            two ? &beside->manifest.info : NULL));
    /* The run's name stays untouched: threads of the link read it. */
    publisher->version.step = p->manifest.info.target.step;
    publisher->version.digest = p->manifest.info.target.digest;
    publisher->link->host_announce(publisher->host, publisher->version.step);
    return XORCAST_OK;
}

static void note_stats(xorcast_publisher *publisher, const xci_manifest *manifest,
                       uint64_t frame_ns) {
    xorcast_publisher_stats *stats = &publisher->stats;
    const xci_pending *pending = &publisher->pending;
    xci_put_sums sums;
    xci_pending_sums(pending, &sums);
    stats->delta = manifest->info;
    if (pending->bound != NULL)
        stats->delta.entropy_bound_bytes = xci_bound_bytes(pending->bound, publisher->bundle);
    /* Workers do all of it at once: put's time by the clock is split as their time was spent. */
    const double work = (double)(sums.encode_ns + sums.frame_ns + sums.bound_ns);
    const double share = work > 0 ? (double)pending->put_ns / work : 0;
    stats->encode_ns = (uint64_t)(share * (double)sums.encode_ns);
    stats->frame_ns = (uint64_t)(share * (double)sums.frame_ns) + frame_ns;
}

xorcast_status xorcast_publisher_finish(xorcast_publisher *publisher,
                                        xorcast_publisher_stats *stats_out) {
    xorcast_context *context = publisher->context;
    if (!publisher->is_open)
        FAIL(context, XORCAST_BAD_STATE, "no version is open; call xorcast_publisher_begin first");
    if (publisher->spoiled)
        FAIL(context, XORCAST_BAD_STATE, "a put of version %llu failed; abort it and begin again",
             (unsigned long long)publisher->open_step);
    publication p = {.publisher = publisher};
    publication beside = {.publisher = publisher, .form = XCI_FORM_BESIDE};
    const uint64_t begun = xci_now_ns();
    xci_delta_writer_begin(&p.writer, context, deliver_part, &p);
    xci_delta_writer_begin(&beside.writer, context, deliver_part, &beside);
    const xorcast_status status = publish(&p, &beside);
    if (status == XORCAST_OK) {
        xci_shadow_settle(publisher->shadow, &publisher->version);
        note_stats(publisher, &p.manifest, xci_now_ns() - begun);
        publisher->is_open = false;
    } else if (status != XORCAST_BAD_STATE) {
        drop_objects(&p);
        drop_objects(&beside);
        xorcast_publisher_abort(publisher);
    }
    xci_delta_writer_end(&p.writer);
    xci_delta_writer_end(&beside.writer);
    TRY(status);
    if (stats_out != NULL)
        xorcast_publisher_get_stats(publisher, stats_out);
    return XORCAST_OK;
}

void xorcast_publisher_get_stats(xorcast_publisher *publisher, xorcast_publisher_stats *stats_out) {
    xci_host_stats host;
    publisher->link->host_stats(publisher->host, &host);
    *stats_out = publisher->stats;
    stats_out->version = publisher->version;
    stats_out->sent_bytes = host.sent_bytes;
    stats_out->peers = host.peers;
    stats_out->peers_current = host.peers_current;
    xci_version_log_stats(publisher->log, &stats_out->log_bytes, &stats_out->log_versions,
                          &stats_out->oldest_step);
    xorcast_context_memory(publisher->context, &stats_out->memory);
}
