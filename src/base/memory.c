/* The allocator: the caller's or the system's, with sizes counted against the context's scratch
 * limit. Each block carries a header with its size and where it really begins. Large blocks may be
 * kept for others of their size (kept.h); what is kept still counts. The system's large blocks
 * begin with a huge page and ask for as many as they have room for: scans of weights are bound by
 * memory and lose a tenth or more to page walks without them, and in some virtual machines the
 * first use of a small page after a while takes 10 microseconds. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/context.h"

#define ALIGNMENT UINT64_C(64)
#define HUGE_PAGE (UINT64_C(2) << 20) /* where others are of SMALL_PAGE bytes */
#define SMALL_PAGE 4096
#define HUGE_MIN_BYTES HUGE_PAGE
/* Where a huge block's bytes begin in its first page: not where weights usually do. Two streams at
 * the same place of their pages share the cache's sets; scans are 3 to 10 % slower. */
#define HUGE_HEAD UINT64_C(1600)

typedef struct block_header {
    void *begin;
    uint64_t bytes;
} block_header;
_Static_assert(sizeof(block_header) <= ALIGNMENT && HUGE_HEAD % ALIGNMENT == 0,
               "the header lies in the space that alignment costs");

static block_header *header_of(void *memory) {
    return (block_header *)(void *)((uint8_t *)memory - sizeof(block_header));
}

static bool count_bytes(xci_shared *shared, uint64_t bytes) {
    const uint64_t limit = shared->options.scratch_limit_bytes;
    const uint64_t now = atomic_fetch_add(&shared->now_bytes, bytes) + bytes;
    if (limit != 0 && now > limit) {
        atomic_fetch_sub(&shared->now_bytes, bytes);
        return false;
    }
    uint_fast64_t seen = atomic_load(&shared->high_water_bytes);
    while (now > seen && !atomic_compare_exchange_weak(&shared->high_water_bytes, &seen, now))
        continue;
    return true;
}

static void free_block(xci_shared *shared, void *memory) {
    const block_header header = *header_of(memory);
    atomic_fetch_sub(&shared->now_bytes, header.bytes);
    if (shared->options.release != NULL)
        shared->options.release(shared->options.user, header.begin);
    else
        free(header.begin);
}

/* False: there was nothing to free. */
static bool shrink_kept(xorcast_context *context, bool all) {
    bool freed = false;
    xci_shared *shared = context->shared->account;
    for (void *memory; (memory = xci_kept_shrink(&shared->kept, all)) != NULL;) {
        free_block(shared, memory);
        freed = true;
    }
    return freed;
}

void xci_keep(xorcast_context *context, uint64_t *share, uint64_t bytes) {
    xci_kept_allow(&context->shared->kept, share, bytes);
    (void)shrink_kept(context, false);
}

xorcast_status xci_account(xorcast_context *context, uint64_t bytes) {
    xci_shared *shared = context->shared->account;
    if (count_bytes(shared, bytes))
        return XORCAST_OK;
    /* another thread may have done it: counted again in any case */
    (void)shrink_kept(context, true);
    if (!count_bytes(shared, bytes))
        FAIL(context, XORCAST_NO_HOST_MEMORY,
             "%llu bytes more would pass the scratch limit of %llu; raise --scratch (option "
             "scratch_limit_bytes)",
             (unsigned long long)bytes, (unsigned long long)shared->options.scratch_limit_bytes);
    return XORCAST_OK;
}

void xci_unaccount(xorcast_context *context, uint64_t bytes) {
    atomic_fetch_sub(&context->shared->account->now_bytes, bytes);
}

static void *system_allocate(const xorcast_context_options *options, uint64_t bytes, bool zeroed) {
    if (options->allocate == NULL)
        return zeroed ? calloc(1, bytes) : malloc(bytes);
    void *memory = options->allocate(options->user, bytes);
    if (memory != NULL && zeroed)
        memset(memory, 0, bytes);
    return memory;
}

/* Where pages are larger, as on many arm64 kernels, huge ones are of 32 or 512 MiB: too much to be
 * cleared at a first touch, or to lie there for a block that is used in part; and fewer pages are
 * walked as it is. */
static bool wants_huge(const xci_shared *shared, uint64_t bytes) {
    return bytes >= HUGE_MIN_BYTES && shared->options.allocate == NULL &&
           sysconf(_SC_PAGESIZE) == SMALL_PAGE;
}

