/* See cli_words.h. */
#include "cli_words.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* Three digits that matter, and a unit. */
static cli_words three_digits(double value, const char *unit) {
    cli_words out;
    const int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
    snprintf(out.text, sizeof out.text, "%.*f %s", decimals, value, unit);
    return out;
}

cli_words cli_bytes(double bytes) {
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    cli_words out;
    if (bytes < 1000) {
        snprintf(out.text, sizeof out.text, "%.0f B", bytes);
        return out;
    }
    size_t unit = 0;
    bytes /= 1e3;
    while (bytes >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1e3;
        unit++;
    }
    return three_digits(bytes, units[unit]);
}

cli_words cli_percent(double part, double whole) {
    cli_words out;
    const double percent = whole > 0 ? 100 * part / whole : 0;
    snprintf(out.text, sizeof out.text, percent < 1 ? "%.2g %%" : "%.2f %%", percent);
    return out;
}

cli_words cli_ratio(double whole, double part) {
    cli_words out;
    const double ratio = part > 0 ? whole / part : 0;
    snprintf(out.text, sizeof out.text, ratio < 100 ? "%.1fx" : "%.0fx", ratio);
    return out;
}

cli_words cli_time(uint64_t ns) {
    const double time = (double)ns;
    return time < 999.5e3   ? three_digits(time / 1e3, "us")
           : time < 999.5e6 ? three_digits(time / 1e6, "ms")
                            : three_digits(time / 1e9, "s");
}

cli_words cli_rate(double bytes, double ns) {
    return three_digits(ns > 0 ? bytes / ns : 0, "GB/s");
}

cli_words cli_count(uint64_t count) {
    cli_words out;
    char digits[24];
    const size_t length = (size_t)snprintf(digits, sizeof digits, "%" PRIu64, count);
    size_t at = 0;
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            out.text[at++] = ',';
        out.text[at++] = digits[i];
    }
    out.text[at] = '\0';
    return out;
}

cli_words cli_step(uint64_t step) {
    cli_words out;
    if (step == XORCAST_NO_STEP)
        snprintf(out.text, sizeof out.text, "not given");
    else
        snprintf(out.text, sizeof out.text, "%" PRIu64, step);
    return out;
}

cli_words cli_digest(xorcast_digest digest) {
    cli_words out;
    snprintf(out.text, sizeof out.text, "%016" PRIx64 "%016" PRIx64, digest.lane[0],
             digest.lane[1]);
    return out;
}

cli_words cli_fingerprint(const uint8_t fingerprint[16]) {
    cli_words out;
    for (size_t i = 0; i < 16; i++)
        snprintf(out.text + 2 * i, 3, "%02x", fingerprint[i]);
    return out;
}

void cli_put_plain(FILE *file, const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at != 0; at++) {
        const bool two = at[0] == 0xC2 && at[1] >= 0x80 && at[1] < 0xA0; /* U+0080 to U+009F */
        fputc(two || *at < 0x20 || *at == 0x7F ? '?' : *at, file);
        at += two;
    }
}
