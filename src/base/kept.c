/* Kept blocks: see kept.h. A list: there are as many as a version has parts, hundreds at most. */
#include "base/kept.h"

#include <stddef.h>

#include "base/bytes.h"

#if defined(__SANITIZE_ADDRESS__)
#define XCI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define XCI_ASAN 1
#endif
#endif

#ifdef XCI_ASAN
#include <sanitizer/asan_interface.h>
#define HIDE(block)                                                                                \
    ASAN_POISON_MEMORY_REGION((block) + 1, (size_t)((block)->bytes - sizeof(xci_kept_block)))
#define SHOW(block)                                                                                \
    ASAN_UNPOISON_MEMORY_REGION((block) + 1, (size_t)((block)->bytes - sizeof(xci_kept_block)))
#else
#define HIDE(block) (void)(block)
#define SHOW(block) (void)(block)
#endif

static void *unlink_block(xci_kept *kept, xci_kept_block **place) {
    xci_kept_block *block = *place;
    *place = block->next;
    kept->bytes -= block->bytes;
    SHOW(block);
    return block;
}

uint64_t xci_kept_size(uint64_t bytes) {
    if (bytes < XCI_KEPT_MIN_BYTES || bytes > UINT64_MAX / 2)
        return bytes;
    return xci_round_up(bytes, (UINT64_C(1) << (63 - __builtin_clzll(bytes))) / 16);
}

void *xci_kept_take(xci_kept *kept, uint64_t bytes) {
    void *memory = NULL;
    xci_kept_block **best = NULL;
    if (bytes < XCI_KEPT_MIN_BYTES)
        return NULL;
    pthread_mutex_lock(&kept->lock);
    for (xci_kept_block **place = &kept->first; *place != NULL; place = &(*place)->next)
        if ((*place)->bytes >= bytes && (*place)->bytes - bytes <= bytes / 4 &&
            (best == NULL || (*place)->bytes <= (*best)->bytes))
            best = place;
    if (best != NULL)
        memory = unlink_block(kept, best);
    pthread_mutex_unlock(&kept->lock);
    return memory;
}

bool xci_kept_put(xci_kept *kept, void *memory, uint64_t bytes) {
    if (bytes < XCI_KEPT_MIN_BYTES)
        return false;
    pthread_mutex_lock(&kept->lock);
    const bool room = bytes <= kept->limit;
    if (room) {
        xci_kept_block *block = memory;
        *block = (xci_kept_block){kept->first, bytes};
        kept->first = block;
        kept->bytes += bytes;
        HIDE(block);
    }
    pthread_mutex_unlock(&kept->lock);
    return room;
}

void xci_kept_allow(xci_kept *kept, uint64_t *share, uint64_t bytes) {
    pthread_mutex_lock(&kept->lock);
    kept->limit += bytes - *share;
    *share = bytes;
    pthread_mutex_unlock(&kept->lock);
}

void *xci_kept_shrink(xci_kept *kept, bool all) {
    void *memory = NULL;
    pthread_mutex_lock(&kept->lock);
    if (kept->bytes > (all ? 0 : kept->limit)) {
        xci_kept_block **last = &kept->first;
        while ((*last)->next != NULL)
            last = &(*last)->next;
        memory = unlink_block(kept, last);
    }
    pthread_mutex_unlock(&kept->lock);
    return memory;
}
