/* Sessions: see session.h. */
#include "subscribe/session.h"

#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"

static void disconnect(xci_session *session) {
    if (session->peer != NULL)
        session->link->peer_close(session->peer);
    session->peer = NULL;
}

static bool is_refusal(xorcast_status status) {
    return status == XORCAST_NOT_FOUND || status == XORCAST_VERSION_GONE || status == XORCAST_DATA_LIMIT;
}

static xorcast_status receive(xci_session *session, uint64_t deadline_ns, xci_blob **blob_out) {
    const uint64_t begun = xci_now_ns();
    const xorcast_status status = session->link->peer_receive(session->peer, deadline_ns, blob_out);
    session->waited_ns += xci_now_ns() - begun;
    if (status == XORCAST_OK)
        session->received_bytes += (*blob_out)->size;
    else if (!is_refusal(status))
        disconnect(session);
    return status;
}

static xorcast_status request(xci_session *session, const char *name, uint64_t limit_bytes, uint64_t deadline_ns) {
    const xorcast_status status = session->link->peer_request(session->peer, name, limit_bytes, deadline_ns);
    if (status < 0)
        disconnect(session);
    return status;
}

static xorcast_status get_connected(xci_session *session, const char *name, uint64_t limit_bytes, uint64_t deadline_ns,
                                    xci_blob **blob_out) {
    TRY(request(session, name, limit_bytes, deadline_ns));
    return receive(session, deadline_ns, blob_out);
}

/* ---- Connecting ---- */

static xorcast_status read_about(xci_session *session, uint64_t deadline_ns, xci_about *about_out) {
    xci_blob *blob;
    TRY(get_connected(session, "about", XCI_ABOUT_BYTES, deadline_ns, &blob));
    const xorcast_status status = xci_about_read(session->context, blob->bytes, blob->size, about_out);
    xci_blob_drop(blob);
    return status;
}

xorcast_status xci_session_open(xci_session *session, xorcast_context *context, const char *url, bool insecure,
                                uint64_t deadline_ns) {
    memset(session, 0, sizeof *session);
    session->context = context;
    session->insecure = insecure;
    xorcast_status status = xci_link_find(context, url, &session->link);
    if (status == XORCAST_OK)
        status = xci_copy_string(context, url, &session->url);
    if (status == XORCAST_OK)
        status = session->link->peer_open(context, url, insecure, deadline_ns, &session->peer);
    if (status == XORCAST_OK)
        status = read_about(session, deadline_ns, &session->about);
    if (status < 0)
        xci_session_close(session);
    return status;
}

void xci_session_close(xci_session *session) {
    if (session->context == NULL)
        return;
    disconnect(session);
    xci_release(session->context, session->url);
    session->url = NULL;
    session->context = NULL;
}

xorcast_status xci_session_connect(xci_session *session, uint64_t deadline_ns) {
    if (session->peer != NULL)
        return XORCAST_OK;
    xorcast_context *context = session->context;
    xci_about about;
    TRY(session->link->peer_open(context, session->url, session->insecure, deadline_ns, &session->peer));
    xorcast_status status = read_about(session, deadline_ns, &about);
    if (status == XORCAST_OK && memcmp(about.fingerprint, session->about.fingerprint, sizeof about.fingerprint) != 0)
        status = xci_fail(context, XORCAST_LAYOUT_MISMATCH, XCI_NOWHERE, "the publisher at %s has another layout now; open a new "
                          "subscriber", session->url);
    else if (status == XORCAST_OK && strcmp(about.run, session->about.run) != 0)
        status = xci_fail(context, XORCAST_RUN_MISMATCH, XCI_NOWHERE, "the publisher at %s is of run '%s', these weights of '%s'; open a "
                          "new subscriber", session->url, about.run, session->about.run);
    if (status < 0)
        disconnect(session);
    return status;
}

/* ---- Objects ---- */

xorcast_status xci_session_get(xci_session *session, const char *name, uint64_t limit_bytes, uint64_t deadline_ns,
                               xci_blob **blob_out) {
    TRY(xci_session_connect(session, deadline_ns));
    return get_connected(session, name, limit_bytes, deadline_ns, blob_out);
}

/* Replies to requests that were sent before another one was refused. */
static void drain(xci_session *session, uint64_t outstanding, uint64_t deadline_ns) {
    for (; outstanding > 0 && session->peer != NULL; outstanding--) {
        xci_blob *blob;
        if (receive(session, deadline_ns, &blob) == XORCAST_OK)
            xci_blob_drop(blob);
    }
}

