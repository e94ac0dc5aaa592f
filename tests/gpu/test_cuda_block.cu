/* check, apply, masks, digest, gather and scatter of the CUDA backend against the CPU backend and
 * against what is written here byte by byte. A program of its own that needs a GPU:
 *
 *     test_cuda_block [--tight]
 *
 * --tight: fewer and smaller cases, each piece of memory an allocation exact to the byte, for
 * compute-sanitizer. Prints a line a case; exit status 0: all good, 77: there is no GPU. */
#include <atomic>

#include <lz4.h>

#include "backend/cuda/cuda_kernels.h"
#include "base/digest.h"
#include "gpu/gpu_memory.cuh"
#include "support/masks.h"

/* The context of the library is C. */
using std::atomic_uint;
using std::atomic_uint_fast64_t;
extern "C" {
#include "backend/backend.h"
}

static mask_seed seed = {20240613};
static bool tight;
static unsigned failures;

static void expect(bool fact, const char *what, uint64_t detail) {
    if (fact)
        return;
    if (failures++ < 20)
        printf("FAILED: %s (%llu)\n", what, (unsigned long long)detail);
}

/* ---- Cases: chunks, their blocks, and where they lie ---------------------------------------- */

struct chunk_case {
    uint32_t bytes, element_bytes;
    std::vector<xci_segment> segments;
    std::vector<uint8_t> block;
    uint32_t block_codec;
    size_t piece;  /* of weights: direct chunks */
    bool windowed; /* in `windows` instead */
};

struct case_window {
    xci_cuda_window shape; /* without `at` */
    size_t piece;
};

struct case_list {
    std::vector<chunk_case> cases;
    std::vector<std::vector<case_window>> windows; /* one list a case */
    gpu_memory weights, blocks;
    std::vector<xci_cuda_chunk> chunks;
    std::vector<xci_cuda_segment> segments;

    case_list() : weights(tight), blocks(tight, 0) {}
};

/* Tables of a case list on the device. */
struct device_cases {
    device_table<xci_cuda_chunk> chunks;
    device_table<xci_cuda_segment> segments;
    device_table<uint8_t *> direct;
    device_table<uint32_t> window_first;
    device_table<xci_cuda_window> windows;
    device_table<xci_cuda_block> blocks;
    device_table<xci_cuda_result> results;
    device_table<uint32_t> notes, any_bad, gate;
    device_table<uint64_t> progress;
    xci_cuda_block_call call;
};

static std::vector<uint8_t *> direct_table(const case_list &list) {
    std::vector<uint8_t *> direct;
    for (const chunk_case &c : list.cases)
        direct.push_back(c.windowed ? nullptr : list.weights.device[c.piece]);
    return direct;
}

static std::vector<uint32_t> window_first_table(const case_list &list) {
    std::vector<uint32_t> first = {0};
    for (const std::vector<case_window> &of_case : list.windows)
        first.push_back(first.back() + (uint32_t)of_case.size());
    return first;
}

static std::vector<xci_cuda_window> window_table(const case_list &list) {
    std::vector<xci_cuda_window> all;
    for (const std::vector<case_window> &of_case : list.windows)
        for (const case_window &window : of_case) {
            all.push_back(window.shape);
            all.back().at = list.weights.device[window.piece];
        }
    return all;
}

static std::vector<xci_cuda_block> block_table(const case_list &list) {
    std::vector<xci_cuda_block> blocks;
    for (size_t i = 0; i < list.cases.size(); ++i)
        blocks.push_back({list.blocks.device[i], (uint32_t)list.cases[i].block.size(),
                          list.cases[i].block_codec, i});
    return blocks;
}

