/* Clock, medians, memory, the read bound and JSON rows of the benchmarks; see measure.h. Uses the
 * widest vectors the CPU has for the bound, picked at run time. Owns no state but the row in
 * print. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "gen/measure.h"

#define HUGE_PAGE (UINT64_C(2) << 20)

double measure_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool measure_size(const char *text, uint64_t *bytes_out) {
    char *end = NULL;
    const double number = strtod(text, &end);
    double unit = 1;
    if (end == text || number < 0) {
        return false;
    }
    if (*end == 'k' || *end == 'm' || *end == 'g') {
        unit = *end == 'k' ? 1e3 : *end == 'm' ? 1e6 : 1e9;
        end++;
    }
    if (*end != '\0' || number * unit > 1e18) {
        return false;
    }
    *bytes_out = (uint64_t)(number * unit);
    return true;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double measure_median(double *values, uint64_t count) {
    qsort(values, count, sizeof *values, ascending);
    return count == 0 ? 0 : 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}

/* The cache that this CPU shares, from the kernel: the C library's number on some CPUs is that of
 * all such caches in the package, eight times as much on a common one. */
uint64_t measure_last_level_cache_bytes(void) {
    uint64_t largest = 0;
    for (int index = 0; index < 8; index++) {
        char path[80];
        unsigned long long kilobytes = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        FILE *in = fopen(path, "r");
        if (in == NULL) {
            break;
        }
        if (fscanf(in, "%lluK", &kilobytes) == 1 && kilobytes * 1024 > largest) {
            largest = kilobytes * 1024;
        }
        fclose(in);
    }
    const long told = largest == 0 ? sysconf(_SC_LEVEL3_CACHE_SIZE) : 0;
    return largest > 0 ? largest : told > 0 ? (uint64_t)told : UINT64_C(32) << 20;
}

uint32_t measure_cpus(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

uint64_t measure_available_bytes(void) {
    FILE *in = fopen("/proc/meminfo", "r");
    char line[128];
    uint64_t kilobytes = 0;
    while (in != NULL && fgets(line, sizeof line, in) != NULL) {
        if (sscanf(line, "MemAvailable: %" SCNu64, &kilobytes) == 1) {
            break;
        }
    }
    if (in != NULL) {
        fclose(in);
    }
    return kilobytes * 1024;
}

/* ---- Memory -----------------------------------------------------------------------------------*/

/* Whole huge pages, with one more to align in; the start of the mapping lies in front of it. */
void *measure_allocate(uint64_t bytes) {
    const uint64_t size = (bytes + 2 * HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE + HUGE_PAGE;
    uint8_t *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        return NULL;
    }
    const uint64_t skip = (HUGE_PAGE - (uintptr_t)map % HUGE_PAGE) % HUGE_PAGE;
    if (skip > 0) {
        munmap(map, skip);
    }
    if (skip < HUGE_PAGE) {
        munmap(map + size - (HUGE_PAGE - skip), HUGE_PAGE - skip);
    }
    madvise(map + skip, size - HUGE_PAGE, MADV_HUGEPAGE);
    return map + skip;
}

void measure_free(void *memory, uint64_t bytes) {
    if (memory != NULL) {
        munmap(memory, (bytes + 2 * HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    }
}

/* ---- Read bound -------------------------------------------------------------------------------*/

typedef uint64_t vector32 __attribute__((vector_size(32), aligned(1), may_alias));

/* 256 bytes of each buffer a turn. `ahead` bytes are asked for early; 0: the hardware's prefetcher
 * alone. */
#define COMPARE_LOOP(ahead)                                                                        \
    vector32 any = {0};                                                                            \
    for (uint64_t i = 0; i < bytes; i += 256) {                                                    \
        for (uint64_t j = 0; (ahead) > 0 && j < 256; j += 64) {                                    \
            __builtin_prefetch(a + i + j + (ahead), 0, 0);                                         \
            __builtin_prefetch(b + i + j + (ahead), 0, 0);                                         \
        }                                                                                          \
        for (uint64_t j = 0; j < 256; j += 32) {                                                   \
            any |= *(const vector32 *)(const void *)(a + i + j) ^                                  \
                   *(const vector32 *)(const void *)(b + i + j);                                   \
        }                                                                                          \
    }                                                                                              \
    return any[0] | any[1] | any[2] | any[3];

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx2")))
#else
#define WIDE
#endif

WIDE static uint64_t compare_wide(const uint8_t *a, const uint8_t *b,
                                  uint64_t bytes){COMPARE_LOOP(0)} WIDE static uint64_t
    compare_wide_ahead(const uint8_t *a, const uint8_t *b, uint64_t bytes) {
    COMPARE_LOOP(2048)
}
static uint64_t compare_plain(const uint8_t *a, const uint8_t *b, uint64_t bytes) {
    COMPARE_LOOP(0)
}

typedef uint64_t (*compare_function)(const uint8_t *a, const uint8_t *b, uint64_t bytes);

typedef struct reader {
    const uint8_t *a, *b;
    uint64_t bytes;
    compare_function compare;
    uint64_t result;
    pthread_t thread;
} reader;

static void *reader_run(void *argument) {
    reader *r = argument;
    r->result = r->compare(r->a, r->b, r->bytes / 256 * 256);
    return NULL;
}

#define MOST_READERS 256u /* as many as the library has threads */

static double read_once(const uint8_t *a, const uint8_t *b, uint64_t bytes, uint32_t threads,
                        compare_function compare) {
    static volatile uint64_t sink; /* keeps the loop */
    reader readers[MOST_READERS];
    const uint32_t count = threads < MOST_READERS ? threads : MOST_READERS;
    const uint64_t share = bytes / count / 4096 * 4096;
    const double start = measure_now();
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t from = i * share;
        readers[i] =
            (reader){a + from, b + from, i + 1 == count ? bytes - from : share, compare, 0, 0};
        if (i > 0 && pthread_create(&readers[i].thread, NULL, reader_run, &readers[i]) != 0) {
            return INFINITY;
        }
    }
    reader_run(&readers[0]);
    sink = readers[0].result;
    for (uint32_t i = 1; i < count; i++) {
        pthread_join(readers[i].thread, NULL);
        sink = readers[i].result;
    }
    (void)sink;
    return measure_now() - start;
}

double measure_two_stream_read(const void *a, const void *b, uint64_t bytes, uint32_t threads) {
    compare_function wide = compare_plain, ahead = compare_plain;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        wide = compare_wide;
        ahead = compare_wide_ahead;
    }
#else
    wide = compare_wide;
    ahead = compare_wide_ahead;
#endif
    const double first = read_once(a, b, bytes, threads, wide),
                 second = read_once(a, b, bytes, threads, ahead);
    return first < second ? first : second;
}

/* ---- Rows -------------------------------------------------------------------------------------*/

static void print_quoted(const char *text) {
    putchar('"');
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            printf("\\%c", *c);
        } else {
            putchar((unsigned char)*c < 32 ? ' ' : *c);
        }
    }
    putchar('"');
}