static xorcast_status run_series(xci_session *session, const xci_series *series, uint64_t deadline_ns, uint64_t *outstanding) {
    uint64_t asked = 0;
    char name[XCI_OBJECT_NAME_BYTES];
    for (uint64_t i = 0; i < series->count; i++) {
        for (; asked < series->count && asked < i + XCI_PIPELINE; asked++) {
            series->name(series->user, asked, name);
            TRY(request(session, name, series->limit(series->user, asked), deadline_ns));
            ++*outstanding;
        }
        xci_blob *blob;
        --*outstanding;
        TRY(receive(session, deadline_ns, &blob));
        const xorcast_status status = series->take(series->user, i, blob);
        xci_blob_drop(blob);
        TRY(status);
    }
    return XORCAST_OK;
}

xorcast_status xci_session_get_series(xci_session *session, const xci_series *series, uint64_t deadline_ns) {
    uint64_t outstanding = 0;
    TRY(xci_session_connect(session, deadline_ns));
    const xorcast_status status = run_series(session, series, deadline_ns, &outstanding);
    if (status < 0) {
        xorcast_error error; /* what failed first is what the caller should read */
        xorcast_last_error(session->context, &error);
        drain(session, outstanding, deadline_ns);
        const xci_place place = {error.tensor, error.chunk, error.os_error};
        return xci_fail(session->context, status, place, "%s", error.text);
    }
    return XORCAST_OK;
}

xorcast_status xci_session_newest(xci_session *session, uint64_t after, uint64_t deadline_ns, uint64_t *step_out) {
    TRY(xci_session_connect(session, deadline_ns));
    const xorcast_status status = session->link->peer_newest(session->peer, after, deadline_ns, step_out);
    if (status < 0)
        disconnect(session);
    return status;
}

void xci_session_acknowledge(xci_session *session, uint64_t step, uint64_t deadline_ns) {
    if (session->peer != NULL && session->link->peer_acknowledge(session->peer, step, deadline_ns) < 0)
        disconnect(session);
}

xorcast_status xci_session_manifest(xci_session *session, uint64_t step, uint64_t deadline_ns, xci_manifest *manifest_out,
                                    xci_blob **blob_out) {
    char name[XCI_OBJECT_NAME_BYTES];
    xci_blob *blob;
    xorcast_context *context = session->context;
    *manifest_out = (xci_manifest){0};
    xci_name_manifest(step, name);
    TRY(xci_session_get(session, name, XCI_MANIFEST_MAX, deadline_ns, &blob));
    xorcast_status status = xci_manifest_read(context, blob->bytes, blob->size, manifest_out);
    if (status == XORCAST_OK && strcmp(manifest_out->info.target.run, session->about.run) != 0)
        status = xci_fail(context, XORCAST_RUN_MISMATCH, XCI_NOWHERE, "version %llu is of run '%s', the publisher of '%s'",
                          (unsigned long long)step, manifest_out->info.target.run, session->about.run);
    else if (status == XORCAST_OK && manifest_out->info.target.step != step)
        status = xci_fail(context, XORCAST_DATA_CORRUPT, XCI_NOWHERE, "the manifest of version %llu says that it is %lld; fetch it again",
                          (unsigned long long)step, (long long)manifest_out->info.target.step);
    else if (status == XORCAST_OK && manifest_out->info.base.step >= step)
        status = xci_fail(context, XORCAST_VERSION_ORDER, XCI_NOWHERE, "version %llu says that it follows version %lld",
                          (unsigned long long)step, (long long)manifest_out->info.base.step);
    if (status < 0) {
        xci_manifest_free(context, manifest_out);
        xci_blob_drop(blob);
        return status;
    }
    *blob_out = blob;
    return XORCAST_OK;
}

xorcast_status xci_session_whois(xci_session *session, const xorcast_digest *digest, uint64_t deadline_ns, uint64_t *step_out) {
    char name[XCI_OBJECT_NAME_BYTES];
    xci_blob *blob;
    xci_name_whois(digest, name);
    TRY(xci_session_get(session, name, 8, deadline_ns, &blob));
    const bool fits = blob->size == 8;
    *step_out = fits ? xci_load64(blob->bytes) : XORCAST_NO_STEP;
    xci_blob_drop(blob);
    if (!fits)
        FAIL(session->context, XORCAST_DATA_CORRUPT, "the publisher answered whois with other than 8 bytes; is it xorcast?");
    return XORCAST_OK;
}
