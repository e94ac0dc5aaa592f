/* The layout fingerprint, and words for the first difference between two layouts. docs/format.md,
 * "Fingerprint", is the law. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "bundle/seal.h"

#define HEAD "xorcast layout 0"

static void put64(xci_hash_state *state, uint64_t value) {
    uint8_t bytes[8];
    xci_store64(bytes, value);
    xci_hash_more(state, bytes, sizeof bytes);
}

static void put_text(xci_hash_state *state, const char *text) {
    const uint64_t length = strlen(text);
    put64(state, length);
    xci_hash_more(state, text, length);
}

xorcast_status xci_seal_fingerprint(xorcast_bundle *bundle) {
    xci_hash_state *state = xci_hash_begin();
    if (state == NULL)
        FAIL(bundle->context, XORCAST_NO_HOST_MEMORY,
             "no memory for a hash; free some and try again");
    xci_hash_more(state, HEAD, strlen(HEAD));
    put64(state, UINT64_C(1) << bundle->chunk_log2);
    put64(state, bundle->group_bytes);
    put64(state, bundle->tensor_count);
    for (uint64_t t = 0; t < bundle->tensor_count; t++) {
        const xci_tensor *tensor = &bundle->tensors[t];
        put_text(state, tensor->name);
        put_text(state, tensor->dtype);
        put64(state, tensor->rank);
        for (uint32_t i = 0; i < tensor->rank; i++)
            put64(state, tensor->shape[i]);
        put64(state, tensor->bytes);
    }
    const xci_hash hash = xci_hash_now(state);
    xci_hash_free(state);
    memcpy(bundle->layout.fingerprint, hash.bytes, sizeof hash.bytes);
    return XORCAST_OK;
}

static bool same_shape(const xci_tensor *a, const xci_tensor *b) {
    return a->rank == b->rank && a->bytes == b->bytes &&
           memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

xorcast_status xci_bundle_same_layout(xorcast_bundle *a, xorcast_bundle *b) {
    if (memcmp(a->layout.fingerprint, b->layout.fingerprint, sizeof a->layout.fingerprint) == 0)
        return XORCAST_OK;
    xorcast_context *context = a->context;
    for (uint64_t t = 0; t < a->tensor_count && t < b->tensor_count; t++) {
        const xci_tensor *x = &a->tensors[t], *y = &b->tensors[t];
        const xci_place place = {t, XORCAST_NO_INDEX, 0};
        if (strcmp(x->name, y->name) != 0)
            FAIL_AT(context, XORCAST_LAYOUT_MISMATCH, place,
                    "one side has tensor %s where the other has %s; both must have "
                    "the same tensors",
                    x->name, y->name);
        if (strcmp(x->dtype, y->dtype) != 0 || !same_shape(x, y))
            FAIL_AT(context, XORCAST_LAYOUT_MISMATCH, place,
                    "tensor %s is %s with %llu bytes on one side and %s with %llu bytes, "
                    "or another shape, on the other",
                    x->name, x->dtype, (unsigned long long)x->bytes, y->dtype,
                    (unsigned long long)y->bytes);
    }
    if (a->tensor_count != b->tensor_count)
        FAIL(context, XORCAST_LAYOUT_MISMATCH, "one side has %llu tensors, the other %llu",
             (unsigned long long)a->tensor_count, (unsigned long long)b->tensor_count);
    FAIL(context, XORCAST_LAYOUT_MISMATCH,
         "chunk or group sizes differ: %llu and %llu, %llu and %llu",
         (unsigned long long)a->layout.chunk_bytes, (unsigned long long)b->layout.chunk_bytes,
         (unsigned long long)a->group_bytes, (unsigned long long)b->group_bytes);
}
