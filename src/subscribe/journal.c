/* The journal: see journal.h.
 *
 *     header (4096 bytes) | a slot for each worker | flags | table | blocks
 *
 * A slot says which entry its worker is changing, the entry's flag before, and the chunk's bytes
 * before. A thread that is killed has made all stores of its program up to one place and none
 * behind it, on every processor, and a shared mapping keeps them, so a flag that has turned proves
 * that the chunk's weights were written; while it has not, the slot holds what a torn chunk must be
 * put back to. Only the compiler must keep the order of the program. */
#include "subscribe/journal.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/mapping.h"
#include "codec/codec.h"
#include "subscribe/commit.h"

#define JOURNAL_VERSION 0u
#define HEADER_BYTES 4096u
#define SLOT_HEAD_BYTES 64u
#define STATE_IDLE 0u
#define STATE_COMMITTING 1u

static const uint8_t journal_magic[8] = {'X', 'O', 'R', 'C', 'J', 'R', 'N', 'L'};

typedef struct journal_header {
    uint8_t magic[8];
    uint32_t version, state;
    uint8_t fingerprint[16];
    uint64_t slot_count, entry_count;
    uint64_t flags_at, table_at, blocks_at, end;
    uint64_t hash; /* of table and blocks */
} journal_header;
_Static_assert(sizeof(journal_header) <= HEADER_BYTES, "the header has a page of its own");

typedef struct journal_entry {
    uint64_t chunk, block_at;
    uint32_t block_bytes, block_codec, bytes, unused;
} journal_entry;

struct xci_journal {
    xorcast_bundle *bundle;
    char *path;
    xci_mapping file;
};

static journal_header *header_of(const xci_journal *journal) {
    return (journal_header *)(void *)journal->file.bytes;
}
static uint64_t slot_bytes(const xci_journal *journal) {
    return SLOT_HEAD_BYTES + (UINT64_C(1) << journal->bundle->chunk_log2);
}
static uint8_t *slot_of(const xci_journal *journal, uint64_t worker) {
    return journal->file.bytes + HEADER_BYTES + worker * slot_bytes(journal);
}
static const journal_entry *table_of(const xci_journal *journal) {
    return (const journal_entry *)(const void *)(journal->file.bytes +
                                                 header_of(journal)->table_at);
}
uint8_t *xci_journal_flags(xci_journal *journal) {
    return journal->file.bytes + header_of(journal)->flags_at;
}

/* ---- Writing ---- */

static journal_header plan(const xci_journal *journal, uint64_t entry_count, uint64_t block_bytes) {
    journal_header header = {
        .version = JOURNAL_VERSION, .state = STATE_IDLE, .entry_count = entry_count};
    memcpy(header.magic, journal_magic, sizeof journal_magic);
    memcpy(header.fingerprint, journal->bundle->layout.fingerprint, sizeof header.fingerprint);
    header.slot_count = xci_context_threads(journal->bundle->context);
    header.flags_at = HEADER_BYTES + header.slot_count * slot_bytes(journal);
    header.table_at = xci_round_up(header.flags_at + entry_count, 64);
    header.blocks_at = header.table_at + entry_count * sizeof(journal_entry);
    header.end = header.blocks_at + block_bytes;
    return header;
}

xorcast_status xci_journal_prepare(xci_journal *journal, const xci_stage *stage) {
    journal_header header = plan(journal, stage->ready_count, stage->ready_bytes);
    TRY(xci_mapping_grow(journal->bundle->context, journal->path, &journal->file, header.end));
    uint8_t *bytes = journal->file.bytes;
    uint64_t at = header.blocks_at;
    for (uint64_t i = 0; i < stage->ready_count; i++) {
        const xci_ready *ready = &stage->ready[i];
        const journal_entry entry = {ready->chunk,       at,           ready->block_bytes,
                                     ready->block_codec, ready->bytes, 0};
        memcpy(bytes + header.table_at + i * sizeof entry, &entry, sizeof entry);
        memcpy(bytes + at, ready->block, ready->block_bytes);
        at += ready->block_bytes;
    }
    memset(bytes + header.flags_at, 0, stage->ready_count);
    for (uint64_t w = 0; w < header.slot_count; w++)
        xci_store64(slot_of(journal, w), 0);
    header.hash = xci_hash64_of(bytes + header.table_at, header.end - header.table_at, 0);
    memcpy(bytes, &header, sizeof header);
    return XORCAST_OK;
}

