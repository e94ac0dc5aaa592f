/* The CPU backend for AVX2, BMI and POPCNT. The file is compiled for them and must be entered
 * only where cpu_backend.c has found them. */
#include <immintrin.h>

#include "backend/cpu/cpu_level.h"
#include "backend/cpu/cpu_tally.h"
#include "codec/lz4_block.h"

/* A bit for each of four words that is the same. */
XCI_CPU_INLINE uint32_t same_words(const uint8_t *old_bytes, const uint8_t *new_bytes) {
    const __m256i old_half = _mm256_loadu_si256((const __m256i *)(const void *)old_bytes);
    const __m256i new_half = _mm256_loadu_si256((const __m256i *)(const void *)new_bytes);
    return (uint32_t)_mm256_movemask_pd(
        _mm256_castsi256_pd(_mm256_cmpeq_epi64(old_half, new_half)));
}

/* The numbers of the bits set in 0 .. 255, lowest first, one a byte. */
#define BIT(m, b)                                                                                  \
    (((m) >> (b)&1) ? (uint64_t)(b) << (8 * __builtin_popcount((m) & ((1u << (b)) - 1))) : 0)
#define BITS(m)                                                                                    \
    (BIT(m, 0) | BIT(m, 1) | BIT(m, 2) | BIT(m, 3) | BIT(m, 4) | BIT(m, 5) | BIT(m, 6) | BIT(m, 7))
#define BITS_4(m) BITS(m), BITS((m) + 1u), BITS((m) + 2u), BITS((m) + 3u)
#define BITS_16(m) BITS_4(m), BITS_4((m) + 4u), BITS_4((m) + 8u), BITS_4((m) + 12u)
#define BITS_64(m) BITS_16(m), BITS_16((m) + 16u), BITS_16((m) + 32u), BITS_16((m) + 48u)
static const uint64_t bit_numbers[256] = {BITS_64(0u), BITS_64(64u), BITS_64(128u), BITS_64(192u)};

XCI_CPU_INLINE uint32_t list_line(const uint8_t *old_bytes, const uint8_t *new_bytes,
                                  uint32_t first, uint32_t *list) {
    const uint32_t same =
        same_words(old_bytes, new_bytes) | same_words(old_bytes + 32, new_bytes + 32) << 4;
    const uint32_t changed = same ^ 0xff;
    const __m128i numbers = _mm_loadl_epi64((const __m128i *)(const void *)&bit_numbers[changed]);
    _mm256_storeu_si256((__m256i *)(void *)list, _mm256_add_epi32(_mm256_cvtepu8_epi32(numbers),
                                                                  _mm256_set1_epi32((int)first)));
    return (uint32_t)__builtin_popcount(changed);
}

/* All ones in every element that is zero. */
XCI_CPU_INLINE __m256i zero_elements(__m256i masks, uint32_t element_bytes) {
    const __m256i zero = _mm256_setzero_si256();
    switch (element_bytes) {
    case 1:
        return _mm256_cmpeq_epi8(masks, zero);
    case 2:
        return _mm256_cmpeq_epi16(masks, zero);
    case 4:
        return _mm256_cmpeq_epi32(masks, zero);
    default:
        return _mm256_cmpeq_epi64(masks, zero);
    }
}

XCI_CPU_INLINE uint32_t count_nonzero_bytes(__m256i zeros) {
    return (uint32_t)__builtin_popcount(~(uint32_t)_mm256_movemask_epi8(zeros));
}

XCI_CPU_INLINE void count_masks(const uint64_t *masks, uint32_t count, uint32_t element_bytes,
                                xci_tally *tally) {
    uint32_t bytes = 0, bytes_of_elements = 0;
    for (uint32_t i = 0; i < count; i += 4) {
        const __m256i four = _mm256_loadu_si256((const __m256i *)(const void *)(masks + i));
        bytes += count_nonzero_bytes(zero_elements(four, 1));
        bytes_of_elements += count_nonzero_bytes(zero_elements(four, element_bytes));
    }
    tally->bytes += bytes;
    tally->elements += bytes_of_elements / element_bytes;
}

/* As xci_lz4_full_lengths, of the first 32 bytes, without a branch on what they are. */
XCI_CPU_INLINE uint32_t full_lengths(const uint8_t *at, const uint8_t *end) {
    if (end - at < 32)
        return xci_lz4_full_lengths(at, end);
    const __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)at);
    const uint32_t full = _tzcnt_u32(~(uint32_t)_mm256_movemask_epi8(
        _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(-1))));
    return full < 32 ? full : UINT32_MAX;
}

#include "backend/cpu/cpu_block.h"
#include "backend/cpu/cpu_digest.h"
#include "backend/cpu/cpu_encode.h"

const xci_backend xci_cpu_avx2 = {
    .name = "cpu-avx2", .encode = encode, .check = check, .apply = apply, .digest = digest};
