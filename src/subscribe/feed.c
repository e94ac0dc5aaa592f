/* Feeds: see feed.h. */
#include "subscribe/feed.h"

#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"

static void disconnect(xci_feed *feed) {
    if (feed->peer != NULL)
        feed->link->peer_close(feed->peer);
    feed->peer = NULL;
}

static bool is_refusal(xorcast_status status) {
    return status == XORCAST_NOT_FOUND || status == XORCAST_VERSION_GONE ||
           status == XORCAST_DATA_LIMIT;
}

static xorcast_status receive(xci_feed *feed, uint64_t deadline_ns, xci_blob **blob_out) {
    const uint64_t begun = xci_now_ns();
    const xorcast_status status = feed->link->peer_receive(feed->peer, deadline_ns, blob_out);
    feed->waited_ns += xci_now_ns() - begun;
    if (status == XORCAST_OK)
        feed->received_bytes += (*blob_out)->size;
    else if (!is_refusal(status))
        disconnect(feed);
    return status;
}

/* A publisher that always answers at once is never waited for: the clock is looked at here too. */
static xorcast_status request(xci_feed *feed, const char *name, uint64_t limit_bytes,
                              uint64_t deadline_ns) {
    if (xci_now_ns() >= deadline_ns)
        FAIL(feed->context, XORCAST_TIMED_OUT,
             "the time was over before all had come from %s; allow more", feed->url);
    const xorcast_status status =
        feed->link->peer_request(feed->peer, name, limit_bytes, deadline_ns);
    if (status < 0)
        disconnect(feed);
    return status;
}

static xorcast_status get_connected(xci_feed *feed, const char *name, uint64_t limit_bytes,
                                    uint64_t deadline_ns, xci_blob **blob_out) {
    TRY(request(feed, name, limit_bytes, deadline_ns));
    return receive(feed, deadline_ns, blob_out);
}

/* ---- Connecting ---- */

static xorcast_status read_about(xci_feed *feed, uint64_t deadline_ns, xci_about *about_out) {
    xci_blob *blob;
    TRY(get_connected(feed, "about", XCI_ABOUT_BYTES, deadline_ns, &blob));
    const xorcast_status status = xci_about_read(feed->context, blob->bytes, blob->size, about_out);
    xci_blob_drop(blob);
    return status;
}

xorcast_status xci_feed_open(xci_feed *feed, xorcast_context *context, const char *url,
                             bool insecure, uint64_t deadline_ns) {
    memset(feed, 0, sizeof *feed);
    feed->context = context;
    feed->insecure = insecure;
    xorcast_status status = xci_link_find(context, url, &feed->link);
    if (status == XORCAST_OK)
        status = xci_copy_string(context, url, &feed->url);
    if (status == XORCAST_OK)
        status = feed->link->peer_open(context, url, insecure, deadline_ns, &feed->peer);
    if (status == XORCAST_OK)
        status = read_about(feed, deadline_ns, &feed->about);
    if (status < 0)
        xci_feed_close(feed);
    return status;
}

void xci_feed_close(xci_feed *feed) {
    if (feed->context == NULL)
        return;
    disconnect(feed);
    xci_release(feed->context, feed->url);
    feed->url = NULL;
    feed->context = NULL;
}

xorcast_status xci_feed_connect(xci_feed *feed, uint64_t deadline_ns) {
    if (feed->peer != NULL)
        return XORCAST_OK;
    xorcast_context *context = feed->context;
    xci_about about;
    const xorcast_status opened =
        feed->link->peer_open(context, feed->url, feed->insecure, deadline_ns, &feed->peer);
    if (opened == XORCAST_LINK_REFUSED || opened == XORCAST_NOT_FOUND)
        FAIL(context, XORCAST_LINK_DOWN,
             "the publisher at %s is gone; the weights stay what they are, and poll connects again "
             "when it is back", feed->url);
    TRY(opened);
    xorcast_status status = read_about(feed, deadline_ns, &about);
    if (status == XORCAST_OK &&
        memcmp(about.fingerprint, feed->about.fingerprint, sizeof about.fingerprint) != 0)
        status = xci_fail(context, XORCAST_LAYOUT_MISMATCH, XCI_NOWHERE,
                          "the publisher at %s has another layout now; open a new "
                          "subscriber",
                          feed->url);
    else if (status == XORCAST_OK && strcmp(about.run, feed->about.run) != 0)
        status = xci_fail(context, XORCAST_RUN_MISMATCH, XCI_NOWHERE,
                          "the publisher at %s is of run '%s', these weights of '%s'; open a "
                          "new subscriber",
                          feed->url, about.run, feed->about.run);
    if (status < 0)
        disconnect(feed);
    return status;
}

/* ---- Objects ---- */

xorcast_status xci_feed_get(xci_feed *feed, const char *name, uint64_t limit_bytes,
                            uint64_t deadline_ns, xci_blob **blob_out) {
    TRY(xci_feed_connect(feed, deadline_ns));
    return get_connected(feed, name, limit_bytes, deadline_ns, blob_out);
}

