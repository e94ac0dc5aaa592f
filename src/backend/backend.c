/* The list of backends, best first. Owns nothing: tables are constants. */
#include "backend/backend.h"

#include <string.h>

static const xci_backend *const backends[] = {&xci_backend_cpu};

const xci_backend *xci_backend_find(const char *name) {
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; ++i)
        if (name == NULL || strcmp(name, backends[i]->name) == 0)
            return backends[i];
    return NULL;
}