/* Uploads everything; the list's cases are complete. */
static device_cases *to_device(case_list &list) {
    for (const chunk_case &c : list.cases) {
        list.chunks.push_back({c.bytes, c.element_bytes, (uint32_t)list.segments.size(),
                               (uint32_t)c.segments.size()});
        for (const xci_segment &s : c.segments)
            list.segments.push_back({s.key, s.offset, s.bytes});
        const size_t piece = list.blocks.add(c.block.size() + 16);
        for (size_t i = 0; i < c.block.size() + 16; ++i)
            list.blocks.at(piece)[i] =
                i < c.block.size() ? c.block[i] : (uint8_t)mask_random(&seed, 256);
    }
    list.weights.upload();
    list.blocks.upload();
    device_cases *d = new device_cases{device_table<xci_cuda_chunk>(list.chunks),
                                       device_table<xci_cuda_segment>(list.segments),
                                       device_table<uint8_t *>(direct_table(list)),
                                       device_table<uint32_t>(window_first_table(list)),
                                       device_table<xci_cuda_window>(window_table(list)),
                                       device_table<xci_cuda_block>(block_table(list)),
                                       device_table<xci_cuda_result>(list.cases.size()),
                                       device_table<uint32_t>(list.cases.size()),
                                       device_table<uint32_t>(std::vector<uint32_t>{0}),
                                       device_table<uint32_t>(std::vector<uint32_t>{0}),
                                       device_table<uint64_t>(std::vector<uint64_t>{0}),
                                       {}};
    uint32_t largest = 0;
    for (const chunk_case &c : list.cases)
        largest = c.bytes > largest ? c.bytes : largest;
    d->call.grid = {d->chunks.at, d->segments.at, list.cases.size(), largest};
    d->call.places = {d->direct.at, d->window_first.at, d->windows.at};
    d->call.blocks = d->blocks.at;
    d->call.count = list.cases.size();
    d->call.results = d->results.at;
    d->call.notes = d->notes.at;
    d->call.any_bad = d->any_bad.at;
    d->call.gate = d->gate.at;
    d->call.progress = d->progress.at;
    return d;
}

/* ---- References ----------------------------------------------------------------------------- */

/* The bytes of word `word` of a case: true if it has a place. On the host's copy of the weights. */
static bool place_of(case_list &list, size_t index, uint32_t word, bool all,
                     std::vector<uint8_t *> *at, uint32_t *bytes) {
    const chunk_case &c = list.cases[index];
    at->clear();
    *bytes = c.bytes - word * 8 < 8 ? c.bytes - word * 8 : 8;
    if (!c.windowed) {
        at->push_back(list.weights.at(c.piece) + word * 8);
        return true;
    }
    for (const case_window &w : list.windows[index])
        for (uint32_t row = 0; row < w.shape.row_count; ++row) {
            const uint32_t begin = w.shape.offset + row * w.shape.stride;
            if (word * 8 < begin || word * 8 >= begin + w.shape.width || (!all && !at->empty()))
                continue;
            const uint32_t left = begin + w.shape.width - word * 8;
            *bytes = left < *bytes ? left : *bytes;
            at->push_back(list.weights.at(w.piece) + row * w.shape.pitch + (word * 8 - begin));
        }
    return !at->empty();
}

/* The chunk in one piece; what has no place is zero, and its words are noted. */
static std::vector<uint8_t> gather(case_list &list, size_t index, std::vector<bool> *placed) {
    std::vector<uint8_t> chunk(list.cases[index].bytes, 0);
    std::vector<uint8_t *> at;
    uint32_t bytes;
    placed->assign((chunk.size() + 7) / 8, false);
    for (uint32_t word = 0; word * 8 < chunk.size(); ++word)
        if (place_of(list, index, word, false, &at, &bytes)) {
            memcpy(chunk.data() + word * 8, at[0], bytes);
            (*placed)[word] = true;
        }
    return chunk;
}

static void scatter(case_list &list, size_t index, const std::vector<uint8_t> &chunk) {
    std::vector<uint8_t *> at;
    uint32_t bytes;
    for (uint32_t word = 0; word * 8 < chunk.size(); ++word)
        if (place_of(list, index, word, true, &at, &bytes))
            for (uint8_t *place : at)
                memcpy(place, chunk.data() + word * 8, bytes);
}

/* The segments that only words with places are in. */
static std::vector<xci_segment> placed_segments(const chunk_case &c,
                                                const std::vector<bool> &placed) {
    std::vector<xci_segment> kept;
    for (const xci_segment &s : c.segments)
        for (uint32_t at = 0; at < s.bytes; at += 8)
            if (placed[(s.offset + at) / 8])
                kept.push_back({s.offset + at, s.bytes - at < 8 ? s.bytes - at : 8,
                                s.key + at / 8 * XCI_DIGEST_STRIDE});
    return kept;
}

static xci_block_job job_of(const chunk_case &c, const std::vector<xci_segment> &segments,
                            uint8_t *weights) {
    xci_block_job job = {};
    job.block = c.block.data();
    job.block_bytes = (uint32_t)c.block.size();
    job.block_codec = c.block_codec;
    job.bytes = c.bytes;
    job.element_bytes = c.element_bytes;
    job.segments = segments.data();
    job.segment_count = (uint32_t)segments.size();
    job.weights = weights;
    return job;
}

