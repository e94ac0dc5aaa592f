/* Gap blocks on the stand-in device: the CPU's decoder, in the shape of the kernels. */
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/bytes.h"
#include "codec/gap_group.h"
#include "support/fake_inside.h"

/* The record's parameters; free(3). NULL: they are damaged. */
static xci_gap_group *group_of(const xci_cuda_gap_call *call, const xci_cuda_gap_record *record) {
    xci_gap_group *group = calloc(1, sizeof *group);
    const uint8_t *params = fake_real(record->params, record->params_bytes);
    if (params[0] > call->most_tables && params[0] <= XCI_GAP_TABLES)
        fake_stop("more tables than were announced");
    if (record->params_bytes > call->most_params)
        fake_stop("longer parameters than were announced");
    memset(group->is_gap, 1, record->gap_count);
    if (xci_gap_group_read(group, params, record->params_bytes, record->gap_count))
        return group;
    free(group);
    return NULL;
}

/* Decodes a block to a mask; a status. */
static int32_t decode(const xci_cuda_gap_call *call, const xci_gap_group *group,
                      const xci_cuda_gap_block *block, const uint8_t *old, uint8_t *mask,
                      uint32_t bytes) {
    if (group == NULL || group->places[block->ordinal].chunk_bytes != bytes)
        return XORCAST_DATA_CORRUPT;
    uint8_t *direct =
        *(uint8_t *const *)fake_real(&call->places.direct[block->chunk], sizeof(uint8_t *));
    if (xci_gap_knows_old(group, block->ordinal) && (call->beside == 0 || direct == NULL))
        return XORCAST_UNSUPPORTED;
    return xci_gap_decode(group, block->ordinal, fake_real(block->bytes, block->block_bytes),
                          block->block_bytes, old, mask)
               ? XORCAST_OK
               : XORCAST_DATA_CORRUPT;
}

/* What applying the mask would come to, and the form that it takes. */
static xci_cuda_result result_of(const xci_cuda_gap_call *call, const xci_cuda_gap_block *block,
                                 const uint8_t *mask, uint8_t *old, int32_t status) {
    const xci_cuda_chunk about = fake_chunk_of(&call->grid, block->chunk);
    xci_segment *segments = fake_segments_of(&call->grid, &about);
    xci_block_job job = {.block = mask,
                         .block_bytes = about.bytes,
                         .block_codec = XORCAST_CODEC_RAW,
                         .bytes = about.bytes,
                         .segments = segments,
                         .segment_count = about.segment_count,
                         .element_bytes = about.element_bytes,
                         .weights = old};
    xci_cuda_result result = {.status = status, .block_codec = XCI_CUDA_CODEC_LIST};
    if (status == XORCAST_OK) {
        xci_backend_cpu.check(&job, 1);
        const bool raw = job.bytes_changed != 0 && 4 * job.bytes_changed >= about.bytes;
        result = (xci_cuda_result){.bytes_changed = job.bytes_changed,
                                   .elements_changed = job.elements_changed,
                                   .bits_changed = job.bits_changed,
                                   .change = job.change,
                                   .block_codec = raw ? XORCAST_CODEC_RAW : XCI_CUDA_CODEC_LIST,
                                   .list_bytes = raw ? about.bytes : 4 * job.bytes_changed};
        result.block_bytes = result.list_bytes;
    }
    free(segments);
    return result;
}

static void write_form(const xci_cuda_gap_block *block, const xci_cuda_result *result,
                       const uint8_t *mask, uint32_t bytes) {
    if (result->status != XORCAST_OK || result->list_bytes == 0)
        return;
    if ((uintptr_t)block->ready % 16 != 0)
        fake_stop("a form that is not 16-byte aligned");
    uint8_t *at = fake_real(block->ready, xci_round_up(result->list_bytes, 16));
    if (result->block_codec == XORCAST_CODEC_RAW) {
        memcpy(at, mask, bytes);
        return;
    }
    for (uint32_t i = 0; i < bytes; i++) {
        if (mask[i] == 0)
            continue;
        xci_store32(at, i << 8 | mask[i]);
        at += 4;
    }
}

static void work_on_block(const xci_cuda_gap_call *call, const xci_gap_group *group,
                          const xci_cuda_gap_block *block, xci_cuda_result *result, bool writes) {
    const uint32_t bytes = fake_chunk_of(&call->grid, block->chunk).bytes;
    uint8_t *old = calloc(1, bytes), *mask = calloc(1, bytes);
    fake_read_chunk(&call->places, block->chunk, bytes, old);
    const int32_t status = decode(call, group, block, old, mask, bytes);
    if (writes)
        write_form(block, result, mask, bytes);
    else
        *result = result_of(call, block, mask, old, status);
    free(old);
    free(mask);
}

static void work_on_records(const xci_cuda_gap_call *call, bool writes) {
    for (uint64_t r = 0; r < call->record_count; r++) {
        const xci_cuda_gap_record *record = fake_real(&call->records[r], sizeof *record);
        xci_gap_group *group = group_of(call, record);
        const xci_cuda_gap_block *blocks =
            fake_real(&call->blocks[record->first], record->count * sizeof *blocks);
        xci_cuda_result *results =
            fake_real(&call->results[record->first], record->count * sizeof *results);
        for (uint32_t i = 0; i < record->count; i++)
            work_on_block(call, group, &blocks[i], &results[i], writes);
        free(group);
    }
}

static int run_check(fake_work *work) {
    work_on_records(&work->call.gap, false);
    return 0;
}

static int run_ready(fake_work *work) {
    work_on_records(&work->call.gap, true);
    return 0;
}

int fake_gap_check(void *device, const xci_cuda_gap_call *call, void *stream) {
    const fake_work work = {.run = run_check, .call.gap = *call};
    return fake_put(device, stream, &work);
}

int fake_gap_ready(void *device, const xci_cuda_gap_call *call, void *stream) {
    const fake_work work = {.run = run_ready, .call.gap = *call};
    return fake_put(device, stream, &work);
}
