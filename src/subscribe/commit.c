/* Committing: see commit.h. */
#include "subscribe/commit.h"

#include <string.h>

#include "base/bytes.h"
#include "base/pool.h"
#include "codec/list_block.h"

#define TASK_CHUNKS 32u /* enough work that taking a task from the pool costs nothing beside it */

static atomic_int_fast64_t fail_countdown = -1;

void xci_commit_fail_after(int64_t n) { atomic_store(&fail_countdown, n); }

static bool injected(void) {
    return atomic_load(&fail_countdown) >= 0 && atomic_fetch_sub(&fail_countdown, 1) == 0;
}

xorcast_status xci_commit_open(xci_commit *commit, xorcast_bundle *bundle, xci_journal *journal) {
    const uint32_t threads = xci_context_threads(bundle->context);
    void *memory;
    *commit = (xci_commit){.bundle = bundle, .journal = journal};
    xorcast_status status =
        xci_allocate_array(bundle->context, threads, sizeof(uint8_t *), &memory);
    commit->scratch = status == XORCAST_OK ? memory : NULL;
    for (uint32_t i = 0; i < threads && status == XORCAST_OK; i++) {
        status = xci_allocate(bundle->context, UINT64_C(1) << bundle->chunk_log2, &memory);
        commit->scratch[i] = status == XORCAST_OK ? memory : NULL;
    }
    if (status < 0)
        xci_commit_close(commit);
    return status;
}

void xci_commit_close(xci_commit *commit) {
    if (commit->bundle == NULL)
        return;
    xorcast_context *context = commit->bundle->context;
    for (uint32_t i = 0; commit->scratch != NULL && i < xci_context_threads(context); i++)
        xci_release(context, commit->scratch[i]);
    xci_release(context, commit->scratch);
    xci_release(context, commit->flags);
    *commit = (xci_commit){0};
}

xorcast_status xci_commit_prepare(xci_commit *commit, const xci_stage *stage) {
    commit->count = 0;
    if (commit->journal != NULL) {
        TRY(xci_journal_prepare(commit->journal, stage));
        commit->done = xci_journal_flags(commit->journal);
    } else {
        TRY(xci_grow(commit->bundle->context, &commit->flags, &commit->flags_capacity,
                     stage->ready_count));
        commit->done = commit->flags;
        if (stage->ready_count > 0)
            memset(commit->done, 0, stage->ready_count);
    }
    commit->ready = stage->ready;
    commit->count = stage->ready_count;
    return XORCAST_OK;
}

/* ---- One chunk ---- */

static xci_block_job job_of(const xci_ready *ready, uint8_t *weights) {
    xci_block_job job = {.block = ready->block,
                         .block_bytes = ready->block_bytes,
                         .block_codec = ready->block_codec,
                         .bytes = ready->bytes,
                         .weights = weights};
    if (job.block_codec == XCI_CODEC_LIST) {
        job.list = (uint32_t *)(uintptr_t)ready->block; /* only read by apply */
        job.list_bytes = ready->block_bytes;
    }
    return job;
}

static xorcast_status apply_scattered(xci_commit *commit, const xci_ready *ready, uint64_t index,
                                      uint32_t worker) {
    const xci_backend *backend = commit->bundle->context->shared->backend;
    uint8_t *bytes = commit->scratch[worker];
    const uint8_t *old;
    xci_chunk chunk;
    xci_bundle_chunk_places(commit->bundle, ready->chunk, &chunk);
    TRY(xci_chunk_read(commit->bundle, &chunk, bytes, &old));
    if (commit->journal != NULL)
        xci_journal_keep(commit->journal, worker, index, bytes, ready->bytes);
    const xci_block_job job = job_of(ready, bytes);
    backend->apply(&job, 1);
    xci_chunk_write(commit->bundle, &chunk, bytes);
    return XORCAST_OK;
}

/* The flag is written after the weights and read after a crash: the compiler must not swap the
 * two. */