/* The CPU's verdict on a case; applies the block to the host's weights if it is good. */
static bool expect_result(case_list &list, size_t index, const xci_cuda_result &got) {
    const chunk_case &c = list.cases[index];
    std::vector<bool> placed;
    std::vector<uint8_t> chunk = gather(list, index, &placed);
    const std::vector<xci_segment> segments = c.windowed ? placed_segments(c, placed) : c.segments;
    xci_block_job job = job_of(c, segments, chunk.data());
    xci_backend_cpu.check(&job, 1);
    expect(got.status == job.status, "status", index);
    expect(got.block_bytes == c.block.size() && got.block_codec == c.block_codec, "size", index);
    if (job.status != XORCAST_OK) {
        expect(got.bits_changed == 0 && got.bytes_changed == 0 && got.elements_changed == 0 &&
                   got.change.lane[0] == 0 && got.change.lane[1] == 0,
               "a damaged block counts", index);
        return false;
    }
    expect(got.bits_changed == job.bits_changed, "bits", index);
    expect(got.bytes_changed == job.bytes_changed, "bytes", index);
    expect(got.elements_changed == job.elements_changed, "elements", index);
    expect(got.change.lane[0] == job.change.lane[0] && got.change.lane[1] == job.change.lane[1],
           "change of the digest", index);
    xci_backend_cpu.apply(&job, 1);
    scatter(list, index, chunk);
    return true;
}

/* ---- Building cases ------------------------------------------------------------------------- */

static std::vector<uint8_t> random_mask(uint32_t bytes, unsigned pattern) {
    std::vector<uint8_t> mask(bytes);
    mask_make(&seed, pattern, mask.data(), bytes);
    return mask;
}

/* The canonical block of a mask; empty: nothing changed. */
static void encode(chunk_case *c, const std::vector<uint8_t> &mask, uint32_t codec) {
    const std::vector<uint8_t> zeros(mask.size(), 0);
    xci_encode_job job = {};
    c->block.resize(mask.size() + XCI_BLOCK_SLACK);
    job.old_bytes = zeros.data();
    job.new_bytes = mask.data();
    job.bytes = c->bytes;
    job.element_bytes = c->element_bytes;
    job.codec = codec;
    job.block = c->block.data();
    xci_backend_cpu.encode(&job, 1);
    c->block.resize(job.block_bytes);
    c->block_codec = job.block_codec;
}

/* One segment that covers all, or several with holes, odd ends and an empty one, or none. */
static void make_segments(chunk_case *c) {
    const uint64_t key = xci_digest_key(mask_random(&seed, 100000));
    const uint32_t kind = mask_random(&seed, 8), part = c->bytes / 4 / 8 * 8;
    if (kind == 0 && c->bytes > 100)
        return;
    c->segments = {{0, c->bytes, key}};
    if (kind > 3 || part == 0)
        return;
    c->segments[0].bytes = part - mask_random(&seed, part);
    c->segments.push_back({part, 0, key + 5});
    c->segments.push_back({2 * part, part, key + 77});
    c->segments.push_back({3 * part, c->bytes - 3 * part, key + 99});
}

static void fill(uint8_t *at, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
        at[i] = (uint8_t)mask_random(&seed, 256);
}

static chunk_case new_case(uint32_t bytes, uint32_t element_bytes) {
    chunk_case c = {};
    c.bytes = bytes;
    c.element_bytes = element_bytes;
    make_segments(&c);
    return c;
}

static void add_direct(case_list &list, chunk_case &c, uint32_t skew) {
    c.piece = list.weights.add(c.bytes, skew);
    fill(list.weights.at(c.piece), c.bytes);
    list.cases.push_back(c);
    list.windows.emplace_back();
}

static size_t add_window(case_list &list, std::vector<case_window> *windows, uint32_t offset,
                         uint32_t stride, uint32_t width, uint32_t rows) {
    const uint32_t pitch = width + mask_random(&seed, 3) * mask_random(&seed, 17);
    const size_t piece = list.weights.add((size_t)pitch * (rows - 1) + width,
                                          mask_random(&seed, 2) * mask_random(&seed, 16));
    windows->push_back({{nullptr, pitch, offset, stride, width, rows}, piece});
    fill(list.weights.at(piece), (size_t)pitch * (rows - 1) + width);
    return piece;
}

