/* xci_cuda_encode against the time that reading the same two buffers takes, in one run: the bars,
 * old weights in pinned host memory, many small tensors. Curves are curves.cu's.
 * Weights and masks are made on the GPU from hashes, and are the same every time. One JSON line a
 * row; times are medians, of which each is a pair of events round one call.
 *
 *     encode [--bytes 55.6e9] [--rounds 12] [ROWS...]
 *         ROWS: bars pieces shifted pinned many
 *
 *     nvcc -O3 -std=c++17 -arch=sm_90 -Isrc -Iinclude -Ibench bench/cuda/encode.cu
 *         src/backend/cuda/cuda_encode.cu -o encode */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_kernels.h"
#include "cuda/read_bound.cuh"

#define TENSOR_BYTES (UINT64_C(4) << 20)
#define CLUSTER_BYTES 4096u
#define CLUSTER_SHARE 0.05
#define PIECE_CHUNKS UINT64_C(65536) /* as publish/device_encode.c has them */
#define MIX_PERIOD 25u /* tensors, of which 2 are BF16: 8 % */

/* ---- Data ------------------------------------------------------------------------------------*/

typedef struct mask_kind {
    double bytes, elements; /* shares that change, of NVFP4 bytes and of BF16 elements */
    bool mix;               /* NVFP4 and BF16 tensors by turns; else all BF16 */
    bool clustered;
} mask_kind;

__device__ static uint64_t hash(uint64_t z) {
    z += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* A step of the last place: 1, 3, 7, ... with a half, a quarter, an eighth ... */
__device__ static uint32_t step(uint32_t random, uint32_t bits) {
    const uint32_t k = (uint32_t)__ffs((int)(random | 1u << (bits - 1)));
    return (1u << k) - 1;
}

__device__ static uint64_t mask_of(uint64_t word, mask_kind kind) {
    const bool bf16 = !kind.mix || (word * 8 / TENSOR_BYTES) % MIX_PERIOD % 12 == 11;
    double share = bf16 ? kind.elements : kind.bytes;
    if (kind.clustered) {
        const uint64_t block = hash(word * 8 / CLUSTER_BYTES + (UINT64_C(1) << 60));
        if ((double)(block >> 11) >= CLUSTER_SHARE * 9007199254740992.0)
            return 0;
        share = min(share / CLUSTER_SHARE, 1.0);
    }
    const uint64_t limit = (uint64_t)(share * 4294967296.0);
    uint64_t mask = 0;
    for (uint32_t i = 0; i < (bf16 ? 2u : 4u); ++i) {
        const uint64_t r = hash(word * 4 + i);
        const uint64_t value = hash(r);
        for (uint32_t half = 0; half < 2; ++half) {
            if ((uint32_t)(r >> half * 32) >= limit)
                continue;
            const uint32_t random = (uint32_t)(value >> half * 32);
            const uint32_t unit = i * 2 + half;
            if (bf16)
                mask |= (uint64_t)step(random, 16) << unit * 16;
            else
                mask |= (uint64_t)(step(random, 4) << (random >> 31) * 4) << unit * 8;
        }
    }
    return mask;
}

__global__ static void k_fill(uint64_t *words, uint64_t count) {
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x)
        words[i] = hash(i ^ (UINT64_C(7) << 56));
}

__global__ static void k_change(uint64_t *words, const uint64_t *olds, uint64_t count,
                                mask_kind kind) {
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x)
        words[i] = olds[i] ^ mask_of(i, kind);
}

/* ---- Rows ------------------------------------------------------------------------------------*/

typedef struct bench {
    uint8_t *old_bytes, *new_bytes, *blocks;
    uint64_t bytes, capacity;
    unsigned rounds;
    mask_kind kind; /* of what new holds */
} bench;

/* A call over `count` chunks of the bench's buffers. */
typedef struct plan {
    xci_cuda_encode_call call;
    xci_cuda_chunk *chunks;
    xci_cuda_segment *segments;
    uint8_t **old_at, **new_at;
    uint64_t bytes;
} plan;

static void *device(uint64_t bytes) {
    void *memory;
    CUDA(cudaMalloc(&memory, bytes));
    return memory;
}

static void *upload(const void *from, uint64_t bytes) {
    void *memory = device(bytes);
    CUDA(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice));
    return memory;
}

