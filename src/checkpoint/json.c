/* Strict JSON, pulled value by value: see json.h. */
#include "checkpoint/json.h"

#include <string.h>

#include "base/bytes.h"

#define DEPTH_MAX 32u /* of skipped values; headers and indexes need 3 */

xci_json xci_json_over(xorcast_context *context, xci_arena *arena, const char *path,
                       const uint8_t *bytes, uint64_t count) {
    return (xci_json){context, arena, path, bytes, bytes, count > 0 ? bytes + count : bytes};
}

xorcast_status xci_json_fail(xci_json *json, const char *what) {
    FAIL(json->context, XORCAST_DATA_CORRUPT, "%s: %s, at byte %llu of its JSON", json->path, what,
         (unsigned long long)(json->at - json->begin));
}

static void skip_space(xci_json *json) {
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t'))
        json->at++;
}

/* The next byte that is no white space, or 0 at the end. */
static uint8_t peek(xci_json *json) {
    skip_space(json);
    return json->at < json->end ? *json->at : 0;
}

static bool take(xci_json *json, char wanted) {
    if (peek(json) != (uint8_t)wanted)
        return false;
    json->at++;
    return true;
}

xorcast_status xci_json_open(xci_json *json, char bracket) {
    if (!take(json, bracket))
        return xci_json_fail(json, bracket == '{' ? "an object is missing" : "an array is missing");
    return XORCAST_OK;
}

/* Past the comma before an item that is not the first, or past the closing bracket. */
static xorcast_status next(xci_json *json, char closing, bool *first, bool *more_out) {
    *more_out = !take(json, closing);
    if (*more_out && !*first && !take(json, ','))
        return xci_json_fail(json, "a comma or a closing bracket is missing");
    *first = false;
    return XORCAST_OK;
}

xorcast_status xci_json_next_key(xci_json *json, bool *first, bool *more_out, xci_text *key_out) {
    TRY(next(json, '}', first, more_out));
    if (!*more_out)
        return XORCAST_OK;
    TRY(xci_json_string(json, key_out));
    if (!take(json, ':'))
        return xci_json_fail(json, "a colon is missing");
    return XORCAST_OK;
}

xorcast_status xci_json_next_item(xci_json *json, bool *first, bool *more_out) {
    return next(json, ']', first, more_out);
}

/* ---- Strings ---- */

