/* The index of a sharded checkpoint: the input is the index of two shards that hold three tensors.
 * Whatever it says, a checkpoint that opens is that of the shards. */
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/listing.h"
#include "support/fuzzing.h"

static char folder[] = "/tmp/xorcast-fuzz-index-XXXXXX";

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const void *bytes, size_t count) {
    unlink(path_of(name)); /* some file systems wait for the disk where a file is written over */
    FILE *file = fopen(path_of(name), "wb");
    must(file != NULL && fwrite(bytes, 1, count, file) == count && fclose(file) == 0);
}

static void put_shard(const char *name, const char *header, size_t data_bytes) {
    uint8_t bytes[512] = {0};
    const uint64_t length = strlen(header);
    must(8 + length + data_bytes <= sizeof bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    put(name, bytes, 8 + length + data_bytes);
}

static void remove_folder(void) {
    unlink(path_of("a.safetensors"));
    unlink(path_of("b.safetensors"));
    unlink(path_of(XCI_INDEX_NAME));
    rmdir(folder);
}

static void make_folder(void) {
    static bool made;
    if (made)
        return;
    made = true;
    must(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
    put_shard("a.safetensors",
              "{\"one\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
              "\"two\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]}}",
              6);
    put_shard("b.safetensors", "{\"three\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
              1);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    xorcast_memory memory;
    xorcast_checkpoint *checkpoint;
    make_folder();
    put(XCI_INDEX_NAME, bytes, count);
    const xorcast_status status = xorcast_checkpoint_open(the_context(), folder, NULL, &checkpoint);
    must(status == XORCAST_OK || status == XORCAST_DATA_CORRUPT || status == XORCAST_NOT_FOUND);
    if (status == XORCAST_OK) {
        must(checkpoint->listing.entries.count == 3 && checkpoint->listing.shard_count == 2);
        xorcast_checkpoint_close(checkpoint);
    }
    xorcast_context_memory(the_context(), &memory);
    must(memory.now_bytes < 4096); /* the pool's own */
    return 0;
}
