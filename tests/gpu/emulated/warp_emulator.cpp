/* Fibers for warp_emulator.h, and memory calls of its CUDA runtime. */
#include "warp_emulator.h"

#include <deque>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define FIBER_STACK (96u << 10)
#define WARP 32u
#define DEVICE_THREADS 4096u

/* Collectives of a warp: values of the last two, so that a lane may be one ahead. */
struct warp_state {
    uint64_t values[2][WARP];
    uint32_t arrived[2], rounds[2];
    int call[2];
};
struct block_state {
    void *shared;
    uint32_t arrived, round;
    bool any[2]; /* of this round and of the next one */
};
struct pending_copy {
    void *to;
    const void *from;
    uint32_t bytes, group;
};
struct fiber {
    const uint32_t *watched; /* the fiber need not be resumed while this is `seen`; or NULL */
    uint32_t seen;
    bool begun, done;
    uint32_t thread, block;
    uint32_t collectives;
    std::deque<pending_copy> *copies;
    uint32_t copy_groups;
    warp_state *warp;
    block_state *in;
    uint8_t *stack;
    jmp_buf at;
};

emulated_index threadIdx, blockIdx, blockDim, gridDim;
void *emulated_shared;

static fiber *now;
static jmp_buf scheduler;
static void (*run_body)(void *);
static void *run_context;
static uint64_t progress; /* changes whenever some fiber got further */

static void fail(const char *what) {
    fprintf(stderr, "emulator: block %u thread %u: %s\n", now->block, now->thread, what);
    abort();
}

void emulated_yield(void) {
    if (_setjmp(now->at) == 0)
        _longjmp(scheduler, 1);
}

/* Until the other fibers have changed a number. */
static void wait_for_change(const uint32_t *number, uint32_t seen) {
    now->watched = number;
    now->seen = seen;
    while (*number == seen)
        emulated_yield();
    now->watched = NULL;
}

const uint64_t *emulated_collect(uint32_t mask, uint64_t value, int call) {
    if (mask != 0xffffffffu)
        fail("a collective of part of a warp");
    fiber *me = now;
    const uint32_t which = me->collectives++ % 2;
    warp_state *warp = me->warp;
    const uint32_t round = warp->rounds[which];
    if (warp->arrived[which] == 0)
        warp->call[which] = call;
    if (warp->call[which] != call)
        fail("lanes of a warp are at different collectives");
    warp->values[which][me->thread % WARP] = value;
    ++progress;
    if (++warp->arrived[which] == WARP) {
        warp->arrived[which] = 0;
        ++warp->rounds[which];
    }
    wait_for_change(&warp->rounds[which], round);
    return warp->values[which];
}

bool emulated_block_barrier(bool v) {
    block_state *in = now->in;
    const uint32_t round = in->round;
    ++progress;
    in->any[round % 2] |= v;
    if (++in->arrived == blockDim.x) {
        in->arrived = 0;
        in->any[(round + 1) % 2] = false;
        ++in->round;
    }
    wait_for_change(&in->round, round);
    return in->any[round % 2];
}

void emulated_copy(void *to, const void *from, uint32_t bytes) {
    if ((uintptr_t)to % bytes != 0 || (uintptr_t)from % bytes != 0)
        fail("a copy that is not aligned");
    memset(to, 0xa5, bytes);
    now->copies->push_back({to, from, bytes, now->copy_groups});
}

void emulated_copy_group(void) {
    ++now->copy_groups;
}

void emulated_copy_wait(uint32_t groups) {
    while (!now->copies->empty() && now->copies->front().group + groups < now->copy_groups) {
        const pending_copy copy = now->copies->front();
        now->copies->pop_front();
        memcpy(copy.to, copy.from, copy.bytes);
    }
}

static void fiber_main(void) {
    run_body(run_context);
    now->done = true;
    ++progress;
    _longjmp(scheduler, 1);
}

static void begin(fiber *f) {
    static ucontext_t context;
    f->begun = true;
    getcontext(&context);
    context.uc_stack.ss_sp = f->stack;
    /* Tops of stacks would else compete for the same lines of the CPU's cache. */
    context.uc_stack.ss_size = FIBER_STACK - f->thread % 64 * 64;
    makecontext(&context, fiber_main, 0);
    setcontext(&context);
}

