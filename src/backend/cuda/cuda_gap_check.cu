/* xci_cuda_gap_check and xci_cuda_gap_ready. A block of threads has a record: its first warp reads
 * the parameters, then each thread decodes sparse blocks, and each warp those that are dense or
 * have classes. Both kernels decode in the same way; the first counts, the second writes. */
#include "backend/cuda/cuda_gap_beside.cuh"
#include "backend/cuda/cuda_launch.cuh"
#include "backend/cuda/cuda_list.cuh"
#include "backend/cuda/cuda_tally.cuh"

/* Old weights keep more warps busy. */
#define PLAIN_THREADS 64u
#define BESIDE_THREADS 256u
#define BESIDE_BLOCKS 2 /* of a multiprocessor, at least */

/* First `ends`, XCI_GAP_WINDOW for each thread; then, in the same place, a desk for each warp. */
typedef struct gap_memory {
    xci_gap_record *record;
    xci_gap_symbols *symbols;
    xci_gap_lookup *lookups;
    uint32_t *ends;
    xci_gap_desk *desks;
} gap_memory;

XCI_BOTH uint32_t work_bytes(bool beside, uint32_t threads) {
    const uint32_t ends = XCI_GAP_WINDOW * threads * (uint32_t)sizeof(uint32_t);
    const uint32_t desks = threads / XCI_WARP * (uint32_t)sizeof(xci_gap_desk);
    return beside && desks > ends ? desks : ends;
}

static uint32_t shared_bytes(const xci_cuda_gap_call *call, uint32_t threads) {
    const uint32_t symbols = xci_gap_symbols_in(call->most_tables, call->most_params);
    return work_bytes(call->beside != 0, threads) + (uint32_t)sizeof(xci_gap_record) +
           (uint32_t)sizeof(xci_gap_symbols) +
           call->most_tables * (uint32_t)sizeof(xci_gap_lookup) +
           symbols * (uint32_t)sizeof(uint16_t);
}

template <bool BESIDE> static __device__ __forceinline__ gap_memory d_divide(uint4 *shared) {
    gap_memory memory;
    memory.ends = (uint32_t *)shared;
    memory.desks = (xci_gap_desk *)shared;
    memory.record = (xci_gap_record *)((uint8_t *)shared + work_bytes(BESIDE, blockDim.x));
    memory.symbols = (xci_gap_symbols *)(memory.record + 1);
    memory.lookups = (xci_gap_lookup *)(memory.symbols + 1);
    return memory;
}

/* ---- Blocks ---- */

/* Who decodes a block. */
typedef enum gap_way { GAP_DAMAGED, GAP_REFUSED, GAP_THREAD, GAP_WARP } gap_way;

/* A block and what is known of it. */
typedef struct gap_job {
    xci_cuda_gap_block block;
    const xci_gap_shape *shape;
    const uint32_t *first_keys;
    const uint8_t *old_at; /* of a shape that knows it */
    uint32_t bytes;
    gap_way way;
} gap_job;

template <bool BESIDE>
static __device__ __forceinline__ gap_job d_job_of(const xci_cuda_gap_call &call,
                                                   const xci_gap_record *record, uint64_t index) {
    gap_job job = {};
    job.block = call.blocks[index];
    job.bytes = call.grid.chunks[job.block.chunk].bytes;
    job.way = GAP_DAMAGED;
    if (!record->good)
        return job;
    const xci_gap_spot spot = d_spot_of(record, job.block.ordinal);
    if (d_size_of(record, spot) != job.bytes)
        return job;
    job.shape = &record->shapes[spot.shape];
    job.first_keys = record->first_keys[spot.shape];
    job.way = job.shape->dense ? GAP_WARP : GAP_THREAD;
    if (!job.shape->knows_old)
        return job;
    job.old_at = BESIDE ? call.places.direct[job.block.chunk] : nullptr;
    if (job.old_at == nullptr)
        job.way = GAP_REFUSED;
    else if (job.shape->class_count > 1)
        job.way = GAP_WARP;
    return job;
}

/* The mask of an element that takes a step. */
static __device__ __forceinline__ uint64_t d_step_mask(const gap_job &job, uint32_t position,
                                                       uint64_t value) {
    const uint64_t element = d_old_element(job.old_at, job.bytes, job.shape->width, position);
    return element ^ xci_gap_stepped(element, value, job.shape->width);
}

