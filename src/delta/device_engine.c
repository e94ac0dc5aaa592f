/* The Decompression Engine beside the kernels: see device_engine.h.
 *
 *     window:  masks of chunk_bytes | slack | decoded bytes: 8 each, of which it writes 4
 */
#include "delta/device_engine.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "codec/lz4_block.h"

#define WINDOW_BYTES (UINT64_C(32) << 20) /* of masks */
#define DECODED_STEP UINT64_C(8)
#define SAMPLES 2u /* of each way, before one is chosen */
/* Of masks: smaller batches are all start-up. */
#define SAMPLE_BYTES (UINT64_C(8) << 20)

/* ---- Opening and closing ---- */

static uint64_t mask_room(const xci_device_engine *engine) {
    return engine->bundle->layout.chunk_bytes;
}

void xci_engine_open(xci_device_engine *engine, const xorcast_bundle *bundle) {
    xorcast_context *context = bundle->context;
    const xci_device *device = context->shared->device;
    const uint32_t use = context->shared->options.engine;
    char *why = engine->decoding.why;
    *engine = (xci_device_engine){.context = context, .bundle = bundle};
    if (use == XORCAST_ENGINE_NEVER) {
        snprintf(why, sizeof engine->decoding.why, "kernels: the engine was not to be used");
        return;
    }
    char words[96];
    engine->able = xci_engine_words(&device->about, words, sizeof words);
    engine->max_bytes = device->about.decompress_max_bytes;
    engine->mask_count =
        xci_min(xci_max(WINDOW_BYTES / mask_room(engine), 1), bundle->layout.chunk_count);
    snprintf(why, sizeof engine->decoding.why, "%s: %s",
             !engine->able                  ? "kernels, no engine"
             : use == XORCAST_ENGINE_ALWAYS ? "engine, as was asked for"
                                            : "kernels, nothing large was measured yet",
             words);
}

void xci_engine_close(xci_device_engine *engine) {
    if (engine->context == NULL)
        return;
    xci_device_release(engine->context, &engine->window);
    *engine = (xci_device_engine){0};
}

void xci_engine_batch_close(xci_device_engine *engine, xci_engine_batch *batch) {
    xorcast_context *context = engine->context;
    if (context == NULL)
        return;
    xci_event_close(context, &batch->begun);
    xci_event_close(context, &batch->ended);
    xci_release(context, batch->forms);
    xci_release(context, batch->jobs);
    *batch = (xci_engine_batch){0};
}

void xci_engine_reset(xci_device_engine *engine) {
    engine->decoding.engine_chunks = engine->decoding.kernel_chunks = 0;
}

static uint64_t per_second(const xci_engine_pace *pace) {
    return (uint64_t)(pace->bytes_per_ns * 1e9);
}

const xorcast_decoding *xci_engine_decoding(xci_device_engine *engine) {
    engine->decoding.engine_bytes_per_second = per_second(&engine->engine_pace);
    engine->decoding.kernel_bytes_per_second = per_second(&engine->kernel_pace);
    return &engine->decoding;
}

/* ---- Choosing ---- */

/* From here on everything is the kernels'. */
static void give_up(xci_device_engine *engine, const char *what) {
    engine->able = false;
    snprintf(engine->decoding.why, sizeof engine->decoding.why, "kernels, engine given up: %s",
             what);
    xci_log(engine->context, XORCAST_LOG_WARNING, "%s", engine->decoding.why);
}

static bool measuring(const xci_device_engine *engine) {
    return engine->able && engine->context->shared->options.engine == XORCAST_ENGINE_MEASURED;
}

/* Kernels are measured first: nothing is lost if no batch is ever large enough. */
static bool engine_is_next(const xci_device_engine *engine) {
    if (!measuring(engine))
        return engine->able;
    if (engine->kernel_pace.samples < SAMPLES || engine->engine_pace.samples < SAMPLES)
        return engine->kernel_pace.samples >= SAMPLES;
    return engine->engine_pace.bytes_per_ns > engine->kernel_pace.bytes_per_ns;
}

static void say_choice(xci_device_engine *engine) {
    if (engine->kernel_pace.samples < SAMPLES || engine->engine_pace.samples < SAMPLES)
        return;
    snprintf(engine->decoding.why, sizeof engine->decoding.why,
             "%s, by measurement: engine %.1f, kernels %.1f GB of weights a second",
             engine_is_next(engine) ? "engine" : "kernels", engine->engine_pace.bytes_per_ns,
             engine->kernel_pace.bytes_per_ns);
    xci_log(engine->context, XORCAST_LOG_INFO, "decoding by %s", engine->decoding.why);
}

/* Memory for the engine, once it is to be used; without it the kernels go on. */
static void open_window(xci_device_engine *engine) {
    const xci_device *device = engine->context->shared->device;
    const uint64_t bytes =
        (engine->mask_count + 1) * mask_room(engine) + engine->mask_count * DECODED_STEP;
    bool reaches = false;
    if (engine->window.at != NULL)
        return;
    if (xci_engine_allocate(engine->context, bytes, &engine->window) < 0)
        give_up(engine, "no memory for its window");
    else if (device->ops->engine_reaches(device->handle, engine->window.at, &reaches) != 0 ||
             !reaches)
        give_up(engine, "it does not reach the memory that was made for it");
}

