/* The read bound of xorcast bench: two buffers streamed and compared with the widest plain loop,
 * split over threads. See cli_bench.h. */
#include "cli_bench.h"

#include <pthread.h>

#include "cli_stop.h"

#define TURN_BYTES 256u
#define MOST_THREADS 256u

typedef uint64_t vector __attribute__((vector_size(32), aligned(1), may_alias));

typedef struct reader {
    const uint8_t *a, *b;
    uint64_t bytes; /* a multiple of TURN_BYTES */
    uint64_t difference;
    pthread_t thread;
} reader;

#define COMPARE(r)                                                                                 \
    vector any = {0};                                                                              \
    for (uint64_t i = 0; i < (r)->bytes; i += TURN_BYTES)                                          \
        for (uint64_t j = 0; j < TURN_BYTES; j += sizeof(vector))                                  \
            any |= *(const vector *)(const void *)((r)->a + i + j) ^                               \
                   *(const vector *)(const void *)((r)->b + i + j);                                \
    (r)->difference = any[0] | any[1] | any[2] | any[3];

static void compare_plain(reader *r) {
    COMPARE(r)
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void compare_avx2(reader *r) {
    COMPARE(r)
}
static void compare(reader *r) {
    if (__builtin_cpu_supports("avx2"))
        compare_avx2(r);
    else
        compare_plain(r);
}
#else
static void compare(reader *r) {
    compare_plain(r);
}
#endif

static void *run(void *argument) {
    compare(argument);
    return NULL;
}

uint64_t cli_bench_read(const void *a, const void *b, uint64_t bytes, uint32_t threads) {
    static volatile uint64_t kept; /* so that no loop can be left out */
    reader readers[MOST_THREADS];
    const uint32_t count = threads < MOST_THREADS ? threads : MOST_THREADS;
    const uint64_t share = bytes / count / TURN_BYTES * TURN_BYTES;
    uint32_t started = 1;
    const uint64_t begin = cli_now_ns();
    for (uint32_t i = 0; i < count; i++)
        readers[i] = (reader){.a = (const uint8_t *)a + i * share,
                              .b = (const uint8_t *)b + i * share,
                              .bytes = share};
    while (started < count &&
           pthread_create(&readers[started].thread, NULL, run, &readers[started]) == 0)
        started++;
    compare(&readers[0]);
    for (uint32_t i = 0; i < started; i++) {
        if (i > 0)
            pthread_join(readers[i].thread, NULL);
        kept = readers[i].difference;
    }
    (void)kept;
    return started == count ? cli_now_ns() - begin : 0;
}
