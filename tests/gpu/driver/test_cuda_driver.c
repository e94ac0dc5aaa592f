/* How the CUDA backend speaks to the driver's Decompression Engine (backend/cuda/cuda_engine.c),
 * against a stand-in for the calls of driver and runtime: attributes by version of the driver,
 * memory of a pool with the flag for the engine, and a batch that liblz4 decodes once all
 * that a driver may ask for is right. Needs the headers of the toolkit, and no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cuda.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_engine.h"

/* ---- The driver ---- */

#define MOST UINT64_C(65536)
#define REGIONS 8

static struct {
    int mask, length;
    cudaError_t attribute_error;
    unsigned attributes_read;
    bool no_calls; /* of an older driver */
    bool no_memory;
    int64_t short_job, bad_job; /* one comes back short; one is refused; negative: none */
    unsigned batches;
} driver;

/* Pieces of pools that were made for the engine, or not. */
static struct {
    uint8_t *at;
    uint64_t bytes;
    bool for_engine;
} regions[REGIONS];
static unsigned region_count;

static void driver_of(int mask, int length) {
    memset(&driver, 0, sizeof driver);
    driver.mask = mask;
    driver.length = length;
    driver.short_job = driver.bad_job = -1;
}

static bool reaches(CUdeviceptr address, uint64_t bytes) {
    for (unsigned i = 0; i < region_count; i++)
        if (address >= (uintptr_t)regions[i].at &&
            address + bytes <= (uintptr_t)regions[i].at + regions[i].bytes)
            return regions[i].for_engine;
    return false;
}

static CUresult CUDAAPI pointer_attribute(void *value, CUpointer_attribute attribute,
                                          CUdeviceptr address) {
    assert_int_equal(attribute, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE);
    *(int *)value = reaches(address, 1);
    return CUDA_SUCCESS;
}

static bool good(const CUmemDecompressParams *job) {
    static const unsigned char zeros[sizeof job->padding];
    return (job->algo & (job->algo - 1)) == 0 && ((int)job->algo & driver.mask) != 0 &&
           job->srcNumBytes <= (uint64_t)driver.length &&
           job->dstNumBytes <= (uint64_t)driver.length &&
           memcmp(job->padding, zeros, sizeof zeros) == 0 &&
           (uintptr_t)job->dstActBytes % sizeof(cuuint32_t) == 0 &&
           reaches((CUdeviceptr)(uintptr_t)job->src, job->srcNumBytes) &&
           reaches((CUdeviceptr)(uintptr_t)job->dst, job->dstNumBytes) &&
           reaches((CUdeviceptr)(uintptr_t)job->dstActBytes, sizeof(cuuint32_t));
}