/* Small tensors one behind the other, each at a multiple of 8, some of them elsewhere. */
static void add_packed(case_list &list, chunk_case &c) {
    std::vector<case_window> windows;
    c.segments.clear();
    for (uint32_t at = 0; at < c.bytes;) {
        const uint32_t most = c.bytes - at < 200 ? c.bytes - at : 200;
        const uint32_t bytes = 1 + mask_random(&seed, mask_random(&seed, 2) ? most : most / 20 + 1);
        c.segments.push_back({at, bytes, xci_digest_key(at)});
        if (mask_random(&seed, 5) != 0)
            add_window(list, &windows, at, 0, bytes, 1);
        at += (bytes + 7) / 8 * 8;
    }
    c.windowed = true;
    list.cases.push_back(c);
    list.windows.push_back(windows);
}

/* Rows cut into boxes, some of them twice and some nowhere. */
static void add_boxes(case_list &list, chunk_case &c) {
    const uint32_t row = 8 * (1 + mask_random(&seed, 1 + c.bytes / 64));
    const uint32_t rows = c.bytes / row;
    std::vector<case_window> windows;
    for (uint32_t column = 0; rows > 0 && column < row;) {
        const uint32_t width = 8 * (1 + mask_random(&seed, (row - column) / 8));
        const uint32_t skipped = mask_random(&seed, rows), kept = 1 + mask_random(&seed, rows);
        const uint32_t count = kept < rows - skipped ? kept : rows - skipped;
        for (uint32_t copies = 1 + (mask_random(&seed, 4) == 0); copies > 0; --copies) {
            const size_t piece =
                add_window(list, &windows, skipped * row + column, row, width, count);
            if (copies == 1 && windows.size() > 1 &&
                windows[windows.size() - 2].shape.offset == skipped * row + column)
                for (uint32_t r = 0; r < count; ++r)
                    memcpy(list.weights.at(piece) + r * windows.back().shape.pitch,
                           list.weights.at(windows[windows.size() - 2].piece) +
                               r * windows[windows.size() - 2].shape.pitch,
                           width);
        }
        column += width;
    }
    for (size_t i = 1; i < windows.size(); ++i)
        for (size_t k = i; k > 0 && windows[k].shape.offset < windows[k - 1].shape.offset; --k)
            std::swap(windows[k], windows[k - 1]);
    c.windowed = true;
    list.cases.push_back(c);
    list.windows.push_back(windows);
}

/* ---- What is done with every list ----------------------------------------------------------- */

static void sync() {
    CUDA(cudaDeviceSynchronize());
}

static void expect_gate_and_progress(case_list &list, device_cases &d) {
    CUDA(cudaMemset(d.gate.at, 1, 1));
    CUDA(xci_cuda_apply(&d.call, nullptr));
    sync();
    expect(list.weights.same(), "apply behind a gate", 0);
    expect(d.progress.get()[0] == 0, "progress behind a gate", 0);
    CUDA(cudaMemset(d.gate.at, 0, 1));
    xci_cuda_block_call ungated = d.call;
    ungated.gate = nullptr;
    ungated.progress = nullptr;
    CUDA(xci_cuda_apply(&ungated, nullptr));
    CUDA(xci_cuda_apply(&d.call, nullptr));
    sync();
    expect(d.progress.get()[0] == list.cases.size(), "progress", d.progress.get()[0]);
}

/* Digests and pieces of all cases against the host's weights. */
static void expect_digests_and_copies(case_list &list, device_cases &d) {
    device_table<xorcast_digest> digests(list.cases.size());
    const xci_cuda_digest_call digest = {d.call.grid, d.call.places, 0, list.cases.size(),
                                         digests.at};
    gpu_memory pieces(tight);
    for (size_t i = 0; i < list.cases.size(); ++i)
        pieces.add(list.cases[i].bytes, i % 3 == 0 ? 0 : i % 17);
    pieces.upload();
    const device_table<uint8_t *> table(pieces.device);
    const xci_cuda_copy_call copy = {d.call.grid, d.call.places, 0, list.cases.size(), table.at};
    CUDA(xci_cuda_digest(&digest, nullptr));
    CUDA(xci_cuda_gather(&copy, nullptr));
    sync();
    const std::vector<xorcast_digest> got = digests.get();
    for (size_t i = 0; i < list.cases.size(); ++i) {
        std::vector<bool> placed;
        std::vector<uint8_t> chunk = gather(list, i, &placed);
        const std::vector<xci_segment> segments = placed_segments(list.cases[i], placed);
        xci_digest_job job = {chunk.data(), (uint32_t)segments.size(), segments.data(), {{0, 0}}};
        xci_backend_cpu.digest(&job, 1);
        expect(got[i].lane[0] == job.digest.lane[0] && got[i].lane[1] == job.digest.lane[1],
               "digest", i);
        memcpy(pieces.at(i), chunk.data(), chunk.size());
    }
    expect(pieces.same(), "gather", 0);
    for (size_t i = 0; i < list.cases.size(); ++i) {
        std::vector<uint8_t> chunk(list.cases[i].bytes);
        fill(chunk.data(), chunk.size());
        memcpy(pieces.at(i), chunk.data(), chunk.size());
        scatter(list, i, chunk);
    }
    pieces.refresh();
    CUDA(xci_cuda_scatter(&copy, nullptr));
    sync();
    expect(list.weights.same(), "scatter", 0);
}

