/* What tells xorcast which files to write: the list of files in a delta, and the record of an
 * interrupted replacement. The first byte picks the reader. Names that come out must be plain
 * file names. */
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>
#include <string.h>

#include "checkpoint/commit_record.h"
#include "checkpoint/files.h"
#include "support/fuzzing.h"

static void check_name(const char *name) {
    must(strlen(name) > 0 && strlen(name) <= 255 && strchr(name, '/') == NULL && name[0] != '.');
}

static void read_files(const uint8_t *bytes, size_t count) {
    xci_files files;
    xci_listing base;
    if (xci_files_decode(the_context(), bytes, count, &files) != XORCAST_OK)
        return;
    const xci_listing *target = &files.target;
    must(target->shard_count > 0);
    for (uint64_t i = 0; i < target->shard_count && target->directory; i++)
        check_name(target->shards[i].name);
    for (uint64_t i = 0; i < target->side_count; i++)
        check_name(target->sides[i].name);
    for (uint64_t i = 0; i < files.removed_count; i++)
        check_name(files.removed[i]);
    must(xci_listing_create(the_context(), &base) == XORCAST_OK);
    (void)!xci_files_resolve(&files, &base);
    xci_listing_free(&base);
    xci_files_free(&files);
}

static void read_record(const uint8_t *bytes, size_t count) {
    xci_arena *arena;
    xci_commit_record record;
    must(xci_arena_create(the_context(), &arena) == XORCAST_OK);
    if (xci_commit_record_parse(arena, the_context(), "fuzz", bytes, count, &record) ==
        XORCAST_OK) {
        for (uint64_t i = 0; i < record.rename_count; i++)
            check_name(record.renames[i]);
        for (uint64_t i = 0; i < record.removal_count; i++)
            check_name(record.removals[i]);
    }
    xci_arena_destroy(arena);
}

/* A checksum that fits, so that mutations reach what it protects. */
static void read_sealed_record(const uint8_t *bytes, size_t count) {
    uint8_t *sealed = malloc(count + sizeof(xci_hash));
    const xci_hash hash = xci_hash_of(bytes, count);
    must(sealed != NULL);
    memcpy(sealed, bytes, count);
    memcpy(sealed + count, &hash, sizeof hash);
    read_record(sealed, count + sizeof hash);
    free(sealed);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    xorcast_memory memory;
    if (count == 0)
        return 0;
    if (bytes[0] % 3 == 0)
        read_files(bytes + 1, count - 1);
    else if (bytes[0] % 3 == 1)
        read_record(bytes + 1, count - 1);
    else
        read_sealed_record(bytes + 1, count - 1);
    xorcast_context_memory(the_context(), &memory);
    must(memory.now_bytes < 4096); /* the pool's own */
    return 0;
}
