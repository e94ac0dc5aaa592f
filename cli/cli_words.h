/* Numbers as people read them: "1.24 MB", "0.63 %", returned by value, to be used within one
 * expression; and names from outside. */
#ifndef CLI_WORDS_H
#define CLI_WORDS_H

#include <stdio.h>

#include "xorcast.h"

typedef struct cli_words {
    char text[48];
} cli_words;

cli_words cli_bytes(double bytes);
cli_words cli_percent(double part, double whole);
cli_words cli_ratio(double whole, double part);
cli_words cli_time(uint64_t ns);
cli_words cli_rate(double bytes, double ns); /* "11.9 GB/s" */
cli_words cli_count(uint64_t count);         /* "1,234,567" */
cli_words cli_step(uint64_t step);
cli_words cli_digest(xorcast_digest digest);
cli_words cli_fingerprint(const uint8_t fingerprint[16]);

/* Prints a text of foreign origin with '?' for what a terminal would obey: control characters. */
void cli_put_plain(FILE *file, const char *text);

#endif