/* A replayed graph sees the new weights and XORs once each time. */
static void expect_graph(case_list &list, device_cases &d) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CUDA(xci_cuda_apply(&d.call, stream));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaStreamSynchronize(stream));
    expect(!list.weights.same(), "a graph that does nothing", 0);
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaStreamSynchronize(stream));
    expect(list.weights.same(), "a graph replayed twice", 0);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaStreamDestroy(stream));
}

/* Lists where the blocks were, no longer than they, for those that check said so of. */
static size_t expect_prepared(case_list &list, device_cases &d) {
    const std::vector<xci_cuda_result> results = d.results.get();
    const std::vector<uint8_t> before = list.blocks.read();
    CUDA(xci_cuda_prepare(&d.call, nullptr));
    sync();
    const std::vector<xci_cuda_block> blocks = d.blocks.get();
    const std::vector<uint8_t> after = list.blocks.read();
    size_t listed = 0;
    for (size_t i = 0; i < list.cases.size(); ++i) {
        const chunk_case &c = list.cases[i];
        const bool changed = results[i].status == XORCAST_OK && results[i].list_bytes != 0;
        const size_t offset = list.blocks.offset[i], kept = changed ? c.block.size() : 0;
        listed += changed;
        expect(blocks[i].block_codec == (changed ? XCI_CUDA_CODEC_LIST : c.block_codec), "codec",
               i);
        expect(blocks[i].block_bytes == (changed ? results[i].list_bytes : c.block.size()),
               "size of a list", i);
        expect(!changed || (results[i].list_bytes == 4 * results[i].bytes_changed &&
                            results[i].list_bytes <= c.block.size()),
               "bytes of a list", i);
        expect(memcmp(&before[offset + kept], &after[offset + kept], c.block.size() + 16 - kept) ==
                   0,
               "prepare writes behind a block", i);
    }
    return listed;
}

/* All blocks of the list are good. */
static void run_good_list(const char *name, case_list &list) {
    device_cases *d = to_device(list);
    const std::vector<uint8_t> old = list.weights.host;
    expect_gate_and_progress(list, *d);
    expect(list.weights.same(), "applied twice is not at all", 0);
    CUDA(xci_cuda_check(&d->call, nullptr));
    sync();
    expect(list.weights.same() && list.blocks.same(), "check changes something", 0);
    const std::vector<xci_cuda_result> results = d->results.get();
    for (size_t i = 0; i < list.cases.size(); ++i)
        expect(expect_result(list, i, results[i]), "a good block is refused", i);
    expect(d->any_bad.get()[0] == 0, "a bad block among good ones", 0);
    CUDA(xci_cuda_apply(&d->call, nullptr));
    sync();
    expect(list.weights.same() && list.blocks.same(), "apply", 0);
    const size_t listed = expect_prepared(list, *d);
    expect(listed > 0 && listed < list.cases.size(), "how many lists", listed);
    CUDA(xci_cuda_apply(&d->call, nullptr));
    sync();
    expect(list.weights.read() == old, "lists", 0);
    CUDA(xci_cuda_apply(&d->call, nullptr));
    CUDA(cudaMemset(d->progress.at, 0, sizeof(uint64_t)));
    expect_gate_and_progress(list, *d);
    expect(list.weights.same(), "lists applied twice", 0);
    expect_graph(list, *d);
    expect_digests_and_copies(list, *d);
    delete d;
    printf("%s: %zu chunks, %zu lists, %u failures so far\n", name, list.cases.size(), listed,
           failures);
}

