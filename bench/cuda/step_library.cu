/* The setting of the benchmarks as a shared library, for programs in other languages that bring
 * their own work to run beside it:
 *
 *     step_open: memory for the weights, in which 1 % of BF16 elements are about to change
 *     step_check, step_prepare, step_apply: on a stream; step_prepare once  */
#include "cuda/setting.cuh"

static step the_step;

extern "C" void step_open(uint8_t *weights, uint64_t bytes) {
    const mask_rule rule = {2, share_of(0.01), UINT32_MAX, 3};
    k_fill<<<132 * 16, 256>>>((uint64_t *)weights, bytes / 8);
    the_step = make_step(make_model("", weights, bytes, 64 << 10, {rule}, 0));
    CUDA(cudaDeviceSynchronize());
}

extern "C" int step_check(void *stream) {
    return xci_cuda_check(&the_step.call, stream);
}
extern "C" int step_prepare(void *stream) {
    return xci_cuda_prepare(&the_step.call, stream);
}
extern "C" int step_apply(void *stream) {
    return xci_cuda_apply(&the_step.call, stream);
}
