/* The journal of an interrupted commit. The input is a journal without its empty middle: header,
 * head of the only slot, then flags, table and blocks. The first byte tells whether fingerprint and
 * hash are made to fit, so that mutations reach what they protect. A journal that is refused must
 * leave the weights alone, and none may write beside them. */
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "bundle/bundle.h"
#include "subscribe/journal.h"
#include "support/fuzzing.h"

/* The layout of the file, as journal.c writes it for chunks of CHUNK bytes. */
#define CHUNK UINT64_C(16384)
#define HEADER UINT64_C(4096)
#define HEADER_FIELDS 88u
#define SLOT_HEAD 64u
#define FINGERPRINT_AT 16u
#define TABLE_FIELD 56u
#define END_FIELD 72u
#define HASH_FIELD 80u
#define FLAGS_AT (HEADER + SLOT_HEAD + CHUNK)

#define WEIGHTS 40000u
#define CANARY 4096u

static uint8_t weights[CANARY + WEIGHTS + CANARY];

static xorcast_bundle *the_bundle(void) {
    static xorcast_bundle *bundle;
    if (bundle == NULL) {
        const uint64_t shape = WEIGHTS;
        xorcast_bundle_options options = XORCAST_BUNDLE_OPTIONS_INIT;
        xorcast_tensor tensor = XORCAST_TENSOR_INIT;
        options.chunk_bytes = CHUNK;
        tensor.name = "w";
        tensor.dtype = "U8";
        tensor.shape = &shape;
        tensor.rank = 1;
        tensor.bytes = WEIGHTS;
        tensor.data = weights + CANARY;
        must(xorcast_bundle_create(the_context(), &options, &bundle) == XORCAST_OK);
        must(xorcast_bundle_add(bundle, &tensor) == XORCAST_OK);
        must(xorcast_bundle_seal(bundle, NULL) == XORCAST_OK);
    }
    return bundle;
}

static void seal(uint8_t *file, uint64_t size) {
    const uint64_t table = xci_load64(file + TABLE_FIELD), end = xci_load64(file + END_FIELD);
    memcpy(file + FINGERPRINT_AT, the_bundle()->layout.fingerprint, 16);
    if (table <= end && end <= size)
        xci_store64(file + HASH_FIELD, xci_hash64_of(file + table, end - table, 0));
}

/* Takes up to `most` bytes of the input to `to`. */
static void move(const uint8_t **bytes, size_t *count, uint8_t *to, size_t most) {
    const size_t some = *count < most ? *count : most;
    if (some > 0)
        memcpy(to, *bytes, some);
    *bytes += some;
    *count -= some;
}

static void open_file(const char *path) {
    static uint8_t before[sizeof weights];
    xci_journal *journal;
    bool finished;
    memcpy(before, weights, sizeof weights);
    const xorcast_status status = xci_journal_open(the_bundle(), path, &journal, &finished);
    must(status == XORCAST_OK || status == XORCAST_DATA_CORRUPT);
    if (status == XORCAST_OK)
        xci_journal_close(journal);
    must(memcmp(before, weights, CANARY) == 0);
    must(memcmp(before + CANARY + WEIGHTS, weights + CANARY + WEIGHTS, CANARY) == 0);
    if (status != XORCAST_OK || !finished)
        must(memcmp(before, weights, sizeof weights) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    char path[64];
    xorcast_memory memory;
    if (count == 0 || count > 65536)
        return 0;
    const bool sealed = bytes[0] & 1;
    bytes++;
    count--;
    const uint64_t size = FLAGS_AT + count;
    const int fd = memfd_create("journal", MFD_CLOEXEC);
    must(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    uint8_t *file = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(file != MAP_FAILED);
    move(&bytes, &count, file, HEADER_FIELDS);
    move(&bytes, &count, file + HEADER, SLOT_HEAD);
    move(&bytes, &count, file + FLAGS_AT, count);
    if (sealed)
        seal(file, size);
    munmap(file, size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    open_file(path);
    close(fd);
    xorcast_context_memory(the_context(), &memory);
    must(memory.now_bytes < 65536); /* the pool's and the bundle's */
    return 0;
}
