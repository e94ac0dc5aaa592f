/* nvCOMP's batched LZ4, loaded when a benchmark asks for it: the library of the package
 * nvidia-libnvcomp-cu13, version 6, whose functions and structures are declared here as far as
 * they are used. Nothing else of this project knows it. */
#ifndef BENCH_CUDA_NVCOMP_LZ4_CUH
#define BENCH_CUDA_NVCOMP_LZ4_CUH

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

struct nvcomp_compress_options {
    int data_type, bitshuffle; /* 0: bytes, 3: of two bytes, 5: of four */
    char reserved[56];
};

struct nvcomp_decompress_options {
    int backend, sort, data_type, bitshuffle; /* backend 0: theirs to choose */
    char reserved[48];
};

struct nvcomp_properties {
    uint32_t version, runtime_version;
};

/* Functions give 0 for success; sizes and pointers of chunks are arrays on the device. */
struct nvcomp_lz4 {
    int (*properties)(nvcomp_properties *properties_out);
    int (*compress_temp)(size_t count, size_t chunk_bytes, nvcomp_compress_options options,
                         size_t *bytes_out, size_t total_bytes, cudaStream_t stream);
    int (*compress_bound)(size_t chunk_bytes, nvcomp_compress_options options, size_t *bytes_out);
    int (*compress)(const void *const *from, const size_t *from_bytes, size_t chunk_bytes,
                    size_t count, void *temp, size_t temp_bytes, void *const *to, size_t *to_bytes,
                    nvcomp_compress_options options, int *statuses, cudaStream_t stream);
    int (*decompress_temp)(size_t count, size_t chunk_bytes, nvcomp_decompress_options options,
                           size_t *bytes_out, size_t total_bytes, cudaStream_t stream);
    int (*decompress)(const void *const *from, const size_t *from_bytes, const size_t *room_bytes,
                      size_t *to_bytes, size_t count, void *temp, size_t temp_bytes,
                      void *const *to, nvcomp_decompress_options options, int *statuses,
                      cudaStream_t stream);
};

/* False: `why` says what is missing. XORCAST_NVCOMP may name the file. */
static bool load_nvcomp(nvcomp_lz4 *n, char *why, size_t room) {
    const char *const named = getenv("XORCAST_NVCOMP");
    const char *const path = named != NULL ? named : "libnvcomp.so.6";
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return snprintf(why, room, "%s", dlerror()), false;
    const struct {
        const char *name;
        void *place;
    } functions[] = {
        {"nvcompGetProperties", &n->properties},
        {"nvcompBatchedLZ4CompressGetTempSize", &n->compress_temp},
        {"nvcompBatchedLZ4CompressGetMaxOutputChunkSize", &n->compress_bound},
        {"nvcompBatchedLZ4CompressAsync", &n->compress},
        {"nvcompBatchedLZ4DecompressGetTempSize", &n->decompress_temp},
        {"nvcompBatchedLZ4DecompressAsync", &n->decompress},
    };
    for (const auto &function : functions) {
        void *const at = dlsym(library, function.name);
        if (at == NULL)
            return snprintf(why, room, "%s has no %s", path, function.name), false;
        memcpy(function.place, &at, sizeof at);
    }
    nvcomp_properties properties;
    if (n->properties(&properties) != 0 || properties.version / 1000 != 6)
        return snprintf(why, room, "%s is not version 6", path), false;
    return true;
}

#endif
