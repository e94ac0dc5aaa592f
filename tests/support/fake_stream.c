/* Streams and events of the stand-in device. A stream is a queue that runs only as far as someone
 * waits for it. Owns what is queued. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "support/fake_inside.h"

struct fake_stream {
    fake_stream *next;
    fake_work *first, *last;
    uint64_t queued, done; /* numbers of pieces */
    int ordinal;           /* of its device */
    bool closed, captured;
};

typedef struct fake_event {
    fake_stream *stream; /* NULL: never recorded */
    uint64_t until, stamp_ns;
    uint32_t references; /* its owner, and queued pieces that stamp it */
} fake_event;

pthread_mutex_t fake_streams_lock = PTHREAD_MUTEX_INITIALIZER;

/* What fake_pass_ns added to the clock. */
static atomic_uint_fast64_t passed_ns;

void fake_pass_ns(uint64_t ns) {
    atomic_fetch_add(&passed_ns, ns);
}

/* Whoever opens a device has its default stream in common with the others. */
static fake_stream *normals[FAKE_DEVICES];
static unsigned normal_users[FAKE_DEVICES];

static fake_stream *make_stream(int ordinal) {
    fake_stream *stream = calloc(1, sizeof *stream);
    stream->ordinal = ordinal;
    return stream;
}

static fake_stream *add_stream(fake_device *device) {
    fake_stream *stream = make_stream(device->ordinal);
    stream->next = device->streams;
    device->streams = stream;
    return stream;
}

void fake_streams_open(fake_device *device) {
    pthread_mutex_lock(&fake_streams_lock);
    if (normal_users[device->ordinal]++ == 0)
        normals[device->ordinal] = make_stream(device->ordinal);
    device->normal = normals[device->ordinal];
    pthread_mutex_unlock(&fake_streams_lock);
}

static void drop_event(fake_event *event) {
    if (event != NULL && --event->references == 0)
        free(event);
}

static void free_streams(fake_stream *first) {
    for (fake_stream *stream = first, *next; stream != NULL; stream = next) {
        next = stream->next;
        for (fake_work *work = stream->first, *after; work != NULL; work = after) {
            after = work->next;
            drop_event(work->event);
            free(work);
        }
        free(stream);
    }
}

static int run_work(const fake_stream *stream, fake_work *work) {
    const int before = fake_enter(stream->ordinal);
    const int error = work->run(work);
    (void)fake_enter(before);
    return error;
}

/* Runs a stream up to a piece; what a piece waits for, on another device too, runs first. Streams
 * are locked. */
static int run_until(fake_stream *stream, uint64_t until) {
    int error = 0;
    while (stream->done < until && stream->first != NULL) {
        fake_work *work = stream->first;
        if (work->other != NULL)
            error = run_until(work->other, work->until) != 0 ? 719 : error;
        stream->first = work->next;
        if (stream->first == NULL)
            stream->last = NULL;
        stream->done = work->number;
        const int failed = work->run != NULL ? fake_work_call() : 0;
        error = failed != 0 ? failed : error;
        if (work->run != NULL && failed == 0 && run_work(stream, work) != 0)
            error = 719;
        if (work->event != NULL)
            ((fake_event *)work->event)->stamp_ns = xci_now_ns() + atomic_load(&passed_ns);
        drop_event(work->event);
        free(work);
    }
    return error;
}

void fake_streams_close(fake_device *device) {
    pthread_mutex_lock(&fake_streams_lock);
    /* What default streams have to wait for may go now. */
    for (unsigned i = 0; i < FAKE_DEVICES; i++)
        if (normal_users[i] > 0)
            (void)run_until(normals[i], normals[i]->queued);
    free_streams(device->streams);
    free_streams(device->gone);
    if (--normal_users[device->ordinal] == 0)
        free_streams(device->normal);
    pthread_mutex_unlock(&fake_streams_lock);
}

static _Atomic(void *) counted_stream;

void fake_count_on(void *stream) {
    atomic_store(&counted_stream, stream);
}

static fake_stream *stream_of(fake_device *device, void *stream) {
    fake_stream *found = stream == NULL ? device->normal : stream;
    if (found->closed)
        fake_stop("work on a stream that was closed");
    return found;
}

/* Streams are locked. */
static fake_stream *enqueue(fake_device *device, void *stream, const fake_work *work) {
    fake_stream *to = stream_of(device, stream);
    if (to->captured)
        fake_stop("work on a stream that is being captured");
    fake_count_put(stream == atomic_load(&counted_stream));
    fake_work *copy = malloc(sizeof *copy);
    *copy = *work;
    copy->next = NULL;
    copy->number = ++to->queued;
    if (to->last != NULL)
        to->last->next = copy;
    else
        to->first = copy;
    to->last = copy;
    return to;
}

int fake_put(void *handle, void *stream, const fake_work *work) {
    const int error = fake_call();
    if (error != 0)
        return error;
    pthread_mutex_lock(&fake_streams_lock);
    (void)enqueue(handle, stream, work);
    pthread_mutex_unlock(&fake_streams_lock);
    return 0;
}