static xorcast_status allocate(xorcast_context *context, uint64_t bytes, bool zeroed,
                               void **memory_out) {
    if (bytes == 0) {
        *memory_out = NULL;
        return XORCAST_OK;
    }
    xci_shared *shared = context->shared->account;
    const bool huge = wants_huge(shared, bytes);
    const uint64_t alignment = huge ? HUGE_PAGE : ALIGNMENT, head = huge ? HUGE_HEAD : ALIGNMENT;
    uint64_t whole;
    if (!xci_add(bytes, alignment + head, &whole) || whole > SIZE_MAX / 2)
        FAIL(context, XORCAST_NO_HOST_MEMORY, "%llu bytes are more than any machine has",
             (unsigned long long)bytes);
    if (!zeroed && (*memory_out = xci_kept_take(&shared->kept, bytes)) != NULL)
        return XORCAST_OK;
    TRY(xci_account(context, bytes));
    uint8_t *begin = system_allocate(&shared->options, whole, zeroed);
    if (begin == NULL && shrink_kept(context, true))
        begin = system_allocate(&shared->options, whole, zeroed);
    if (begin == NULL) {
        atomic_fetch_sub(&shared->now_bytes, bytes);
        FAIL(context, XORCAST_NO_HOST_MEMORY,
             "the system has no %llu bytes of memory left; free some and try again",
             (unsigned long long)bytes);
    }
    uint8_t *from = (uint8_t *)xci_round_up((uintptr_t)begin, alignment);
    if (huge) /* before anything is written there; only a hint: failing costs speed */
        (void)madvise(from, (head + bytes) & ~(HUGE_PAGE - 1), MADV_HUGEPAGE);
    void *memory = from + head;
    *header_of(memory) = (block_header){begin, bytes};
    *memory_out = memory;
    return XORCAST_OK;
}

xorcast_status xci_allocate(xorcast_context *context, uint64_t bytes, void **memory_out) {
    return allocate(context, bytes, false, memory_out);
}

xorcast_status xci_allocate_zeroed(xorcast_context *context, uint64_t bytes, void **memory_out) {
    return allocate(context, bytes, true, memory_out);
}

xorcast_status xci_allocate_array(xorcast_context *context, uint64_t count, uint64_t bytes,
                                  void **memory_out) {
    uint64_t product;
    if (!xci_multiply(count, bytes, &product))
        FAIL(context, XORCAST_NO_HOST_MEMORY,
             "%llu items of %llu bytes are more than any machine has", (unsigned long long)count,
             (unsigned long long)bytes);
    return allocate(context, product, true, memory_out);
}

xorcast_status xci_grow(xorcast_context *context, void *pointer_to, uint64_t *capacity,
                        uint64_t bytes) {
    if (bytes <= *capacity)
        return XORCAST_OK;
    const uint64_t wanted = xci_max(bytes, *capacity <= UINT64_MAX / 2 ? 2 * *capacity : bytes);
    void *memory, *larger;
    TRY(xci_allocate(context, wanted, &larger));
    memcpy(&memory, pointer_to, sizeof memory);
    if (*capacity > 0)
        memcpy(larger, memory, *capacity);
    xci_release(context, memory);
    memcpy(pointer_to, &larger, sizeof larger);
    *capacity = wanted;
    return XORCAST_OK;
}

void xci_release(xorcast_context *context, void *memory) {
    if (memory == NULL)
        return;
    xci_shared *shared = context->shared->account;
    if (xci_kept_put(&shared->kept, memory, header_of(memory)->bytes))
        (void)shrink_kept(context, false);
    else
        free_block(shared, memory);
}

void xci_disown(xorcast_context *context, void *memory) {
    xci_unaccount(context, __atomic_exchange_n(&header_of(memory)->bytes, 0, __ATOMIC_ACQ_REL));
}

xorcast_status xci_copy_string(xorcast_context *context, const char *text, char **copy_out) {
    const size_t bytes = strlen(text) + 1;
    void *copy;
    TRY(xci_allocate(context, bytes, &copy));
    memcpy(copy, text, bytes);
    *copy_out = copy;
    return XORCAST_OK;
}

void xorcast_context_memory(xorcast_context *context, xorcast_memory *memory_out) {
    const xci_shared *shared = context->shared->account;
    memory_out->now_bytes = atomic_load(&shared->now_bytes);
    memory_out->high_water_bytes = atomic_load(&shared->high_water_bytes);
    memory_out->device_now_bytes = atomic_load(&shared->device_now_bytes);
    memory_out->device_high_water_bytes = atomic_load(&shared->device_high_water_bytes);
}
