/* xci_cuda_gap_check and xci_cuda_gap_ready. A block of threads has a record: its first warp reads
 * the parameters, then each thread decodes sparse blocks and each warp dense ones. Both kernels
 * decode in the same way; the first counts, the second writes. */
#include "backend/cuda/cuda_gap_decode.cuh"
#include "backend/cuda/cuda_launch.cuh"
#include "backend/cuda/cuda_list.cuh"
#include "backend/cuda/cuda_tally.cuh"

#define THREADS 64u

typedef struct gap_memory {
    xci_gap_record *record;
    xci_gap_lookup *lookups;
    uint32_t *ends;
} gap_memory;

static uint32_t shared_bytes(uint32_t most_tables) {
    return (uint32_t)sizeof(xci_gap_record) + most_tables * (uint32_t)sizeof(xci_gap_lookup) +
           XCI_GAP_WINDOW * THREADS * (uint32_t)sizeof(uint32_t);
}

static __device__ __forceinline__ gap_memory d_divide(uint4 *shared, uint32_t most_tables) {
    gap_memory memory;
    memory.ends = (uint32_t *)shared;
    memory.record = (xci_gap_record *)(memory.ends + XCI_GAP_WINDOW * THREADS);
    memory.lookups = (xci_gap_lookup *)(memory.record + 1);
    (void)most_tables;
    return memory;
}

static __device__ __forceinline__ void d_begin(const gap_memory *memory,
                                               const xci_cuda_gap_call &call,
                                               const xci_cuda_gap_record &record) {
    if (threadIdx.x < XCI_WARP)
        d_read_record(memory->record, memory->lookups, call.most_tables, record.params,
                      record.params_bytes, record.gap_count);
    __syncthreads();
}

/* The shape of a block; NULL: it is not of a chunk of so many bytes, or of no record. */
static __device__ __forceinline__ const xci_gap_shape *
d_shape_of(const xci_gap_record *record, const xci_cuda_gap_block &block, uint32_t bytes) {
    if (!record->good)
        return nullptr;
    const xci_gap_spot spot = d_spot_of(record, block.ordinal);
    return d_size_of(record, spot) == bytes ? &record->shapes[spot.shape] : nullptr;
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
    d_count_mask(&checker->tally, mask, checker->element_bytes);
    d_count_change(&checker->tally, &checker->place, &checker->segments, word, mask);
}

static __device__ __forceinline__ void d_set_result(xci_cuda_result *result_out,
                                                    const xci_cuda_tally &tally, int32_t status,
                                                    uint32_t bytes, bool dense) {
    xci_cuda_result result = {};
    result.status = status;
    result.block_codec = XCI_CUDA_CODEC_LIST;
    if (status == XORCAST_OK) {
        result.bytes_changed = tally.bytes;
        result.elements_changed = tally.elements;
        result.bits_changed = tally.bits;
        result.change = tally.change;
        result.list_bytes = tally.bytes * XCI_CUDA_ENTRY_BYTES;
        if (tally.bytes != 0 && (dense || result.list_bytes >= bytes)) {
            result.block_codec = XORCAST_CODEC_RAW;
            result.list_bytes = bytes;
        }
    }
    result.block_bytes = result.list_bytes;
    *result_out = result;
}

static __device__ __forceinline__ void d_check_sparse(const gap_memory *memory,
                                                      const xci_cuda_gap_call &call,
                                                      const xci_cuda_gap_block &block,
                                                      const xci_gap_shape *shape,
                                                      xci_cuda_result *result) {
    gap_checker checker = d_checker_of(call, block.chunk);
    const uint32_t bytes = checker.place.bytes;
    int32_t status = XORCAST_DATA_CORRUPT;
    if (shape != nullptr && shape->knows_old)
        status = XORCAST_UNSUPPORTED;
    else if (shape != nullptr &&
             d_walk_sparse(shape, memory->lookups, block.bytes, block.block_bytes, bytes,
                           memory->ends + threadIdx.x, THREADS, [&](uint32_t word, uint64_t mask) {
                               d_check_word(&checker, word, mask);
                           }))
        status = XORCAST_OK;
    d_set_result(result, checker.tally, status, bytes, false);
}

static __device__ __forceinline__ void d_check_dense(const gap_memory *memory,
                                                     const xci_cuda_gap_call &call,
                                                     const xci_cuda_gap_block &block,
                                                     const xci_gap_shape *shape,
                                                     xci_cuda_result *result) {
    gap_checker checker = d_checker_of(call, block.chunk);
    const uint32_t bytes = checker.place.bytes;
    const bool good =
        d_walk_dense(shape, memory->lookups, block.bytes, block.block_bytes, bytes,
                     [&](uint32_t word, uint64_t mask) { d_check_word(&checker, word, mask); });
    d_sum_tally(&checker.tally, XCI_WARP);
    if (d_lane() == 0)
        d_set_result(result, checker.tally, good ? XORCAST_OK : XORCAST_DATA_CORRUPT, bytes, true);
}

static __device__ __forceinline__ bool d_is_dense(const xci_gap_shape *shape) {
    return shape != nullptr && shape->dense && !shape->knows_old;
}

