/* The steps of xorcast bench codecs in the memory of this machine's GPU: as many copies of the
 * tensors as give it enough to do, each with memory of its own. Owns the contexts there, and what a
 * step has there until it is closed. */
#include "cli_codecs.h"

#include <stdlib.h>
#include <string.h>

/* ---- The GPU ----------------------------------------------------------------------------------*/

static xorcast_status open_gpu(cli_codecs *codecs) {
    cli_codecs_gpu *gpu = &codecs->gpu;
    const cli_options *o = &codecs->session->options;
    CLI_TRY(xorcast_context_device(codecs->session->context, &gpu->device));
    CLI_TRY(xorcast_device_measure(codecs->session->context, &gpu->rates));
    CLI_TRY(cli_codecs_context(codecs, &gpu->trainer, gpu->device.backend, (uint32_t)o->threads));
    return cli_codecs_context(codecs, &gpu->sampler, gpu->device.backend, (uint32_t)o->threads);
}

xorcast_status cli_codecs_gpu_find(cli_codecs *codecs) {
    cli_codecs_gpu *gpu = &codecs->gpu;
    const char *backend = codecs->session->options.backend;
    if (backend != NULL && strcmp(backend, "cpu") == 0) {
        snprintf(gpu->why_not, sizeof gpu->why_not, "--backend cpu leaves it out");
        return XORCAST_OK;
    }
    const xorcast_status status = open_gpu(codecs);
    gpu->there = status == XORCAST_OK;
    if (status != XORCAST_UNSUPPORTED || backend != NULL)
        return status; /* a GPU that fails is not none */
    const xorcast_error error = cli_failure(codecs->session, status);
    snprintf(gpu->why_not, sizeof gpu->why_not, "%.*s", (int)sizeof gpu->why_not - 1, error.text);
    return XORCAST_OK;
}

void cli_codecs_gpu_leave(cli_codecs *codecs) {
    xorcast_context_destroy(codecs->gpu.sampler.context);
    xorcast_context_destroy(codecs->gpu.trainer.context);
}

/* As many as --bytes asks for, in an eighth of what is free: there are four of each tensor, the
 * publisher's among them, and the buffers of both sides. */
static void choose_copies(cli_codecs *codecs, const cli_codec_step *step) {
    const uint64_t most = codecs->gpu.device.free_bytes / 8,
                   wanted = codecs->session->options.gpu_bytes;
    const uint64_t bytes = wanted < most ? wanted : most, one = step->from.memory_bytes;
    codecs->gpu.copies = one == 0 || bytes < one ? 1 : bytes / one;
}

/* ---- Copies -----------------------------------------------------------------------------------*/

static xorcast_status copy_bytes(const cli_weights *to, uint64_t at, const void *from,
                                 uint64_t bytes) {
    if (bytes == 0)
        return XORCAST_OK;
    if (to->on_device)
        return xorcast_device_copy(to->context, (uint8_t *)to->memory + at, from, bytes);
    memcpy((uint8_t *)to->memory + at, from, bytes);
    return XORCAST_OK;
}

/* The first copy, and then what there is beside it. */
static xorcast_status fill(const cli_weights *stack, const cli_weights *like) {
    uint64_t filled = like->memory_bytes;
    CLI_TRY(copy_bytes(stack, 0, like->memory, filled));
    while (filled < stack->memory_bytes) {
        const uint64_t left = stack->memory_bytes - filled, bytes = left < filled ? left : filled;
        CLI_TRY(copy_bytes(stack, filled, stack->memory, bytes));
        filled += bytes;
    }
    return XORCAST_OK;
}

/* Tensor i of copy k stands at k * tensors + i. */
static xorcast_status add_tensors(const cli_weights *stack, const cli_weights *like,
                                  uint64_t copies) {
    const uint64_t count = like->layout.tensor_count;
    for (uint64_t i = 0; i < copies * count; i++) {
        xorcast_tensor tensor;
        char name[32];
        CLI_TRY(xorcast_bundle_describe(like->bundle, i % count, &tensor));
        snprintf(name, sizeof name, "%020llu", (unsigned long long)i);
        tensor.name = name;
        if (tensor.data != NULL)
            tensor.data = (uint8_t *)stack->memory + i / count * like->memory_bytes +
                          ((const uint8_t *)tensor.data - (const uint8_t *)like->memory);
        tensor.memory_kind = stack->on_device ? XORCAST_MEMORY_DEVICE : XORCAST_MEMORY_HOST;
        CLI_TRY(xorcast_bundle_add(stack->bundle, &tensor));
    }
    return XORCAST_OK;
}

static xorcast_status take_memory(cli_weights *stack) {
    if (!stack->on_device)
        stack->memory = cli_memory_take(stack->memory_bytes);
    else if (stack->memory_bytes > 0)
        return xorcast_device_allocate(stack->context, stack->memory_bytes, &stack->memory);
    return XORCAST_OK;
}

/* Copies of `like`. What it has when it fails is to be closed as well. */
static xorcast_status open_stack(cli_codecs *codecs, cli_session *side, const cli_weights *like,
                                 bool on_device, cli_weights *stack) {
    const uint64_t copies = codecs->gpu.copies;
    *stack = (cli_weights){.context = side->context,
                           .on_device = on_device,
                           .memory_bytes = copies * like->memory_bytes};
    CLI_TRY(take_memory(stack));
    if (!on_device && stack->memory == NULL)
        return cli_fail(codecs->session, XORCAST_NO_HOST_MEMORY, 0,
                        "no memory for %llu bytes of weights; try less with --bytes",
                        (unsigned long long)stack->memory_bytes);
    CLI_TRY(fill(stack, like));
    CLI_TRY(xorcast_bundle_create(side->context, NULL, &stack->bundle));
    CLI_TRY(add_tensors(stack, like, copies));
    return xorcast_bundle_seal(stack->bundle, &stack->layout);
}

