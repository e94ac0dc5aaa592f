/* The thread pool: see pool.h. Workers sleep on a condition until a loop begins, join it if it is
 * still open when they are awake, take indices from one atomic counter, and the last to leave wakes
 * the caller. Nobody waits for a worker that has not joined: short loops end before all have
 * woken. */
#include "base/pool.h"

#include <pthread.h>

struct xci_pool {
    pthread_mutex_t turn; /* held by the thread whose loop runs */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t begin, done;
    uint64_t generation;
    uint32_t busy, thread_count;
    bool open; /* a loop runs that may be joined */
    bool closing;

    xci_pool_work work;
    void *user;
    uint64_t count, failed_index;
    xorcast_status status;
    xci_failure failure; /* the record that belongs to the status */
    atomic_uint_fast64_t next;

    pthread_t threads[]; /* thread_count - 1 of them: the caller is worker 0 */
};

typedef struct worker_start {
    xci_pool *pool;
    uint32_t worker;
} worker_start;

static void note_failure(xci_pool *pool, uint64_t index, xorcast_status status) {
    pthread_mutex_lock(&pool->lock);
    if (index < pool->failed_index) {
        pool->failed_index = index;
        pool->status = status;
        pool->failure = *xci_thread_failure();
    }
    pthread_mutex_unlock(&pool->lock);
    atomic_store(&pool->next, pool->count);
}

static void take_items(xci_pool *pool, uint32_t worker) {
    for (;;) {
        const uint64_t index = atomic_fetch_add(&pool->next, 1);
        if (index >= pool->count)
            return;
        const xorcast_status status = pool->work(pool->user, index, worker);
        if (status < 0)
            note_failure(pool, index, status);
    }
}

static void *worker_main(void *argument) {
    worker_start *start = argument;
    xci_pool *pool = start->pool;
    const uint32_t worker = start->worker;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    start->pool = NULL; /* the creator waits for this before it reuses `start` */
    pthread_cond_signal(&pool->done);
    for (;;) {
        while ((!pool->open || pool->generation == seen) && !pool->closing)
            pthread_cond_wait(&pool->begin, &pool->lock);
        if (pool->closing)
            break;
        seen = pool->generation;
        pool->busy++;
        pthread_mutex_unlock(&pool->lock);
        take_items(pool, worker);
        pthread_mutex_lock(&pool->lock);
        if (--pool->busy == 0)
            pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static bool start_worker(xci_pool *pool) {
    worker_start start = {pool, pool->thread_count};
    if (pthread_create(&pool->threads[pool->thread_count - 1], NULL, worker_main, &start) != 0)
        return false;
    pthread_mutex_lock(&pool->lock);
    while (start.pool != NULL)
        pthread_cond_wait(&pool->done, &pool->lock);
    pool->thread_count++;
    pthread_mutex_unlock(&pool->lock);
    return true;
}

xorcast_status xci_pool_create(xorcast_context *context, uint32_t threads, xci_pool **pool_out) {
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_pool) + threads * sizeof(pthread_t), &memory));
    xci_pool *pool = memory;
    pthread_mutex_init(&pool->turn, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->begin, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->thread_count = 1;
    while (pool->thread_count < threads)
        if (!start_worker(pool)) {
            xci_pool_destroy(context, pool);
            FAIL(context, XORCAST_NO_HOST_MEMORY, "could not start %u threads; ask for fewer",
                 threads);
        }
    *pool_out = pool;
    return XORCAST_OK;
}

void xci_pool_destroy(xorcast_context *context, xci_pool *pool) {
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i + 1 < pool->thread_count; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->begin);
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->turn);
    xci_release(context, pool);
}

xorcast_status xci_pool_run(xci_pool *pool, uint64_t count, xci_pool_work work, void *user) {
    pthread_mutex_lock(&pool->turn);
    pool->work = work;
    pool->user = user;
    pool->count = count;
    pool->failed_index = UINT64_MAX;
    pool->status = XORCAST_OK;
    pool->failure.context = NULL;
    atomic_store(&pool->next, 0);
    const bool shared = count > 1 && pool->thread_count > 1;
    if (shared) {
        pthread_mutex_lock(&pool->lock);
        pool->open = true;
        pool->generation++;
        pthread_cond_broadcast(&pool->begin);
        pthread_mutex_unlock(&pool->lock);
    }
    take_items(pool, 0);
    if (shared) {
        pthread_mutex_lock(&pool->lock);
        pool->open = false;
        while (pool->busy > 0)
            pthread_cond_wait(&pool->done, &pool->lock);
        pthread_mutex_unlock(&pool->lock);
    }
    const xorcast_status status = pool->status;
    if (pool->failure.error.status == status) /* a failure that nobody recorded has none */
        xci_record_again(&pool->failure);
    pthread_mutex_unlock(&pool->turn);
    return status;
}