static void resume(fiber *f) {
    now = f;
    threadIdx.x = f->thread;
    blockIdx.x = f->block;
    emulated_shared = f->in->shared;
    if (_setjmp(scheduler) != 0)
        return;
    if (f->begun)
        _longjmp(f->at, 1);
    begin(f);
}

static void *clear_memory(size_t bytes) {
    void *p = calloc(1, bytes);
    if (p == NULL)
        abort();
    return p;
}

/* Round after round, from another start each time and in both directions. */
static void run_fibers(fiber *fibers, uint32_t count) {
    uint32_t idle = 0;
    for (uint64_t round = 0, left = count; left > 0; ++round) {
        const uint64_t before = progress;
        const uint32_t start = (uint32_t)(round * 0x9E3779B1u % count);
        for (uint32_t i = 0; i < count; ++i) {
            fiber *f = &fibers[(start + (round % 2 ? count - i : i)) % count];
            if (f->done || (f->watched != NULL && *f->watched == f->seen))
                continue;
            resume(f);
            left -= f->done;
        }
        idle = progress == before ? idle + 1 : 0;
        if (idle > 1000)
            fail("all threads wait");
    }
}

/* Runs blocks [first, first + blocks), all at the same time. */
static void run_blocks(uint32_t first, uint32_t blocks, uint32_t threads, size_t shared_bytes) {
    static uint8_t *stacks;
    const uint32_t count = blocks * threads, warps = count / WARP;
    fiber *fibers = (fiber *)clear_memory(count * sizeof *fibers);
    warp_state *states = (warp_state *)clear_memory(warps * sizeof *states);
    block_state *ins = (block_state *)clear_memory(blocks * sizeof *ins);
    if (stacks == NULL)
        stacks = (uint8_t *)clear_memory((size_t)DEVICE_THREADS * FIBER_STACK);
    for (uint32_t i = 0; i < blocks; ++i) {
        ins[i].shared = aligned_alloc(16, (shared_bytes + 15) / 16 * 16);
        memset(ins[i].shared, 0xa5, shared_bytes);
    }
    for (uint32_t i = 0; i < count; ++i) {
        fibers[i].stack = stacks + (size_t)i * FIBER_STACK;
        fibers[i].thread = i % threads;
        fibers[i].block = first + i / threads;
        fibers[i].warp = &states[i / WARP];
        fibers[i].in = &ins[i / threads];
        fibers[i].copies = new std::deque<pending_copy>;
    }
    run_fibers(fibers, count);
    for (uint32_t i = 0; i < count; ++i)
        delete fibers[i].copies;
    for (uint32_t i = 0; i < blocks; ++i)
        free(ins[i].shared);
    free(ins);
    free(states);
    free(fibers);
}

/* As many blocks at a time as the device holds: those of a larger grid come when others are done. */
void emulated_run(uint32_t blocks, uint32_t threads, size_t shared_bytes, void (*body)(void *),
                  void *context) {
    if (threads > DEVICE_THREADS || threads % WARP != 0)
        abort();
    const uint32_t most = DEVICE_THREADS / threads;
    gridDim.x = blocks;
    blockDim.x = threads;
    run_body = body;
    run_context = context;
    for (uint32_t first = 0; first < blocks; first += most)
        run_blocks(first, min(most, blocks - first), threads, shared_bytes);
}

extern "C" {
cudaError_t cudaMalloc(void **memory_out, size_t bytes) {
    *memory_out = malloc(bytes);
    return *memory_out != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *memory) {
    return free(memory), cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind) {
    return memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemset(void *at, int value, size_t bytes) {
    return memset(at, value, bytes), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t) {
    return memset(at, value, bytes), cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **memory_out, size_t bytes, unsigned) {
    return cudaMalloc(memory_out, bytes);
}
cudaError_t cudaFreeHost(void *memory) {
    return cudaFree(memory);
}
const char *cudaGetErrorString(cudaError_t error) {
    return error == 0 ? "no error" : "an error";
}
}
