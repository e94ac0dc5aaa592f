/* Manifests: see manifest.h. */
#include "frame/manifest.h"

#include <string.h>

static const uint8_t head_magic[8] = {'X', 'O', 'R', 'C', 'A', 'S', 'T', 0};
static const uint8_t foot_magic[8] = {'X', 'O', 'R', 'C', 'E', 'N', 'D', 0};

#define FLAG_BASE_STEP 1u
#define FLAG_TARGET_STEP 2u
#define FLAG_FILES 4u
#define FLAG_NEEDS_OLD 8u
#define FLAG_OFFERS_OLD 16u
#define FLAGS 31u        /* all of them */
#define FIXED_BYTES 256u /* more than all fields of fixed size take */
#define PART_ENTRY_MIN 18u

void xci_head_write(uint8_t out[XCI_HEAD_BYTES]) {
    memset(out, 0, XCI_HEAD_BYTES);
    memcpy(out, head_magic, sizeof head_magic);
    xci_store32(out + 8, XCI_FORMAT_VERSION);
}

/* What to do about a delta that this library does not read. */
static const char *remedy(uint32_t version) {
    return version < XCI_FORMAT_VERSION ? "make it again with this release" : "use a newer library";
}

xorcast_status xci_head_read(xorcast_context *context, const uint8_t bytes[XCI_HEAD_BYTES]) {
    if (memcmp(bytes, head_magic, sizeof head_magic) != 0)
        FAIL(context, XORCAST_DATA_CORRUPT,
             "this is no xorcast delta: it does not begin with XORCAST");
    if (xci_load32(bytes + 8) != XCI_FORMAT_VERSION || xci_load32(bytes + 12) != 0)
        FAIL(context, XORCAST_DATA_VERSION,
             "the delta has format version %u, this library reads %u; %s", xci_load32(bytes + 8),
             XCI_FORMAT_VERSION, remedy(xci_load32(bytes + 8)));
    return XORCAST_OK;
}

/* ---- Writing ---- */

static uint8_t *put_bytes(uint8_t *at, const void *bytes, uint64_t count) {
    if (count > 0)
        memcpy(at, bytes, count);
    return at + count;
}

static uint8_t *put64(uint8_t *at, uint64_t value) {
    xci_store64(at, value);
    return at + 8;
}

static uint8_t *put_digest(uint8_t *at, const xorcast_digest *digest) {
    return put64(put64(at, digest->lane[0]), digest->lane[1]);
}

static uint8_t *put_counts(uint8_t *at, const xorcast_counts *counts) {
    const uint64_t values[] = {counts->bits_changed,     counts->bytes_changed,
                               counts->elements_changed, counts->chunks_changed,
                               counts->bytes_covered,    counts->elements_covered};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        at += xci_varint_put(at, values[i]);
    return at;
}

static uint8_t *put_fixed(uint8_t *at, const xci_manifest *manifest) {
    const xorcast_delta_info *info = &manifest->info;
    const uint32_t flags = (info->base.step != XORCAST_NO_STEP ? FLAG_BASE_STEP : 0) |
                           (info->target.step != XORCAST_NO_STEP ? FLAG_TARGET_STEP : 0) |
                           (info->has_files ? FLAG_FILES : 0) |
                           (info->needs_old_weights ? FLAG_NEEDS_OLD : 0) |
                           (info->offers_old_weights ? FLAG_OFFERS_OLD : 0);
    xci_store32(at, XCI_FORMAT_VERSION);
    xci_store32(at + 4, flags);
    at += 8;
    const uint8_t run_bytes = (uint8_t)strnlen(info->base.run, XORCAST_RUN_BYTES - 1);
    *at++ = run_bytes;
    at = put_bytes(at, info->base.run, run_bytes);
    at = put64(at, flags & FLAG_BASE_STEP ? info->base.step : 0);
    at = put64(at, flags & FLAG_TARGET_STEP ? info->target.step : 0);
    at = put_digest(at, &info->base.digest);
    at = put_digest(at, &info->target.digest);
    at = put_bytes(at, info->base_fingerprint, sizeof info->base_fingerprint);
    at = put_bytes(at, info->target_fingerprint, sizeof info->target_fingerprint);
    *at++ = (uint8_t)__builtin_ctzll(info->chunk_bytes);
    *at++ = (uint8_t)__builtin_ctzll(info->group_bytes);
    *at++ = (uint8_t)manifest->encoding.codec;
    *at++ = (uint8_t)manifest->encoding.second_pass;
    xci_store32(at, (uint32_t)manifest->encoding.zstd_level);
    at += 4;
    if (manifest->encoding.codec != XORCAST_CODEC_AUTO)
        return at;
    *at++ = (uint8_t)manifest->encoding.receiver;
    return put64(at, manifest->encoding.link_bytes_per_second);
}

