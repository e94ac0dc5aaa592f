/* Two publishers of the same weights: see twin_publishers.h. */
#include "support/twin_publishers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "frame/about.h"
#include "support/expect_status.h"

void twins_open(twin_publishers *twins, const char *const *urls,
                const xorcast_publisher_options *wanted) {
    for (unsigned i = 0; i < 2; i++) {
        xorcast_context *context = twins->context[i];
        xorcast_publisher_options options = *wanted;
        options.run = "same";
        must(context,
             xorcast_publisher_open(twins->bundle[i], urls[i], &options, &twins->publisher[i]));
        must(context, xci_link_find(context, urls[i], &twins->link));
        must(context, twins->link->peer_open(context, urls[i], false, UINT64_MAX, &twins->peer[i]));
    }
}

void twins_close(twin_publishers *twins) {
    for (unsigned i = 0; i < 2; i++) {
        twins->link->peer_close(twins->peer[i]);
        xorcast_publisher_close(twins->publisher[i]);
        xorcast_bundle_destroy(twins->bundle[i]);
    }
}

void twins_publish(twin_publishers *twins, uint64_t step) {
    for (unsigned i = 0; i < 2; i++) {
        must(twins->context[i], xorcast_publisher_begin(twins->publisher[i], step));
        must(twins->context[i], xorcast_publisher_put(twins->publisher[i], 0, NULL, NULL));
        must(twins->context[i], xorcast_publisher_finish(twins->publisher[i], NULL));
    }
}

static xci_blob *object(twin_publishers *twins, unsigned i, const char *name) {
    xci_blob *blob;
    must(twins->context[i], twins->link->peer_request(twins->peer[i], name, 1 << 30, UINT64_MAX));
    must(twins->context[i], twins->link->peer_receive(twins->peer[i], UINT64_MAX, &blob));
    return blob;
}

void twins_same_object(twin_publishers *twins, const char *name) {
    xci_blob *a = object(twins, 0, name), *b = object(twins, 1, name);
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->bytes, b->bytes, a->size);
    xci_blob_drop(a);
    xci_blob_drop(b);
}

void twins_same_version(twin_publishers *twins, uint64_t step) {
    xorcast_publisher_stats stats[2];
    char name[XCI_NAME_BYTES];
    for (unsigned i = 0; i < 2; i++)
        xorcast_publisher_get_stats(twins->publisher[i], &stats[i]);
    assert_memory_equal(&stats[0].delta.counts, &stats[1].delta.counts,
                        sizeof stats[0].delta.counts);
    assert_memory_equal(&stats[0].version, &stats[1].version, sizeof stats[0].version);
    assert_int_equal(stats[1].version.step, step);
    snprintf(name, sizeof name, "version/%llu/manifest", (unsigned long long)step);
    twins_same_object(twins, name);
    for (uint64_t p = 0; p < stats[0].delta.part_count; p++) {
        snprintf(name, sizeof name, "version/%llu/part/%llu", (unsigned long long)step,
                 (unsigned long long)p);
        twins_same_object(twins, name);
    }
    if (stats[0].delta.offers_old_weights) { /* its parts are named by their hashes */
        xci_name_manifest(step, XCI_FORM_BESIDE, name);
        twins_same_object(twins, name);
    }
}

void twins_same_shadow(twin_publishers *twins, uint64_t group_count) {
    char name[XCI_NAME_BYTES];
    for (uint64_t g = 0; g < group_count; g++) {
        snprintf(name, sizeof name, "group/%llu", (unsigned long long)g);
        twins_same_object(twins, name);
    }
    snprintf(name, sizeof name, "digests/0/%llu", (unsigned long long)group_count);
    twins_same_object(twins, name);
}
