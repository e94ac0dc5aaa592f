/* Deltas by hand: a second writer and reader of the delta format, after docs/format.md and apart
 * from the library's own, so that a mistake there cannot hide. Every field may lie; lengths, hashes
 * and checksums are right unless a test changes them.
 *
 * Owns the bytes of parts. Payloads of records are borrowed. */
#ifndef TEST_DELTA_MAKER_H
#define TEST_DELTA_MAKER_H

#include "support/model.h"

enum {
    MADE_PARTS_MAX = 8,
    MADE_RUNS_MAX = 64,
    MADE_BLOCKS_MAX = 512,
    MADE_SECOND_PASS = 1, /* flags of a record */
    MADE_PARAMS = 2
};

typedef struct made_pair {
    uint64_t first, second;
} made_pair;

typedef struct made_record {
    uint64_t group;
    uint8_t flags;
    uint64_t params;               /* bytes of them, at the payload's end; with their flag only */
    uint64_t run_count;            /* as declared */
    made_pair runs[MADE_RUNS_MAX]; /* chunks to skip, chunks to take */
    uint32_t runs_made;
    made_pair codecs[MADE_RUNS_MAX]; /* descriptor, blocks */
    uint32_t codecs_made;
    uint64_t sizes[MADE_BLOCKS_MAX];
    uint32_t sizes_made;
    uint64_t stored; /* written with a second pass only */
    const uint8_t *payload;
    uint64_t payload_bytes;
    uint32_t checksum_flip; /* XORed into the right checksum */
} made_record;

typedef struct made_part {
    test_bytes bytes;
    uint64_t declared_bytes, declared_groups;
    uint8_t hash[16];
} made_part;

enum { MADE_BITS, MADE_BYTES, MADE_ELEMENTS, MADE_CHUNKS, MADE_COVERED, MADE_ELEMENTS_COVERED };

typedef struct made_delta {
    uint32_t head_version, version, flags;
    uint8_t run_bytes;
    char run[256];
    uint64_t base_step, target_step;
    uint64_t base_digest[2], target_digest[2];
    uint8_t base_fingerprint[16], target_fingerprint[16];
    uint8_t chunk_log2, group_log2, codec, second_pass;
    uint32_t zstd_level;
    uint8_t receiver; /* with codec 5 only; so is the link */
    uint64_t link;
    uint64_t counts[6];
    uint64_t payload_bytes, encoded_bytes, layout_groups, layout_chunks, group_count, part_count;
    made_part parts[MADE_PARTS_MAX];
    uint32_t parts_made;
    uint64_t manifest_bytes_lie; /* not 0: stands in the foot in place of the right number */
} made_delta;

/* Takes a good delta apart (delta_taker.c; so does made_records). */
void made_take(made_delta *made, const test_bytes *delta);
void made_free(made_delta *made);
/* The whole delta; replaces what `out` held. */
void made_write(const made_delta *made, test_bytes *out);

/* The records of a part, in made->parts[part]'s memory; returns how many. */
uint32_t made_records(const made_part *part, made_record *records, uint32_t most);
/* Makes the part of these records, with right size, count and hash. */
void made_set_records(made_part *part, const made_record *records, uint32_t count);
void made_set_bytes(made_part *part, const uint8_t *bytes, uint64_t count);
/* The blocks of one record as one block: payloads of foreign codecs. `descriptor`: codec and
 * width. */
made_record made_single(uint64_t group, uint64_t chunk, uint8_t descriptor, const uint8_t *block,
                        uint64_t bytes);

void test_put(test_bytes *to, const void *bytes, uint64_t count);
void test_put_varint(test_bytes *to, uint64_t value);

#endif
