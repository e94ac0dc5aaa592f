/* Contexts: creation, forks, and the record and log of failures. Memory is in memory.c. */
#include "base/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/device.h"
#include "base/pool.h"

#define MAX_THREADS                                                                                \
    256u /* a pool larger than any host we know gains nothing and may be a typing error */

static xorcast_status check_options(const xorcast_context_options *options) {
    if (options->struct_size != sizeof *options)
        return XORCAST_BAD_ARGUMENT;
    if ((options->allocate == NULL) != (options->release == NULL) || options->threads > MAX_THREADS)
        return XORCAST_BAD_ARGUMENT;
    if (options->device < 0 || options->engine > XORCAST_ENGINE_NEVER)
        return XORCAST_BAD_ARGUMENT;
    return XORCAST_OK;
}

static uint32_t cpu_count(void) {
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count > (long)MAX_THREADS ? MAX_THREADS : (uint32_t)count;
}

static xorcast_context *context_over(xci_shared *shared) {
    xorcast_context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return NULL;
    if (pthread_mutex_init(&context->lock, NULL) != 0) {
        free(context);
        return NULL;
    }
    context->shared = shared;
    context->error.tensor = context->error.chunk = XORCAST_NO_INDEX;
    return context;
}

xorcast_status xorcast_context_create(const xorcast_context_options *options,
                                      xorcast_context **context_out) {
    static const xorcast_context_options defaults = XORCAST_CONTEXT_OPTIONS_INIT;
    if (context_out == NULL)
        return XORCAST_BAD_ARGUMENT;
    if (options == NULL)
        options = &defaults;
    TRY(check_options(options));
    const bool host_only = options->backend != NULL && xci_backend_find(options->backend) != NULL;
    if (host_only && options->device != 0)
        return XORCAST_UNSUPPORTED;

    xci_shared *shared = calloc(1, sizeof *shared);
    if (shared == NULL)
        return XORCAST_NO_HOST_MEMORY;
    shared->account = shared;
    shared->options = *options;
    if (shared->options.threads == 0)
        shared->options.threads = cpu_count();
    if (shared->options.log_level == 0)
        shared->options.log_level = XORCAST_LOG_WARNING;
    shared->backend = xci_backend_find(host_only ? options->backend : NULL);
    if (!host_only)
        shared->device_backend = options->backend != NULL ? options->backend : "cuda";
    atomic_init(&shared->references, 1);
    if (pthread_mutex_init(&shared->kept.lock, NULL) != 0) {
        free(shared);
        return XORCAST_NO_HOST_MEMORY;
    }

    xorcast_context *context = context_over(shared);
    if (context == NULL) {
        pthread_mutex_destroy(&shared->kept.lock);
        free(shared);
        return XORCAST_NO_HOST_MEMORY;
    }
    xorcast_status status = xci_pool_create(context, shared->options.threads, &shared->pool);
    if (status == XORCAST_OK && options->backend != NULL && !host_only) {
        status = xci_device_open(context);
        if (status < 0) /* there is no context to ask for the record */
            xci_log(context, XORCAST_LOG_ERROR, "%s", context->error.text);
    }
    if (status < 0) {
        xorcast_context_destroy(context);
        return status;
    }
    *context_out = context;
    return XORCAST_OK;
}

/* Gives up the context's reference; the last one frees. */
static void drop_shared(xorcast_context *context) {
    xci_shared *shared = context->shared;
    xci_shared *account = shared->account;
    if (atomic_fetch_sub(&shared->references, 1) != 1)
        return;
    if (account == shared)
        xci_pool_destroy(context, shared->pool);
    xci_device_close(context);
    if (account != shared) { /* the rest is the other's, which has counted this as a reference */
        context->shared = account;
        free(shared);
        drop_shared(context);
        return;
    }
    pthread_mutex_destroy(&shared->kept.lock);
    free(shared);
}

void xorcast_context_destroy(xorcast_context *context) {
    if (context == NULL)
        return;
    drop_shared(context);
    pthread_mutex_destroy(&context->lock);
    free(context);
}

xorcast_status xci_context_fork(xorcast_context *context, xorcast_context **fork_out) {
    xorcast_context *fork = context_over(context->shared);
    if (fork == NULL)
        FAIL(context, XORCAST_NO_HOST_MEMORY, "no memory for a context; free some and try again");
    atomic_fetch_add(&context->shared->references, 1);
    *fork_out = fork;
    return XORCAST_OK;
}