/* Replies to requests that were sent before another one was refused. */
static void drain(xci_feed *feed, uint64_t outstanding, uint64_t deadline_ns) {
    for (; outstanding > 0 && feed->peer != NULL; outstanding--) {
        xci_blob *blob;
        if (receive(feed, deadline_ns, &blob) == XORCAST_OK)
            xci_blob_drop(blob);
    }
}

static xorcast_status run_series(xci_feed *feed, const xci_series *series, uint64_t deadline_ns,
                                 uint64_t *outstanding) {
    uint64_t asked = 0;
    char name[XCI_OBJECT_NAME_BYTES];
    for (uint64_t i = 0; i < series->count; i++) {
        for (; asked < series->count && asked < i + XCI_PIPELINE; asked++) {
            series->name(series->user, asked, name);
            TRY(request(feed, name, series->limit(series->user, asked), deadline_ns));
            ++*outstanding;
        }
        xci_blob *blob;
        --*outstanding;
        TRY(receive(feed, deadline_ns, &blob));
        const xorcast_status status = series->take(series->user, i, blob);
        xci_blob_drop(blob);
        TRY(status);
    }
    return XORCAST_OK;
}

xorcast_status xci_feed_get_series(xci_feed *feed, const xci_series *series, uint64_t deadline_ns) {
    uint64_t outstanding = 0;
    TRY(xci_feed_connect(feed, deadline_ns));
    const xorcast_status status = run_series(feed, series, deadline_ns, &outstanding);
    if (status < 0) {
        xorcast_error error; /* what failed first is what the caller should read */
        xorcast_last_error(feed->context, &error);
        drain(feed, outstanding, deadline_ns);
        return xci_fail_from(feed->context, status, &error, "%s", error.text);
    }
    return XORCAST_OK;
}

xorcast_status xci_feed_newest(xci_feed *feed, uint64_t after, uint64_t deadline_ns,
                               uint64_t *step_out) {
    TRY(xci_feed_connect(feed, deadline_ns));
    const xorcast_status status = feed->link->peer_newest(feed->peer, after, deadline_ns, step_out);
    if (status < 0)
        disconnect(feed);
    return status;
}

void xci_feed_acknowledge(xci_feed *feed, uint64_t step, uint64_t deadline_ns) {
    if (feed->peer != NULL && feed->link->peer_acknowledge(feed->peer, step, deadline_ns) < 0)
        disconnect(feed);
}

xorcast_status xci_feed_manifest(xci_feed *feed, uint64_t step, xci_form form, uint64_t deadline_ns,
                                 xci_manifest *manifest_out, xci_blob **blob_out) {
    char name[XCI_OBJECT_NAME_BYTES];
    xci_blob *blob;
    xorcast_context *context = feed->context;
    *manifest_out = (xci_manifest){0};
    xci_name_manifest(step, form, name);
    TRY(xci_feed_get(feed, name, XCI_MANIFEST_MAX, deadline_ns, &blob));
    xorcast_status status = xci_manifest_read(context, blob->bytes, blob->size, manifest_out);
    if (status == XORCAST_OK && strcmp(manifest_out->info.target.run, feed->about.run) != 0)
        status = xci_fail(context, XORCAST_RUN_MISMATCH, XCI_NOWHERE,
                          "version %llu is of run '%s', the publisher of '%s'",
                          (unsigned long long)step, manifest_out->info.target.run, feed->about.run);
    else if (status == XORCAST_OK && manifest_out->info.target.step != step)
        status = xci_fail(context, XORCAST_DATA_CORRUPT, XCI_NOWHERE,
                          "the manifest of version %llu says that it is %lld; fetch it again",
                          (unsigned long long)step, (long long)manifest_out->info.target.step);
    else if (status == XORCAST_OK && manifest_out->info.base.step >= step)
        status = xci_fail(context, XORCAST_VERSION_ORDER, XCI_NOWHERE,
                          "version %llu says that it follows version %lld",
                          (unsigned long long)step, (long long)manifest_out->info.base.step);
    if (status < 0) {
        xci_manifest_free(context, manifest_out);
        xci_blob_drop(blob);
        return status;
    }
    *blob_out = blob;
    return XORCAST_OK;
}

xorcast_status xci_feed_whois(xci_feed *feed, const xorcast_digest *digest, uint64_t deadline_ns,
                              uint64_t *step_out) {
    char name[XCI_OBJECT_NAME_BYTES];
    xci_blob *blob;
    xci_name_whois(digest, name);
    TRY(xci_feed_get(feed, name, 8, deadline_ns, &blob));
    const bool fits = blob->size == 8;
    *step_out = fits ? xci_load64(blob->bytes) : XORCAST_NO_STEP;
    xci_blob_drop(blob);
    if (!fits)
        FAIL(feed->context, XORCAST_DATA_CORRUPT,
             "the publisher answered whois with other than 8 bytes; is it xorcast?");
    return XORCAST_OK;
}
