/* What a publisher says of itself, and the names of objects. The input is read as both. A
 * description that was taken must be written as the same bytes; a name that was taken must be one
 * that we would write. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frame/about.h"
#include "support/fuzzing.h"

/* Leading zeros are taken and never written. */
static bool has_leading_zero(const char *at) {
    for (bool first = true; *at != 0; at++) {
        if (first && *at == '0' && at[1] != '/' && at[1] != 0)
            return true;
        first = *at == '/';
    }
    return false;
}

static void read_name(const char *name) {
    uint64_t numbers[2];
    char again[XCI_OBJECT_NAME_BYTES];
    if (xci_name_numbers(name, "digests/", 10, numbers, 2)) {
        xci_name_digests(numbers[0], numbers[1], again);
        must(has_leading_zero(name + strlen("digests/")) || strcmp(name, again) == 0);
    }
    if (xci_name_numbers(name, "group/", 10, numbers, 1)) {
        xci_name_group(numbers[0], again);
        must(has_leading_zero(name + strlen("group/")) || strcmp(name, again) == 0);
    }
    if (xci_name_numbers(name, "whois/", 16, numbers, 2))
        must(strpbrk(name, " \t\n+-") == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    xci_about about;
    char *name = malloc(count + 1);
    must(name != NULL);
    if (count > 0)
        memcpy(name, bytes, count);
    name[count] = 0;
    read_name(name);
    if (xci_about_read(the_context(), (const uint8_t *)name, count, &about) == XORCAST_OK) {
        uint8_t again[XCI_ABOUT_BYTES];
        must(count == sizeof again && memchr(about.run, 0, sizeof about.run) != NULL);
        xci_about_write(&about, again);
        must(memcmp(again, name, sizeof again) == 0);
    }
    free(name);
    return 0;
}