/* Blocks of any kind: same verdicts; apply all the same, and no byte outside the chunks changes. */
static void run_hostile_list(const char *name, case_list &list) {
    device_cases *d = to_device(list);
    CUDA(xci_cuda_check(&d->call, nullptr));
    sync();
    expect(list.weights.same(), "check changes something", 0);
    const std::vector<xci_cuda_result> results = d->results.get();
    CUDA(xci_cuda_apply(&d->call, nullptr));
    CUDA(xci_cuda_apply(&d->call, nullptr));
    expect_prepared(list, *d);
    CUDA(xci_cuda_apply(&d->call, nullptr));
    sync();
    const std::vector<uint8_t> now = list.weights.read();
    size_t good = 0;
    for (size_t i = 0; i < list.cases.size(); ++i) {
        const chunk_case &c = list.cases[i];
        if (expect_result(list, i, results[i]))
            ++good;
        else
            memcpy(list.weights.at(c.piece), now.data() + list.weights.offset[c.piece], c.bytes);
    }
    expect(now == list.weights.host, "apply of hostile blocks", 0);
    expect(d->any_bad.get()[0] == (good < list.cases.size()), "whether any block is bad", 0);
    expect(good > 0 && good < list.cases.size(), "a list that tests nothing", good);
    delete d;
    printf("%s: %zu chunks, %zu good, %u failures so far\n", name, list.cases.size(), good,
           failures);
}

/* ---- Lists ---------------------------------------------------------------------------------- */

static const uint32_t elements[] = {1, 2, 4, 8};

static std::vector<uint32_t> lengths() {
    std::vector<uint32_t> all;
    for (uint32_t n = 1; n <= 17; ++n)
        all.push_back(n);
    all.insert(all.end(), {63, 64, 65, 1000, (16 << 10) - 1, 16 << 10, (16 << 10) + 1});
    if (!tight)
        all.insert(all.end(), {(64 << 10) - 1, 64 << 10, (64 << 10) + 1, 1 << 20});
    return all;
}

static void test_direct() {
    case_list list;
    uint32_t number = 0;
    for (uint32_t n : lengths())
        for (unsigned pattern = MASK_ONE_BIT; pattern < MASK_PATTERNS; ++pattern)
            for (uint32_t k = 0; k < (tight ? 1u : 4u); ++k, ++number) {
                chunk_case c = new_case(n, elements[number % 4]);
                encode(&c, random_mask(n, pattern),
                       number % 7 == 0 ? XORCAST_CODEC_RAW : XORCAST_CODEC_LZ4);
                if (!c.block.empty())
                    add_direct(list, c, number % 3 == 0 ? 0 : mask_random(&seed, 16));
            }
    /* Lists of lengths around those that apply does in other ways. */
    for (uint32_t count : {1u, 127u, 128u, 129u, 511u, 512u, 513u, 700u}) {
        chunk_case c = new_case(16 << 10, 1);
        std::vector<uint8_t> mask(c.bytes);
        mask_counted(&seed, mask.data(), c.bytes, count);
        encode(&c, mask, XORCAST_CODEC_LZ4);
        add_direct(list, c, 0);
    }
    run_good_list("direct", list);
}

static void test_windows() {
    case_list list;
    for (uint32_t number = 0; number < (tight ? 40u : 600u); ++number) {
        const uint32_t most = number % 10 == 0 && !tight ? 64 << 10 : 2000;
        chunk_case c = new_case(8 + mask_random(&seed, most), elements[number % 4]);
        encode(&c, random_mask(c.bytes, 1 + mask_random(&seed, MASK_PATTERNS - 1)),
               number % 5 == 0 ? XORCAST_CODEC_RAW : XORCAST_CODEC_LZ4);
        if (c.block.empty())
            continue;
        if (number % 4 == 0)
            add_direct(list, c, 0);
        else if (number % 2 == 0)
            add_packed(list, c);
        else
            add_boxes(list, c);
    }
    run_good_list("windows", list);
}

static void test_foreign() {
    case_list list;
    for (uint32_t number = 0; number < (tight ? 200u : 4000u); ++number) {
        chunk_case c = new_case(20 + mask_random(&seed, number % 50 == 0 ? 65000 : 4000), 2);
        const std::vector<uint8_t> mask = random_mask(c.bytes, 1 + number % (MASK_PATTERNS - 1));
        c.block.resize((size_t)LZ4_compressBound((int)c.bytes));
        const int size =
            LZ4_compress_fast((const char *)mask.data(), (char *)c.block.data(), (int)c.bytes,
                              (int)c.block.size(), 1 + (int)(number % 3) * 8);
        c.block.resize((size_t)size);
        c.block_codec = number % 40 == 0 ? XORCAST_CODEC_SNAPPY : XORCAST_CODEC_LZ4;
        add_direct(list, c, mask_random(&seed, 16));
    }
    run_hostile_list("liblz4's blocks", list);
}

