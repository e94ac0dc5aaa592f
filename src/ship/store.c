/* The store: chains of entries in a table that doubles. A publisher keeps a few thousand objects
 * (the parts of its log), so a lookup should not depend on how many; see store.h for what it owns.
 */
#include "ship/store.h"

#include <pthread.h>
#include <string.h>

#include "ship/link.h"

#define FIRST_BUCKETS 64u

typedef struct entry {
    struct entry *next;
    xci_blob *blob;
    uint64_t hash;
    char name[]; /* with its zero */
} entry;

struct xci_store {
    xorcast_context *context;
    pthread_mutex_t lock;
    entry **buckets;
    uint64_t bucket_count; /* a power of two */
    uint64_t count;
};

/* FNV-1a. Only the publisher chooses which names exist, so nobody can craft long chains. */
static uint64_t hash_name(const char *name) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; name++)
        hash = (hash ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
    return hash ^ (hash >> 32);
}

/* The link that points at the entry of that name, or at the end of its chain. */
static entry **find_place(xci_store *store, const char *name, uint64_t hash) {
    entry **place = &store->buckets[hash & (store->bucket_count - 1)];
    while (*place != NULL && ((*place)->hash != hash || strcmp((*place)->name, name) != 0))
        place = &(*place)->next;
    return place;
}

static xorcast_status allocate_buckets(xorcast_context *context, uint64_t count,
                                       entry ***buckets_out) {
    void *memory;
    TRY(xci_allocate_zeroed(context, count * sizeof(entry *), &memory));
    *buckets_out = memory;
    return XORCAST_OK;
}

xorcast_status xci_store_create(xorcast_context *context, xci_store **store_out) {
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_store), &memory));
    xci_store *store = memory;
    store->context = context;
    store->bucket_count = FIRST_BUCKETS;
    const xorcast_status status = allocate_buckets(context, store->bucket_count, &store->buckets);
    if (status < 0) {
        xci_release(context, store);
        return status;
    }
    if (pthread_mutex_init(&store->lock, NULL) != 0) {
        xci_release(context, store->buckets);
        xci_release(context, store);
        FAIL(context, XORCAST_NO_HOST_MEMORY, "no resources for a lock of the object store");
    }
    *store_out = store;
    return XORCAST_OK;
}

void xci_store_destroy(xci_store *store) {
    if (store == NULL)
        return;
    for (uint64_t i = 0; i < store->bucket_count; i++) {
        for (entry *at = store->buckets[i], *next; at != NULL; at = next) {
            next = at->next;
            xci_blob_let_go(at->blob);
            xci_release(store->context, at);
        }
    }
    pthread_mutex_destroy(&store->lock);
    xci_release(store->context, store->buckets);
    xci_release(store->context, store);
}

static xorcast_status grow(xci_store *store) {
    entry **wider;
    const uint64_t wider_count = store->bucket_count * 2;
    TRY(allocate_buckets(store->context, wider_count, &wider));
    for (uint64_t i = 0; i < store->bucket_count; i++) {
        for (entry *at = store->buckets[i], *next; at != NULL; at = next) {
            next = at->next;
            entry **head = &wider[at->hash & (wider_count - 1)];
            at->next = *head;
            *head = at;
        }
    }
    xci_release(store->context, store->buckets);
    store->buckets = wider;
    store->bucket_count = wider_count;
    return XORCAST_OK;
}

static xorcast_status add_entry(xci_store *store, const char *name, uint64_t hash, xci_blob *blob) {
    if (store->count == store->bucket_count)
        TRY(grow(store));
    const size_t name_bytes = strlen(name) + 1;
    void *memory;
    TRY(xci_allocate(store->context, sizeof(entry) + name_bytes, &memory));
    entry *added = memory;
    entry **head = &store->buckets[hash & (store->bucket_count - 1)];
    added->next = *head;
    added->hash = hash;
    added->blob = xci_blob_hold(blob);
    memcpy(added->name, name, name_bytes);
    *head = added;
    store->count++;
    return XORCAST_OK;
}

xorcast_status xci_store_put(xci_store *store, const char *name, xci_blob *blob) {
    TRY(xci_name_check(store->context, name));
    const uint64_t hash = hash_name(name);
    xorcast_status status = XORCAST_OK;
    xci_blob *replaced = NULL;
    pthread_mutex_lock(&store->lock);
    entry *found = *find_place(store, name, hash);
    if (found != NULL) {
        replaced = found->blob;
        found->blob = xci_blob_hold(blob);
    } else {
        status = add_entry(store, name, hash, blob);
    }
    pthread_mutex_unlock(&store->lock);
    xci_blob_let_go(replaced);
    return status;
}

void xci_store_drop(xci_store *store, const char *name) {
    if (!xci_name_is_valid(name))
        return;
    pthread_mutex_lock(&store->lock);
    entry **place = find_place(store, name, hash_name(name));
    entry *dropped = *place;
    if (dropped != NULL) {
        *place = dropped->next;
        store->count--;
    }
    pthread_mutex_unlock(&store->lock);
    if (dropped != NULL) {
        xci_blob_let_go(dropped->blob);
        xci_release(store->context, dropped);
    }
}

xci_blob *xci_store_find(xci_store *store, const char *name) {
    if (!xci_name_is_valid(name))
        return NULL;
    pthread_mutex_lock(&store->lock);
    entry *found = *find_place(store, name, hash_name(name));
    xci_blob *blob = found == NULL ? NULL : xci_blob_hold(found->blob);
    pthread_mutex_unlock(&store->lock);
    return blob;
}

uint64_t xci_store_count(xci_store *store) {
    pthread_mutex_lock(&store->lock);
    const uint64_t count = store->count;
    pthread_mutex_unlock(&store->lock);
    return count;
}
