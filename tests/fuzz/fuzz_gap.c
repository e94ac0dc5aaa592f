/* Parameters of the gap codec and blocks under them, both forms. Whatever they are, blocks are
 * refused or give a mask of their chunk's size, the same one each time; a mask goes through encode
 * and back.
 *
 *     input = number of blocks (1 byte, 1 .. 16), bytes of the parameters (2), the parameters, then
 *             each block behind its bytes (2) */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/bytes.h"
#include "delta/gap_group_writer.h"
#include "delta/group_reader.h"
#include "support/exact.h"
#include "support/fuzzing.h"

#define MOST 65536u
#define BLOCKS 16u

static xci_gap_group *group, *again;
static xci_gap_group_writer *writer;

static void open_all(void) {
    must(xci_gap_group_writer_open(the_context(), &writer) == XORCAST_OK);
    group = calloc(1, sizeof *group);
    again = calloc(1, sizeof *again);
    must(group != NULL && again != NULL);
}

/* A mask that was decoded is encoded as a group of its own, and comes back. */
static void check_again(const uint8_t *mask, const uint8_t *old, uint32_t n, bool knows_old) {
    xci_block block = {0, XORCAST_CODEC_RAW, 2, n, n};
    const xci_record listed = {.block_count = 1, .blocks = &block, .raw_bytes = n, .payload = mask};
    xci_record record;
    uint8_t *out = malloc(n);
    must(out != NULL);
    must(xci_gap_group_write(the_context(), writer, &listed, knows_old ? &old : NULL, NULL,
                             &record) == XORCAST_OK);
    must(record.raw_bytes <= n);
    if (record.params_bytes > 0) {
        again->is_gap[0] = 1;
        must(xci_gap_group_read(again, record.payload + record.raw_bytes - record.params_bytes,
                                record.params_bytes, 1));
        must(xci_gap_decode(again, 0, record.payload, record.blocks[0].bytes, old, out));
        must(memcmp(out, mask, n) == 0);
    }
    free(out);
}

static void check_block(uint32_t index, const uint8_t *block, uint32_t size) {
    const uint32_t n = group->places[index].chunk_bytes;
    uint8_t *old = malloc(n), *mask = malloc(n), *second = malloc(n);
    bool changed = false;
    must(old != NULL && mask != NULL && second != NULL);
    for (uint32_t i = 0; i < n; i++)
        old[i] = (uint8_t)(i * 37 + (i >> 8));
    memset(mask, 1, n);
    const bool good = xci_gap_decode(group, index, block, size, old, mask);
    must(good == xci_gap_decode(group, index, block, size, old, second));
    for (uint32_t i = 0; i < n && good; i++) {
        must(mask[i] == second[i]);
        changed |= mask[i] != 0;
    }
    if (changed && n <= MOST)
        check_again(mask, old, n, xci_gap_knows_old(group, index));
    free(second);
    free(mask);
    free(old);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count) {
    if (group == NULL)
        open_all();
    if (count < 3 || count > MOST)
        return 0;
    const uint32_t block_count = 1 + (data[0] - 1u) % BLOCKS;
    const uint64_t params_bytes = xci_min(xci_load16(data + 1), count - 3);
    xci_reader reader = {data + 3 + params_bytes, data + count, false};
    uint8_t *params = exact_copy(data + 3, params_bytes);
    memset(group->is_gap, 1, block_count);
    const bool good = xci_gap_group_read(group, params, params_bytes, block_count);
    for (uint32_t i = 0; i < block_count && good; i++) {
        const uint8_t *head = xci_read_bytes(&reader, 2);
        const uint64_t size =
            head != NULL ? xci_min(xci_load16(head), xci_reader_left(&reader)) : 0;
        uint8_t *block = exact_copy(xci_read_bytes(&reader, size), size);
        check_block(i, block, (uint32_t)size);
        free(block);
    }
    free(params);
    return 0;
}