static void test_mutated() {
    case_list list;
    for (uint32_t number = 0; number < (tight ? 1500u : 100000u); ++number) {
        const uint32_t most = number % 1000 == 0 ? 70000 : number % 16 == 0 ? 3000 : 250;
        chunk_case c = new_case(1 + mask_random(&seed, most), elements[number % 4]);
        encode(&c, random_mask(c.bytes, mask_random(&seed, MASK_PATTERNS)), XORCAST_CODEC_LZ4);
        uint32_t size = (uint32_t)c.block.size();
        const uint32_t room = size + 8;
        c.block.resize(room);
        if (mask_random(&seed, 20) != 0)
            mask_damage(&seed, c.block.data(), &size, room);
        c.block.resize(size);
        if (mask_random(&seed, 50) == 0)
            c.block_codec = mask_random(&seed, 2) ? XCI_CUDA_CODEC_LIST : mask_random(&seed, 5);
        add_direct(list, c, mask_random(&seed, 16));
    }
    run_hostile_list("mutated blocks", list);
}

/* Tokens that are right or nearly. */
static void test_random_tokens() {
    case_list list;
    for (uint32_t number = 0; number < (tight ? 1500u : 40000u); ++number) {
        std::vector<uint8_t> block(MASK_TOKENS);
        uint32_t bytes;
        block.resize(mask_random_tokens(&seed, block.data(), &bytes));
        chunk_case c = new_case(bytes, 1);
        c.block = block;
        c.block_codec = XORCAST_CODEC_LZ4;
        add_direct(list, c, mask_random(&seed, 16));
    }
    run_hostile_list("random tokens", list);
}

/* ---- Masks that something else has decoded --------------------------------------------------- */

/* The masks of a list's blocks, decoded by liblz4, `stride` apart, with anything behind them; and
 * how long each is said to be, some wrongly. */
struct decoded_masks {
    uint64_t stride = 0;
    std::vector<uint8_t> masks;
    std::vector<uint32_t> decoded; /* two a block, of which the first counts */
};

static decoded_masks decode_all(const case_list &list) {
    decoded_masks all;
    for (const chunk_case &c : list.cases)
        all.stride = c.bytes > all.stride ? c.bytes : all.stride;
    all.stride = (all.stride + 15) / 16 * 16;
    all.masks.resize(all.stride * list.cases.size());
    fill(all.masks.data(), all.masks.size());
    for (size_t i = 0; i < list.cases.size(); ++i) {
        const chunk_case &c = list.cases[i];
        const int made =
            LZ4_decompress_safe((const char *)c.block.data(), (char *)&all.masks[i * all.stride],
                                (int)c.block.size(), (int)c.bytes);
        expect(made == (int)c.bytes, "liblz4 does not decode", i);
        all.decoded.push_back(i % 19 == 3 ? c.bytes - 1 : i % 19 == 7 ? 0 : c.bytes);
        all.decoded.push_back(mask_random(&seed, 100));
    }
    return all;
}

/* Compares with the CPU's verdict on the mask as a raw block; the host's weights get it if the
 * block became a list. */
static bool expect_mask_result(case_list &list, size_t index, const decoded_masks &all,
                               const xci_cuda_result &got) {
    chunk_case c = list.cases[index];
    const uint32_t block_bytes = (uint32_t)c.block.size();
    std::vector<bool> placed;
    std::vector<uint8_t> chunk = gather(list, index, &placed);
    const std::vector<xci_segment> segments = c.windowed ? placed_segments(c, placed) : c.segments;
    expect(got.block_bytes == block_bytes && got.block_codec == XORCAST_CODEC_LZ4, "size", index);
    if (all.decoded[2 * index] != c.bytes) {
        expect(got.status == XORCAST_DATA_CORRUPT && got.list_bytes == 0 && got.bits_changed == 0,
               "a short mask is taken", index);
        return false;
    }
    c.block.assign(&all.masks[index * all.stride], &all.masks[index * all.stride] + c.bytes);
    c.block_codec = XORCAST_CODEC_RAW;
    xci_block_job job = job_of(c, segments, chunk.data());
    xci_backend_cpu.check(&job, 1);
    expect(got.status == XORCAST_OK && got.bits_changed == job.bits_changed &&
               got.bytes_changed == job.bytes_changed &&
               got.elements_changed == job.elements_changed,
           "counts of a mask", index);
    expect(got.change.lane[0] == job.change.lane[0] && got.change.lane[1] == job.change.lane[1],
           "change of the digest by a mask", index);
    const uint32_t list_bytes = 4 * job.bytes_changed;
    expect(got.list_bytes == (list_bytes <= block_bytes ? list_bytes : 0), "bytes of a list",
           index);
    if (got.list_bytes == 0)
        return false;
    xci_backend_cpu.apply(&job, 1);
    scatter(list, index, chunk);
    return true;
}