static xorcast_status reserve(xci_device_engine *engine, xci_engine_batch *batch, uint64_t blocks) {
    xorcast_context *context = engine->context;
    const xci_device *device = context->shared->device;
    void *memory;
    if (batch->begun == NULL)
        XCI_DEVICE(context, "make an event",
                   device->ops->event_open(device->handle, &batch->begun));
    if (batch->ended == NULL)
        XCI_DEVICE(context, "make an event",
                   device->ops->event_open(device->handle, &batch->ended));
    if (blocks <= batch->room)
        return XORCAST_OK;
    xci_release(context, batch->forms);
    xci_release(context, batch->jobs);
    batch->forms = NULL;
    batch->jobs = NULL;
    batch->room = 0;
    TRY(xci_allocate(context, blocks, &memory));
    batch->forms = memory;
    TRY(xci_allocate_array(context, blocks, sizeof(xci_decompress_job), &memory));
    batch->jobs = memory;
    batch->room = blocks;
    return XORCAST_OK;
}

xorcast_status xci_engine_begin(xci_device_engine *engine, xci_engine_batch *batch,
                                uint64_t blocks) {
    batch->wanted = false;
    batch->decoded = batch->mask_bytes = 0;
    if (!engine->able)
        return XORCAST_OK;
    TRY(reserve(engine, batch, blocks));
    if (engine_is_next(engine))
        open_window(engine);
    batch->wanted = engine->able && engine_is_next(engine);
    memset(batch->forms, XCI_FORM_OTHER, batch->room); /* what nobody looks at */
    return XORCAST_OK;
}

/* ---- Before the engine ---- */

xci_block_form xci_engine_form(const xci_device_engine *engine, const xci_engine_batch *batch,
                               uint32_t codec, const uint8_t *block, uint32_t block_bytes,
                               uint32_t bytes) {
    bool zeros = true;
    if (!batch->wanted || codec != XORCAST_CODEC_LZ4 || block_bytes > engine->max_bytes ||
        bytes > engine->max_bytes)
        return XCI_FORM_OTHER;
    xci_lz4_walk walk = xci_lz4_begin(block, block_bytes, bytes);
    xci_lz4_sequence sequence;
    while (xci_lz4_next(&walk, &sequence))
        zeros = zeros && xci_lz4_repeats_zero(&sequence);
    if (walk.state != XCI_LZ4_DONE)
        return XCI_FORM_OTHER; /* kernels and host find out what is wrong with it */
    return zeros && block_bytes < bytes ? XCI_FORM_READY : XCI_FORM_FOREIGN;
}

void xci_engine_sort(const xci_device_engine *engine, xci_engine_batch *batch,
                     xci_cuda_block *table, uint64_t count) {
    if (!engine->able)
        return;
    for (uint64_t i = 0; i < count; i++)
        batch->mask_bytes += xci_bundle_chunk_bytes(engine->bundle, table[i].chunk);
    for (uint64_t i = 0; batch->wanted && i < count; i++) {
        const uint64_t to = batch->decoded;
        const xci_cuda_block block = table[i];
        const uint8_t form = batch->forms[i];
        if (form == XCI_FORM_OTHER)
            continue;
        table[i] = table[to];
        batch->forms[i] = batch->forms[to];
        table[to] = block;
        batch->forms[to] = form;
        batch->decoded++;
    }
}

/* ---- On the device ---- */

static uint32_t *decoded_at(const xci_device_engine *engine) {
    return (uint32_t *)(void *)(engine->window.at + (engine->mask_count + 1) * mask_room(engine));
}

static xci_cuda_block_call part_of(const xci_cuda_block_call *call, uint64_t first,
                                   uint64_t count) {
    xci_cuda_block_call part = *call;
    part.blocks += first;
    part.results += first;
    part.notes += first;
    part.count = count;
    return part;
}

static xorcast_status check_by_kernels(xci_device_engine *engine, const xci_cuda_block_call *call,
                                       uint64_t first, void *stream) {
    xorcast_context *context = engine->context;
    const xci_device *device = context->shared->device;
    const xci_cuda_block_call part = part_of(call, first, call->count - first);
    if (part.count == 0)
        return XORCAST_OK;
    XCI_DEVICE(context, "check blocks", device->ops->check(device->handle, &part, stream));
    return xci_device_result(context, device->ops->prepare(device->handle, &part, stream),
                             "prepare blocks");
}

/* One turn of the window: blocks [first, first + count). False: the engine did not take them, and
 * nothing of them is on the stream but zeros for what was decoded. */
