/* Writes JSON, one object a line. Text that is not UTF-8 becomes U+FFFD, so that every line
 * parses. Owns no memory; knows nothing of what it writes. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct cli_json {
    FILE *file;
    bool some; /* the object that is open has a member */
} cli_json;

cli_json cli_json_begin(FILE *file);
/* Ends the line and flushes it. */
void cli_json_end(cli_json *json);

/* An object as a member. */
void cli_json_open(cli_json *json, const char *key);
void cli_json_close(cli_json *json);

void cli_json_text(cli_json *json, const char *key, const char *text); /* NULL: null */
void cli_json_count(cli_json *json, const char *key, uint64_t count);
void cli_json_signed(cli_json *json, const char *key, int64_t number);
void cli_json_real(cli_json *json, const char *key, double real); /* null unless finite */
void cli_json_bool(cli_json *json, const char *key, bool value);
void cli_json_null(cli_json *json, const char *key);

#endif
