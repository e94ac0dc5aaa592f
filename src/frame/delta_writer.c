/* Delta writer: see delta_writer.h. */
#include "frame/delta_writer.h"

#include <string.h>

void xci_delta_writer_begin(xci_delta_writer *writer, xorcast_context *context,
                            xci_part_deliver deliver, void *user) {
    *writer = (xci_delta_writer){.context = context, .deliver = deliver, .user = user};
}

void xci_delta_writer_end(xci_delta_writer *writer) {
    xci_release(writer->context, writer->open_part);
    xci_release(writer->context, writer->parts);
    writer->open_part = NULL;
    writer->parts = NULL;
}

xorcast_status xci_delta_writer_add_part(xci_delta_writer *writer, xci_blob *blob,
                                         const xci_part *part, uint64_t payload_bytes) {
    TRY(xci_grow(writer->context, &writer->parts, &writer->parts_capacity,
                 (writer->part_count + 1) * sizeof(xci_part)));
    writer->parts[writer->part_count] = *part;
    TRY(writer->deliver(writer->user, writer->part_count, blob));
    writer->part_count++;
    writer->group_count += part->group_count;
    writer->payload_bytes += payload_bytes;
    return XORCAST_OK;
}

static xorcast_status close_part(xci_delta_writer *writer) {
    if (writer->open_bytes == 0)
        return XORCAST_OK;
    const xci_part part = {writer->open_bytes, writer->open_groups,
                           xci_hash_of(writer->open_part, writer->open_bytes)};
    xci_blob *blob;
    TRY(xci_blob_adopt(writer->context, writer->open_part, writer->open_bytes, &blob));
    writer->open_part = NULL;
    writer->open_bytes = writer->open_capacity = writer->open_groups = 0;
    const xorcast_status status =
        xci_delta_writer_add_part(writer, blob, &part, writer->open_payload);
    writer->open_payload = 0;
    xci_blob_drop(blob);
    return status;
}

xorcast_status xci_delta_writer_add(xci_delta_writer *writer, const uint8_t *record,
                                    uint64_t record_bytes, uint64_t payload_bytes) {
    TRY(xci_grow(writer->context, &writer->open_part, &writer->open_capacity,
                 writer->open_bytes + record_bytes));
    memcpy(writer->open_part + writer->open_bytes, record, record_bytes);
    writer->open_bytes += record_bytes;
    writer->open_groups++;
    writer->open_payload += payload_bytes;
    return writer->open_bytes >= XCI_PART_BYTES ? close_part(writer) : XORCAST_OK;
}

xorcast_status xci_delta_writer_finish(xci_delta_writer *writer, xci_manifest *manifest,
                                       xci_blob **manifest_out) {
    TRY(close_part(writer));
    manifest->parts = writer->parts;
    manifest->info.format_version = XCI_FORMAT_VERSION;
    manifest->info.part_count = writer->part_count;
    manifest->info.group_count = writer->group_count;
    manifest->info.payload_bytes = writer->payload_bytes;
    uint8_t *bytes;
    uint64_t count;
    TRY(xci_manifest_write(writer->context, manifest, &bytes, &count));
    const xorcast_status status = xci_blob_adopt(writer->context, bytes, count, manifest_out);
    if (status < 0) {
        xci_release(writer->context, bytes);
        return status;
    }
    manifest->info.delta_bytes = XCI_HEAD_BYTES + count;
    for (uint64_t p = 0; p < writer->part_count; p++)
        manifest->info.delta_bytes += writer->parts[p].bytes;
    return XORCAST_OK;
}

/* ---- Over a sink ---- */

static xorcast_status put_out(xci_sink_writer *writer, const void *bytes, uint64_t count) {
    const int error = writer->sink->write(writer->sink->user, bytes, count);
    const xci_place place = {XORCAST_NO_INDEX, XORCAST_NO_INDEX, error};
    if (error != 0)
        FAIL_AT(writer->writer.context, XORCAST_IO_FAILED, place,
                "the delta could not be written: %s", strerror(error));
    return XORCAST_OK;
}

static xorcast_status put_part(void *user, uint64_t index, xci_blob *part) {
    (void)index;
    return put_out(user, part->bytes, part->size);
}

xorcast_status xci_sink_writer_begin(xci_sink_writer *writer, xorcast_context *context,
                                     const xorcast_sink *sink) {
    writer->sink = sink;
    xci_delta_writer_begin(&writer->writer, context, put_part, writer);
    uint8_t head[XCI_HEAD_BYTES];
    xci_head_write(head);
    return put_out(writer, head, sizeof head);
}

xorcast_status xci_sink_writer_finish(xci_sink_writer *writer, xci_manifest *manifest) {
    xci_blob *blob;
    TRY(xci_delta_writer_finish(&writer->writer, manifest, &blob));
    const xorcast_status status = put_out(writer, blob->bytes, blob->size);
    xci_blob_drop(blob);
    return status;
}
