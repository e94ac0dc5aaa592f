/* Two publishers of the same weights, which lie in two places: what they publish is the same, byte
 * for byte. Contexts and weights are the test's; bundles are closed with the publishers. */
#ifndef TEST_TWIN_PUBLISHERS_H
#define TEST_TWIN_PUBLISHERS_H

#include "base/blob.h"
#include "ship/link.h"

typedef struct twin_publishers {
    xorcast_context *context[2]; /* of the host's, of the device's */
    xorcast_bundle *bundle[2];
    xorcast_publisher *publisher[2];
    xci_peer *peer[2]; /* reads the objects of each */
    const xci_link *link;
} twin_publishers;

/* Contexts and bundles are set already. Two urls. */
void twins_open(twin_publishers *twins, const char *const *urls,
                const xorcast_publisher_options *wanted);
void twins_close(twin_publishers *twins);

/* Both publish all tensors from where they lie. */
void twins_publish(twin_publishers *twins, uint64_t step);

/* Fail the test unless both give the same object of that name; all objects of the version `step`,
 * which both say is theirs; what both shadows hold now, group by group, and its digests. */
void twins_same_object(twin_publishers *twins, const char *name);
void twins_same_version(twin_publishers *twins, uint64_t step);
void twins_same_shadow(twin_publishers *twins, uint64_t group_count);

#endif