int fake_run_all(void *handle) {
    fake_device *device = handle;
    pthread_mutex_lock(&fake_streams_lock);
    int error = run_until(device->normal, device->normal->queued);
    for (fake_stream **place = &device->streams, *stream; (stream = *place) != NULL;) {
        const int one = run_until(stream, stream->queued);
        error = one != 0 ? one : error;
        if (!stream->closed) {
            place = &stream->next;
            continue;
        }
        *place = stream->next; /* events may still know it */
        stream->next = device->gone;
        device->gone = stream;
    }
    pthread_mutex_unlock(&fake_streams_lock);
    return error;
}

int fake_quiet(void *device) {
    fake_count_wait();
    const int error = fake_call();
    return error != 0 ? error : fake_run_all(device);
}

/* ---- Streams ---- */

int fake_stream_open(void *handle, void **stream_out) {
    fake_device *device = handle;
    const int error = fake_call();
    if (error != 0)
        return error;
    pthread_mutex_lock(&fake_streams_lock);
    *stream_out = add_stream(device);
    pthread_mutex_unlock(&fake_streams_lock);
    fake_count_thing(1);
    return 0;
}

/* Work that is queued still runs, when something waits for it. */
int fake_stream_close(void *handle, void *stream) {
    fake_device *device = handle;
    pthread_mutex_lock(&fake_streams_lock);
    stream_of(device, stream)->closed = true;
    pthread_mutex_unlock(&fake_streams_lock);
    fake_count_thing(-1);
    return fake_call();
}

int fake_stream_wait(void *handle, void *stream) {
    fake_device *device = handle;
    fake_count_wait();
    const int error = fake_call();
    if (error != 0)
        return error;
    pthread_mutex_lock(&fake_streams_lock);
    fake_stream *of = stream_of(device, stream);
    const int ran = run_until(of, of->queued);
    pthread_mutex_unlock(&fake_streams_lock);
    return ran;
}

int fake_stream_after(void *handle, void *stream, void *event) {
    fake_event *of = event;
    const fake_work work = {.other = of->stream, .until = of->until};
    return fake_put(handle, stream, &work);
}

void fake_stream_capture(void *handle, void *stream, bool captured) {
    fake_device *device = handle;
    pthread_mutex_lock(&fake_streams_lock);
    stream_of(device, stream)->captured = captured;
    pthread_mutex_unlock(&fake_streams_lock);
}

int fake_stream_captured(void *handle, void *stream, bool *captured_out) {
    fake_device *device = handle;
    pthread_mutex_lock(&fake_streams_lock);
    *captured_out = stream_of(device, stream)->captured;
    pthread_mutex_unlock(&fake_streams_lock);
    return fake_call();
}

/* ---- Events ---- */

int fake_event_open(void *device, void **event_out) {
    (void)device;
    const int error = fake_call();
    if (error != 0)
        return error;
    fake_event *event = calloc(1, sizeof *event);
    event->references = 1;
    *event_out = event;
    fake_count_thing(1);
    return 0;
}

int fake_event_close(void *handle, void *event) {
    (void)handle;
    pthread_mutex_lock(&fake_streams_lock);
    drop_event(event);
    pthread_mutex_unlock(&fake_streams_lock);
    fake_count_thing(-1);
    return fake_call();
}

/* All at once: other threads run what is on a default stream. */
int fake_event_record(void *handle, void *event, void *stream) {
    fake_event *of = event;
    const fake_work work = {.event = event};
    const int error = fake_call();
    if (error != 0)
        return error;
    pthread_mutex_lock(&fake_streams_lock);
    of->references++;
    of->stream = enqueue(handle, stream, &work);
    of->until = of->stream->queued;
    pthread_mutex_unlock(&fake_streams_lock);
    return 0;
}

/* Each question is time that passes: one more piece runs. */
int fake_event_done(void *handle, void *event, bool *done_out) {
    (void)handle;
    fake_event *of = event;
    const int error = fake_call();
    if (error != 0)
        return error;
    pthread_mutex_lock(&fake_streams_lock);
    int ran = 0;
    *done_out = of->stream == NULL || of->stream->done >= of->until;
    if (!*done_out)
        ran = run_until(of->stream, of->stream->done + 1);
    pthread_mutex_unlock(&fake_streams_lock);
    return ran;
}

int fake_event_wait(void *handle, void *event) {
    (void)handle;
    fake_event *of = event;
    fake_count_wait();
    const int error = fake_call();
    if (error != 0)
        return error;
    pthread_mutex_lock(&fake_streams_lock);
    const int ran = of->stream != NULL ? run_until(of->stream, of->until) : 0;
    pthread_mutex_unlock(&fake_streams_lock);
    return ran;
}

int fake_event_elapsed(void *handle, void *from, void *to, double *milliseconds_out) {
    (void)handle;
    const fake_event *a = from, *b = to;
    *milliseconds_out = (double)(b->stamp_ns - a->stamp_ns) / 1e6;
    return fake_call();
}