/* By one thread. */
template <bool BESIDE, typename Visit>
static __device__ __forceinline__ bool d_decode_alone(const gap_memory &memory, const gap_job &job,
                                                      Visit visit) {
    return d_walk_sparse(
        job.shape, memory.lookups, job.block.bytes, job.block.block_bytes, job.bytes,
        memory.ends + threadIdx.x, blockDim.x,
        [&](uint32_t position, uint64_t value) {
            return BESIDE && job.old_at != nullptr ? d_step_mask(job, position, value) : value;
        },
        visit);
}

template <bool BESIDE, typename Visit>
static __device__ __forceinline__ bool d_decode_dense(const gap_memory &memory, const gap_job &job,
                                                      Visit visit) {
    const xci_gap_shape *shape = job.shape;
    return d_walk_dense(
        shape->width, job.block.bytes, job.block.block_bytes, job.bytes,
        [&](xci_gap_bits *bits, uint32_t position) {
            if (!BESIDE || job.old_at == nullptr)
                return d_take_value(bits, &memory.lookups[shape->classes[0].table]);
            const uint64_t element = d_old_element(job.old_at, job.bytes, shape->width, position);
            const uint32_t c = shape->class_of[xci_gap_key(element, shape->width)];
            const uint64_t value = d_take_value(bits, &memory.lookups[shape->classes[c].table]);
            return element ^ xci_gap_stepped(element, value, shape->width);
        },
        visit);
}

template <typename Visit>
static __device__ __forceinline__ bool d_decode_beside(const gap_memory &memory, const gap_job &job,
                                                       Visit visit) {
    return d_walk_beside(job.shape, job.first_keys, memory.lookups, job.block.bytes,
                         job.block.block_bytes, job.old_at, job.bytes,
                         &memory.desks[threadIdx.x / XCI_WARP], visit);
}

/* ---- Check ---- */

typedef struct gap_checker {
    xci_cuda_place place;
    xci_cuda_segments segments;
    xci_cuda_tally tally;
    uint32_t element_bytes;
} gap_checker;

static __device__ __forceinline__ gap_checker d_checker_of(const xci_cuda_gap_call &call,
                                                           uint64_t number) {
    const xci_cuda_chunk chunk = call.grid.chunks[number];
    gap_checker checker = {};
    checker.place = d_place_of(call.places, number, chunk.bytes);
    checker.segments = d_segments_of(call.grid, chunk);
    checker.element_bytes = chunk.element_bytes;
    return checker;
}

static __device__ __forceinline__ void d_check_word(gap_checker *checker, uint32_t word,
                                                    uint64_t mask) {
    if (mask == 0)
        return;
    d_count_mask(&checker->tally, mask, checker->element_bytes);
    d_count_change(&checker->tally, &checker->place, &checker->segments, word, mask);
}

/* The same where the old word is at hand, of a chunk that is direct. */
static __device__ __forceinline__ void d_check_beside(gap_checker *checker, uint32_t word,
                                                      uint64_t mask, uint64_t old_word) {
    uint64_t kept, key;
    d_count_mask(&checker->tally, mask, checker->element_bytes);
    if (d_find_key(&checker->segments, word, &kept, &key))
        d_add_change(&checker->tally, old_word, mask, kept, key);
}

static __device__ __forceinline__ void d_set_result(xci_cuda_result *result_out,
                                                    const xci_cuda_tally &tally, int32_t status,
                                                    const gap_job &job) {
    xci_cuda_result result = {};
    result.status = status;
    result.block_codec = XCI_CUDA_CODEC_LIST;
    if (status == XORCAST_OK) {
        result.bytes_changed = tally.bytes;
        result.elements_changed = tally.elements;
        result.bits_changed = tally.bits;
        result.change = tally.change;
        result.list_bytes = tally.bytes * XCI_CUDA_ENTRY_BYTES;
        if (tally.bytes != 0 && (job.shape->dense || result.list_bytes >= job.bytes)) {
            result.block_codec = XORCAST_CODEC_RAW;
            result.list_bytes = job.bytes;
        }
    }
    result.block_bytes = result.list_bytes;
    *result_out = result;
}

template <bool BESIDE>
static __device__ __forceinline__ void d_check_alone(const xci_cuda_gap_call &call,
                                                     const gap_memory &memory, const gap_job &job,
                                                     xci_cuda_result *result) {
    gap_checker checker = d_checker_of(call, job.block.chunk);
    int32_t status = job.way == GAP_REFUSED ? XORCAST_UNSUPPORTED : XORCAST_DATA_CORRUPT;
    if (job.way == GAP_THREAD &&
        d_decode_alone<BESIDE>(
            memory, job, [&](uint32_t word, uint64_t mask) { d_check_word(&checker, word, mask); }))
        status = XORCAST_OK;
    d_set_result(result, checker.tally, status, job);
}