/* Chunks of tensors that lie one behind the other; `sizes` gives each tensor's bytes. */
static plan make_plan(const bench *b, const uint8_t *old_bytes, const uint64_t *sizes,
                      uint64_t tensors, uint32_t chunk_bytes) {
    plan p;
    memset(&p, 0, sizeof p);
    uint64_t count = 0, at = 0, i = 0;
    for (uint64_t t = 0; t < tensors; ++t)
        count += (sizes[t] + chunk_bytes - 1) / chunk_bytes;
    xci_cuda_chunk *chunks = (xci_cuda_chunk *)malloc(count * sizeof *chunks);
    xci_cuda_segment *segments = (xci_cuda_segment *)malloc(count * sizeof *segments);
    const uint8_t **olds = (const uint8_t **)malloc(count * sizeof *olds);
    const uint8_t **news = (const uint8_t **)malloc(count * sizeof *news);
    for (uint64_t t = 0; t < tensors; ++t) {
        for (uint64_t from = 0; from < sizes[t]; from += chunk_bytes, ++i) {
            const uint64_t left = sizes[t] - from;
            const uint32_t bytes = (uint32_t)(left < chunk_bytes ? left : chunk_bytes);
            chunks[i] = {bytes, 2, (uint32_t)i, 1};
            segments[i] = {t * UINT64_C(0xD1342543DE82EF95) + from, 0, bytes};
            olds[i] = old_bytes + at + from;
            news[i] = b->new_bytes + at + from;
        }
        at += (sizes[t] + 255) / 256 * 256;
        p.bytes += sizes[t];
    }
    p.call.grid = {(xci_cuda_chunk *)upload(chunks, count * sizeof *chunks),
                   (xci_cuda_segment *)upload(segments, count * sizeof *segments), count,
                   chunk_bytes};
    p.call.old_at = (uint8_t *const *)upload(olds, count * sizeof *olds);
    p.call.new_at = (const uint8_t *const *)upload(news, count * sizeof *news);
    p.call.count = count;
    p.call.codec = XORCAST_CODEC_LZ4;
    p.call.blocks = b->blocks;
    p.call.capacity = b->capacity;
    p.call.results = (xci_cuda_result *)device(count * sizeof(xci_cuda_result));
    p.call.used_bytes = (uint64_t *)device(sizeof(uint64_t));
    p.call.scratch_bytes = xci_cuda_encode_scratch(count, chunk_bytes);
    p.call.scratch = (uint8_t *)device(p.call.scratch_bytes);
    free(chunks);
    free(segments);
    free(olds);
    free(news);
    return p;
}

static void free_plan(plan *p) {
    CUDA(cudaFree((void *)p->call.grid.chunks));
    CUDA(cudaFree((void *)p->call.grid.segments));
    CUDA(cudaFree((void *)p->call.old_at));
    CUDA(cudaFree((void *)p->call.new_at));
    CUDA(cudaFree(p->call.results));
    CUDA(cudaFree(p->call.used_bytes));
    CUDA(cudaFree(p->call.scratch));
}

static plan plan_one(const bench *b, const uint8_t *old_bytes, uint64_t bytes,
                     uint32_t chunk_bytes) {
    const uint64_t tensors = (bytes + TENSOR_BYTES - 1) / TENSOR_BYTES;
    uint64_t *sizes = (uint64_t *)malloc(tensors * sizeof *sizes);
    for (uint64_t t = 0; t < tensors; ++t)
        sizes[t] = t + 1 < tensors ? TENSOR_BYTES : bytes - t * TENSOR_BYTES;
    const plan p = make_plan(b, old_bytes, sizes, tensors, chunk_bytes);
    free(sizes);
    return p;
}

static void set_kind(bench *b, mask_kind kind, uint64_t bytes) {
    b->kind = kind;
    k_change<<<132 * 16, 256>>>((uint64_t *)b->new_bytes, (const uint64_t *)b->old_bytes, bytes / 8,
                                kind);
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
}

/* Encodes, and prints a row; `bound_ms` is what reading takes. */
static void row(const bench *b, const char *name, const plan *p, double bound_ms) {
    const double ms = median_ms(b->rounds, [&] { CUDA(xci_cuda_encode(&p->call, NULL)); });
    uint64_t used;
    CUDA(cudaMemcpy(&used, p->call.used_bytes, sizeof used, cudaMemcpyDeviceToHost));
    printf("{\"row\":\"%s\",\"bytes\":%llu,\"chunk_bytes\":%u,\"chunks\":%llu,\"mix\":%d,"
           "\"clustered\":%d,\"share_of_bytes\":%g,\"share_of_elements\":%g,\"blocks_share\":%.6f,"
           "\"overflow\":%d,\"ms\":%.3f,\"bound_ms\":%.3f,\"bound_gb_s\":%.0f,\"of_bound\":%.3f}\n",
           name, (unsigned long long)p->bytes, p->call.grid.chunk_bytes,
           (unsigned long long)p->call.count, b->kind.mix, b->kind.clustered, b->kind.bytes,
           b->kind.elements, (double)used / (double)p->bytes, used > p->call.capacity, ms, bound_ms,
           2e-6 * (double)p->bytes / bound_ms, bound_ms / ms);
    fflush(stdout);
}

