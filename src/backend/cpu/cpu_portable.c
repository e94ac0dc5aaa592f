/* The CPU backend in plain C, for every CPU, and the reference for the other levels. */
#include "backend/cpu/cpu_level.h"
#include "backend/cpu/cpu_tally.h"

XCI_CPU_INLINE uint32_t changed_words(const uint8_t *old_bytes, const uint8_t *new_bytes) {
    uint32_t changed = 0;
    for (unsigned i = 0; i < 8; ++i)
        changed |= (uint32_t)(xci_load64(old_bytes + 8 * i) != xci_load64(new_bytes + 8 * i)) << i;
    return changed;
}

#include "backend/cpu/cpu_block.h"
#include "backend/cpu/cpu_digest.h"
#include "backend/cpu/cpu_encode.h"

const xci_backend xci_cpu_portable = {
    .name = "cpu-portable", .encode = encode, .check = check, .apply = apply, .digest = digest};