/* ---- A step -----------------------------------------------------------------------------------*/

static xorcast_status list_data(cli_codecs *codecs, const cli_codec_step *step,
                                cli_codec_stacks *stacks) {
    const uint64_t count = codecs->gpu.copies * step->count;
    stacks->indices = calloc(count + 1, sizeof *stacks->indices);
    stacks->data = calloc(count + 1, sizeof *stacks->data);
    stacks->host_data = calloc(count + 1, sizeof *stacks->host_data);
    if (stacks->indices == NULL || stacks->data == NULL || stacks->host_data == NULL)
        return cli_fail(codecs->session, XORCAST_NO_HOST_MEMORY, 0, "no memory for a list");
    for (uint64_t i = 0; i < count; i++) {
        xorcast_tensor tensor;
        CLI_TRY(cli_codecs_must(codecs, &codecs->gpu.trainer,
                                xorcast_bundle_describe(stacks->to.bundle, i, &tensor)));
        stacks->indices[i] = i;
        stacks->data[i] = tensor.data;
        stacks->host_data[i] = step->data[i % step->count];
    }
    stacks->count = count;
    return XORCAST_OK;
}

xorcast_status cli_codecs_gpu_open(cli_codecs *codecs, cli_codec_step *step) {
    cli_session *trainer = &codecs->gpu.trainer, *sampler = &codecs->gpu.sampler;
    cli_codec_stacks *s = &step->gpu;
    if (!codecs->gpu.there)
        return XORCAST_OK;
    if (codecs->gpu.copies == 0)
        choose_copies(codecs, step);
    CLI_TRY(
        cli_codecs_must(codecs, trainer, open_stack(codecs, trainer, &step->from, true, &s->from)));
    CLI_TRY(cli_codecs_must(codecs, trainer, open_stack(codecs, trainer, &step->to, true, &s->to)));
    CLI_TRY(cli_codecs_must(codecs, sampler,
                            open_stack(codecs, sampler, &step->from, true, &s->weights)));
    codecs->weight_bytes[CLI_CODEC_GPU] += s->from.layout.total_bytes;
    return list_data(codecs, step, s);
}

void cli_codecs_gpu_close(cli_codec_step *step) {
    cli_codec_stacks *s = &step->gpu;
    cli_weights_close(&s->weights);
    cli_weights_close(&s->on_host);
    cli_weights_close(&s->to);
    cli_weights_close(&s->from);
    free(s->indices);
    free(s->data);
    free(s->host_data);
}

xorcast_status cli_codecs_gpu_pair(cli_codecs *codecs, cli_codec_step *step, bool encodes,
                                   cli_codec_pair *pair_out) {
    cli_session *trainer = &codecs->gpu.trainer;
    cli_codec_stacks *s = &step->gpu;
    if (!encodes && s->on_host.bundle == NULL)
        CLI_TRY(cli_codecs_must(codecs, trainer,
                                open_stack(codecs, trainer, &step->from, false, &s->on_host)));
    *pair_out = (cli_codec_pair){.place = CLI_CODEC_GPU,
                                 .encodes = encodes,
                                 .trainer = trainer,
                                 .sampler = &codecs->gpu.sampler,
                                 .from = encodes ? &s->from : &s->on_host,
                                 .weights = &s->weights,
                                 .count = s->count,
                                 .indices = s->indices,
                                 .data = encodes ? s->data : s->host_data};
    return XORCAST_OK;
}

/* ---- Checking ---------------------------------------------------------------------------------*/

/* Gaps between tensors are the same in all, so whole copies are compared. */
static xorcast_status compare_copies(cli_codecs *codecs, const cli_codec_step *step, bool back,
                                     const char *name, void *window) {
    const cli_weights *wanted = back ? &step->from : &step->to, *weights = &step->gpu.weights;
    const uint64_t bytes = wanted->memory_bytes;
    for (uint64_t i = 0; i < codecs->gpu.copies && bytes > 0; i++) {
        CLI_TRY(cli_codecs_must(codecs, &codecs->gpu.sampler,
                                xorcast_device_copy(weights->context, window,
                                                    (const uint8_t *)weights->memory + i * bytes,
                                                    bytes)));
        if (memcmp(window, wanted->memory, bytes) != 0)
            return cli_fail(codecs->session, XORCAST_WEIGHTS_WRONG, 0,
                            "%s does not lead to the %s weights on the GPU", name,
                            back ? "old" : "new");
    }
    return XORCAST_OK;
}

xorcast_status cli_codecs_gpu_check(cli_codecs *codecs, const cli_codec_step *step, bool back,
                                    const char *name) {
    const uint64_t bytes = step->from.memory_bytes;
    void *window = cli_memory_take(bytes);
    if (window == NULL)
        return cli_fail(codecs->session, XORCAST_NO_HOST_MEMORY, 0, "no memory to read back");
    const xorcast_status status = compare_copies(codecs, step, back, name, window);
    cli_memory_drop(window, bytes);
    return status;
}