xorcast_status xci_manifest_write(xorcast_context *context, const xci_manifest *manifest,
                                  uint8_t **bytes_out, uint64_t *count_out) {
    const xorcast_delta_info *info = &manifest->info;
    void *memory;
    TRY(xci_allocate(context,
                     FIXED_BYTES + XORCAST_RUN_BYTES + 16 * XCI_VARINT_BYTES + XCI_FOOT_BYTES +
                         info->part_count * (2 * XCI_VARINT_BYTES + sizeof(xci_hash)) +
                         manifest->attachment_bytes,
                     &memory));
    uint8_t *begin = memory, *at = put_fixed(begin, manifest);
    at = put_counts(at, &info->counts);
    const uint64_t values[] = {
        info->payload_bytes,          info->chunk_encoded_bytes, manifest->layout_group_count,
        manifest->layout_chunk_count, info->group_count,         info->part_count};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        at += xci_varint_put(at, values[i]);
    for (uint64_t p = 0; p < info->part_count; p++) {
        at += xci_varint_put(at, manifest->parts[p].bytes);
        at += xci_varint_put(at, manifest->parts[p].group_count);
        at = put_bytes(at, manifest->parts[p].hash.bytes, sizeof(xci_hash));
    }
    if (info->has_files) {
        at += xci_varint_put(at, manifest->attachment_bytes);
        at = put_bytes(at, manifest->attachment, manifest->attachment_bytes);
    }
    const uint64_t manifest_bytes = (uint64_t)(at - begin);
    const xci_hash hash = xci_hash_of(begin, manifest_bytes);
    at = put64(at, manifest_bytes);
    at = put_bytes(at, hash.bytes, sizeof hash.bytes);
    at = put_bytes(at, foot_magic, sizeof foot_magic);
    *bytes_out = begin;
    *count_out = (uint64_t)(at - begin);
    return XORCAST_OK;
}

/* ---- Reading ---- */

xorcast_status xci_foot_read(xorcast_context *context, const uint8_t bytes[XCI_FOOT_BYTES],
                             uint64_t *manifest_bytes_out) {
    if (memcmp(bytes + 24, foot_magic, sizeof foot_magic) != 0)
        FAIL(context, XORCAST_DATA_TRUNCATED,
             "the delta does not end as it should, cut short or still being written: fetch it "
             "again, or wait");
    *manifest_bytes_out = xci_load64(bytes);
    if (*manifest_bytes_out > XCI_MANIFEST_MAX)
        FAIL(context, XORCAST_DATA_LIMIT,
             "the delta says that its manifest has %llu bytes; %llu are the most",
             (unsigned long long)*manifest_bytes_out, (unsigned long long)XCI_MANIFEST_MAX);
    return XORCAST_OK;
}

static xorcast_digest read_digest(xci_reader *r) {
    xorcast_digest digest;
    digest.lane[0] = xci_read64(r);
    digest.lane[1] = xci_read64(r);
    return digest;
}

static void read_into(xci_reader *r, void *out, uint64_t count) {
    const uint8_t *bytes = xci_read_bytes(r, count);
    if (bytes != NULL)
        memcpy(out, bytes, count);
}

static void read_counts(xci_reader *r, xorcast_counts *counts) {
    uint64_t *const values[] = {&counts->bits_changed,     &counts->bytes_changed,
                                &counts->elements_changed, &counts->chunks_changed,
                                &counts->bytes_covered,    &counts->elements_covered};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        *values[i] = xci_read_varint(r);
}

/* Fields up to the list of parts. A field out of range marks the reader bad. */
static void read_fixed(xci_reader *r, uint32_t flags, xci_manifest *m) {
    xorcast_delta_info *info = &m->info;
    const uint8_t run_bytes = xci_read8(r);
    if (run_bytes >= XORCAST_RUN_BYTES)
        r->bad = true;
    else
        read_into(r, info->base.run, run_bytes);
    if (strlen(info->base.run) != run_bytes) /* a zero inside: two names for one run */
        r->bad = true;
    memcpy(info->target.run, info->base.run, XORCAST_RUN_BYTES);
    const uint64_t base_step = xci_read64(r), target_step = xci_read64(r);
    info->base.step = flags & FLAG_BASE_STEP ? base_step : XORCAST_NO_STEP;
    info->target.step = flags & FLAG_TARGET_STEP ? target_step : XORCAST_NO_STEP;
    info->base.digest = read_digest(r);
    info->target.digest = read_digest(r);
    read_into(r, info->base_fingerprint, sizeof info->base_fingerprint);
    read_into(r, info->target_fingerprint, sizeof info->target_fingerprint);
    const uint8_t chunk_log2 = xci_read8(r), group_log2 = xci_read8(r);
    if (chunk_log2 < 14 || chunk_log2 > 20 || group_log2 < 20 || group_log2 > 26)
        r->bad = true;
    info->chunk_bytes = UINT64_C(1) << (chunk_log2 & 63);
    info->group_bytes = UINT64_C(1) << (group_log2 & 63);
    m->encoding.codec = xci_read8(r);
    m->encoding.second_pass = xci_read8(r);
    m->encoding.zstd_level = (int32_t)xci_read32(r);
    if (m->encoding.codec == XORCAST_CODEC_AUTO) {
        m->encoding.receiver = xci_read8(r);
        m->encoding.link_bytes_per_second = xci_read64(r);
        r->bad |= m->encoding.receiver > XORCAST_RECEIVER_ENGINE;
    }
    m->info.asked = m->encoding;
    m->info.asked.struct_size = (uint32_t)sizeof m->info.asked;
    m->info.asked.old_weights = (flags & FLAG_NEEDS_OLD) != 0;
    read_counts(r, &info->counts);
    info->payload_bytes = xci_read_varint(r);
    info->chunk_encoded_bytes = xci_read_varint(r);
    m->layout_group_count = xci_read_varint(r);
    m->layout_chunk_count = xci_read_varint(r);
    info->group_count = xci_read_varint(r);
    info->part_count = xci_read_varint(r);
    if (m->layout_group_count > XCI_GROUPS_MAX || info->group_count > m->layout_group_count ||
        info->part_count > info->group_count)
        r->bad = true;
}

