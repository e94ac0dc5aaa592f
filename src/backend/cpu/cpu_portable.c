/* The CPU backend in plain C, for every CPU, and the reference for the other levels. */
#include "backend/cpu/cpu_level.h"
#include "backend/cpu/cpu_tally.h"
#include "codec/lz4_block.h"

XCI_CPU_INLINE uint32_t list_line(const uint8_t *old_bytes, const uint8_t *new_bytes,
                                  uint32_t first, uint32_t *list) {
    uint32_t listed = 0;
    for (uint32_t i = 0; i < 8; ++i) {
        list[listed] = first + i;
        listed += xci_load64(old_bytes + 8 * i) != xci_load64(new_bytes + 8 * i);
    }
    return listed;
}

/* Bit 0 of every byte that is not zero. */
XCI_CPU_INLINE uint64_t nonzero_bytes(uint64_t word) {
    const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
    return (((word & low) + low) | word) >> 7 & UINT64_C(0x0101010101010101);
}

XCI_CPU_INLINE void count_masks(const uint64_t *masks, uint32_t count, uint32_t element_bytes,
                                xci_tally *tally) {
    /* The lowest bit of each element. */
    const uint64_t element_bits =
        element_bytes == 8 ? 1 : UINT64_MAX / ((UINT64_C(1) << (8 * element_bytes)) - 1);
    for (uint32_t i = 0; i < count; ++i) {
        const uint64_t bytes = nonzero_bytes(masks[i]);
        uint64_t elements = bytes;
        for (uint32_t width = element_bytes / 2; width > 0; width /= 2)
            elements |= elements >> (8 * width);
        tally->bytes += (uint64_t)__builtin_popcountll(bytes);
        tally->elements += (uint64_t)__builtin_popcountll(elements & element_bits);
    }
}

XCI_CPU_INLINE uint32_t full_lengths(const uint8_t *at, const uint8_t *end) {
    return xci_lz4_full_lengths(at, end);
}

#include "backend/cpu/cpu_block.h"
#include "backend/cpu/cpu_digest.h"
#include "backend/cpu/cpu_encode.h"

const xci_backend xci_cpu_portable = {
    .name = "cpu-portable", .encode = encode, .check = check, .apply = apply, .digest = digest};
