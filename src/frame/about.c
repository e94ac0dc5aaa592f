/* The object "about", and names of objects: see about.h. */
#include "frame/about.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

void xci_about_write(const xci_about *about, uint8_t out[XCI_ABOUT_BYTES]) {
    const uint64_t numbers[] = {about->chunk_bytes, about->group_bytes, about->tensor_count,
                                about->total_bytes};
    uint8_t *at = out;
    xci_store32(at, XCI_ABOUT_VERSION);
    memcpy(at + 4, about->run, XORCAST_RUN_BYTES);
    memcpy(at + 4 + XORCAST_RUN_BYTES, about->fingerprint, 16);
    at += 4 + XORCAST_RUN_BYTES + 16;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        xci_store64(at + 8 * i, numbers[i]);
}

xorcast_status xci_about_read(xorcast_context *context, const uint8_t *bytes, uint64_t count,
                              xci_about *about_out) {
    xci_reader reader = {bytes, bytes + count, false};
    const uint32_t version = xci_read32(&reader);
    if (!reader.bad && version != XCI_ABOUT_VERSION)
        FAIL(context, XORCAST_DATA_VERSION,
             "the publisher speaks version %u of the protocol, this library %u; use equal versions",
             version, XCI_ABOUT_VERSION);
    const uint8_t *run = xci_read_bytes(&reader, XORCAST_RUN_BYTES),
                  *fingerprint = xci_read_bytes(&reader, 16);
    xci_about about;
    about.chunk_bytes = xci_read64(&reader);
    about.group_bytes = xci_read64(&reader);
    about.tensor_count = xci_read64(&reader);
    about.total_bytes = xci_read64(&reader);
    if (reader.bad || reader.at != reader.end || run[XORCAST_RUN_BYTES - 1] != 0)
        FAIL(context, XORCAST_DATA_CORRUPT,
             "the publisher describes itself in %llu bytes that make no sense; is it xorcast?",
             (unsigned long long)count);
    memcpy(about.run, run, XORCAST_RUN_BYTES);
    memcpy(about.fingerprint, fingerprint, sizeof about.fingerprint);
    *about_out = about;
    return XORCAST_OK;
}

typedef unsigned long long ull;

static const char *folder_of(xci_form form) {
    return form == XCI_FORM_PLAIN ? "" : "beside/";
}

void xci_name_manifest(uint64_t step, xci_form form, char name[XCI_OBJECT_NAME_BYTES]) {
    snprintf(name, XCI_OBJECT_NAME_BYTES, "version/%llu/%smanifest", (ull)step, folder_of(form));
}

void xci_name_part(uint64_t step, xci_form form, uint64_t part, char name[XCI_OBJECT_NAME_BYTES]) {
    snprintf(name, XCI_OBJECT_NAME_BYTES, "version/%llu/%spart/%llu", (ull)step, folder_of(form),
             (ull)part);
}

void xci_name_group(uint64_t group, char name[XCI_OBJECT_NAME_BYTES]) {
    snprintf(name, XCI_OBJECT_NAME_BYTES, "group/%llu", (ull)group);
}

void xci_name_digests(uint64_t first, uint64_t count, char name[XCI_OBJECT_NAME_BYTES]) {
    snprintf(name, XCI_OBJECT_NAME_BYTES, "digests/%llu/%llu", (ull)first, (ull)count);
}

void xci_name_whois(const xorcast_digest *digest, char name[XCI_OBJECT_NAME_BYTES]) {
    snprintf(name, XCI_OBJECT_NAME_BYTES, "whois/%llx/%llx", (ull)digest->lane[0],
             (ull)digest->lane[1]);
}

bool xci_name_numbers(const char *name, const char *head, int base, uint64_t *numbers_out,
                      unsigned count) {
    if (strncmp(name, head, strlen(head)) != 0)
        return false;
    const char *at = name + strlen(head);
    for (unsigned i = 0; i < count; i++) {
        char *end;
        if (!isalnum((unsigned char)*at)) /* strtoull would pass over blanks and signs */
            return false;
        errno = 0;
        numbers_out[i] = strtoull(at, &end, base);
        if (end == at || errno != 0 || *end != (i + 1 < count ? '/' : 0))
            return false;
        at = end + 1;
    }
    return true;
}