static xorcast_status read_parts(xorcast_context *context, xci_reader *r, xci_manifest *m) {
    const uint64_t count = r->bad ? 0 : m->info.part_count;
    if (count > xci_reader_left(r) / PART_ENTRY_MIN) {
        r->bad = true;
        return XORCAST_OK;
    }
    void *memory;
    TRY(xci_allocate_array(context, count, sizeof(xci_part), &memory));
    m->parts = memory;
    uint64_t groups = 0;
    for (uint64_t p = 0; p < count; p++) {
        m->parts[p].bytes = xci_read_varint(r);
        m->parts[p].group_count = xci_read_varint(r);
        read_into(r, m->parts[p].hash.bytes, sizeof(xci_hash));
        groups += m->parts[p].group_count;
        if (m->parts[p].bytes > XCI_PART_MAX || m->parts[p].bytes == 0 ||
            m->parts[p].group_count - 1 >= m->info.group_count)
            r->bad = true;
    }
    if (groups != m->info.group_count)
        r->bad = true;
    return XORCAST_OK;
}

static xorcast_status read_fields(xorcast_context *context, xci_reader *r, xci_manifest *m) {
    const uint32_t version = xci_read32(r), flags = xci_read32(r);
    if (!r->bad && (version != XCI_FORMAT_VERSION || (flags & ~FLAGS) != 0))
        FAIL(context, XORCAST_DATA_VERSION,
             "the delta has format version %u with flags %u, this library reads version %u; %s",
             version, flags, XCI_FORMAT_VERSION, remedy(version));
    m->info.format_version = version;
    m->info.has_files = (flags & FLAG_FILES) != 0;
    m->info.needs_old_weights = (flags & FLAG_NEEDS_OLD) != 0;
    m->info.offers_old_weights = (flags & FLAG_OFFERS_OLD) != 0;
    read_fixed(r, flags, m);
    TRY(read_parts(context, r, m));
    if (m->info.has_files) {
        m->attachment_bytes = xci_read_varint(r);
        m->attachment = xci_read_bytes(r, m->attachment_bytes);
    }
    if (r->bad || r->at != r->end)
        FAIL(context, XORCAST_DATA_CORRUPT,
             "the manifest has a field that is out of range or too long; fetch the delta again");
    return XORCAST_OK;
}

xorcast_status xci_manifest_read(xorcast_context *context, const uint8_t *bytes, uint64_t count,
                                 xci_manifest *manifest_out) {
    uint64_t manifest_bytes;
    if (count < XCI_FOOT_BYTES)
        FAIL(context, XORCAST_DATA_TRUNCATED, "%llu bytes are too few for a manifest",
             (unsigned long long)count);
    const uint8_t *foot = bytes + count - XCI_FOOT_BYTES;
    TRY(xci_foot_read(context, foot, &manifest_bytes));
    if (manifest_bytes != count - XCI_FOOT_BYTES)
        FAIL(context, XORCAST_DATA_CORRUPT,
             "the manifest has %llu bytes and says %llu; fetch the delta again",
             (unsigned long long)(count - XCI_FOOT_BYTES), (unsigned long long)manifest_bytes);
    const xci_hash hash = xci_hash_of(bytes, manifest_bytes);
    if (memcmp(hash.bytes, foot + 8, sizeof hash.bytes) != 0)
        FAIL(context, XORCAST_DATA_CORRUPT,
             "the manifest's hash does not fit its bytes; fetch the delta again");
    xci_manifest manifest = {0};
    xci_reader reader = {bytes, foot, false};
    const xorcast_status status = read_fields(context, &reader, &manifest);
    if (status < 0) {
        xci_manifest_free(context, &manifest);
        return status;
    }
    manifest.info.delta_bytes = XCI_HEAD_BYTES + count;
    for (uint64_t p = 0; p < manifest.info.part_count; p++)
        manifest.info.delta_bytes += manifest.parts[p].bytes;
    *manifest_out = manifest;
    return XORCAST_OK;
}

void xci_manifest_free(xorcast_context *context, xci_manifest *manifest) {
    xci_release(context, manifest->parts);
    manifest->parts = NULL;
}

xci_record_limits xci_manifest_limits(const xci_manifest *manifest) {
    return (xci_record_limits){manifest->layout_group_count, manifest->info.chunk_bytes,
                               manifest->info.group_bytes + manifest->info.chunk_bytes};
}
