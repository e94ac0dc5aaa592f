/* A loop of BF16 matrix products on a GPU, as a sampler that generates: what other work costs it is
 * how many fewer it ends meanwhile. Runs on a thread and a stream of its own, of normal
 * priority. */
#ifndef BENCH_CUDA_PRODUCTS_CUH
#define BENCH_CUDA_PRODUCTS_CUH

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <mma.h>

#include <atomic>
#include <thread>

#define PRODUCT_SIDE 4096u

/* C = A * B, row by column; a warp makes 32 x 32 of C, operands come out of L2. */
static __global__ void k_product(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c) {
    using namespace nvcuda;
    const unsigned warp = threadIdx.x / 32;
    const unsigned row = (blockIdx.y * 2 + warp / 2) * 32,
                   column = (blockIdx.x * 2 + warp % 2) * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];
    for (unsigned i = 0; i < 4; i++)
        wmma::fill_fragment(sum[i / 2][i % 2], 0.0f);
    for (unsigned k = 0; k < PRODUCT_SIDE; k += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left[2];
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> right[2];
        for (unsigned i = 0; i < 2; i++) {
            wmma::load_matrix_sync(left[i], a + (row + 16 * i) * PRODUCT_SIDE + k, PRODUCT_SIDE);
            wmma::load_matrix_sync(right[i], b + (column + 16 * i) * PRODUCT_SIDE + k,
                                   PRODUCT_SIDE);
        }
        for (unsigned i = 0; i < 4; i++)
            wmma::mma_sync(sum[i / 2][i % 2], left[i / 2], right[i % 2], sum[i / 2][i % 2]);
    }
    for (unsigned i = 0; i < 4; i++)
        wmma::store_matrix_sync(c + (row + 16 * (i / 2)) * PRODUCT_SIDE + column + 16 * (i % 2),
                                sum[i / 2][i % 2], PRODUCT_SIDE, wmma::mem_row_major);
}

struct products {
    int gpu;
    void *memory;
    std::atomic<unsigned> ended;
    std::atomic<bool> stop;
    std::thread thread;
};

static void products_loop(products *p) {
    const size_t elements = (size_t)PRODUCT_SIDE * PRODUCT_SIDE;
    const __nv_bfloat16 *a = (const __nv_bfloat16 *)p->memory, *b = a + elements;
    const dim3 blocks(PRODUCT_SIDE / 64, PRODUCT_SIDE / 64);
    cudaStream_t stream;
    cudaEvent_t done[2];
    CUDA(cudaSetDevice(p->gpu));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&done[0]));
    CUDA(cudaEventCreate(&done[1]));
    for (unsigned turn = 0; !p->stop; turn++) { /* one runs, one waits behind it */
        k_product<<<blocks, 128, 0, stream>>>(a, b, (float *)(void *)(b + elements));
        CUDA(cudaEventRecord(done[turn % 2], stream));
        if (turn == 0)
            continue;
        CUDA(cudaEventSynchronize(done[(turn + 1) % 2]));
        p->ended++;
    }
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaEventDestroy(done[0]));
    CUDA(cudaEventDestroy(done[1]));
}

static void products_begin(products *p, int gpu) {
    const size_t bytes = (size_t)PRODUCT_SIDE * PRODUCT_SIDE * 8;
    p->gpu = gpu;
    p->ended = 0;
    p->stop = false;
    CUDA(cudaSetDevice(gpu));
    CUDA(cudaMalloc(&p->memory, bytes));
    CUDA(cudaMemset(p->memory, 0, bytes));
    p->thread = std::thread(products_loop, p);
}

static void products_end(products *p) {
    p->stop = true;
    p->thread.join();
    CUDA(cudaFree(p->memory));
}

#endif
