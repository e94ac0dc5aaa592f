/* Puts a kernel with one argument on a stream: the one place that knows how. Gives the launch's own
 * error and leaves earlier ones of the process, which are not ours, where they are. */
#ifndef XCI_CUDA_LAUNCH_CUH
#define XCI_CUDA_LAUNCH_CUH

#include <stdint.h>

/* A thread block for each `per_block` pieces of work; none for no work. */
template <typename Call>
static int d_launch(void (*kernel)(Call), const Call &call, uint64_t count, uint32_t per_block,
                    uint32_t threads, void *stream, uint32_t shared_bytes = 0) {
    if (count == 0)
        return cudaSuccess;
    const uint64_t blocks = (count + per_block - 1) / per_block;
    if (blocks > INT32_MAX)
        return cudaErrorInvalidConfiguration;
    Call argument = call;
    void *arguments[] = {&argument};
    return cudaLaunchKernel(kernel, dim3((unsigned)blocks), dim3(threads), arguments, shared_bytes,
                            (cudaStream_t)stream);
}

#endif
