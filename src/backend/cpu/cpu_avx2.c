/* The CPU backend for AVX2, BMI and POPCNT. The file is compiled for them and must be entered only where
 * cpu_backend.c has found them. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "backend/cpu/cpu_level.h"
#include "backend/cpu/cpu_tally.h"

/* A bit for each of four words that is the same. */
XCI_CPU_INLINE uint32_t same_words(const uint8_t *old_bytes, const uint8_t *new_bytes) {
    const __m256i old_half = _mm256_loadu_si256((const __m256i *)(const void *)old_bytes);
    const __m256i new_half = _mm256_loadu_si256((const __m256i *)(const void *)new_bytes);
    return (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(old_half, new_half)));
}

XCI_CPU_INLINE uint32_t changed_words(const uint8_t *old_bytes, const uint8_t *new_bytes) {
    return (same_words(old_bytes, new_bytes) | same_words(old_bytes + 32, new_bytes + 32) << 4) ^ 0xff;
}

#include "backend/cpu/cpu_block.h"
#include "backend/cpu/cpu_digest.h"
#include "backend/cpu/cpu_encode.h"

const xci_backend xci_cpu_avx2 = {
    .name = "cpu-avx2", .encode = encode, .check = check, .apply = apply, .digest = digest};
#endif