/* Length of the valid UTF-8 sequence at `at`, or 0. Overlong forms and surrogates are not valid. */
static unsigned utf8_length(const uint8_t *at, const uint8_t *end) {
    const uint8_t lead = at[0];
    const unsigned length = lead < 0x80   ? 1
                            : lead < 0xC2 ? 0
                            : lead < 0xE0 ? 2
                            : lead < 0xF0 ? 3
                            : lead < 0xF5 ? 4
                                          : 0;
    if (length == 0 || (uint64_t)(end - at) < length)
        return 0;
    for (unsigned i = 1; i < length; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    const bool overlong = (lead == 0xE0 && at[1] < 0xA0) || (lead == 0xF0 && at[1] < 0x90);
    const bool beyond = (lead == 0xED && at[1] >= 0xA0) || (lead == 0xF4 && at[1] >= 0x90);
    return overlong || beyond ? 0 : length;
}

static bool hex4(const uint8_t *at, const uint8_t *end, uint32_t *value_out) {
    uint32_t value = 0;
    if (end - at < 4)
        return false;
    for (unsigned i = 0; i < 4; i++) {
        const uint8_t c = at[i];
        const uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                               : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                               : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                                      : 16;
        if (digit == 16)
            return false;
        value = value << 4 | digit;
    }
    *value_out = value;
    return true;
}

static unsigned utf8_put(uint8_t *out, uint32_t point) {
    if (point < 0x80) {
        out[0] = (uint8_t)point;
        return 1;
    }
    if (point < 0x800) {
        out[0] = (uint8_t)(0xC0 | point >> 6);
        out[1] = (uint8_t)(0x80 | (point & 0x3F));
        return 2;
    }
    if (point < 0x10000) {
        out[0] = (uint8_t)(0xE0 | point >> 12);
        out[1] = (uint8_t)(0x80 | (point >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (point & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | point >> 18);
    out[1] = (uint8_t)(0x80 | (point >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (point >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (point & 0x3F));
    return 4;
}

/* One escape sequence, `at` on the byte after the backslash. Returns the code point and moves `*at`
 * behind it; 0 for anything that is not allowed, a zero byte included. */
static uint32_t escape_point(const uint8_t **at, const uint8_t *end) {
    static const char letters[] = "\"\\/bfnrt";
    static const char values[] = "\"\\/\b\f\n\r\t";
    if (*at == end)
        return 0;
    const uint8_t letter = *(*at)++;
    if (letter != 'u') {
        const char *found = letter != 0 ? strchr(letters, letter) : NULL;
        return found != NULL ? (uint32_t)(uint8_t)values[found - letters] : 0;
    }
    uint32_t point, low;
    if (!hex4(*at, end, &point))
        return 0;
    *at += 4;
    if (point < 0xD800 || point > 0xDFFF)
        return point;
    if (point > 0xDBFF || end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u' ||
        !hex4(*at + 2, end, &low) || low < 0xDC00 || low > 0xDFFF)
        return 0;
    *at += 6;
    return 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
}

/* Checks up to the closing quote, json->at on the first byte inside; leaves json->at on the
 * quote. */
static xorcast_status scan_string(xci_json *json, bool *escaped_out) {
    *escaped_out = false;
    for (const uint8_t *at = json->at;;) {
        json->at = at;
        if (at == json->end)
            return xci_json_fail(json, "a string does not end");
        if (*at == '"')
            return XORCAST_OK;
        if (*at < 0x20)
            return xci_json_fail(json, "a string holds a control character");
        if (*at == '\\') {
            *escaped_out = true;
            at++;
            if (escape_point(&at, json->end) == 0)
                return xci_json_fail(json, "a string holds an escape that is not allowed");
            continue;
        }
        const unsigned length = *at < 0x80 ? 1 : utf8_length(at, json->end);
        if (length == 0)
            return xci_json_fail(json, "a string is not valid UTF-8");
        at += length;
    }
}

/* An escape is never shorter than what it stands for, so the decoded text fits the encoded
 * length. */
static xorcast_status decode(xci_json *json, const uint8_t *at, const uint8_t *end,
                             xci_text *text_out) {
    void *memory;
    TRY(xci_arena_take(json->arena, (uint64_t)(end - at), &memory));
    uint8_t *out = memory;
    while (at < end) {
        if (*at != '\\') {
            *out++ = *at++;
            continue;
        }
        at++;
        out += utf8_put(out, escape_point(&at, end));
    }
    *text_out = (xci_text){memory, (uint64_t)(out - (uint8_t *)memory)};
    return XORCAST_OK;
}

xorcast_status xci_json_string(xci_json *json, xci_text *text_out) {
    bool escaped;
    if (!take(json, '"'))
        return xci_json_fail(json, "a string is missing");
    const uint8_t *begin = json->at;
    TRY(scan_string(json, &escaped));
    const uint8_t *end = json->at++;
    if (escaped)
        return decode(json, begin, end, text_out);
    *text_out = (xci_text){(const char *)begin, (uint64_t)(end - begin)};
    return XORCAST_OK;
}

/* ---- Numbers and other values ---- */

static bool is_digit(const xci_json *json) {
    return json->at < json->end && *json->at >= '0' && *json->at <= '9';
}

xorcast_status xci_json_number(xci_json *json, uint64_t *number_out) {
    uint64_t value = 0;
    skip_space(json);
    const uint8_t *begin = json->at;
    for (; is_digit(json); json->at++)
        if (!xci_multiply(value, 10, &value) ||
            !xci_add(value, (uint64_t)(*json->at - '0'), &value))
            return xci_json_fail(json, "a number is larger than 2^64");
    const bool padded = json->at - begin > 1 && *begin == '0';
    const uint8_t after = json->at < json->end ? *json->at : 0;
    if (json->at == begin || padded || after == '.' || after == 'e' || after == 'E')
        return xci_json_fail(json, "a whole number, without sign, is missing");
    *number_out = value;
    return XORCAST_OK;
}

static bool skip_digits(xci_json *json) {
    const uint8_t *begin = json->at;
    while (is_digit(json))
        json->at++;
    return json->at > begin;
}

static bool skip_any_number(xci_json *json) {
    (void)(json->at < json->end && *json->at == '-' && json->at++);
    const bool zero = json->at < json->end && *json->at == '0';
    const uint8_t *begin = json->at;
    if (!skip_digits(json) || (zero && json->at - begin > 1))
        return false;
    if (json->at < json->end && *json->at == '.') {
        json->at++;
        if (!skip_digits(json))
            return false;
    }
    if (json->at < json->end && (*json->at == 'e' || *json->at == 'E')) {
        json->at++;
        if (json->at < json->end && (*json->at == '+' || *json->at == '-'))
            json->at++;
        return skip_digits(json);
    }
    return true;
}

static bool skip_word(xci_json *json) {
    static const char *const words[] = {"true", "false", "null"};
    for (unsigned i = 0; i < 3; i++) {
        const size_t length = strlen(words[i]);
        if ((uint64_t)(json->end - json->at) >= length && memcmp(json->at, words[i], length) == 0) {
            json->at += length;
            return true;
        }
    }
    return false;
}

static xorcast_status skip_simple(xci_json *json) {
    const uint8_t first = peek(json);
    xci_text text;
    if (first == '"')
        return xci_json_string(json, &text);
    if (!(first == '-' || is_digit(json) ? skip_any_number(json) : skip_word(json)))
        return xci_json_fail(json, "a value is missing");
    return XORCAST_OK;
}

/* Nesting is kept in an array rather than on the stack, so that its depth costs nothing. */
xorcast_status xci_json_skip(xci_json *json) {
    char closing[DEPTH_MAX];
    bool first = true, more;
    unsigned depth = 0;
    do {
        const uint8_t opening = peek(json);
        if (opening == '{' || opening == '[') {
            if (depth == DEPTH_MAX)
                return xci_json_fail(json, "values are nested too deeply");
            closing[depth++] = opening == '{' ? '}' : ']';
            json->at++;
            first = true;
        } else {
            TRY(skip_simple(json));
        }
        for (more = false; depth > 0 && !more; depth -= !more) {
            xci_text key;
            if (closing[depth - 1] == '}')
                TRY(xci_json_next_key(json, &first, &more, &key));
            else
                TRY(xci_json_next_item(json, &first, &more));
        }
    } while (depth > 0);
    return XORCAST_OK;
}

xorcast_status xci_json_end(xci_json *json) {
    skip_space(json);
    if (json->at != json->end)
        return xci_json_fail(json, "something follows the closing bracket");
    return XORCAST_OK;
}

/* ---- Texts ---- */

bool xci_text_is(xci_text text, const char *word) {
    return text.bytes == strlen(word) && memcmp(text.at, word, text.bytes) == 0;
}

xorcast_status xci_text_keep(xci_arena *arena, xci_text text, const char **copy_out) {
    void *memory;
    TRY(xci_arena_take(arena, text.bytes + 1, &memory));
    memcpy(memory, text.at, text.bytes);
    ((char *)memory)[text.bytes] = 0;
    *copy_out = memory;
    return XORCAST_OK;
}

xorcast_status xci_json_put_string(xci_buffer *buffer, const char *text) {
    static const char hex[] = "0123456789abcdef";
    TRY(xci_buffer_put8(buffer, '"'));
    for (const char *at = text; *at != 0;) {
        const size_t plain =
            strcspn(at, "\"\\\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f"
                        "\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f");
        TRY(xci_buffer_put(buffer, at, plain));
        at += plain;
        if (*at == '"' || *at == '\\') {
            const char escaped[2] = {'\\', *at++};
            TRY(xci_buffer_put(buffer, escaped, sizeof escaped));
        } else if (*at != 0) {
            const char escaped[6] = {'\\', 'u', '0', '0', hex[*at >> 4], hex[*at & 15]};
            TRY(xci_buffer_put(buffer, escaped, sizeof escaped));
            at++;
        }
    }
    return xci_buffer_put8(buffer, '"');
}
