/* The stand-in device: see fake_device.h. Memory and accesses; streams and work are in
 * fake_stream.c, the batched operations in fake_work.c. */
#include "support/fake_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/fake_inside.h"

#define SPACE_BYTES (UINT64_C(1) << 30) /* of addresses; memory is taken as it is touched */
#define ALIGNMENT UINT64_C(256)

typedef struct block {
    uint64_t at, bytes;
    int owner;   /* ordinal of its device */
    bool engine; /* memory for the Decompression Engine */
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *seen, *real; /* what others see, and where the device reads and writes */
static block *blocks;
static uint64_t block_count, block_capacity;
static uint64_t pinned_count, device_count, thing_count, peer_bytes;
static int64_t fail_call = -1, fail_memory = -1, fail_work = -1;
static bool failed, dead;
static fake_counts counts;

/* Tests cannot go on: the mistake is in the library, and this is where it is. */
_Noreturn void fake_stop(const char *what) {
    fprintf(stderr, "fake device: %s\n", what);
    fflush(stderr);
    abort();
}

/* ---- Failures ---- */

static void set_failures(int64_t call, int64_t memory, int64_t work) {
    pthread_mutex_lock(&lock);
    fail_call = call;
    fail_memory = memory;
    fail_work = work;
    failed = dead = false;
    pthread_mutex_unlock(&lock);
}

void fake_device_fail_call(int64_t n) {
    set_failures(n, -1, -1);
}
void fake_device_fail_memory(int64_t n) {
    set_failures(-1, n, -1);
}
void fake_device_fail_work(int64_t n) {
    set_failures(-1, -1, n);
}

bool fake_device_failed(void) {
    pthread_mutex_lock(&lock);
    const bool was = failed;
    pthread_mutex_unlock(&lock);
    return was;
}

static bool count_down(int64_t *n) {
    const bool now = *n == 0;
    if (*n >= 0)
        (*n)--;
    failed = failed || now;
    return now;
}

int fake_call(void) {
    pthread_mutex_lock(&lock);
    const int error = dead || count_down(&fail_call) ? FAKE_ERROR : 0;
    pthread_mutex_unlock(&lock);
    return error;
}

static int memory_call(void) {
    const int error = fake_call();
    if (error != 0)
        return error;
    pthread_mutex_lock(&lock);
    const int none = count_down(&fail_memory) ? FAKE_NO_MEMORY : 0;
    pthread_mutex_unlock(&lock);
    return none;
}

int fake_work_call(void) {
    pthread_mutex_lock(&lock);
    if (count_down(&fail_work))
        dead = true;
    const int error = dead ? FAKE_ERROR : 0;
    pthread_mutex_unlock(&lock);
    return error;
}

void fake_count_thing(int change) {
    pthread_mutex_lock(&lock);
    counts.allocations += change > 0;
    counts.releases += change < 0;
    thing_count += (uint64_t)(int64_t)change;
    pthread_mutex_unlock(&lock);
}

void fake_count_wait(void) {
    pthread_mutex_lock(&lock);
    counts.waits++;
    pthread_mutex_unlock(&lock);
}

void fake_count_put(bool there) {
    pthread_mutex_lock(&lock);
    counts.put += there;
    counts.put_elsewhere += !there;
    pthread_mutex_unlock(&lock);
}

void fake_device_count(void *stream) {
    fake_count_on(stream);
    pthread_mutex_lock(&lock);
    counts = (fake_counts){0};
    pthread_mutex_unlock(&lock);
}

fake_counts fake_device_counted(void) {
    pthread_mutex_lock(&lock);
    const fake_counts copy = counts;
    pthread_mutex_unlock(&lock);
    return copy;
}

void fake_count_peer_bytes(uint64_t bytes) {
    pthread_mutex_lock(&lock);
    peer_bytes += bytes;
    pthread_mutex_unlock(&lock);
}

uint64_t fake_device_peer_bytes(void) {
    pthread_mutex_lock(&lock);
    const uint64_t bytes = peer_bytes;
    pthread_mutex_unlock(&lock);
    return bytes;
}

uint64_t fake_device_open_things(void) {
    pthread_mutex_lock(&lock);
    const uint64_t count = block_count + pinned_count + thing_count;
    pthread_mutex_unlock(&lock);
    return count;
}

/* ---- Memory ---- */

static void make_space(void) {
    const int file = memfd_create("fake-device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)SPACE_BYTES) != 0)
        fake_stop("no memory file");
    void *a = mmap(NULL, SPACE_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    void *b = mmap(NULL, SPACE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (a == MAP_FAILED || b == MAP_FAILED)
        fake_stop("no addresses");
    seen = a;
    real = b;
    close(file);
}

static bool inside(const void *address) {
    return seen != NULL && (uintptr_t)address >= (uintptr_t)seen &&
           (uintptr_t)address - (uintptr_t)seen < SPACE_BYTES;
}

/* Index of the last block that begins at or before an offset; block_count: none. */
static uint64_t block_before(uint64_t at) {
    uint64_t low = 0, high = block_count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (blocks[middle].at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 ? block_count : low - 1;
}

/* With the lock held: the block that `bytes` at an address lie in, or NULL. */
static block *block_of(const void *address, uint64_t bytes) {
    const uint64_t at = (uintptr_t)address - (uintptr_t)seen;
    const uint64_t index = inside(address) ? block_before(at) : block_count;
    return index < block_count && bytes <= blocks[index].bytes &&
                   at - blocks[index].at <= blocks[index].bytes - bytes
               ? &blocks[index]
               : NULL;
}

/* The device whose work this thread runs; -1: it is the host's, which may look anywhere. */
static _Thread_local int entered = -1;

int fake_enter(int ordinal) {
    const int before = entered;
    entered = ordinal;
    return before;
}

void *fake_real(const void *address, uint64_t bytes) {
    if (!inside(address))
        return (void *)(uintptr_t)address; /* pinned memory, which the sanitizer watches */
    pthread_mutex_lock(&lock);
    const block *found = block_of(address, bytes);
    const bool good = found != NULL;
    const bool here = good && (entered < 0 || found->owner == entered);
    pthread_mutex_unlock(&lock);
    if (!good)
        fake_stop("an access outside of what was allocated");
    if (!here)
        fake_stop("work of one device on memory of another");
    return real + ((uintptr_t)address - (uintptr_t)seen);
}

void fake_mark_engine(const void *memory) {
    pthread_mutex_lock(&lock);
    block_of(memory, 1)->engine = true;
    pthread_mutex_unlock(&lock);
}

bool fake_is_engine(const void *address, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    const block *found = block_of(address, bytes);
    const bool is = found != NULL && found->engine;
    pthread_mutex_unlock(&lock);
    return is;
}

int fake_owner(void *device, const void *address, int32_t *ordinal_out, uint64_t *bytes_out) {
    (void)device;
    const int error = fake_call();
    pthread_mutex_lock(&lock);
    const block *found = block_of(address, 1);
    *ordinal_out = found != NULL ? found->owner : XCI_NO_DEVICE;
    *bytes_out =
        found != NULL ? found->at + found->bytes - ((uintptr_t)address - (uintptr_t)seen) : 0;
    pthread_mutex_unlock(&lock);
    return error;
}

/* The first gap that is large enough; a gap of one alignment stays between blocks. */
static bool find_gap(uint64_t bytes, uint64_t *index_out, uint64_t *at_out) {
    uint64_t at = ALIGNMENT;
    for (uint64_t i = 0; i <= block_count; i++) {
        const uint64_t end = i < block_count ? blocks[i].at : SPACE_BYTES;
        if (end >= at && end - at >= bytes + ALIGNMENT) {
            *index_out = i;
            *at_out = at;
            return true;
        }
        if (i < block_count)
            at = (blocks[i].at + blocks[i].bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return false;
}

int fake_allocate(void *device, uint64_t bytes, void **memory_out) {
    uint64_t index, at;
    int error = memory_call();
    if (error != 0)
        return error;
    pthread_mutex_lock(&lock);
    if (seen == NULL)
        make_space();
    if (!find_gap(bytes, &index, &at)) {
        pthread_mutex_unlock(&lock);
        return FAKE_NO_MEMORY;
    }
    if (block_count == block_capacity) {
        block_capacity = 2 * block_capacity + 16;
        blocks = realloc(blocks, block_capacity * sizeof *blocks);
    }
    memmove(&blocks[index + 1], &blocks[index], (block_count - index) * sizeof *blocks);
    blocks[index] = (block){at, bytes, ((fake_device *)device)->ordinal, false};
    block_count++;
    counts.allocations++;
    memset(real + at, 0xCD, bytes < 65536 ? bytes : 65536); /* no one may count on zeros */
    *memory_out = seen + at;
    pthread_mutex_unlock(&lock);
    return 0;
}

int fake_release(void *device, void *memory) {
    const int error = fake_run_all(device); /* as a GPU waits for work that uses it */
    pthread_mutex_lock(&lock);
    const uint64_t at = (uintptr_t)memory - (uintptr_t)seen;
    const uint64_t index = inside(memory) ? block_before(at) : block_count;
    if (index == block_count || blocks[index].at != at)
        fake_stop("a release of what was not allocated");
    memmove(&blocks[index], &blocks[index + 1], (block_count - index - 1) * sizeof *blocks);
    block_count--;
    counts.releases++;
    counts.waits++;
    pthread_mutex_unlock(&lock);
    return error;
}

int fake_allocate_pinned(void *device, uint64_t bytes, void **memory_out) {
    (void)device;
    const int error = memory_call();
    if (error != 0)
        return error;
    *memory_out = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    memset(*memory_out, 0xCE, bytes < 65536 ? bytes : 65536);
    pthread_mutex_lock(&lock);
    pinned_count++;
    counts.allocations++;
    pthread_mutex_unlock(&lock);
    return 0;
}

int fake_release_pinned(void *device, void *memory) {
    const int error = fake_run_all(device);
    free(memory);
    pthread_mutex_lock(&lock);
    pinned_count--;
    counts.releases++;
    counts.waits++;
    pthread_mutex_unlock(&lock);
    return error;
}

/* ---- Devices ---- */

static const char *error_text(int error) {
    return error == FAKE_NO_MEMORY ? "out of memory"
           : error == FAKE_ERROR   ? "a failure that the test asked for"
                                   : "another error";
}

static bool error_is_memory(int error) {
    return error == FAKE_NO_MEMORY;
}

static int count(uint32_t *count_out) {
    *count_out = FAKE_DEVICES;
    return fake_call();
}

static int open_device(int ordinal, void **device_out) {
    const int error = fake_call();
    if (error != 0)
        return error;
    fake_device *device = calloc(1, sizeof *device);
    device->ordinal = ordinal;
    fake_streams_open(device);
    pthread_mutex_lock(&lock);
    device_count++;
    pthread_mutex_unlock(&lock);
    *device_out = device;
    return 0;
}

static void close_device(void *handle) {
    fake_device *device = handle;
    fake_streams_close(device);
    free(device);
    pthread_mutex_lock(&lock);
    if (--device_count == 0 && block_count == 0) {
        free(blocks);
        blocks = NULL;
        block_capacity = 0;
    }
    pthread_mutex_unlock(&lock);
}

static int describe(void *handle, xci_device_about *about_out) {
    const fake_device *device = handle;
    *about_out = (xci_device_about){.processors = 1,
                                    .driver_version = 13000,
                                    .runtime_version = 13000,
                                    .memory_bytes = SPACE_BYTES,
                                    .free_bytes = SPACE_BYTES};
    const fake_engine engine = fake_engine_config();
    about_out->decompress_mask = engine.mask;
    about_out->decompress_max_bytes = engine.mask != 0 ? engine.max_bytes : 0;
    snprintf(about_out->name, sizeof about_out->name, "Fake %d", device->ordinal);
    snprintf(about_out->architecture, sizeof about_out->architecture, "sm_00");
    return fake_call();
}

static const xci_device_ops table = {
    .abi = XCI_DEVICE_ABI,
    .table_bytes = sizeof(xci_device_ops),
    .name = "fake",
    .error_text = error_text,
    .error_is_memory = error_is_memory,
    .count = count,
    .open = open_device,
    .close = close_device,
    .describe = describe,
    .owner = fake_owner,
    .allocate = fake_allocate,
    .release = fake_release,
    .allocate_engine = fake_allocate_engine,
    .engine_reaches = fake_engine_reaches,
    .allocate_pinned = fake_allocate_pinned,
    .release_pinned = fake_release_pinned,
    .quiet = fake_quiet,
    .stream_open = fake_stream_open,
    .stream_close = fake_stream_close,
    .stream_wait = fake_stream_wait,
    .stream_after = fake_stream_after,
    .stream_captured = fake_stream_captured,
    .event_open = fake_event_open,
    .event_close = fake_event_close,
    .event_record = fake_event_record,
    .event_done = fake_event_done,
    .event_wait = fake_event_wait,
    .event_elapsed = fake_event_elapsed,
    .copy = fake_copy,
    .copy_now = fake_copy_now,
    .copy_peer_many = fake_copy_peer_many,
    .join_many = fake_join_many,
    .fill = fake_fill,
    .decompress = fake_decompress,
    .encode_scratch = fake_encode_scratch,
    .encode = fake_encode,
    .check = fake_check,
    .prepare = fake_prepare,
    .check_masks = fake_check_masks,
    .gap_scratch = fake_gap_scratch,
    .gap_encode = fake_gap_encode,
    .gap_move = fake_gap_move,
    .gap_check = fake_gap_check,
    .gap_ready = fake_gap_ready,
    .apply = fake_apply,
    .digest = fake_digest,
    .gather = fake_gather,
    .scatter = fake_scatter,
    .copy_many = fake_copy_many,
};

const xci_device_ops *fake_device_ops(void) {
    return &table;
}

void fake_device_register(void) {
    xci_plugin_register(fake_device_ops());
}
