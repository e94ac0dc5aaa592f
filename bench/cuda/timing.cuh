/* Memory of the GPU and the clock, for benchmarks. Ends the program where CUDA fails. */
#ifndef BENCH_CUDA_TIMING_CUH
#define BENCH_CUDA_TIMING_CUH

#include <algorithm>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        const cudaError_t cuda_error = (cudaError_t)(call);                                        \
        if (cuda_error != cudaSuccess) {                                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(cuda_error));    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

template <typename T> static T *device_array(size_t count) {
    T *at;
    CUDA(cudaMalloc((void **)&at, count * sizeof(T) + 64));
    return at;
}

template <typename T> static T *to_device(const std::vector<T> &host) {
    T *at = device_array<T>(host.size());
    CUDA(cudaMemcpy(at, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return at;
}

template <typename T> static std::vector<T> to_host(const T *at, size_t count) {
    std::vector<T> host(count);
    CUDA(cudaMemcpy(host.data(), at, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

/* Milliseconds between two events round work(). */
template <typename Work> static double once_ms(Work work) {
    float ms;
    cudaEvent_t begin, end;
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    CUDA(cudaEventRecord(begin));
    work();
    CUDA(cudaEventRecord(end));
    CUDA(cudaEventSynchronize(end));
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    return ms;
}

/* The first is not counted: it warms up. */
static double median(std::vector<double> times) {
    std::sort(times.begin() + 1, times.end());
    return times[1 + (times.size() - 1) / 2];
}

template <typename Work> static double median_ms(unsigned rounds, Work work) {
    std::vector<double> times;
    for (unsigned i = 0; i <= rounds; ++i)
        times.push_back(once_ms(work));
    return median(times);
}

#endif
