/* The CPU backend for AVX-512. Only the comparison of words differs from AVX2. The file is
 * compiled for AVX-512 and must be entered only where cpu_backend.c has found it. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "backend/cpu/cpu_level.h"
#include "backend/cpu/cpu_tally.h"

XCI_CPU_INLINE uint32_t changed_words(const uint8_t *old_bytes, const uint8_t *new_bytes) {
    return _mm512_cmpneq_epi64_mask(_mm512_loadu_si512(old_bytes), _mm512_loadu_si512(new_bytes));
}

#include "backend/cpu/cpu_block.h"
#include "backend/cpu/cpu_digest.h"
#include "backend/cpu/cpu_encode.h"

const xci_backend xci_cpu_avx512 = {
    .name = "cpu-avx512", .encode = encode, .check = check, .apply = apply, .digest = digest};
#endif
