/* What a publisher says of itself and a subscriber asks first (object "about"), and the names of
 * the objects that both sides use. docs/protocol.md, "Objects", is the law. */
#ifndef XCI_ABOUT_H
#define XCI_ABOUT_H

#include "base/context.h"

#define XCI_ABOUT_BYTES (4 + XORCAST_RUN_BYTES + 16 + 8 + 8 + 8 + 8)
#define XCI_ABOUT_VERSION 0u
#define XCI_OBJECT_NAME_BYTES 256

typedef struct xci_about {
    char run[XORCAST_RUN_BYTES];
    uint8_t fingerprint[16];
    uint64_t chunk_bytes, group_bytes, tensor_count, total_bytes;
} xci_about;

void xci_about_write(const xci_about *about, uint8_t out[XCI_ABOUT_BYTES]);
/* DATA_VERSION, DATA_CORRUPT. */
xorcast_status xci_about_read(xorcast_context *context, const uint8_t *bytes, uint64_t count,
                              xci_about *about_out);

#define XCI_DIGEST_ENTRY_BYTES 24u /* of object digests/...: step, two lanes */
#define XCI_DIGEST_GROUPS_MAX 4096u /* in one such object */

/* Of the plain form, or of the one for receivers that hold the old weights. */
typedef enum xci_form { XCI_FORM_PLAIN, XCI_FORM_BESIDE } xci_form;
void xci_name_manifest(uint64_t step, xci_form form, char name[XCI_OBJECT_NAME_BYTES]);
void xci_name_part(uint64_t step, xci_form form, uint64_t part, char name[XCI_OBJECT_NAME_BYTES]);
void xci_name_group(uint64_t group, char name[XCI_OBJECT_NAME_BYTES]);
void xci_name_digests(uint64_t first, uint64_t count, char name[XCI_OBJECT_NAME_BYTES]);
void xci_name_whois(const xorcast_digest *digest, char name[XCI_OBJECT_NAME_BYTES]);
/* True if `name` is `head` and then exactly `count` numbers in `base` with single slashes
 * between. */
bool xci_name_numbers(const char *name, const char *head, int base, uint64_t *numbers_out,
                      unsigned count);

#endif
