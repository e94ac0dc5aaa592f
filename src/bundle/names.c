/* Order and aliases: sorts a bundle's tensors by name, refuses a name that comes twice, and
 * makes tensors with exactly the same memory aliases of the one whose name comes first. An XOR
 * applied twice through two names would undo itself. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "bundle/seal.h"

static int by_name(const void *a, const void *b) {
    return strcmp(((const xci_tensor *)a)->name, ((const xci_tensor *)b)->name);
}

static int alias_by_name(const void *a, const void *b) {
    return strcmp(((const xci_alias *)a)->name, ((const xci_alias *)b)->name);
}

/* bsearch must not be given no list at all, which a bundle without tensors or aliases has. */
const xci_tensor *xci_tensor_named(const xorcast_bundle *bundle, const char *name) {
    const xci_tensor key = {.name = name};
    if (bundle->tensor_count == 0)
        return NULL;
    return bsearch(&key, bundle->tensors, bundle->tensor_count, sizeof key, by_name);
}

const xci_alias *xci_alias_named(const xorcast_bundle *bundle, const char *name) {
    const xci_alias key = {.name = name};
    if (bundle->alias_count == 0)
        return NULL;
    return bsearch(&key, bundle->aliases, bundle->alias_count, sizeof key, alias_by_name);
}

static bool sorted_already(const xorcast_bundle *bundle) {
    for (uint64_t t = 1; t < bundle->tensor_count; t++)
        if (by_name(&bundle->tensors[t - 1], &bundle->tensors[t]) >= 0)
            return false;
    return true;
}

static xorcast_status refuse_duplicates(xorcast_bundle *bundle) {
    const char *twice = NULL;
    for (uint64_t t = 1; t < bundle->tensor_count && twice == NULL; t++)
        if (by_name(&bundle->tensors[t - 1], &bundle->tensors[t]) == 0)
            twice = bundle->tensors[t].name;
    for (uint64_t a = 0; a < bundle->alias_count && twice == NULL; a++) {
        if ((a > 0 && alias_by_name(&bundle->aliases[a - 1], &bundle->aliases[a]) == 0) ||
            xci_tensor_named(bundle, bundle->aliases[a].name) != NULL)
            twice = bundle->aliases[a].name;
    }
    if (twice != NULL)
        FAIL(bundle->context, XORCAST_BAD_ARGUMENT,
             "tensor %s was added twice; each name may come once", twice);
    return XORCAST_OK;
}

/* ---- The same memory under two names ---- */

typedef struct storage {
    const uint8_t *data;
    uint64_t bytes, tensor;
} storage;

static int by_storage(const void *a, const void *b) {
    const storage *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

xorcast_status xci_bundle_list_alias(xorcast_bundle *bundle, const char *name, const char *target) {
    TRY(xci_grow(bundle->context, &bundle->aliases, &bundle->aliases_capacity,
                 (bundle->alias_count + 1) * sizeof(xci_alias)));
    bundle->aliases[bundle->alias_count++] = (xci_alias){name, target, XORCAST_NO_INDEX};
    return XORCAST_OK;
}

static xorcast_status keep_as_alias(xorcast_bundle *bundle, uint64_t tensor, uint64_t original) {
    TRY(xci_bundle_list_alias(bundle, bundle->tensors[tensor].name,
                              bundle->tensors[original].name));
    bundle->tensors[tensor].name = NULL;
    return XORCAST_OK;
}

static xorcast_status tie_equal_storage(xorcast_bundle *bundle) {
    void *memory;
    TRY(xci_allocate_array(bundle->context, bundle->tensor_count, sizeof(storage), &memory));
    storage *list = memory;
    uint64_t count = 0;
    for (uint64_t t = 0; t < bundle->tensor_count; t++) {
        const xci_tensor *tensor = &bundle->tensors[t];
        if (tensor->simple && tensor->bytes > 0 && tensor->regions[0].kind <= XCI_KIND_DEVICE)
            list[count++] = (storage){tensor->regions[0].data, tensor->bytes, t};
    }
    if (count > 1)
        qsort(list, count, sizeof *list, by_storage);
    xorcast_status status = XORCAST_OK;
    uint64_t original = 0;
    for (uint64_t i = 1; i < count && status == XORCAST_OK; i++) {
        if (list[i].data == list[original].data && list[i].bytes == list[original].bytes)
            status = keep_as_alias(bundle, list[i].tensor, list[original].tensor);
        else
            original = i;
    }
    xci_release(bundle->context, memory);
    uint64_t kept = 0;
    for (uint64_t t = 0; t < bundle->tensor_count; t++)
        if (bundle->tensors[t].name != NULL)
            bundle->tensors[kept++] = bundle->tensors[t];
    bundle->tensor_count = kept;
    return status;
}

/* ---- Aliases ---- */

static xorcast_status resolve_alias(xorcast_bundle *bundle, xci_alias *alias) {
    const char *target = alias->target;
    for (uint64_t steps = 0; steps <= bundle->alias_count; steps++) {
        const xci_tensor *found = xci_tensor_named(bundle, target);
        if (found != NULL) {
            alias->tensor = (uint64_t)(found - bundle->tensors);
            return XORCAST_OK;
        }
        const xci_alias *next = xci_alias_named(bundle, target);
        if (next == NULL)
            break;
        target = next->target;
    }
    FAIL(bundle->context, XORCAST_BAD_ARGUMENT,
         "tensor %s is an alias of %s, which is not in the bundle", alias->name, alias->target);
}

xorcast_status xci_seal_names(xorcast_bundle *bundle) {
    if (!sorted_already(bundle))
        qsort(bundle->tensors, bundle->tensor_count, sizeof *bundle->tensors, by_name);
    if (bundle->alias_count > 1)
        qsort(bundle->aliases, bundle->alias_count, sizeof *bundle->aliases, alias_by_name);
    TRY(refuse_duplicates(bundle));
    TRY(tie_equal_storage(bundle));
    if (bundle->alias_count > 1)
        qsort(bundle->aliases, bundle->alias_count, sizeof *bundle->aliases, alias_by_name);
    for (uint64_t a = 0; a < bundle->alias_count; a++)
        TRY(resolve_alias(bundle, &bundle->aliases[a]));
    return XORCAST_OK;
}