static void set_done(xci_commit *commit, uint64_t index, uint8_t value) {
    __atomic_store_n(&commit->done[index], value, __ATOMIC_RELEASE);
}

typedef struct commit_pass {
    xci_commit *commit;
    uint8_t wanted; /* the flag's value afterwards */
} commit_pass;

static xorcast_status stopped(const xci_commit *commit, const xci_ready *ready) {
    FAIL(commit->bundle->context, XORCAST_WEIGHTS_MIXED,
         "the commit was stopped at chunk %llu; commit again or undo",
         (unsigned long long)ready->chunk);
}

/* A chunk that must be copied first: gathered, or kept in the journal. */
static xorcast_status pass_alone(const commit_pass *pass, uint64_t index, uint32_t worker) {
    xci_commit *commit = pass->commit;
    const xci_ready *ready = &commit->ready[index];
    if (ready->weights == NULL) {
        TRY(apply_scattered(commit, ready, index, worker));
    } else {
        xci_journal_keep(commit->journal, worker, index, ready->weights, ready->bytes);
        const xci_block_job job = job_of(ready, ready->weights);
        commit->bundle->context->shared->backend->apply(&job, 1);
    }
    set_done(commit, index, pass->wanted);
    return XORCAST_OK;
}

/* The others of a task, in one call. */
typedef struct commit_batch {
    xci_block_job jobs[TASK_CHUNKS];
    uint64_t indices[TASK_CHUNKS];
    uint64_t count;
} commit_batch;

static void apply_batch(const commit_pass *pass, commit_batch *batch) {
    pass->commit->bundle->context->shared->backend->apply(batch->jobs, batch->count);
    for (uint64_t i = 0; i < batch->count; i++)
        set_done(pass->commit, batch->indices[i], pass->wanted);
}

static xorcast_status pass_task(void *user, uint64_t task, uint32_t worker) {
    const commit_pass *pass = user;
    xci_commit *commit = pass->commit;
    const uint64_t end = xci_min(commit->count, (task + 1) * TASK_CHUNKS);
    commit_batch batch;
    batch.count = 0;
    xorcast_status status = XORCAST_OK;
    for (uint64_t i = task * TASK_CHUNKS; i < end && status == XORCAST_OK; i++) {
        const xci_ready *ready = &commit->ready[i];
        if (commit->done[i] == pass->wanted)
            continue;
        if (injected()) {
            status = stopped(commit, ready);
        } else if (ready->weights == NULL || commit->journal != NULL) {
            status = pass_alone(pass, i, worker);
        } else {
            batch.indices[batch.count] = i;
            batch.jobs[batch.count++] = job_of(ready, ready->weights);
        }
    }
    apply_batch(pass, &batch);
    return status;
}

static void begin_pass(xci_commit *commit) {
    if (commit->journal != NULL)
        xci_journal_begin(commit->journal);
}

static void end_pass(xci_commit *commit) {
    if (commit->journal != NULL)
        xci_journal_end(commit->journal);
}

static xorcast_status run_pass(xci_commit *commit, uint8_t wanted) {
    commit_pass pass = {commit, wanted};
    begin_pass(commit);
    const xorcast_status status =
        xci_pool_run(commit->bundle->context->shared->pool,
                     xci_divide_up(commit->count, TASK_CHUNKS), pass_task, &pass);
    if (status == XORCAST_OK)
        end_pass(commit);
    return status;
}

xorcast_status xci_commit_apply_alone(xci_commit *commit) {
    commit_pass pass = {commit, 1};
    begin_pass(commit);
    for (uint64_t task = 0; task < xci_divide_up(commit->count, TASK_CHUNKS); task++)
        TRY(pass_task(&pass, task, 0));
    end_pass(commit);
    return XORCAST_OK;
}

xorcast_status xci_commit_apply(xci_commit *commit) { return run_pass(commit, 1); }
xorcast_status xci_commit_undo(xci_commit *commit) { return run_pass(commit, 0); }
