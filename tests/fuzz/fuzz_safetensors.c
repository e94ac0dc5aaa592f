/* Headers of safetensors files. What the parser accepts, the writer writes again in the order of
 * the bytes, and that must be read as the same tensors. */
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors.h"
#include "support/fuzzing.h"

static void check_again(xci_entries *entries, xci_arena *arena, uint64_t data_bytes) {
    xci_buffer buffer = {.context = the_context()};
    xci_entries again = {.context = the_context()};
    uint64_t again_bytes;
    must(xci_safetensors_put_header(&buffer, entries->at, entries->count) == XORCAST_OK);
    must(xci_safetensors_parse(&again, arena, "again", 3, buffer.bytes + XCI_HEADER_PREFIX,
                               buffer.size - XCI_HEADER_PREFIX, &again_bytes) == XORCAST_OK);
    must(again_bytes == data_bytes && again.count == entries->count);
    for (uint64_t i = 0; i < again.count; i++) {
        const xci_entry *a = &entries->at[i], *b = &again.at[i];
        if (a->bytes == 0) /* tensors without bytes have no order among each other */
            continue;
        must(strcmp(a->name, b->name) == 0 && strcmp(a->dtype, b->dtype) == 0);
        must(a->offset == b->offset && a->bytes == b->bytes && a->rank == b->rank);
        must(a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
    }
    xci_entries_free(&again);
    xci_buffer_free(&buffer);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    xci_entries entries = {.context = the_context()};
    xci_arena *arena;
    uint64_t data_bytes, length;
    uint8_t prefix[XCI_HEADER_PREFIX] = {0};
    memcpy(prefix, bytes == NULL ? prefix : bytes, count < sizeof prefix ? count : sizeof prefix);
    (void)!xci_safetensors_length(the_context(), "fuzz", prefix, count, &length);
    must(xci_arena_create(the_context(), &arena) == XORCAST_OK);
    if (xci_safetensors_parse(&entries, arena, "fuzz", 3, bytes, count, &data_bytes) == XORCAST_OK)
        check_again(&entries, arena, data_bytes);
    (void)!xci_entries_sort(&entries);
    xci_arena_destroy(arena);
    xci_entries_free(&entries);
    xorcast_memory memory;
    xorcast_context_memory(the_context(), &memory);
    must(memory.now_bytes < 4096); /* the pool's own */
    return 0;
}