/* First line of a command's output, or of a file's line that begins with `prefix`, after ": ". */
static void first_line(FILE *in, const char *prefix, char *text, size_t room) {
    char line[256];
    snprintf(text, room, "unknown");
    while (in != NULL && fgets(line, sizeof line, in) != NULL) {
        if (strncmp(line, prefix, strlen(prefix)) == 0) {
            const char *value = *prefix == '\0' ? line : strstr(line, ": ");
            snprintf(text, room, "%.*s", (int)(room - 1),
                     value == NULL     ? line
                     : *prefix == '\0' ? value
                                       : value + 2);
            text[strcspn(text, "\n")] = '\0';
            return;
        }
    }
}

void measure_row(const char *name, int argc, char **argv) {
    char cpu[128], commit[64], command[512];
    FILE *in = fopen("/proc/cpuinfo", "r");
    first_line(in, "model name", cpu, sizeof cpu);
    if (in != NULL) {
        fclose(in);
    }
    in = popen("git rev-parse --short HEAD 2>/dev/null", "r");
    first_line(in, "", commit, sizeof commit);
    if (in != NULL) {
        pclose(in);
    }
    size_t used = 0;
    for (int i = 0; i < argc && used + strlen(argv[i]) + 2 < sizeof command; i++) {
        used += (size_t)snprintf(command + used, sizeof command - used, "%s%s", i > 0 ? " " : "",
                                 argv[i]);
    }
    printf("{\"row\":\"%s\"", name);
    measure_text("machine", cpu);
    measure_count("cpus", measure_cpus());
    measure_count("last_level_cache_bytes", measure_last_level_cache_bytes());
    measure_text("commit", commit);
    measure_text("command", command);
}

void measure_text(const char *key, const char *value) {
    printf(",\"%s\":", key);
    print_quoted(value);
}

void measure_number(const char *key, double value) {
    printf(isfinite(value) ? ",\"%s\":%.6g" : ",\"%s\":null", key, value);
}

void measure_count(const char *key, uint64_t value) {
    printf(",\"%s\":%" PRIu64, key, value);
}

void measure_row_end(void) {
    puts("}");
    fflush(stdout);
}
