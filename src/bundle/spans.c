/* Spans, and reading and writing chunks through them. */
#include "bundle/spans.h"

#include <stdio.h>
#include <string.h>

#include "backend/device.h"
#include "base/bytes.h"
#include "base/open_files.h"

static void visit_rows(const xci_tensor *tensor, const xci_region *region, uint64_t offset,
                       uint64_t end, xci_span_visit visit, void *user) {
    const uint64_t row_bytes = tensor->row_bytes;
    const uint64_t row_first = xci_max(region->row, offset / row_bytes);
    const uint64_t row_end =
        xci_min(region->row + region->row_count, xci_divide_up(end, row_bytes));
    for (uint64_t row = row_first; row < row_end; row++) {
        const uint64_t row_at = row * row_bytes;
        const uint64_t begin = xci_max(offset, row_at + region->column);
        const uint64_t stop = xci_min(end, row_at + region->column + region->column_bytes);
        if (begin >= stop)
            continue;
        const xci_span span = {region, begin - offset, stop - begin,
                               (row - region->row) * region->pitch_bytes +
                                   (begin - row_at - region->column)};
        visit(user, &span);
    }
}

void xci_spans(const xci_tensor *tensor, uint64_t offset, uint64_t bytes, xci_span_visit visit,
               void *user) {
    const uint64_t end = offset + bytes;
    for (uint32_t i = 0; i < tensor->region_count; i++) {
        const xci_region *region = &tensor->regions[i];
        const bool rows_touch =
            region->column_bytes == tensor->row_bytes && region->pitch_bytes == tensor->row_bytes;
        if (!rows_touch) {
            visit_rows(tensor, region, offset, end, visit, user);
            continue;
        }
        const uint64_t from = region->row * tensor->row_bytes,
                       to = from + region->row_count * tensor->row_bytes;
        const uint64_t begin = xci_max(offset, from), stop = xci_min(end, to);
        if (begin < stop)
            visit(user, &(xci_span){region, begin - offset, stop - begin, begin - from});
    }
}

/* ---- Reading ---- */

typedef struct reading {
    xorcast_context *context;
    uint8_t *out;
    bool replicas; /* which boxes this pass reads */
    xorcast_status status;
} reading;

static xorcast_status fetch(xorcast_context *context, uint8_t *out, const uint8_t *from,
                            uint64_t bytes) {
    const xci_device *device = context->shared->device;
    return xci_device_result(context, device->ops->copy_now(device->handle, out, from, bytes),
                             "copy weights to the host");
}

static void read_span(void *user, const xci_span *span) {
    reading *r = user;
    const xci_region *region = span->region;
    uint8_t *out = r->out + span->offset;
    if (r->status < 0 || region->replica != r->replicas || region->kind == XCI_KIND_ZERO)
        return;
    if (region->kind == XCI_KIND_HOST)
        memcpy(out, region->data + span->at, span->bytes);
    else if (region->kind == XCI_KIND_DEVICE)
        r->status = fetch(r->context, out, region->data + span->at, span->bytes);
    else
        r->status =
            xci_file_read_at(r->context, region->file, region->offset + span->at, out, span->bytes);
}

xorcast_status xci_tensor_read(xorcast_bundle *bundle, uint64_t tensor, uint64_t offset,
                               uint64_t count, uint8_t *out) {
    const xci_tensor *t = &bundle->tensors[tensor];
    reading r = {bundle->context, out, false, XORCAST_OK};
    if (!t->simple || t->regions[0].kind == XCI_KIND_ZERO)
        memset(out, 0, count);
    if (!t->simple) { /* where boxes share bytes, those that count are read last and prevail */
        r.replicas = true;
        xci_spans(t, offset, count, read_span, &r);
        r.replicas = false;
    }
    xci_spans(t, offset, count, read_span, &r);
    return r.status;
}

uint8_t *xci_chunk_direct(const xorcast_bundle *bundle, const xci_chunk *chunk) {
    const xci_tensor *tensor = &bundle->tensors[chunk->tensor];
    if (bundle->on_device)
        return NULL;
    if (chunk->packed && bundle->packed_data != NULL)
        return bundle->packed_data +
               ((chunk->index - bundle->whole_chunk_count) << bundle->chunk_log2);
    if (chunk->packed || !tensor->simple || tensor->regions[0].kind != XCI_KIND_HOST)
        return NULL;
    return tensor->regions[0].data + chunk->offset;
}

xorcast_status xci_chunk_read(xorcast_bundle *bundle, const xci_chunk *chunk, uint8_t *scratch,
                              const uint8_t **bytes_out) {
    *bytes_out = xci_chunk_direct(bundle, chunk);
    if (*bytes_out != NULL)
        return XORCAST_OK;
    *bytes_out = scratch;
    if (!chunk->packed)
        return xci_tensor_read(bundle, chunk->tensor, chunk->offset, chunk->bytes, scratch);
    memset(scratch, 0, chunk->bytes);
    for (uint32_t i = 0; i < chunk->tensor_count; i++)
        TRY(xci_tensor_read(bundle, chunk->tensors[i], 0, chunk->places[i].bytes,
                            scratch + chunk->places[i].offset));
    return XORCAST_OK;
}

/* ---- Writing ---- */

static void write_span(void *user, const xci_span *span) {
    const uint8_t *bytes = user;
    memcpy(span->region->data + span->at, bytes + span->offset, span->bytes);
}

void xci_chunk_write(xorcast_bundle *bundle, const xci_chunk *chunk, const uint8_t *bytes) {
    if (!chunk->packed)
        xci_spans(&bundle->tensors[chunk->tensor], chunk->offset, chunk->bytes, write_span,
                  (void *)(uintptr_t)bytes);
    for (uint32_t i = 0; i < chunk->tensor_count; i++)
        xci_spans(&bundle->tensors[chunk->tensors[i]], 0, chunk->places[i].bytes, write_span,
                  (void *)(uintptr_t)(bytes + chunk->places[i].offset));
}

const char *xci_chunk_words(const xorcast_bundle *bundle, uint64_t chunk, char *text,
                            size_t text_bytes) {
    if (chunk >= bundle->layout.chunk_count)
        snprintf(text, text_bytes, "chunk %llu", (unsigned long long)chunk);
    else
        snprintf(text, text_bytes, "tensor %.200s%s, chunk %llu",
                 bundle->tensors[xci_bundle_tensor_of(bundle, chunk)].name,
                 chunk < bundle->whole_chunk_count ? "" : " and others", (unsigned long long)chunk);
    return text;
}
