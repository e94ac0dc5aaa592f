/* What the files of the stand-in device share. Tests include fake_device.h. */
#ifndef TEST_FAKE_INSIDE_H
#define TEST_FAKE_INSIDE_H

#include <pthread.h>

#include "backend/backend.h"
#include "backend/device.h"
#include "support/fake_device.h"

#define FAKE_DEVICES 2

typedef struct fake_stream fake_stream;
typedef struct fake_device {
    int ordinal;
    fake_stream *streams; /* a list */
    fake_stream *gone;    /* closed, and nothing is left on them */
    fake_stream *normal;  /* the default one */
} fake_device;

/* Guards the streams of all devices and runs their work, one piece at a time. */
extern pthread_mutex_t fake_streams_lock;

/* One piece of work. Runs with the streams locked; gives an error. */
typedef struct fake_work {
    int (*run)(struct fake_work *work);
    struct fake_work *next;
    uint64_t number;             /* in its stream, from 1 on */
    fake_stream *other;          /* to wait for: up to `until` */
    uint64_t until;
    void *event;                 /* to stamp */
    union {
        struct { void *to; const void *from; uint64_t bytes; } copy;
        struct { void *to; uint8_t value; uint64_t bytes; } fill;
        struct { const xci_cuda_move *moves; uint64_t count; } many;
        struct {
            const xci_decompress_job *jobs;
            uint64_t count;
        } decompress;
        xci_cuda_encode_call encode;
        xci_cuda_block_call block;
        xci_cuda_mask_call masks;
        xci_cuda_gap_call gap;
        xci_cuda_gap_encode_call gap_encode;
        xci_cuda_digest_call digest;
        xci_cuda_copy_call pieces;
    } call;
} fake_work;

_Noreturn void fake_stop(const char *what);
/* To be asked first in every call that can fail, and before every piece of work. */
int fake_call(void);
int fake_work_call(void);
void fake_count_thing(int change);
/* For fake_device_counted: the host waits; work is put on the counted stream, or on another. */
void fake_count_wait(void);
void fake_count_put(bool there);
void fake_count_on(void *stream);
void fake_count_peer_bytes(uint64_t bytes);
/* This thread works as the device of that number; negative: as the host. Gives what it was. */
int fake_enter(int ordinal);
/* Where a device sees `bytes` at an address; they must lie in one allocation, of the device that
 * this thread works as. */
void *fake_real(const void *address, uint64_t bytes);
/* An allocation is for the engine; whether `bytes` at an address lie in one that is. */
void fake_mark_engine(const void *memory);
bool fake_is_engine(const void *address, uint64_t bytes);
fake_engine fake_engine_config(void);
/* The device's clock goes on by so much. */
void fake_pass_ns(uint64_t ns);

void fake_streams_open(fake_device *device);
void fake_streams_close(fake_device *device);
/* Puts a copy of `work` on a stream. */
int fake_put(void *device, void *stream, const fake_work *work);
int fake_run_all(void *device);

int fake_owner(void *device, const void *address, int32_t *ordinal_out, uint64_t *bytes_out);
int fake_allocate(void *device, uint64_t bytes, void **memory_out);
int fake_release(void *device, void *memory);
int fake_allocate_engine(void *device, uint64_t bytes, void **memory_out);
int fake_engine_reaches(void *device, const void *address, bool *reaches_out);
int fake_decompress(void *device, xci_decompress_job *jobs, uint64_t count, uint64_t *bad_out,
                    void *stream);
int fake_allocate_pinned(void *device, uint64_t bytes, void **memory_out);
int fake_release_pinned(void *device, void *memory);

int fake_quiet(void *device);
int fake_stream_open(void *device, void **stream_out);
int fake_stream_close(void *device, void *stream);
int fake_stream_wait(void *device, void *stream);
int fake_stream_after(void *device, void *stream, void *event);
int fake_stream_captured(void *device, void *stream, bool *captured_out);
int fake_event_open(void *device, void **event_out);
int fake_event_close(void *device, void *event);
int fake_event_record(void *device, void *event, void *stream);
int fake_event_done(void *device, void *event, bool *done_out);
int fake_event_wait(void *device, void *event);
int fake_event_elapsed(void *device, void *from, void *to, double *milliseconds_out);

int fake_copy(void *device, void *to, const void *from, uint64_t bytes, void *stream);
int fake_copy_now(void *device, void *to, const void *from, uint64_t bytes);
int fake_copy_peer_many(void *device, void *from_device, const xci_cuda_move *moves, uint64_t count,
                        void *stream);
int fake_join_many(void *device, const xci_cuda_move *moves, uint64_t count, void *stream);
int fake_fill(void *device, void *to, uint8_t value, uint64_t bytes, void *stream);

uint64_t fake_encode_scratch(void *device, uint64_t count, uint32_t chunk_bytes);
int fake_encode(void *device, const xci_cuda_encode_call *call, void *stream);
int fake_check(void *device, const xci_cuda_block_call *call, void *stream);
int fake_prepare(void *device, const xci_cuda_block_call *call, void *stream);
int fake_check_masks(void *device, const xci_cuda_mask_call *call, void *stream);
int fake_apply(void *device, const xci_cuda_block_call *call, void *stream);
uint64_t fake_gap_scratch(uint64_t count, uint64_t group_count, uint32_t chunk_bytes);
int fake_gap_encode(void *device, const xci_cuda_gap_encode_call *call, void *stream);
int fake_gap_move(void *device, const xci_cuda_gap_encode_call *call, void *stream);
int fake_gap_check(void *device, const xci_cuda_gap_call *call, void *stream);
int fake_gap_ready(void *device, const xci_cuda_gap_call *call, void *stream);
int fake_digest(void *device, const xci_cuda_digest_call *call, void *stream);
int fake_gather(void *device, const xci_cuda_copy_call *call, void *stream);
int fake_scatter(void *device, const xci_cuda_copy_call *call, void *stream);
/* A chunk of a grid, its segments in the CPU backend's form (free(3)), and its bytes. */
xci_cuda_chunk fake_chunk_of(const xci_cuda_grid *grid, uint64_t chunk);
xci_segment *fake_segments_of(const xci_cuda_grid *grid, const xci_cuda_chunk *chunk);
void fake_read_chunk(const xci_cuda_places *places, uint64_t chunk, uint32_t bytes, uint8_t *piece);
int fake_copy_many(void *device, const xci_cuda_move *moves, uint64_t count, void *stream);

#endif