template <bool BESIDE>
static __device__ __forceinline__ void d_check_by_warp(const xci_cuda_gap_call &call,
                                                       const gap_memory &memory, const gap_job &job,
                                                       xci_cuda_result *result) {
    gap_checker checker = d_checker_of(call, job.block.chunk);
    bool good;
    if (!BESIDE || job.shape->dense)
        good = d_decode_dense<BESIDE>(
            memory, job, [&](uint32_t word, uint64_t mask) { d_check_word(&checker, word, mask); });
    else
        good = d_decode_beside(memory, job,
                               [&](bool active, uint32_t word, uint64_t mask, uint64_t old_word) {
                                   if (active)
                                       d_check_beside(&checker, word, mask, old_word);
                               });
    d_sum_tally(&checker.tally, XCI_WARP);
    if (d_lane() == 0)
        d_set_result(result, checker.tally, good ? XORCAST_OK : XORCAST_DATA_CORRUPT, job);
}

/* ---- Ready ---- */

/* Writes a list, or a raw mask, whose words are zero where nothing is written. */
typedef struct gap_sink {
    uint8_t *at;
    uint32_t count; /* entries, or words of the mask so far */
    bool raw;
} gap_sink;

static __device__ __forceinline__ void d_put_raw(gap_sink *sink, uint32_t word, uint64_t mask) {
    while (sink->count < word)
        ((uint64_t *)sink->at)[sink->count++] = 0;
    ((uint64_t *)sink->at)[word] = mask;
    sink->count = word + 1;
}

static __device__ __forceinline__ uint32_t d_put_entries(uint8_t *list, uint32_t at, uint32_t word,
                                                         uint64_t mask) {
    for (uint32_t position = word * 8; mask != 0; mask >>= 8, ++position)
        if ((mask & 0xff) != 0)
            ((uint32_t *)list)[at++] = d_entry(position, (uint32_t)mask & 0xff);
    return at;
}

template <bool BESIDE>
static __device__ __forceinline__ void d_write_alone(const gap_memory &memory, const gap_job &job,
                                                     bool raw) {
    gap_sink sink = {job.block.ready, 0, raw};
    d_decode_alone<BESIDE>(memory, job, [&](uint32_t word, uint64_t mask) {
        if (sink.raw)
            d_put_raw(&sink, word, mask);
        else
            sink.count = d_put_entries(sink.at, sink.count, word, mask);
    });
    if (raw && sink.count * 8 < job.bytes)
        d_put_raw(&sink, (job.bytes - 1) / 8, 0);
}

/* A mask of zeros, by a warp. */
static __device__ __forceinline__ void d_clear_mask(uint64_t *words, uint32_t bytes) {
    for (uint32_t word = d_lane(); word * 8 < bytes; word += XCI_WARP)
        words[word] = 0;
    __syncwarp();
}

/* Words to the list, lane after lane. */
static __device__ __forceinline__ void d_put_words(gap_sink *sink, uint32_t word, uint64_t mask) {
    const uint32_t mine = d_changed_bytes(mask), sum = d_scan(mine);
    d_put_entries(sink->at, sink->count + sum - mine, word, mask);
    sink->count += __shfl_sync(XCI_ALL, sum, XCI_WARP - 1);
}

template <bool BESIDE>
static __device__ __forceinline__ void d_write_by_warp(const gap_memory &memory, const gap_job &job,
                                                       bool raw) {
    uint64_t *const words = (uint64_t *)job.block.ready;
    gap_sink sink = {job.block.ready, 0, raw};
    if (raw)
        d_clear_mask(words, job.bytes);
    if (!BESIDE || job.shape->dense)
        d_decode_dense<BESIDE>(memory, job,
                               [&](uint32_t word, uint64_t mask) { words[word] = mask; });
    else
        d_decode_beside(memory, job, [&](bool active, uint32_t word, uint64_t mask, uint64_t) {
            if (!raw)
                d_put_words(&sink, word, active ? mask : 0);
            else if (active)
                words[word] = mask;
        });
}

/* ---- Kernels ---- */