static CUresult CUDAAPI batch_decompress(CUmemDecompressParams *jobs, size_t count, unsigned flags,
                                         size_t *bad, CUstream stream) {
    (void)stream;
    if (driver.mask == 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    driver.batches++;
    for (size_t i = 0; i < count; i++)
        if (flags != 0 || !good(&jobs[i]) || driver.bad_job == (int64_t)i) {
            *bad = i;
            return CUDA_ERROR_INVALID_VALUE;
        }
    for (size_t i = 0; i < count; i++) {
        const int made = LZ4_decompress_safe(jobs[i].src, jobs[i].dst, (int)jobs[i].srcNumBytes,
                                             (int)jobs[i].dstNumBytes);
        assert_true(made > 0);
        *jobs[i].dstActBytes = (cuuint32_t)(driver.short_job == (int64_t)i ? made / 2 : made);
    }
    return CUDA_SUCCESS;
}

/* ---- The runtime ---- */

cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(
    const char *symbol, void **call, unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *found) {
    CUresult(CUDAAPI * batch)(CUmemDecompressParams *, size_t, unsigned, size_t *, CUstream) =
        batch_decompress;
    CUresult(CUDAAPI * attribute)(void *, CUpointer_attribute, CUdeviceptr) = pointer_attribute;
    assert_int_equal(flags, cudaEnableDefault);
    *found = driver.no_calls ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
    if (driver.no_calls)
        *call = NULL;
    else if (strcmp(symbol, "cuMemBatchDecompressAsync") == 0 && version >= 12060)
        memcpy(call, &batch, sizeof batch);
    else if (strcmp(symbol, "cuPointerGetAttribute") == 0)
        memcpy(call, &attribute, sizeof attribute);
    else
        fail_msg("the driver has no %s of %u", symbol, version);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGetLastError(void) {
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute,
                                             int device) {
    assert_int_equal(device, 3);
    driver.attributes_read++;
    if (driver.attribute_error != cudaSuccess)
        return driver.attribute_error;
    if (attribute == (enum cudaDeviceAttr)CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK)
        *value = driver.mask;
    else if (attribute == (enum cudaDeviceAttr)CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH)
        *value = driver.length;
    else
        fail_msg("attribute %d", (int)attribute);
    return cudaSuccess;
}

static uint8_t pools[2]; /* addresses only: of the usual kind, and for the engine */

cudaError_t CUDARTAPI cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props) {
    const bool wanted = (props->usage & cudaMemPoolCreateUsageHwDecompress) != 0 &&
                        props->allocType == cudaMemAllocationTypePinned &&
                        props->location.type == cudaMemLocationTypeDevice &&
                        props->location.id == 3;
    *pool = (cudaMemPool_t)(void *)&pools[wanted];
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMallocFromPoolAsync(void **memory, size_t bytes, cudaMemPool_t pool,
                                              cudaStream_t stream) {
    (void)stream;
    if (driver.no_memory)
        return cudaErrorMemoryAllocation;
    assert_true(region_count < REGIONS);
    *memory = calloc(1, bytes);
    assert_non_null(*memory);
    regions[region_count].at = *memory;
    regions[region_count].bytes = bytes;
    regions[region_count++].for_engine = (void *)pool == (void *)&pools[1];
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}

/* ---- Cases ---- */

static int no_memory_is_left(void **state) {
    (void)state;
    while (region_count > 0)
        free(regions[--region_count].at);
    return 0;
}

/* A driver without the calls; first, since they are looked for once. */
static void test_finds_calls(void **state) {
    (void)state;
    void *call = &call;
    driver_of(4, (int)MOST);
    driver.no_calls = true;
    assert_int_equal(xci_cuda_find_call("cuMemBatchDecompressAsync", 12060, &call),
                     cudaErrorInsufficientDriver);
    assert_ptr_equal(call, &call);
    driver.no_calls = false;
    assert_int_equal(xci_cuda_find_call("cuMemBatchDecompressAsync", 12060, &call), cudaSuccess);
    assert_ptr_not_equal(call, &call);
}

static void describe(uint32_t driver_version, uint32_t mask, uint64_t length, cudaError_t error) {
    xci_device_about about = {.driver_version = driver_version};
    assert_int_equal(xci_cuda_engine_describe(3, &about), error);
    assert_int_equal(about.decompress_mask, mask);
    assert_int_equal(about.decompress_max_bytes, length);
}

static void test_describes(void **state) {
    (void)state;
    driver_of(4, 4 << 20);
    describe(12080, 4, 4 << 20, cudaSuccess);
    assert_int_equal(driver.attributes_read, 2);
    describe(12079, 0, 0, cudaSuccess); /* is not asked at all */
    assert_int_equal(driver.attributes_read, 2);
    driver_of(0, 4 << 20); /* an H200 */
    describe(13000, 0, 0, cudaSuccess);
    driver_of(4, 4 << 20);
    driver.attribute_error = cudaErrorInvalidValue;
    describe(13000, 0, 0, cudaSuccess);
    driver.attribute_error = cudaErrorUnknown;
    describe(13000, 0, 0, cudaErrorUnknown);
}

static void test_memory_is_for_the_engine(void **state) {
    (void)state;
    cudaMemPool_t pool = NULL;
    void *first, *second, *plain;
    bool reached = false;
    driver_of(4, (int)MOST);
    assert_int_equal(xci_cuda_engine_allocate(&pool, 3, NULL, 4096, &first), cudaSuccess);
    const cudaMemPool_t made = pool;
    assert_int_equal(xci_cuda_engine_allocate(&pool, 3, NULL, 4096, &second), cudaSuccess);
    assert_ptr_equal(pool, made);
    assert_int_equal(xci_cuda_engine_reaches(first, &reached), cudaSuccess);
    assert_true(reached);
    assert_int_equal(cudaMallocFromPoolAsync(&plain, 4096, NULL, NULL), cudaSuccess);
    assert_int_equal(xci_cuda_engine_reaches(plain, &reached), cudaSuccess);
    assert_false(reached);
    driver.no_memory = true;
    assert_int_equal(xci_cuda_engine_allocate(&pool, 3, NULL, 4096, &second),
                     cudaErrorMemoryAllocation);
}

#define JOBS 3u
#define ROOM 4096u

/* Jobs over one piece of memory: masks, blocks, and what was written. */
static uint8_t *make_jobs(xci_decompress_job *jobs, const uint8_t *mask) {
    cudaMemPool_t pool = NULL;
    void *memory;
    assert_int_equal(xci_cuda_engine_allocate(&pool, 3, NULL, JOBS * (MOST + ROOM + 8), &memory),
                     cudaSuccess);
    uint8_t *at = memory;
    for (uint32_t i = 0; i < JOBS; i++) {
        uint8_t *block = at + JOBS * MOST + i * ROOM;
        const int bytes =
            LZ4_compress_default((const char *)mask, (char *)block, (int)MOST, (int)ROOM);
        assert_true(bytes > 0);
        jobs[i] = (xci_decompress_job){.block_bytes = (uint64_t)bytes,
                                       .mask_bytes = MOST,
                                       .actual_bytes =
                                           (uint32_t *)(void *)(at + JOBS * (MOST + ROOM) + i * 8),
                                       .block = block,
                                       .mask = at + i * MOST,
                                       .algorithm = XCI_DECOMPRESS_LZ4};
    }
    return at;
}

static void test_decompresses(void **state) {
    (void)state;
    static uint8_t mask[MOST];
    xci_decompress_job jobs[JOBS];
    uint64_t bad = 77;
    mask[5] = mask[60000] = 9;
    driver_of(4, (int)MOST);
    make_jobs(jobs, mask);
    assert_int_equal(xci_cuda_engine_decompress(jobs, JOBS, &bad, NULL), cudaSuccess);
    assert_int_equal(bad, 77);
    for (uint32_t i = 0; i < JOBS; i++) {
        assert_memory_equal(jobs[i].mask, mask, MOST);
        assert_int_equal(*jobs[i].actual_bytes, MOST);
    }
    driver.short_job = 1; /* the caller sees it from the count */
    assert_int_equal(xci_cuda_engine_decompress(jobs, JOBS, &bad, NULL), cudaSuccess);
    assert_int_equal(*jobs[1].actual_bytes, MOST / 2);
    driver.bad_job = 2;
    assert_int_equal(xci_cuda_engine_decompress(jobs, JOBS, &bad, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(bad, 2);
    bad = 77;
    driver.mask = 0; /* an H200: the index stays as it was */
    assert_int_equal(xci_cuda_engine_decompress(jobs, JOBS, &bad, NULL), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(bad, 77);
    assert_int_equal(driver.batches, 3);
}

/* What the driver refuses comes back with the job that was wrong. */
static void test_refusals(void **state) {
    (void)state;
    static uint8_t mask[MOST], elsewhere[MOST];
    xci_decompress_job jobs[JOBS];
    driver_of(4, (int)MOST);
    make_jobs(jobs, mask);
    const xci_decompress_job kept = jobs[1];
#define REFUSED(field, value)                                                                      \
    do {                                                                                           \
        uint64_t bad = 77;                                                                         \
        jobs[1].field = value;                                                                     \
        assert_int_equal(xci_cuda_engine_decompress(jobs, JOBS, &bad, NULL),                       \
                         CUDA_ERROR_INVALID_VALUE);                                                \
        assert_int_equal(bad, 1);                                                                  \
        jobs[1] = kept;                                                                            \
    } while (0)
    REFUSED(zero[0], 1);
    REFUSED(zero[19], 1);
    REFUSED(algorithm, 1);
    REFUSED(block_bytes, MOST + 1);
    REFUSED(mask_bytes, MOST + 1);
    REFUSED(block, elsewhere);
    REFUSED(mask, elsewhere);
    REFUSED(actual_bytes, (uint32_t *)(void *)elsewhere);
#undef REFUSED
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_calls),
        cmocka_unit_test(test_describes),
        cmocka_unit_test_teardown(test_memory_is_for_the_engine, no_memory_is_left),
        cmocka_unit_test_teardown(test_decompresses, no_memory_is_left),
        cmocka_unit_test_teardown(test_refusals, no_memory_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