static __global__ void __launch_bounds__(THREADS) k_gap_check(const xci_cuda_gap_call call) {
    XCI_SHARED_MEMORY(shared);
    const gap_memory memory = d_divide(shared, call.most_tables);
    const xci_cuda_gap_record record = call.records[blockIdx.x];
    d_begin(&memory, call, record);
    bool any_dense = false;
    for (uint64_t i = record.first + threadIdx.x; i < record.first + record.count; i += THREADS) {
        const xci_cuda_gap_block block = call.blocks[i];
        const xci_gap_shape *shape =
            d_shape_of(memory.record, block, call.grid.chunks[block.chunk].bytes);
        if (d_is_dense(shape))
            any_dense = true;
        else
            d_check_sparse(&memory, call, block, shape, &call.results[i]);
    }
    if (!__syncthreads_or(any_dense))
        return;
    for (uint64_t i = record.first + threadIdx.x / XCI_WARP; i < record.first + record.count;
         i += THREADS / XCI_WARP) {
        const xci_cuda_gap_block block = call.blocks[i];
        const xci_gap_shape *shape =
            d_shape_of(memory.record, block, call.grid.chunks[block.chunk].bytes);
        if (d_is_dense(shape))
            d_check_dense(&memory, call, block, shape, &call.results[i]);
    }
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

static __device__ __forceinline__ void d_put_word(gap_sink *sink, uint32_t word, uint64_t mask) {
    if (sink->raw) {
        d_put_raw(sink, word, mask);
        return;
    }
    for (uint32_t position = word * 8; mask != 0; mask >>= 8, ++position)
        if ((mask & 0xff) != 0)
            ((uint32_t *)sink->at)[sink->count++] = d_entry(position, (uint32_t)mask & 0xff);
}

static __device__ __forceinline__ void d_write_sparse(const gap_memory *memory,
                                                      const xci_cuda_gap_block &block,
                                                      const xci_gap_shape *shape, uint32_t bytes,
                                                      bool raw) {
    gap_sink sink = {block.ready, 0, raw};
    d_walk_sparse(shape, memory->lookups, block.bytes, block.block_bytes, bytes,
                  memory->ends + threadIdx.x, THREADS,
                  [&](uint32_t word, uint64_t mask) { d_put_word(&sink, word, mask); });
    if (raw && sink.count * 8 < bytes)
        d_put_raw(&sink, (bytes - 1) / 8, 0);
}

/* Words of zeros first, since each lane meets its own segments only. */
static __device__ __forceinline__ void d_write_dense(const gap_memory *memory,
                                                     const xci_cuda_gap_block &block,
                                                     const xci_gap_shape *shape, uint32_t bytes) {
    uint64_t *const words = (uint64_t *)block.ready;
    for (uint32_t word = d_lane(); word * 8 < bytes; word += XCI_WARP)
        words[word] = 0;
    __syncwarp();
    d_walk_dense(shape, memory->lookups, block.bytes, block.block_bytes, bytes,
                 [&](uint32_t word, uint64_t mask) { words[word] = mask; });
}

static __global__ void __launch_bounds__(THREADS) k_gap_ready(const xci_cuda_gap_call call) {
    XCI_SHARED_MEMORY(shared);
    const gap_memory memory = d_divide(shared, call.most_tables);
    const xci_cuda_gap_record record = call.records[blockIdx.x];
    d_begin(&memory, call, record);
    bool any_dense = false;
    for (uint64_t i = record.first + threadIdx.x; i < record.first + record.count; i += THREADS) {
        const xci_cuda_gap_block block = call.blocks[i];
        const uint32_t bytes = call.grid.chunks[block.chunk].bytes;
        if (call.results[i].status != XORCAST_OK || call.results[i].list_bytes == 0)
            continue;
        const xci_gap_shape *shape = d_shape_of(memory.record, block, bytes);
        if (d_is_dense(shape))
            any_dense = true;
        else
            d_write_sparse(&memory, block, shape, bytes,
                           call.results[i].block_codec == XORCAST_CODEC_RAW);
    }
    if (!__syncthreads_or(any_dense))
        return;
    for (uint64_t i = record.first + threadIdx.x / XCI_WARP; i < record.first + record.count;
         i += THREADS / XCI_WARP) {
        const xci_cuda_gap_block block = call.blocks[i];
        const uint32_t bytes = call.grid.chunks[block.chunk].bytes;
        const xci_gap_shape *shape = d_shape_of(memory.record, block, bytes);
        if (call.results[i].status == XORCAST_OK && call.results[i].list_bytes != 0 &&
            d_is_dense(shape))
            d_write_dense(&memory, block, shape, bytes);
    }
}

/* ---- Launchers ---- */

static int launch(void (*kernel)(xci_cuda_gap_call), const xci_cuda_gap_call *call, void *stream) {
    const uint32_t bytes = shared_bytes(call->most_tables);
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return error != cudaSuccess
               ? error
               : d_launch(kernel, *call, call->record_count, 1, THREADS, stream, bytes);
}

extern "C" int xci_cuda_gap_check(const xci_cuda_gap_call *call, void *stream) {
    return launch(k_gap_check, call, stream);
}

extern "C" int xci_cuda_gap_ready(const xci_cuda_gap_call *call, void *stream) {
    return launch(k_gap_ready, call, stream);
}
