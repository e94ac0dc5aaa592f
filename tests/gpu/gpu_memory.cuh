/* Memory of the GPU tests: pieces of any skew, each with a copy on the host, in one allocation with
 * guard bytes between or, for compute-sanitizer, in an allocation each, exact to the byte. Ends the
 * program where CUDA fails. */
#ifndef XCI_TEST_GPU_MEMORY_CUH
#define XCI_TEST_GPU_MEMORY_CUH

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#define GUARD_BYTES 64u
#define GUARD 0xC5

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        const cudaError_t cuda_error = (cudaError_t)(call);                                        \
        if (cuda_error != cudaSuccess) {                                                           \
            printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(cuda_error));             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* A table or result that is copied whole. */
template <typename T> struct device_table {
    T *at = nullptr;
    size_t count = 0;

    explicit device_table(size_t n) : count(n) {
        CUDA(cudaMalloc((void **)&at, n * sizeof(T) + 16));
        CUDA(cudaMemset(at, 0xA5, n * sizeof(T) + 16));
    }
    explicit device_table(const std::vector<T> &host) : device_table(host.size()) {
        CUDA(cudaMemcpy(at, host.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    }
    device_table(const device_table &) = delete;
    ~device_table() { CUDA(cudaFree(at)); }
    std::vector<T> get() const {
        std::vector<T> host(count);
        CUDA(cudaMemcpy(host.data(), at, count * sizeof(T), cudaMemcpyDeviceToHost));
        return host;
    }
};

struct gpu_memory {
    bool tight;
    size_t guard_bytes;
    std::vector<uint8_t> host;  /* what the device's bytes should be */
    std::vector<size_t> offset; /* of each piece in `host` */
    std::vector<size_t> bytes, skew;
    std::vector<uint8_t *> device;
    uint8_t *arena = nullptr;

    explicit gpu_memory(bool one_by_one, size_t guard = GUARD_BYTES)
        : tight(one_by_one), guard_bytes(guard) {}
    gpu_memory(const gpu_memory &) = delete;
    ~gpu_memory() {
        if (arena != nullptr)
            CUDA(cudaFree(arena));
        for (size_t i = 0; tight && i < device.size(); ++i)
            CUDA(cudaFree(device[i] - skew[i]));
    }
    /* A piece at an address that is `off` more than a multiple of 16. */
    size_t add(size_t count, size_t off = 0) {
        host.resize((host.size() + 15) / 16 * 16 + guard_bytes + off, GUARD);
        offset.push_back(host.size());
        bytes.push_back(count);
        skew.push_back(off);
        host.resize(host.size() + count, 0);
        return offset.size() - 1;
    }
    uint8_t *at(size_t piece) { return host.data() + offset[piece]; }
    void upload() {
        host.resize(host.size() + guard_bytes, GUARD);
        if (!tight)
            CUDA(cudaMalloc((void **)&arena, host.size()));
        for (size_t i = 0; i < offset.size(); ++i) {
            uint8_t *own = arena + offset[i];
            if (tight)
                CUDA(cudaMalloc((void **)&own, skew[i] + bytes[i]));
            device.push_back(tight ? own + skew[i] : own);
        }
        refresh();
    }
    void refresh() {
        if (!tight) {
            CUDA(cudaMemcpy(arena, host.data(), host.size(), cudaMemcpyHostToDevice));
            return;
        }
        for (size_t i = 0; i < offset.size(); ++i)
            CUDA(cudaMemcpy(device[i], at(i), bytes[i], cudaMemcpyHostToDevice));
    }
    std::vector<uint8_t> read() const {
        std::vector<uint8_t> got(host);
        if (!tight)
            CUDA(cudaMemcpy(got.data(), arena, got.size(), cudaMemcpyDeviceToHost));
        for (size_t i = 0; tight && i < offset.size(); ++i)
            CUDA(cudaMemcpy(got.data() + offset[i], device[i], bytes[i], cudaMemcpyDeviceToHost));
        return got;
    }
    /* Whether every byte, guards included, is what `host` says. */
    bool same() const { return read() == host; }
};

#endif