static bool submit(xci_device_engine *engine, xci_engine_batch *batch, const xci_cuda_block *table,
                   uint64_t first, uint64_t count, void *stream) {
    const xci_device *device = engine->context->shared->device;
    xci_decompress_job *jobs = batch->jobs + first;
    uint64_t bad = UINT64_MAX;
    char what[96];
    for (uint64_t i = 0; i < count; i++)
        jobs[i] = (xci_decompress_job){
            .block_bytes = table[first + i].block_bytes,
            .mask_bytes = xci_bundle_chunk_bytes(engine->bundle, table[first + i].chunk),
            .actual_bytes = decoded_at(engine) + i * (DECODED_STEP / sizeof(uint32_t)),
            .block = table[first + i].bytes,
            .mask = engine->window.at + i * mask_room(engine),
            .algorithm = XCI_DECOMPRESS_LZ4};
    const int error = device->ops->decompress(device->handle, jobs, count, &bad, stream);
    if (error == 0)
        return true;
    snprintf(what, sizeof what, "the driver did not take a batch: %.40s (%d, item %lld)",
             device->ops->error_text(error), error, (long long)bad);
    give_up(engine, what);
    return false;
}

static xorcast_status turn(xci_device_engine *engine, xci_engine_batch *batch,
                           const xci_cuda_block_call *call, const xci_cuda_block *table,
                           uint64_t first, uint64_t count, void *stream) {
    xorcast_context *context = engine->context;
    const xci_device *device = context->shared->device;
    const xci_cuda_mask_call masks = {part_of(call, first, count), engine->window.at,
                                      mask_room(engine), decoded_at(engine)};
    XCI_DEVICE(
        context, "clear counts",
        device->ops->fill(device->handle, decoded_at(engine), 0, count * DECODED_STEP, stream));
    if (!submit(engine, batch, table, first, count, stream)) {
        batch->decoded = first; /* the rest is the kernels' */
        return XORCAST_OK;
    }
    return xci_device_result(context, device->ops->check_masks(device->handle, &masks, stream),
                             "check masks");
}

/* Blocks of a batch lie in one allocation. */
static bool reaches_blocks(xci_device_engine *engine, const xci_cuda_block *table) {
    const xci_device *device = engine->context->shared->device;
    bool reaches = false;
    if (device->ops->engine_reaches(device->handle, table[0].bytes, &reaches) == 0 && reaches)
        return true;
    give_up(engine, "it does not reach the blocks' memory");
    return false;
}

xorcast_status xci_engine_check(xci_device_engine *engine, xci_engine_batch *batch,
                                const xci_cuda_block_call *call, const xci_cuda_block *table,
                                void *stream) {
    xorcast_context *context = engine->context;
    const xci_device *device = context->shared->device;
    if (!engine->able || batch->begun == NULL) /* what the host made ready is the kernels' */
        return check_by_kernels(engine, call, 0, stream);
    if (batch->decoded > 0 && !reaches_blocks(engine, table))
        batch->decoded = 0;
    XCI_DEVICE(context, "mark a stream",
               device->ops->event_record(device->handle, batch->begun, stream));
    for (uint64_t first = 0; first < batch->decoded; first += engine->mask_count)
        TRY(turn(engine, batch, call, table, first,
                 xci_min(engine->mask_count, batch->decoded - first), stream));
    TRY(check_by_kernels(engine, call, batch->decoded, stream));
    return xci_device_result(
        context, device->ops->event_record(device->handle, batch->ended, stream), "mark a stream");
}

/* ---- After it ---- */

static xorcast_status measure(xci_device_engine *engine, const xci_engine_batch *batch,
                              uint64_t count) {
    xorcast_context *context = engine->context;
    const xci_device *device = context->shared->device;
    const bool by_engine = batch->decoded > 0;
    xci_engine_pace *pace = by_engine ? &engine->engine_pace : &engine->kernel_pace;
    double milliseconds;
    if (!measuring(engine) || batch->mask_bytes < SAMPLE_BYTES ||
        (by_engine && batch->decoded != count))
        return XORCAST_OK;
    XCI_DEVICE(
        context, "measure a batch",
        device->ops->event_elapsed(device->handle, batch->begun, batch->ended, &milliseconds));
    const double bytes_per_ns = (double)batch->mask_bytes / (milliseconds * 1e6 + 1);
    pace->bytes_per_ns = bytes_per_ns > pace->bytes_per_ns ? bytes_per_ns : pace->bytes_per_ns;
    if (++pace->samples == SAMPLES)
        say_choice(engine);
    return XORCAST_OK;
}

xorcast_status xci_engine_end(xci_device_engine *engine, xci_engine_batch *batch,
                              xci_cuda_result *results, uint64_t count) {
    uint64_t wrong = 0, good = 0;
    for (uint64_t i = 0; i < batch->decoded; i++) {
        wrong += results[i].status < 0; /* every length was known: the engine's fault */
        if (batch->forms[i] == XCI_FORM_FOREIGN && results[i].list_bytes == 0)
            results[i].status = XORCAST_DATA_CORRUPT;
        good += results[i].status >= 0;
    }
    engine->decoding.engine_chunks += good;
    engine->decoding.kernel_chunks += count - good;
    if (wrong > 0 && engine->able)
        give_up(engine, "it wrote less or more than a block holds");
    return engine->able ? measure(engine, batch, count) : XORCAST_OK;
}
