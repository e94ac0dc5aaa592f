/* The smallest use of xorcast: two buffers in memory, no network. Encodes what turns the old bytes
 * into the new ones, applies it to the old buffer in place and compares. Owns its two buffers and
 * the delta between them; prints how large the delta is. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xorcast.h>

#define ROWS 1024u
#define COLUMNS 4096u
#define ELEMENTS (ROWS * COLUMNS)

static xorcast_context *context;

static void check(xorcast_status status) {
    xorcast_error error;
    if (status == XORCAST_OK)
        return;
    xorcast_last_error(context, &error);
    fprintf(stderr, "%s: %s\n", xorcast_status_name(status), error.text);
    exit(xorcast_status_exit_code(status));
}

/* One tensor over a buffer. Both sides must describe it alike, and give it the same name. */
static xorcast_bundle *bundle_over(uint16_t *weights) {
    static const uint64_t shape[] = {ROWS, COLUMNS};
    xorcast_bundle *bundle;
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    tensor.name = "layers.0.weight";
    tensor.dtype = "BF16";
    tensor.shape = shape;
    tensor.rank = 2;
    tensor.bytes = ELEMENTS * sizeof *weights;
    tensor.data = weights;
    check(xorcast_bundle_create(context, NULL, &bundle));
    check(xorcast_bundle_add(bundle, &tensor));
    check(xorcast_bundle_seal(bundle, NULL));
    return bundle;
}

/* A sink that collects what is written. */
typedef struct bytes {
    uint8_t *at;
    uint64_t count;
} bytes;

static int append(void *user, const void *more, uint64_t count) {
    bytes *all = user;
    uint8_t *at = realloc(all->at, all->count + count);
    if (at == NULL)
        return ENOMEM;
    memcpy(at + all->count, more, count);
    *all = (bytes){at, all->count + count};
    return 0;
}

int main(void) {
    uint16_t *old_weights = malloc(ELEMENTS * sizeof *old_weights);
    uint16_t *new_weights = malloc(ELEMENTS * sizeof *new_weights);
    if (old_weights == NULL || new_weights == NULL)
        return 1;
    for (uint32_t i = 0; i < ELEMENTS; i++)
        old_weights[i] = (uint16_t)(i * 2654435761u >> 16);
    memcpy(new_weights, old_weights, ELEMENTS * sizeof *new_weights);
    for (uint32_t i = 0; i < ELEMENTS; i += 997)
        new_weights[i] ^= 1; /* one step of the last place */

    check(xorcast_context_create(NULL, &context));
    xorcast_bundle *old_bundle = bundle_over(old_weights), *new_bundle = bundle_over(new_weights);
    bytes delta = {NULL, 0};
    const xorcast_sink sink = {append, &delta};
    xorcast_delta_info info;
    check(xorcast_delta_encode(old_bundle, new_bundle, NULL, &sink, &info));
    printf("%" PRIu64 " of %" PRIu64 " elements changed, %" PRIu64 " bytes of delta\n",
           info.counts.elements_changed, info.counts.elements_covered, delta.count);

    const xorcast_source source = {.bytes = delta.at, .size = delta.count};
    check(xorcast_delta_apply(old_bundle, &source, NULL));
    const int equal = memcmp(old_weights, new_weights, ELEMENTS * sizeof *old_weights) == 0;
    puts(equal ? "equal" : "NOT equal");

    xorcast_bundle_destroy(new_bundle);
    xorcast_bundle_destroy(old_bundle);
    xorcast_context_destroy(context);
    free(delta.at);
    free(new_weights);
    free(old_weights);
    return equal ? 0 : 1;
}