template <bool BESIDE, bool WRITES>
static __device__ __forceinline__ void d_work_alone(const xci_cuda_gap_call &call,
                                                    const gap_memory &memory, const gap_job &job,
                                                    xci_cuda_result *result) {
    if (!WRITES)
        d_check_alone<BESIDE>(call, memory, job, result);
    else if (result->status == XORCAST_OK && result->list_bytes != 0)
        d_write_alone<BESIDE>(memory, job, result->block_codec == XORCAST_CODEC_RAW);
}

template <bool BESIDE, bool WRITES>
static __device__ __forceinline__ void d_work_by_warp(const xci_cuda_gap_call &call,
                                                      const gap_memory &memory, const gap_job &job,
                                                      xci_cuda_result *result) {
    if (!WRITES)
        d_check_by_warp<BESIDE>(call, memory, job, result);
    else if (result->status == XORCAST_OK && result->list_bytes != 0)
        d_write_by_warp<BESIDE>(memory, job, result->block_codec == XORCAST_CODEC_RAW);
}

/* A record's parameters, by one warp. */
static __device__ __forceinline__ void d_read_params(const xci_cuda_gap_call &call,
                                                     const gap_memory &memory,
                                                     const xci_cuda_gap_record &record) {
    if (d_lane() == 0)
        *memory.symbols = {(uint16_t *)(memory.lookups + call.most_tables),
                           xci_gap_symbols_in(call.most_tables, call.most_params), false};
    for (uint32_t t = d_lane(); t < call.most_tables; t += XCI_WARP)
        memory.lookups[t].symbols = memory.symbols;
    __syncwarp();
    d_read_record(memory.record, memory.lookups, call.most_tables, record.params,
                  record.params_bytes, record.gap_count);
    __syncwarp();
    if (d_lane() == 0 && memory.symbols->lacking)
        memory.record->good = false;
}

template <bool BESIDE, bool WRITES>
static __global__ void __launch_bounds__(BESIDE ? BESIDE_THREADS : PLAIN_THREADS,
                                         BESIDE ? BESIDE_BLOCKS : 1)
    k_gap_decode(const xci_cuda_gap_call call) {
    XCI_SHARED_MEMORY(shared);
    const gap_memory memory = d_divide<BESIDE>(shared);
    const xci_cuda_gap_record record = call.records[blockIdx.x];
    const uint64_t end = record.first + record.count;
    bool more = false;
    if (threadIdx.x < XCI_WARP)
        d_read_params(call, memory, record);
    __syncthreads();
    for (uint64_t i = record.first + threadIdx.x; i < end; i += blockDim.x) {
        const gap_job job = d_job_of<BESIDE>(call, memory.record, i);
        if (job.way == GAP_WARP)
            more = true;
        else
            d_work_alone<BESIDE, WRITES>(call, memory, job, &call.results[i]);
    }
    if (!__syncthreads_or(more))
        return;
    if (BESIDE)
        d_clear_desk(&memory.desks[threadIdx.x / XCI_WARP]);
    for (uint64_t i = record.first + threadIdx.x / XCI_WARP; i < end; i += blockDim.x / XCI_WARP) {
        const gap_job job = d_job_of<BESIDE>(call, memory.record, i);
        if (job.way == GAP_WARP)
            d_work_by_warp<BESIDE, WRITES>(call, memory, job, &call.results[i]);
    }
}

/* ---- Launchers ---- */

/* With as many warps a block as the device has shared memory for: one always fits. */
static int launch(void (*kernel)(xci_cuda_gap_call), const xci_cuda_gap_call *call,
                  uint32_t threads, void *stream) {
    int device, most_shared;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error =
            cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess)
        return error;
    while (threads > XCI_WARP && shared_bytes(call, threads) > (uint32_t)most_shared)
        threads -= XCI_WARP;
    const uint32_t bytes = shared_bytes(call, threads);
    /* A limit, the same in each call, since calls may be made side by side. */
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared);
    return error != cudaSuccess
               ? error
               : d_launch(kernel, *call, call->record_count, 1, threads, stream, bytes);
}

extern "C" int xci_cuda_gap_check(const xci_cuda_gap_call *call, void *stream) {
    return call->beside != 0 ? launch(k_gap_decode<true, false>, call, BESIDE_THREADS, stream)
                             : launch(k_gap_decode<false, false>, call, PLAIN_THREADS, stream);
}

extern "C" int xci_cuda_gap_ready(const xci_cuda_gap_call *call, void *stream) {
    return call->beside != 0 ? launch(k_gap_decode<true, true>, call, BESIDE_THREADS, stream)
                             : launch(k_gap_decode<false, true>, call, PLAIN_THREADS, stream);
}
