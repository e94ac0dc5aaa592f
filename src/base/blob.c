/* Blobs: see blob.h. */
#include "base/blob.h"

#include <pthread.h>
#include <string.h>

#include "base/bytes.h"

/* A blob has a context of its own over the allocator: objects that a link hands from one side to
 * the other inside a process often live longer than the side that made them. */
xorcast_status xci_blob_adopt(xorcast_context *context, void *bytes, uint64_t size,
                              xci_blob **blob_out) {
    xorcast_context *own;
    void *memory;
    TRY(xci_context_fork(context, &own));
    const xorcast_status status = xci_allocate(context, sizeof(xci_blob), &memory);
    if (status < 0) {
        xorcast_context_destroy(own);
        return status;
    }
    xci_blob *blob = memory;
    *blob = (xci_blob){.bytes = bytes, .size = size, .context = own};
    atomic_init(&blob->references, 1);
    *blob_out = blob;
    return XORCAST_OK;
}

xorcast_status xci_blob_create(xorcast_context *context, uint64_t size, xci_blob **blob_out) {
    void *bytes;
    /* An empty object too has an address, to which receivers may add. */
    TRY(xci_allocate(context, size > 0 ? size : 1, &bytes));
    const xorcast_status status = xci_blob_adopt(context, bytes, size, blob_out);
    if (status < 0)
        xci_release(context, bytes);
    return status;
}

xorcast_status xci_blob_copy(xorcast_context *context, const void *bytes, uint64_t size,
                             xci_blob **blob_out) {
    xci_blob *blob;
    TRY(xci_blob_create(context, size, &blob));
    if (size > 0)
        memcpy(blob->bytes, bytes, size);
    *blob_out = blob;
    return XORCAST_OK;
}

xci_blob *xci_blob_hold(xci_blob *blob) {
    atomic_fetch_add(&blob->references, 1);
    return blob;
}

static void put_back(xci_shelf *shelf, xci_blob *blob);

void xci_blob_drop(xci_blob *blob) {
    if (blob == NULL || atomic_fetch_sub(&blob->references, 1) != 1)
        return;
    if (blob->side != NULL)
        blob->side->drop(blob->side);
    blob->side = NULL;
    if (blob->shelf != NULL) {
        put_back(blob->shelf, blob);
        return;
    }
    xorcast_context *context = blob->context;
    xci_release(context, blob->bytes);
    xci_release(context, blob);
    xorcast_context_destroy(context);
}

/* ---- Shelves ---- */

#define CAPACITY_STEP (UINT64_C(256) << 10) /* so that blobs of about one size fit each other */

struct xci_shelf {
    xorcast_context *context; /* its own */
    pthread_mutex_t lock;     /* guards what follows */
    xci_blob *idle;           /* came back since the last turn */
    xci_blob *before;         /* and before it */
    uint64_t references;      /* the owner's and one for each blob that is out */
};

xorcast_status xci_shelf_open(xorcast_context *context, xci_shelf **shelf_out) {
    xorcast_context *own;
    void *memory;
    TRY(xci_context_fork(context, &own));
    const xorcast_status status = xci_allocate_zeroed(context, sizeof(xci_shelf), &memory);
    if (status < 0) {
        xorcast_context_destroy(own);
        return status;
    }
    xci_shelf *shelf = memory;
    shelf->context = own;
    shelf->references = 1;
    pthread_mutex_init(&shelf->lock, NULL);
    *shelf_out = shelf;
    return XORCAST_OK;
}

static void free_all(const xci_shelf *shelf, xci_blob *first) {
    for (xci_blob *blob = first, *next; blob != NULL; blob = next) {
        next = blob->next;
        xci_release(shelf->context, blob->bytes);
        xci_release(shelf->context, blob);
    }
}

/* Gives up a reference, with the shelf's lock, which is released. */
static void leave_shelf(xci_shelf *shelf) {
    const bool last = --shelf->references == 0;
    pthread_mutex_unlock(&shelf->lock);
    if (!last)
        return;
    xorcast_context *context = shelf->context;
    free_all(shelf, shelf->idle);
    free_all(shelf, shelf->before);
    pthread_mutex_destroy(&shelf->lock);
    xci_release(context, shelf);
    xorcast_context_destroy(context);
}

void xci_shelf_close(xci_shelf *shelf) {
    if (shelf == NULL)
        return;
    xci_shelf_turn(shelf);
    xci_shelf_turn(shelf);
    pthread_mutex_lock(&shelf->lock);
    leave_shelf(shelf);
}

static void put_back(xci_shelf *shelf, xci_blob *blob) {
    pthread_mutex_lock(&shelf->lock);
    blob->next = shelf->idle;
    shelf->idle = blob;
    leave_shelf(shelf);
}

/* A blob that fits and does not waste more than as much again, or NULL. */
static xci_blob *take_fitting(xci_blob **list, uint64_t size) {
    for (; *list != NULL; list = &(*list)->next) {
        xci_blob *blob = *list;
        if (blob->capacity < size || blob->capacity / 2 > size)
            continue;
        *list = blob->next;
        return blob;
    }
    return NULL;
}

static xorcast_status make_blob(xci_shelf *shelf, xorcast_context *context, uint64_t size,
                                xci_blob **blob_out) {
    const uint64_t capacity = xci_round_up(size, CAPACITY_STEP);
    void *bytes, *memory;
    TRY(xci_allocate(context, capacity, &bytes));
    const xorcast_status status = xci_allocate(context, sizeof(xci_blob), &memory);
    if (status < 0) {
        xci_release(context, bytes);
        return status;
    }
    *blob_out = memory;
    **blob_out = (xci_blob){.bytes = bytes, .shelf = shelf, .capacity = capacity};
    return XORCAST_OK;
}

xorcast_status xci_shelf_blob(xci_shelf *shelf, xorcast_context *context, uint64_t size,
                              xci_blob **blob_out) {
    if (size < CAPACITY_STEP)
        return xci_blob_create(context, size, blob_out);
    pthread_mutex_lock(&shelf->lock);
    xci_blob *blob = take_fitting(&shelf->idle, size);
    if (blob == NULL)
        blob = take_fitting(&shelf->before, size);
    shelf->references++;
    pthread_mutex_unlock(&shelf->lock);
    const xorcast_status status =
        blob != NULL ? XORCAST_OK : make_blob(shelf, context, size, &blob);
    if (status < 0) {
        pthread_mutex_lock(&shelf->lock);
        leave_shelf(shelf);
        return status;
    }
    blob->size = size;
    blob->next = NULL;
    atomic_init(&blob->references, 1);
    *blob_out = blob;
    return XORCAST_OK;
}

void xci_shelf_turn(xci_shelf *shelf) {
    pthread_mutex_lock(&shelf->lock);
    xci_blob *idle = shelf->before;
    shelf->before = shelf->idle;
    shelf->idle = NULL;
    pthread_mutex_unlock(&shelf->lock);
    free_all(shelf, idle);
}
