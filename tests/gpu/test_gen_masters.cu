/* Weights from FP32 masters that a GPU grows (bench/cuda/masters.cuh) are those that the host does:
 * every tensor of plans in all formats, any range, behind 4 GiB too. A program of its own; exit
 * status 0: all good, 77: there is no GPU. */
#include "cuda/masters.cuh"

#include <stdio.h>

#include "gpu/gpu_memory.cuh"

static unsigned failures;
static uint64_t compared;

/* A range, with room around it that must stay. */
static void compare(const gen_run *run, const gen_tensor *tensor, uint64_t step, uint64_t offset,
                    uint64_t count) {
    const uint64_t room = 64;
    uint8_t *memory;
    std::vector<uint8_t> want(count + 2 * room, 0xC5), got(count + 2 * room);
    gen_run_bytes(run, tensor, step, offset, want.data() + room, count);
    CUDA(cudaMalloc((void **)&memory, got.size()));
    CUDA(cudaMemset(memory, 0xC5, got.size()));
    CUDA(masters_grow(run, tensor, step, offset, memory + room, count));
    CUDA(cudaMemcpy(got.data(), memory, got.size(), cudaMemcpyDeviceToHost));
    CUDA(cudaFree(memory));
    compared += count;
    if (got == want)
        return;
    failures++;
    const size_t at =
        (size_t)(std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin());
    printf("FAILED: %s at step %llu, byte %lld of %llu from %llu on\n", tensor->name,
           (unsigned long long)step, (long long)at - (long long)room, (unsigned long long)count,
           (unsigned long long)offset);
}

static void compare_plan(gen_kind experts, bool heavy, bool power_of_two, uint64_t step) {
    gen_plan plan = {};
    if (gen_plan_model(&plan, experts, 1500000) != 0 || gen_plan_add_extras(&plan) != 0) {
        failures++;
        return;
    }
    gen_run run = {};
    run.plan = &plan;
    run.seed = 5 + step;
    run.masters = true;
    run.heavy = heavy;
    run.power_of_two = power_of_two;
    run.learning_rate = 1e-6;
    for (uint64_t i = 0; i < plan.count; ++i) {
        const gen_tensor *tensor = &plan.tensors[i];
        const uint64_t from = tensor->bytes / 3 / 8 * 8;
        compare(&run, tensor, step, 0, tensor->bytes);
        compare(&run, tensor, step, from, std::min<uint64_t>(tensor->bytes - from, 1009));
    }
    gen_plan_free(&plan);
}

/* Far into a tensor that no memory here has to hold. */
static void compare_far(gen_kind kind) {
    gen_plan plan = {};
    if (gen_plan_add(&plan, kind, 0.1, 2, 2000003, 8192, "far") != 0) {
        failures++;
        return;
    }
    plan.tensors[0].block = kind == GEN_BF16 ? 0 : 64;
    gen_run run = {};
    run.plan = &plan;
    run.seed = 3;
    run.masters = true;
    run.learning_rate = 1e-6;
    compare(&run, &plan.tensors[0], 2, (UINT64_C(5) << 30) + 8, 300001);
    compare(&run, &plan.tensors[0], 2, plan.tensors[0].bytes / 8 * 8 - 8000, 8000);
    gen_plan_free(&plan);
}

int main() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        printf("there is no GPU\n");
        return 77;
    }
    static const gen_kind kinds[] = {GEN_BF16, GEN_FP8, GEN_NVFP4};
    for (gen_kind kind : kinds) {
        for (uint64_t step : {0, 1, 2, 17})
            compare_plan(kind, step == 2, step != 1, step);
        compare_far(kind);
    }
    printf("test_gen_masters: %llu bytes, %u failures\n", (unsigned long long)compared, failures);
    return failures == 0 ? 0 : 1;
}