static void run_row(const bench *b, const char *name, uint64_t bytes, uint32_t chunk_bytes) {
    plan p = plan_one(b, b->old_bytes, bytes, chunk_bytes);
    row(b, name, &p, read_bound_ms(b->old_bytes, b->new_bytes, bytes, b->rounds));
    free_plan(&p);
}

static void rows_bars(bench *b) {
    for (int clustered = 0; clustered < 2; ++clustered) {
        set_kind(b, {0.0002, 0.013, true, clustered != 0}, b->bytes);
        run_row(b, "bars", b->bytes, 65536);
    }
    set_kind(b, {0, 0.01, false, false}, b->bytes);
    run_row(b, "bars", b->bytes, 65536);
}

/* All chunks, in calls of so many, as a publisher makes them. */
static void encode_pieces(const plan *p, bool move) {
    for (uint64_t first = 0; first < p->call.grid.chunk_count; first += PIECE_CHUNKS) {
        xci_cuda_encode_call call = p->call;
        const uint64_t left = call.grid.chunk_count - first;
        call.first = first;
        call.count = left < PIECE_CHUNKS ? left : PIECE_CHUNKS;
        call.move = move;
        call.results += first;
        CUDA(xci_cuda_encode(&call, NULL));
    }
}

/* Whether old is new everywhere. */
static bool has_moved(const plan *p) {
    uint64_t used;
    CUDA(xci_cuda_encode(&p->call, NULL));
    CUDA(cudaMemcpy(&used, p->call.used_bytes, sizeof used, cudaMemcpyDeviceToHost));
    return used == 0;
}

/* In pieces, where old is only read and where it becomes new; new changes before each round. */
static void pieces(bench *b, mask_kind kind) {
    plan p = plan_one(b, b->old_bytes, b->bytes, 65536);
    const double bound_ms = read_bound_ms(b->old_bytes, b->new_bytes, b->bytes, b->rounds);
    for (uint32_t move = 0; move < 2; ++move) {
        std::vector<double> times;
        bool right = true;
        for (unsigned i = 0; i <= b->rounds; ++i) {
            set_kind(b, kind, b->bytes);
            times.push_back(once_ms([&] { encode_pieces(&p, move != 0); }));
            right = right && has_moved(&p) == (move != 0);
        }
        const double ms = median(times);
        printf("{\"row\":\"pieces\",\"bytes\":%llu,\"mix\":%d,\"clustered\":%d,"
               "\"share_of_elements\":%g,\"move\":%u,\"right\":%d,\"ms\":%.3f,"
               "\"bound_ms\":%.3f,\"of_bound\":%.3f}\n",
               (unsigned long long)p.bytes, kind.mix, kind.clustered, kind.elements, move, right,
               ms, bound_ms, bound_ms / ms);
        fflush(stdout);
    }
    free_plan(&p);
}

static void rows_pieces(bench *b) {
    pieces(b, {0.0002, 0.013, true, false});
    pieces(b, {0.0002, 0.013, true, true});
    pieces(b, {0, 0.01, false, false});
    pieces(b, {0, 0.3, false, false});
}

/* Chunks that begin between two vectors: old and new, or new alone, where the output is not. */
static void rows_shifted(bench *b) {
    const uint64_t bytes = b->capacity / 4 / 4096 * 4096;
    const uint32_t shifts[] = {0, 8, 4, 2};
    bench shifted = *b;
    shifted.bytes = bytes - 4096;
    set_kind(b, {0, 0.01, false, false}, bytes);
    const double bound_ms = read_bound_ms(b->old_bytes, b->new_bytes, shifted.bytes, b->rounds);
    for (uint32_t shift : shifts) {
        shifted.new_bytes = b->new_bytes + shift;
        plan p = plan_one(&shifted, b->old_bytes + shift, shifted.bytes, 65536);
        row(b, "shifted", &p, bound_ms);
        free_plan(&p);
    }
    shifted.new_bytes = b->blocks + b->capacity / 2 + 2;
    shifted.capacity = b->capacity / 2;
    CUDA(cudaMemcpy(shifted.new_bytes, b->new_bytes, bytes, cudaMemcpyDeviceToDevice));
    plan p = plan_one(&shifted, b->old_bytes, shifted.bytes, 65536);
    row(b, "shifted, new alone", &p, bound_ms);
    free_plan(&p);
}

