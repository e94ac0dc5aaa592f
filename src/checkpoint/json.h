/* JSON as checkpoints use it: a pull reader for headers and indexes, and quoting for the writer.
 *
 * The reader takes foreign bytes and accepts strict JSON only: valid UTF-8, no zero bytes in
 * strings, bounded depth, unsigned integers as the only numbers that callers can ask for. It
 * builds no tree: a header of 200,000 tensors is read in one pass, where a general library takes
 * 1.4 s and 211 MB. Duplicate keys are the caller's to find: it knows what a key means. Does not
 * own the bytes read. */
#ifndef XCI_JSON_H
#define XCI_JSON_H

#include "base/arena.h"
#include "checkpoint/buffer.h"

typedef struct xci_json {
    xorcast_context *context;
    xci_arena *arena; /* decoded and kept strings */
    const char *path; /* of the file, for messages */
    const uint8_t *begin, *at, *end;
} xci_json;

/* A string, without a terminating zero and without a zero inside. */
typedef struct xci_text {
    const char *at;
    uint64_t bytes;
} xci_text;

xci_json xci_json_over(xorcast_context *context, xci_arena *arena, const char *path,
                       const uint8_t *bytes, uint64_t count);

/* DATA_CORRUPT with the file, the place reached and `what`. */
xorcast_status xci_json_fail(xci_json *json, const char *what);

/* Objects: open, then next until `*more_out` is false; after each key the value must be read.
 * Arrays the same. `*first` starts as true. */
xorcast_status xci_json_open(xci_json *json, char bracket);
xorcast_status xci_json_next_key(xci_json *json, bool *first, bool *more_out, xci_text *key_out);
xorcast_status xci_json_next_item(xci_json *json, bool *first, bool *more_out);

/* The text lies in the bytes read, or in the arena if it was escaped. */
xorcast_status xci_json_string(xci_json *json, xci_text *text_out);
/* Digits only: no sign, fraction, exponent or leading zero; at most 2^64 - 1. */
xorcast_status xci_json_number(xci_json *json, uint64_t *number_out);
/* Any value, checked as far as syntax goes. */
xorcast_status xci_json_skip(xci_json *json);
/* Only white space may follow. */
xorcast_status xci_json_end(xci_json *json);

bool xci_text_is(xci_text text, const char *word);
/* A copy in the arena with a terminating zero. */
xorcast_status xci_text_keep(xci_arena *arena, xci_text text, const char **copy_out);

/* Appends `text` in quotes, escaped where JSON asks for it. */
xorcast_status xci_json_put_string(xci_buffer *buffer, const char *text);

#endif
