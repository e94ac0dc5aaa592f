/* The CPU backend's table: each call goes to the best level that the CPU has. Owns the choice;
 * the levels are whole tables of their own. */
#include "backend/cpu/cpu_level.h"

const xci_backend *xci_cpu_backend_at(xci_cpu_level level) {
    if (level == XCI_CPU_PORTABLE)
        return &xci_cpu_portable;
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
    if (level == XCI_CPU_AVX2 && avx2)
        return &xci_cpu_avx2;
    if (level == XCI_CPU_AVX512 && avx2 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return &xci_cpu_avx512;
#endif
    return NULL;
}

static const xci_backend *best(void) {
    for (int level = XCI_CPU_LEVELS - 1; level > XCI_CPU_PORTABLE; --level) {
        const xci_backend *backend = xci_cpu_backend_at((xci_cpu_level)level);
        if (backend != NULL)
            return backend;
    }
    return &xci_cpu_portable;
}

static void encode(xci_encode_job *jobs, uint64_t count) {
    best()->encode(jobs, count);
}
static void check(xci_block_job *jobs, uint64_t count) {
    best()->check(jobs, count);
}
static void apply(const xci_block_job *jobs, uint64_t count) {
    best()->apply(jobs, count);
}
static void digest(xci_digest_job *jobs, uint64_t count) {
    best()->digest(jobs, count);
}

const xci_backend xci_backend_cpu = {
    .name = "cpu", .encode = encode, .check = check, .apply = apply, .digest = digest};
