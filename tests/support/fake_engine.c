/* The stand-in's Decompression Engine: decodes with liblz4, and refuses what a driver may refuse. A
 * damaged block, or one whose mask has another size than was said, is undefined on an engine: here
 * it ends the process. */
#include <lz4.h>
#include <stdlib.h>
#include <string.h>

#include "support/fake_device.h"
#include "support/fake_inside.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_engine engine;
static bool configured;
static uint64_t calls, jobs_done;

void fake_device_engine(const fake_engine *config) {
    pthread_mutex_lock(&lock);
    engine = *config;
    configured = true;
    calls = jobs_done = 0;
    pthread_mutex_unlock(&lock);
}

fake_engine fake_engine_config(void) {
    pthread_mutex_lock(&lock);
    if (!configured) {
        const char *wanted = getenv("XORCAST_TEST_ENGINE");
        engine = wanted != NULL && wanted[0] == '1' ? FAKE_ENGINE_GOOD : FAKE_ENGINE_NONE;
        configured = true;
    }
    const fake_engine copy = engine;
    pthread_mutex_unlock(&lock);
    return copy;
}

uint64_t fake_device_engine_jobs(void) {
    pthread_mutex_lock(&lock);
    const uint64_t done = jobs_done;
    pthread_mutex_unlock(&lock);
    return done;
}

int fake_allocate_engine(void *device, uint64_t bytes, void **memory_out) {
    const int error = fake_allocate(device, bytes, memory_out);
    if (error == 0)
        fake_mark_engine(*memory_out);
    return error;
}

static bool reaches(const void *address, uint64_t bytes) {
    return !fake_engine_config().reaches_nothing && fake_is_engine(address, bytes);
}

int fake_engine_reaches(void *device, const void *address, bool *reaches_out) {
    (void)device;
    *reaches_out = reaches(address, 1);
    return fake_call();
}

static bool good_job(const fake_engine *config, const xci_decompress_job *job) {
    static const uint8_t zeros[sizeof job->zero];
    return (job->algorithm & (job->algorithm - 1)) == 0 && (job->algorithm & config->mask) != 0 &&
           job->block_bytes > 0 && job->mask_bytes > 0 && job->block_bytes <= config->max_bytes &&
           job->mask_bytes <= config->max_bytes && memcmp(job->zero, zeros, sizeof zeros) == 0 &&
           (uintptr_t)job->actual_bytes % sizeof(uint32_t) == 0 &&
           fake_is_engine(job->block, job->block_bytes) &&
           fake_is_engine(job->mask, job->mask_bytes) &&
           fake_is_engine(job->actual_bytes, sizeof(uint32_t));
}

static bool is_short(void) {
    pthread_mutex_lock(&lock);
    const bool now = engine.short_job >= 0 && jobs_done == (uint64_t)engine.short_job;
    jobs_done++;
    pthread_mutex_unlock(&lock);
    return now;
}

static void run_job(const xci_decompress_job *job) {
    const uint8_t *block = fake_real(job->block, job->block_bytes);
    uint8_t *mask = fake_real(job->mask, job->mask_bytes);
    const int made = LZ4_decompress_safe((const char *)block, (char *)mask, (int)job->block_bytes,
                                         (int)job->mask_bytes);
    if (made < 0 || (uint64_t)made != job->mask_bytes)
        fake_stop("a block for the engine that is damaged or of another size");
    uint32_t *actual = fake_real(job->actual_bytes, sizeof *actual);
    *actual = (uint32_t)made;
    if (is_short()) {
        memset(mask + made / 2, 0xA5, (uint64_t)made - (uint64_t)made / 2);
        *actual = (uint32_t)made / 2;
    }
}

/* Reads the jobs when it runs: they must still be there, and as they were. */
static int run_decompress(fake_work *work) {
    for (uint64_t i = 0; i < work->call.decompress.count; i++)
        run_job(&work->call.decompress.jobs[i]);
    fake_pass_ns(
        (uint64_t)(fake_engine_config().engine_ns_per_byte * (double)work->call.decompress.count *
                   (double)work->call.decompress.jobs[0].mask_bytes));
    return 0;
}

int fake_decompress(void *device, xci_decompress_job *jobs, uint64_t count, uint64_t *bad_out,
                    void *stream) {
    const fake_work work = {.run = run_decompress, .call.decompress = {jobs, count}};
    const fake_engine config = fake_engine_config();
    pthread_mutex_lock(&lock);
    const bool refuse = config.fail_call >= 0 && calls == (uint64_t)config.fail_call;
    calls++;
    pthread_mutex_unlock(&lock);
    if (config.mask == 0)
        return FAKE_NOT_SUPPORTED;
    for (uint64_t i = 0; i < count; i++)
        if (refuse || !good_job(&config, &jobs[i]) || config.reaches_nothing) {
            *bad_out = i;
            return FAKE_INVALID;
        }
    return count == 0 ? FAKE_INVALID : fake_put(device, stream, &work);
}
