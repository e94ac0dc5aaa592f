/* The CPU backend in plain C, for every CPU, and the reference for the other levels. */
#include "backend/cpu/cpu_level.h"
#include "backend/cpu/cpu_tally.h"

XCI_CPU_INLINE uint32_t list_line(const uint8_t *old_bytes, const uint8_t *new_bytes, uint32_t first,
                                  uint32_t *list) {
    uint32_t listed = 0;
    for (uint32_t i = 0; i < 8; ++i) {
        list[listed] = first + i;
        listed += xci_load64(old_bytes + 8 * i) != xci_load64(new_bytes + 8 * i);
    }
    return listed;
}

#include "backend/cpu/cpu_block.h"
#include "backend/cpu/cpu_digest.h"
#include "backend/cpu/cpu_encode.h"

const xci_backend xci_cpu_portable = {
    .name = "cpu-portable", .encode = encode, .check = check, .apply = apply, .digest = digest};