static void set_state(xci_journal *journal, uint32_t state) {
    __atomic_store_n(&header_of(journal)->state, state, __ATOMIC_SEQ_CST);
}

void xci_journal_begin(xci_journal *journal) { set_state(journal, STATE_COMMITTING); }
void xci_journal_end(xci_journal *journal) { set_state(journal, STATE_IDLE); }

/* Behind all stores before it, as every release store, and before all that follow, the chunk's
 * weights among them, as none is without a fence. */
static void set_number(uint64_t *number, uint64_t value) {
    __atomic_store_n(number, value, __ATOMIC_SEQ_CST);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void xci_journal_keep(xci_journal *journal, uint32_t worker, uint64_t ready_index,
                      const uint8_t *old_bytes, uint32_t bytes) {
    uint8_t *slot = slot_of(journal, worker);
    uint64_t *number = (uint64_t *)(void *)slot;
    set_number(number, 0);
    slot[sizeof *number] = xci_journal_flags(journal)[ready_index];
    memcpy(slot + SLOT_HEAD_BYTES, old_bytes, bytes);
    set_number(number, ready_index + 1);
}

/* ---- Finishing what was interrupted ---- */

static xorcast_status bad_journal(xci_journal *journal, const char *what) {
    FAIL(journal->bundle->context, XORCAST_DATA_CORRUPT,
         "%s %s; if its commit does not matter, remove the file and open again: the "
         "weights are scanned and a keyframe repairs them",
         journal->path, what);
}

/* The file is foreign until all of this holds. */
static xorcast_status check_journal(xci_journal *journal) {
    const xorcast_bundle *bundle = journal->bundle;
    if (journal->file.size < HEADER_BYTES)
        return bad_journal(journal, "is too short for a journal");
    const journal_header *header = header_of(journal);
    if (memcmp(header->magic, journal_magic, sizeof journal_magic) != 0 ||
        header->version != JOURNAL_VERSION)
        return bad_journal(journal, "is not a journal of this version");
    if (header->state == STATE_IDLE)
        return XORCAST_OK;
    if (memcmp(header->fingerprint, bundle->layout.fingerprint, sizeof header->fingerprint) != 0)
        return bad_journal(journal, "belongs to weights of another layout");
    if (header->slot_count == 0 || header->slot_count > 4096 ||
        header->entry_count > bundle->layout.chunk_count ||
        header->flags_at != HEADER_BYTES + header->slot_count * slot_bytes(journal) ||
        header->table_at != xci_round_up(header->flags_at + header->entry_count, 64) ||
        header->blocks_at != header->table_at + header->entry_count * sizeof(journal_entry) ||
        header->end < header->blocks_at || header->end > journal->file.size ||
        xci_hash64_of(journal->file.bytes + header->table_at, header->end - header->table_at, 0) !=
            header->hash)
        return bad_journal(journal, "is damaged");
    for (uint64_t i = 0; i < header->entry_count; i++) {
        const journal_entry *entry = &table_of(journal)[i];
        if (entry->chunk >= bundle->layout.chunk_count || entry->block_at < header->blocks_at ||
            entry->block_at > header->end || entry->block_bytes > header->end - entry->block_at ||
            entry->bytes != xci_bundle_chunk_bytes(bundle, entry->chunk) ||
            !xci_codec_is_ready(entry->block_codec, journal->file.bytes + entry->block_at,
                                entry->block_bytes, entry->bytes))
            return bad_journal(journal, "is damaged");
    }
    return XORCAST_OK;
}

static void restore_torn(xci_journal *journal) {
    const journal_header *header = header_of(journal);
    const uint8_t *flags = xci_journal_flags(journal);
    for (uint64_t w = 0; w < header->slot_count; w++) {
        const uint8_t *slot = slot_of(journal, w);
        const uint64_t number = xci_load64(slot);
        xci_chunk chunk;
        if (number == 0 || number > header->entry_count || flags[number - 1] != slot[sizeof number])
            continue;
        xci_bundle_chunk_places(journal->bundle, table_of(journal)[number - 1].chunk, &chunk);
        xci_chunk_write(journal->bundle, &chunk, slot + SLOT_HEAD_BYTES);
    }
}

static xorcast_status list_entries(xci_journal *journal, xci_ready **ready_out) {
    const journal_header *header = header_of(journal);
    void *memory;
    TRY(xci_allocate_array(journal->bundle->context, header->entry_count, sizeof(xci_ready),
                           &memory));
    xci_ready *ready = memory;
    for (uint64_t i = 0; i < header->entry_count; i++) {
        const journal_entry *entry = &table_of(journal)[i];
        xci_chunk chunk;
        xci_bundle_chunk_places(journal->bundle, entry->chunk, &chunk);
        ready[i] = (xci_ready){.chunk = entry->chunk,
                               .block = journal->file.bytes + entry->block_at,
                               .weights = xci_chunk_direct(journal->bundle, &chunk),
                               .block_bytes = entry->block_bytes,
                               .block_codec = entry->block_codec,
                               .bytes = entry->bytes};
    }
    *ready_out = ready;
    return XORCAST_OK;
}

/* One thread, through the first slot: the process that died may have had fewer slots than this
 * one has threads. */
static xorcast_status finish_commit(xci_journal *journal) {
    xci_commit commit;
    xci_ready *ready;
    restore_torn(journal);
    TRY(list_entries(journal, &ready));
    xorcast_status status = xci_commit_open(&commit, journal->bundle, NULL);
    if (status == XORCAST_OK) {
        commit.ready = ready;
        commit.count = header_of(journal)->entry_count;
        commit.done = xci_journal_flags(journal);
        commit.journal = journal;
        status = xci_commit_apply_alone(&commit);
        xci_commit_close(&commit);
    }
    xci_release(journal->bundle->context, ready);
    return status;
}

static xorcast_status open_file(xci_journal *journal, const char *path, bool *finished_out) {
    xorcast_context *context = journal->bundle->context;
    TRY(xci_copy_string(context, path, &journal->path));
    TRY(xci_mapping_open(context, path, &journal->file));
    if (journal->file.size == 0) {
        const xci_stage nothing = {0};
        return xci_journal_prepare(journal, &nothing);
    }
    TRY(check_journal(journal));
    if (header_of(journal)->state == STATE_IDLE)
        return XORCAST_OK;
    *finished_out = true;
    return finish_commit(journal);
}

xorcast_status xci_journal_open(xorcast_bundle *bundle, const char *path, xci_journal **journal_out,
                                bool *finished_out) {
    void *memory;
    *finished_out = false;
    TRY(xci_allocate_zeroed(bundle->context, sizeof(xci_journal), &memory));
    xci_journal *journal = memory;
    journal->bundle = bundle;
    journal->file.fd = -1;
    const xorcast_status status = open_file(journal, path, finished_out);
    if (status < 0) {
        xci_journal_close(journal);
        return status;
    }
    *journal_out = journal;
    return XORCAST_OK;
}

void xci_journal_close(xci_journal *journal) {
    if (journal == NULL)
        return;
    xci_mapping_close(&journal->file);
    xci_release(journal->bundle->context, journal->path);
    xci_release(journal->bundle->context, journal);
}
