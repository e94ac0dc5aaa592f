/* The CPU backend for AVX-512. Only the comparison of words differs from AVX2. The file is
 * compiled for AVX-512 and must be entered only where cpu_backend.c has found it. */
#include <immintrin.h>

#include "backend/cpu/cpu_level.h"
#include "backend/cpu/cpu_tally.h"
#include "codec/lz4_block.h"

XCI_CPU_INLINE uint32_t list_line(const uint8_t *old_bytes, const uint8_t *new_bytes,
                                  uint32_t first, uint32_t *list) {
    const __mmask8 changed =
        _mm512_cmpneq_epi64_mask(_mm512_loadu_si512(old_bytes), _mm512_loadu_si512(new_bytes));
    const __m256i numbers =
        _mm256_add_epi32(_mm256_set1_epi32((int)first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    _mm256_storeu_si256((__m256i *)(void *)list, _mm256_maskz_compress_epi32(changed, numbers));
    return (uint32_t)__builtin_popcount(changed);
}

XCI_CPU_INLINE uint32_t count_elements(__m512i masks, uint32_t element_bytes) {
    switch (element_bytes) {
    case 1:
        return (uint32_t)__builtin_popcountll(_mm512_test_epi8_mask(masks, masks));
    case 2:
        return (uint32_t)__builtin_popcountll(_mm512_test_epi16_mask(masks, masks));
    case 4:
        return (uint32_t)__builtin_popcountll(_mm512_test_epi32_mask(masks, masks));
    default:
        return (uint32_t)__builtin_popcountll(_mm512_test_epi64_mask(masks, masks));
    }
}

XCI_CPU_INLINE void count_masks(const uint64_t *masks, uint32_t count, uint32_t element_bytes,
                                xci_tally *tally) {
    for (uint32_t i = 0; i < count; i += 8) {
        const __m512i eight = _mm512_loadu_si512(masks + i);
        tally->bytes += count_elements(eight, 1);
        tally->elements += count_elements(eight, element_bytes);
    }
}

/* As xci_lz4_full_lengths, of the first 64 bytes, without a branch on what they are. */
XCI_CPU_INLINE uint32_t full_lengths(const uint8_t *at, const uint8_t *end) {
    const uint64_t left = (uint64_t)(end - at);
    const __mmask64 inside = _bzhi_u64(UINT64_MAX, left < 64 ? (uint32_t)left : 64);
    const __mmask64 others =
        _mm512_cmpneq_epi8_mask(_mm512_maskz_loadu_epi8(inside, at), _mm512_set1_epi8(-1));
    const uint64_t full = _tzcnt_u64(others & inside);
    return full < 64 ? (uint32_t)full : UINT32_MAX;
}

#include "backend/cpu/cpu_block.h"
#include "backend/cpu/cpu_digest.h"
#include "backend/cpu/cpu_encode.h"

const xci_backend xci_cpu_avx512 = {
    .name = "cpu-avx512", .encode = encode, .check = check, .apply = apply, .digest = digest};