xorcast_status xci_context_beside(xorcast_context *context, int32_t device,
                                  xorcast_context **beside_out) {
    xci_shared *account = context->shared->account;
    xci_shared *shared = calloc(1, sizeof *shared);
    xorcast_context *beside = shared != NULL ? context_over(shared) : NULL;
    if (beside == NULL) {
        free(shared);
        FAIL(context, XORCAST_NO_HOST_MEMORY, "no memory for a context; free some and try again");
    }
    shared->account = account;
    shared->options = account->options;
    shared->options.device = device;
    shared->pool = account->pool;
    shared->backend = account->backend;
    shared->device_backend = account->device_backend;
    atomic_init(&shared->references, 1);
    atomic_fetch_add(&account->references, 1);
    beside->reports_to = context;
    const xorcast_status status = xci_device_open(beside);
    if (status < 0) {
        xorcast_context_destroy(beside);
        return status;
    }
    *beside_out = beside;
    return XORCAST_OK;
}

uint32_t xci_context_threads(const xorcast_context *context) {
    return context->shared->options.threads;
}

static void log_text(xorcast_context *context, xorcast_log_level level, const char *text) {
    static const char *const names[] = {"", "error", "warning", "info", "debug"};
    const xorcast_context_options *options = &context->shared->options;
    if ((uint32_t)level > options->log_level)
        return;
    if (options->log != NULL)
        options->log(options->user, level, text);
    else
        fprintf(stderr, "xorcast: %s: %s\n", names[level], text);
}

/* Names of tensors, files and runs come from outside, and control characters in them would reach a
 * terminal: those of ASCII, and U+0080 to U+009F, two bytes each. */
static void make_plain(char *text) {
    for (unsigned char *at = (unsigned char *)text; *at != 0; at++) {
        const bool two = at[0] == 0xC2 && at[1] >= 0x80 && at[1] < 0xA0;
        if (two)
            at[1] = '?';
        if (two || *at < 0x20 || *at == 0x7F)
            *at = '?';
    }
}

void xci_log(xorcast_context *context, xorcast_log_level level, const char *format, ...) {
    char text[640];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    make_plain(text);
    log_text(context, level, text);
}

static _Thread_local xci_failure thread_failure;

const xci_failure *xci_thread_failure(void) {
    return &thread_failure;
}

static xorcast_context *recorder_of(xorcast_context *context) {
    while (context->reports_to != NULL)
        context = context->reports_to;
    return context;
}

void xci_record_again(const xci_failure *failure) {
    if (failure->context == NULL)
        return;
    thread_failure = *failure;
    xorcast_context *context = recorder_of(failure->context);
    pthread_mutex_lock(&context->lock);
    context->error = failure->error;
    pthread_mutex_unlock(&context->lock);
}

static void note_failure(xorcast_context *context, xorcast_error *error, const char *format,
                         va_list arguments) {
    vsnprintf(error->text, sizeof error->text, format, arguments);
    make_plain(error->text);
    const xci_failure failure = {context, *error};
    xci_record_again(&failure);
    xci_log(context, XORCAST_LOG_DEBUG, "%s: %s", xorcast_status_name(error->status), error->text);
}

xorcast_status xci_fail(xorcast_context *context, xorcast_status status, xci_place place,
                        const char *format, ...) {
    xorcast_error error = {status, place.os_error, 0, place.tensor, place.chunk, {0}};
    va_list arguments;
    va_start(arguments, format);
    note_failure(context, &error, format, arguments);
    va_end(arguments);
    return status;
}

xorcast_status xci_fail_device(xorcast_context *context, xorcast_status status, int device_error,
                               const char *format, ...) {
    xorcast_error error = {status, 0, device_error, XORCAST_NO_INDEX, XORCAST_NO_INDEX, {0}};
    va_list arguments;
    va_start(arguments, format);
    note_failure(context, &error, format, arguments);
    va_end(arguments);
    return status;
}

xorcast_status xci_fail_from(xorcast_context *context, xorcast_status status,
                             const xorcast_error *cause, const char *format, ...) {
    xorcast_error error = {status,        cause->os_error, cause->device_error,
                           cause->tensor, cause->chunk,    {0}};
    va_list arguments;
    va_start(arguments, format);
    note_failure(context, &error, format, arguments);
    va_end(arguments);
    return status;
}

void xci_error_copy(xorcast_context *to, xorcast_context *from) {
    xorcast_error error;
    xorcast_last_error(from, &error);
    to = recorder_of(to);
    pthread_mutex_lock(&to->lock);
    to->error = error;
    pthread_mutex_unlock(&to->lock);
}

void xorcast_last_error(xorcast_context *context, xorcast_error *error_out) {
    context = recorder_of(context);
    pthread_mutex_lock(&context->lock);
    *error_out = context->error;
    pthread_mutex_unlock(&context->lock);
}