static void run_masks(const char *name, case_list &list) {
    device_cases *d = to_device(list);
    const decoded_masks all = decode_all(list);
    const device_table<uint8_t> masks(all.masks);
    const device_table<uint32_t> decoded(all.decoded);
    const xci_cuda_mask_call call = {d->call, masks.at, all.stride, decoded.at};
    const std::vector<uint8_t> before = list.blocks.read();
    CUDA(xci_cuda_check_masks(&call, nullptr));
    sync();
    expect(list.weights.same(), "check of masks changes weights", 0);
    const std::vector<xci_cuda_result> results = d->results.get();
    const std::vector<xci_cuda_block> blocks = d->blocks.get();
    const std::vector<uint8_t> after = list.blocks.read();
    std::vector<xci_cuda_block> listed;
    for (size_t i = 0; i < list.cases.size(); ++i) {
        const bool is_list = expect_mask_result(list, i, all, results[i]);
        const size_t offset = list.blocks.offset[i], kept = is_list ? results[i].list_bytes : 0;
        if (is_list)
            listed.push_back(blocks[i]);
        expect(blocks[i].block_codec == (is_list ? XCI_CUDA_CODEC_LIST : XORCAST_CODEC_LZ4) &&
                   blocks[i].block_bytes == (is_list ? kept : list.cases[i].block.size()),
               "codec and size after a mask", i);
        expect(memcmp(&before[offset + kept], &after[offset + kept],
                      list.cases[i].block.size() + 16 - kept) == 0,
               "a list longer than it says", i);
    }
    expect(!listed.empty() && listed.size() < list.cases.size(), "how many lists", listed.size());
    const device_table<xci_cuda_block> table(listed);
    xci_cuda_block_call apply = d->call;
    apply.blocks = table.at;
    apply.count = listed.size();
    CUDA(xci_cuda_apply(&apply, nullptr));
    sync();
    expect(list.weights.same(), "lists made of masks", 0);
    delete d;
    printf("%s: %zu chunks, %zu lists, %u failures so far\n", name, list.cases.size(),
           listed.size(), failures);
}

/* Canonical blocks and liblz4's own, of all lengths, in one piece and in windows. */
static void test_masks() {
    case_list list;
    uint32_t number = 0;
    for (uint32_t n : lengths())
        for (unsigned pattern = MASK_ONE_BIT; pattern < MASK_PATTERNS; ++pattern, ++number) {
            chunk_case c = new_case(n, elements[number % 4]);
            const std::vector<uint8_t> mask = random_mask(n, pattern);
            c.block.resize((size_t)LZ4_compressBound((int)n));
            c.block.resize((size_t)LZ4_compress_default(
                (const char *)mask.data(), (char *)c.block.data(), (int)n, (int)c.block.size()));
            c.block_codec = XORCAST_CODEC_LZ4;
            if (number % 2 == 0)
                encode(&c, mask, XORCAST_CODEC_LZ4);
            if (c.block.empty() || c.block_codec != XORCAST_CODEC_LZ4)
                continue;
            if (number % 5 == 0)
                add_packed(list, c);
            else if (number % 5 == 1 && n > 8)
                add_boxes(list, c);
            else
                add_direct(list, c, number % 3 == 0 ? 0 : mask_random(&seed, 16));
        }
    run_masks("masks", list);
}

/* Nothing to do is no error. */
static void test_nothing() {
    const xci_cuda_block_call blocks = {};
    const xci_cuda_digest_call digest = {};
    const xci_cuda_copy_call copy = {};
    const xci_cuda_mask_call masks = {};
    CUDA(xci_cuda_check_masks(&masks, nullptr));
    CUDA(xci_cuda_check(&blocks, nullptr));
    CUDA(xci_cuda_apply(&blocks, nullptr));
    CUDA(xci_cuda_digest(&digest, nullptr));
    CUDA(xci_cuda_gather(&copy, nullptr));
    CUDA(xci_cuda_scatter(&copy, nullptr));
    sync();
}

int main(int argc, char **argv) {
    tight = argc > 1 && strcmp(argv[1], "--tight") == 0;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("there is no GPU\n");
        return 77;
    }
    test_nothing();
    test_direct();
    test_windows();
    test_foreign();
    test_masks();
    test_mutated();
    test_random_tokens();
    printf("test_cuda_block: %s\n", failures == 0 ? "all good" : "FAILED");
    return failures == 0 ? 0 : 1;
}