/* Old in pinned host memory; the bound is the faster of a copy and a kernel that reads. */
static void rows_pinned(bench *b) {
    const uint64_t bytes = UINT64_C(2) << 30;
    uint8_t *old_host;
    CUDA(cudaHostAlloc((void **)&old_host, bytes, cudaHostAllocMapped));
    CUDA(cudaMemcpy(old_host, b->old_bytes, bytes, cudaMemcpyDeviceToHost));
    const mask_kind kinds[] = {
        {0.0002, 0.013, true, false}, {0, 0.01, false, false}, {0, 1, false, false}};
    const unsigned rounds = b->rounds;
    b->rounds = 10;
    for (size_t k = 0; k < 3; ++k) {
        set_kind(b, kinds[k], bytes);
        const double copied = median_ms(b->rounds, [&] {
            CUDA(cudaMemcpyAsync(b->blocks, old_host, bytes, cudaMemcpyHostToDevice));
        });
        const double read = read_both_ms(old_host, b->new_bytes, bytes, b->rounds, 1);
        printf("{\"row\":\"pcie\",\"copy_gb_s\":%.1f,\"kernel_gb_s\":%.1f}\n",
               1e-6 * (double)bytes / copied, 1e-6 * (double)bytes / read);
        plan p = plan_one(b, old_host, bytes, 65536);
        row(b, "pinned", &p, copied < read ? copied : read);
        free_plan(&p);
    }
    b->rounds = rounds;
    CUDA(cudaFreeHost(old_host));
}

/* 200,000 tensors of 10 GB in all, of 1 to 99 KB. */
static void rows_many(bench *b) {
    const uint64_t tensors = 200000;
    uint64_t *sizes = (uint64_t *)malloc(tensors * sizeof *sizes);
    uint64_t bytes = 0;
    for (uint64_t t = 0; t < tensors; ++t) {
        sizes[t] = 1000 + t * 2654435761u % 98000;
        bytes += (sizes[t] + 255) / 256 * 256;
    }
    set_kind(b, {0.0002, 0.013, true, false}, bytes);
    plan p = make_plan(b, b->old_bytes, sizes, tensors, 65536);
    row(b, "many", &p, read_bound_ms(b->old_bytes, b->new_bytes, p.bytes, b->rounds));
    free_plan(&p);
    free(sizes);
}

static bool wanted(int argc, char **argv, const char *name) {
    bool any = false;
    for (int i = 1; i < argc; ++i) {
        if (strncmp(argv[i], "--", 2) == 0) {
            ++i;
            continue;
        }
        any = true;
        if (strcmp(argv[i], name) == 0)
            return true;
    }
    return !any;
}

int main(int argc, char **argv) {
    bench b;
    memset(&b, 0, sizeof b);
    b.bytes = UINT64_C(55600000000);
    b.rounds = 12;
    for (int i = 1; i + 1 < argc; ++i) {
        if (strcmp(argv[i], "--bytes") == 0)
            b.bytes = (uint64_t)atof(argv[i + 1]);
        if (strcmp(argv[i], "--rounds") == 0)
            b.rounds = (unsigned)strtoul(argv[i + 1], NULL, 10);
    }
    b.bytes = b.bytes / 4096 * 4096;
    if (b.rounds == 0 || b.bytes == 0)
        return 2;
    b.capacity = b.bytes < UINT64_C(16000000000) ? b.bytes : UINT64_C(16000000000);
    b.old_bytes = (uint8_t *)device(b.bytes);
    b.new_bytes = (uint8_t *)device(b.bytes);
    b.blocks = (uint8_t *)device(b.capacity);
    k_fill<<<132 * 16, 256>>>((uint64_t *)b.old_bytes, b.bytes / 8);
    CUDA(cudaGetLastError());
    static const struct {
        const char *name;
        void (*run)(bench *b);
    } groups[] = {{"bars", rows_bars},
                  {"pieces", rows_pieces},
                  {"shifted", rows_shifted},
                  {"pinned", rows_pinned},
                  {"many", rows_many}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; ++i)
        if (wanted(argc, argv, groups[i].name))
            groups[i].run(&b);
    return 0;
}
