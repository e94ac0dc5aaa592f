/* Manifests. The first byte of the input says whether the rest is manifest and foot as they are
 * (even) or the fields alone (odd), which then get a foot with their size and hash. What was read
 * is written again and must read the same. */
#include <stdlib.h>
#include <string.h>

#include "frame/manifest.h"
#include "support/fuzzing.h"

static void check_ranges(const xci_manifest *m) {
    uint64_t groups = 0;
    must(m->info.chunk_bytes >= 16384 && m->info.chunk_bytes <= 1 << 20);
    must(m->info.group_bytes >= 1 << 20 && m->info.group_bytes <= 64 << 20);
    must(memchr(m->info.base.run, 0, XORCAST_RUN_BYTES) != NULL);
    for (uint64_t p = 0; p < m->info.part_count; p++) {
        must(m->parts[p].bytes > 0 && m->parts[p].bytes <= XCI_PART_MAX);
        groups += m->parts[p].group_count;
    }
    must(groups == m->info.group_count && groups <= m->layout_group_count);
}

static void write_again(const xci_manifest *m) {
    uint8_t *bytes;
    uint64_t count;
    xci_manifest again;
    must(xci_manifest_write(the_context(), m, &bytes, &count) == XORCAST_OK);
    must(xci_manifest_read(the_context(), bytes, count, &again) == XORCAST_OK);
    again.info.delta_bytes =
        m->info.delta_bytes; /* a varint may have been none of the shortest steps */
    must(memcmp(&again.info, &m->info, sizeof m->info) == 0);
    must(again.attachment_bytes == m->attachment_bytes);
    for (uint64_t p = 0; p < m->info.part_count; p++)
        must(memcmp(&again.parts[p], &m->parts[p], sizeof(xci_part)) == 0);
    xci_manifest_free(the_context(), &again);
    xci_release(the_context(), bytes);
}

static void read_one(const uint8_t *bytes, uint64_t count) {
    xorcast_memory before, after;
    xci_manifest manifest;
    xorcast_context_memory(the_context(), &before);
    if (xci_manifest_read(the_context(), bytes, count, &manifest) == XORCAST_OK) {
        check_ranges(&manifest);
        write_again(&manifest);
        xci_manifest_free(the_context(), &manifest);
    }
    xorcast_context_memory(the_context(), &after);
    must(before.now_bytes == after.now_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    if (count == 0)
        return 0;
    const uint64_t size = count - 1;
    uint8_t *copy = malloc(size + XCI_FOOT_BYTES);
    must(copy != NULL);
    memcpy(copy, bytes + 1, size);
    if (bytes[0] % 2 == 0) {
        read_one(copy, size);
    } else {
        const xci_hash hash = xci_hash_of(copy, size);
        xci_store64(copy + size, size);
        memcpy(copy + size + 8, hash.bytes, sizeof hash.bytes);
        memcpy(copy + size + 24, "XORCEND", 8);
        read_one(copy, size + XCI_FOOT_BYTES);
    }
    free(copy);
    return 0;
}
