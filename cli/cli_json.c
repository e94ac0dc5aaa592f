/* See cli_json.h. */
#include "cli_json.h"

#include <inttypes.h>
#include <math.h>

/* Bytes of the UTF-8 sequence at `text`, 0 if it is none: cut short, overlong, a surrogate or
 * beyond U+10FFFF. */
static unsigned sequence_bytes(const unsigned char *text) {
    const unsigned first = text[0];
    if (first < 0x80)
        return 1;
    const unsigned bytes = first >= 0xC2 && first < 0xE0   ? 2
                           : first >= 0xE0 && first < 0xF0 ? 3
                           : first >= 0xF0 && first < 0xF5 ? 4
                                                           : 0;
    for (unsigned i = 1; i < bytes; i++)
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    const bool overlong = (first == 0xE0 && text[1] < 0xA0) || (first == 0xF0 && text[1] < 0x90);
    const bool surrogate = first == 0xED && text[1] >= 0xA0;
    const bool beyond = first == 0xF4 && text[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : bytes;
}

static void put_quoted(FILE *file, const char *text) {
    fputc('"', file);
    for (const unsigned char *at = (const unsigned char *)text; *at != 0;) {
        const unsigned bytes = sequence_bytes(at);
        if (bytes == 0)
            fputs("\\ufffd", file);
        else if (*at == '"' || *at == '\\')
            fprintf(file, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7F)
            fprintf(file, "\\u%04x", *at);
        else if (*at == 0xC2 && at[1] < 0xA0)
            fprintf(file, "\\u%04x", at[1]); /* terminals obey these too */
        else
            fwrite(at, 1, bytes, file);
        at += bytes == 0 ? 1 : bytes;
    }
    fputc('"', file);
}

static void put_key(cli_json *json, const char *key) {
    if (json->some)
        fputc(',', json->file);
    json->some = true;
    put_quoted(json->file, key);
    fputc(':', json->file);
}

cli_json cli_json_begin(FILE *file) {
    fputc('{', file);
    return (cli_json){file, false};
}

void cli_json_end(cli_json *json) {
    fputs("}\n", json->file);
    fflush(json->file);
}

void cli_json_open(cli_json *json, const char *key) {
    put_key(json, key);
    fputc('{', json->file);
    json->some = false;
}

void cli_json_close(cli_json *json) {
    fputc('}', json->file);
    json->some = true;
}

void cli_json_text(cli_json *json, const char *key, const char *text) {
    if (text == NULL) {
        cli_json_null(json, key);
        return;
    }
    put_key(json, key);
    put_quoted(json->file, text);
}

void cli_json_count(cli_json *json, const char *key, uint64_t count) {
    put_key(json, key);
    fprintf(json->file, "%" PRIu64, count);
}

void cli_json_signed(cli_json *json, const char *key, int64_t number) {
    put_key(json, key);
    fprintf(json->file, "%" PRId64, number);
}

void cli_json_real(cli_json *json, const char *key, double real) {
    put_key(json, key);
    if (isfinite(real))
        fprintf(json->file, "%.9g", real);
    else
        fputs("null", json->file);
}

void cli_json_bool(cli_json *json, const char *key, bool value) {
    put_key(json, key);
    fputs(value ? "true" : "false", json->file);
}

void cli_json_null(cli_json *json, const char *key) {
    put_key(json, key);
    fputs("null", json->file);
}
