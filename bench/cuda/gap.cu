/* The gap codec on the GPU, plain and beside the old weights: encoding, against the time that
 * reading the same two buffers takes; staging; and the commit of what was staged. Then what a
 * publisher does: each form that is wanted, by the cheapest codec for each chunk or in gap alone,
 * and old becomes new. Weights and steps are made on the GPU from hashes, and every result is
 * verified by digests. One JSON line a case and form.
 *
 *     gap [--bytes N] [--rounds N] [--stage-groups N] [CASE...]
 *
 * --stage-groups: so many are staged by a call, as a sampler does it; else all are. */
#include "codec/gap_format.h"
#include "cuda/arguments.h"
#include "cuda/setting.cuh"

#define GROUP_CHUNKS 64u
#define CALLS_AT_ONCE 2u /* by turns on two streams, so that the end of one is beside the next */
#define SCRATCH (UINT64_C(128) << 20) /* of each of these */

/* ---- Weights ---- */

/* Elements of two bytes have exponents like those of weights; single bytes are at random. */
static __device__ uint32_t old_half(uint32_t random, bool wide) {
    const uint32_t below = (uint32_t)__clz((int)(random << 16 | 0x8000));
    return wide ? (random & 0x807f) | (121 - below) << 7 : random;
}

/* How much likelier than on average an element changes: the smaller, the more. BF16: twice as much
 * with each exponent; packed E2M1, of which this is a code without its sign: as its steps grow. */
static __device__ float eagerness(uint32_t element, bool wide) {
    const uint32_t below = 121 - (element >> 7 & 0xff);
    if (wide)
        return (float)(1u << min(below, 7u)) / 4.5f;
    return element < 4 ? 1.5f : element < 6 ? 0.7f : 0.3f;
}

/* The element after the step: mostly the next number up or down. */
static __device__ uint32_t new_element(uint32_t element, uint64_t place, const mask_rule &rule,
                                       bool wide) {
    const uint32_t width = wide ? 2 : 0, key = wide ? element : element & 7;
    const float share = (float)rule.share * eagerness(key, wide) * (wide ? 1.0f : 0.5f);
    if ((float)mask_hash(place) >= share)
        return element;
    const uint32_t value = mask_hash(place + UINT64_C(0x10000000000000));
    return (uint32_t)xci_gap_stepped(element, value % 16 == 0 ? 1 + value / 16 % 6 : 1 + value % 2,
                                     width);
}

/* Old and new weights of a chunk, a word of 4 bytes at a time. */
static __global__ void k_fill_chunks(const mask_chunk *chunks, const mask_rule *rules,
                                     uint64_t new_minus_old) {
    const mask_chunk chunk = chunks[blockIdx.x];
    const mask_rule rule = rules[chunk.rule];
    const bool wide = rule.element_bytes == 2;
    const uint32_t bits = wide ? 16 : 4;
    for (uint32_t word = threadIdx.x; word * 4 < chunk.bytes; word += blockDim.x) {
        const uint64_t place = (uint64_t)blockIdx.x << 20 | word;
        const uint32_t random = mask_hash(place | UINT64_C(1) << 50);
        const bool dirty = mask_page_dirty(rule, blockIdx.x, word * 4 / MASK_PAGE);
        uint32_t olds = 0, news = 0;
        for (uint32_t half = 0; half < 2; ++half)
            olds |= old_half(random >> 16 * half & 0xffff, wide) << 16 * half;
        for (uint32_t at = 0; at < 32; at += bits) {
            const uint32_t element = olds >> at & ((1u << bits) - 1);
            news |= (dirty ? new_element(element, place << 5 | at, rule, wide) : element) << at;
        }
        ((uint32_t *)chunk.at)[word] = olds;
        ((uint32_t *)(chunk.at + new_minus_old))[word] = news;
    }
}

static __global__ void k_read_both(const uint4 *a, const uint4 *b, uint64_t count, uint32_t *sink) {
    const uint64_t stride = (uint64_t)blockDim.x * 4;
    uint32_t sum = 0;
    for (uint64_t first = blockIdx.x * stride; first + stride <= count;
         first += gridDim.x * stride) {
        uint4 va[4], vb[4];
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) {
            va[k] = __ldcs(a + first + k * blockDim.x + threadIdx.x);
            vb[k] = __ldcs(b + first + k * blockDim.x + threadIdx.x);
        }
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k)
            sum ^= va[k].x ^ va[k].y ^ va[k].z ^ va[k].w ^ vb[k].x ^ vb[k].y ^ vb[k].z ^ vb[k].w;
    }
    if (sum == 0x12345678)
        *sink = sum;
}

/* ---- A step in this codec ---- */

/* Everything about a model, old and new, and its encoded form. */
struct gap_step {
    xci_cuda_grid grid;
    uint64_t chunk_count, group_count;
    mask_chunk *mask_chunks;
    mask_rule *rules;
    uint8_t **old_at, **new_at;
    std::vector<uint64_t> group_first;
    std::vector<xci_cuda_gap_encode_call> calls;
    xci_cuda_result *results;
    xci_cuda_gap_group *groups;
    uint8_t *output, *scratch;
    uint64_t *group_first_at;
    xci_cuda_gap_used *used;
    uint64_t call_groups, call_output; /* of a call */
    cudaStream_t streams[CALLS_AT_ONCE];
};

/* `call_groups`: groups of a call, whose lists must fit the scratch. */
static gap_step make_gap_step(const model &m, uint64_t new_minus_old, uint64_t call_groups) {
    gap_step s = {};
    s.call_groups = call_groups;
    s.call_output = call_groups * 192 * 1024;
    std::vector<uint8_t *> olds, news;
    for (const mask_chunk &c : m.chunks) {
        olds.push_back(c.at);
        news.push_back(c.at + new_minus_old);
    }
    s.chunk_count = m.chunks.size();
    s.mask_chunks = to_device(m.chunks);
    s.rules = to_device(m.rules);
    s.grid = make_grid(m, UINT32_MAX);
    s.old_at = to_device(olds);
    s.new_at = to_device(news);
    for (uint64_t c = 0; c < s.chunk_count; c += GROUP_CHUNKS)
        s.group_first.push_back(c);
    s.group_count = s.group_first.size();
    s.group_first.push_back(s.chunk_count);
    s.group_first_at = to_device(s.group_first);
    s.results = device_array<xci_cuda_result>(s.chunk_count);
    s.groups = device_array<xci_cuda_gap_group>(s.group_count);
    const uint64_t calls = (s.group_count + call_groups - 1) / call_groups;
    s.output = device_array<uint8_t>(calls * s.call_output);
    s.used = device_array<xci_cuda_gap_used>(calls);
    s.scratch = device_array<uint8_t>(CALLS_AT_ONCE * SCRATCH);
    for (cudaStream_t &stream : s.streams)
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (uint64_t i = 0; i < calls; ++i) {
        const uint64_t first = i * call_groups;
        const uint64_t end = std::min(s.group_count, first + call_groups);
        xci_cuda_gap_encode_call call = {};
        call.grid = s.grid;
        call.old_at = s.old_at;
        call.new_at = (const uint8_t *const *)s.new_at;
        call.group_first = s.group_first_at + first;
        call.first = s.group_first[first];
        call.count = s.group_first[end] - call.first;
        call.group_count = end - first;
        call.blocks = s.output + i * s.call_output;
        call.capacity = s.call_output;
        call.results = s.results + call.first;
        call.groups = s.groups + first;
        call.used = s.used + i;
        call.scratch = s.scratch + i % CALLS_AT_ONCE * SCRATCH;
        call.scratch_bytes = SCRATCH;
        s.calls.push_back(call);
    }
    return s;
}

static void free_gap_step(gap_step *s) {
    for (cudaStream_t stream : s->streams)
        CUDA(cudaStreamDestroy(stream));
    for (const void *at :
         {(const void *)s->mask_chunks, (const void *)s->rules, (const void *)s->grid.chunks,
          (const void *)s->grid.segments, (const void *)s->old_at, (const void *)s->new_at,
          (const void *)s->group_first_at, (const void *)s->results, (const void *)s->groups,
          (const void *)s->output, (const void *)s->used, (const void *)s->scratch})
        CUDA(cudaFree((void *)at));
}

/* Work on the step's streams begins after, and ends before, what is on the default stream. */
static void fork(const gap_step &s, cudaEvent_t event) {
    CUDA(cudaEventRecord(event, nullptr));
    for (cudaStream_t stream : s.streams)
        CUDA(cudaStreamWaitEvent(stream, event, 0));
}
static void join(const gap_step &s, cudaEvent_t event) {
    for (cudaStream_t stream : s.streams) {
        CUDA(cudaEventRecord(event, stream));
        CUDA(cudaStreamWaitEvent(nullptr, event, 0));
    }
}

typedef enum forms { PLAIN, BESIDE, BOTH } forms;

/* Prices in picoseconds, of a receiver that is a GPU and a link of 25 GB/s; of bytes; and none. */
typedef struct choosing {
    const char *name;
    xci_cuda_prices prices;
} choosing;
static const choosing choices[] = {
    {"gap", {0, {0, 0, 0, 0, 0}}},
    {"bytes", {1, {0, 0, 0, 0, 0}}},
    {"time", {40, {0, 1, 1, 3, 3}}},
};

/* `streams`: 1 or CALLS_AT_ONCE. */
static void encode(const gap_step &s, forms wanted, const choosing &by = choices[0],
                   bool moves = false, unsigned streams = CALLS_AT_ONCE) {
    cudaEvent_t event;
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    fork(s, event);
    for (size_t i = 0; i < s.calls.size(); ++i) {
        const cudaStream_t stream = s.streams[i % streams];
        xci_cuda_gap_encode_call call = s.calls[i];
        call.beside = wanted == BESIDE;
        call.prices = by.prices;
        CUDA(xci_cuda_gap_encode(&call, stream));
        call.beside = call.listed = 1; /* the lists of the first form */
        if (wanted == BOTH)
            CUDA(xci_cuda_gap_encode(&call, stream));
        if (moves)
            CUDA(xci_cuda_gap_move(&call, stream));
    }
    join(s, event);
    CUDA(cudaEventDestroy(event));
}

/* ---- Staging ---- */

struct gap_stage {
    xci_cuda_gap_call call;
    std::vector<xci_cuda_gap_block> blocks;
    std::vector<xci_cuda_block> ready; /* raw blocks, then forms of gap blocks */
    uint64_t payload_bytes, params_bytes, raw, forms_bytes;
    xci_cuda_block_call commit;
    uint8_t *forms;
};

/* Lists what was encoded, where it lies. Raw blocks must lie aligned for apply; none is expected
 * here. */
static gap_stage make_stage(const gap_step &s, bool beside) {
    gap_stage stage = {};
    stage.call.beside = beside;
    std::vector<xci_cuda_gap_record> records;
    uint32_t most_tables = 1;
    const std::vector<xci_cuda_result> results = to_host(s.results, s.chunk_count);
    const std::vector<xci_cuda_gap_group> groups = to_host(s.groups, s.group_count);
    for (uint64_t g = 0; g < s.group_count; ++g) {
        const uint8_t *at = s.output + g / s.call_groups * s.call_output + groups[g].offset;
        xci_cuda_gap_record record = {};
        record.first = stage.blocks.size();
        record.params = at + groups[g].bytes - groups[g].params_bytes;
        record.params_bytes = groups[g].params_bytes;
        if (groups[g].params_bytes != 0) {
            uint8_t tables;
            CUDA(cudaMemcpy(&tables, record.params, 1, cudaMemcpyDeviceToHost));
            most_tables = std::max<uint32_t>(most_tables, tables);
        }
        stage.call.most_params = std::max(stage.call.most_params, record.params_bytes);
        stage.payload_bytes += groups[g].bytes;
        stage.params_bytes += groups[g].params_bytes;
        for (uint64_t c = s.group_first[g]; c < s.group_first[g + 1]; ++c) {
            if (results[c].bytes_changed == 0)
                continue;
            if (results[c].block_codec == XORCAST_CODEC_RAW) {
                ++stage.raw;
                continue;
            }
            stage.blocks.push_back(
                {at + results[c].block_offset, nullptr, c, results[c].block_bytes, record.count++});
        }
        record.gap_count = record.count;
        if (record.count != 0)
            records.push_back(record);
    }
    stage.call.grid = s.grid;
    stage.call.places.direct = s.old_at;
    stage.call.blocks = to_device(stage.blocks);
    stage.call.records = to_device(records);
    stage.call.record_count = records.size();
    stage.call.results = device_array<xci_cuda_result>(stage.blocks.size());
    stage.call.most_tables = most_tables;
    return stage;
}

static unsigned stage_groups; /* a call; 0: all in one */

/* Check or ready of all groups. */
static void stage_all(const gap_stage &stage, int (*work)(const xci_cuda_gap_call *, void *)) {
    const uint64_t count = stage.call.record_count, most = stage_groups > 0 ? stage_groups : count;
    for (uint64_t first = 0; first < count; first += most) {
        xci_cuda_gap_call call = stage.call;
        call.records += first;
        call.record_count = std::min(most, count - first);
        CUDA(work(&call, nullptr));
    }
}

/* Finds places for the forms that check has announced. */
static uint64_t place_forms(gap_stage *stage) {
    const std::vector<xci_cuda_result> results = to_host(stage->call.results, stage->blocks.size());
    uint64_t bad = 0, at = 0;
    for (const xci_cuda_result &r : results)
        stage->forms_bytes += (r.list_bytes + 15) / 16 * 16;
    stage->forms = device_array<uint8_t>(stage->forms_bytes);
    for (uint64_t i = 0; i < results.size(); ++i) {
        bad += results[i].status != XORCAST_OK;
        stage->blocks[i].ready = stage->forms + at;
        stage->ready.push_back({stage->forms + at, results[i].list_bytes, results[i].block_codec,
                                stage->blocks[i].chunk});
        at += (results[i].list_bytes + 15) / 16 * 16;
    }
    CUDA(cudaMemcpy((void *)stage->call.blocks, stage->blocks.data(),
                    stage->blocks.size() * sizeof stage->blocks[0], cudaMemcpyHostToDevice));
    stage->commit.grid = stage->call.grid;
    stage->commit.places = stage->call.places;
    stage->commit.blocks = to_device(stage->ready);
    stage->commit.count = stage->ready.size();
    return bad;
}

static void free_stage(gap_stage *stage) {
    for (const void *at : {(const void *)stage->call.blocks, (const void *)stage->call.records,
                           (const void *)stage->call.results, (const void *)stage->commit.blocks,
                           (const void *)stage->forms})
        CUDA(cudaFree((void *)at));
}

/* ---- Cases ---- */

static std::vector<xorcast_digest> digests_at(const gap_step &s, uint8_t *const *at) {
    xorcast_digest *const digests = device_array<xorcast_digest>(s.chunk_count);
    xci_cuda_digest_call call = {};
    call.grid = s.grid;
    call.places.direct = at;
    call.count = s.chunk_count;
    call.digests = digests;
    CUDA(xci_cuda_digest(&call, nullptr));
    const std::vector<xorcast_digest> host = to_host(digests, s.chunk_count);
    CUDA(cudaFree(digests));
    return host;
}

/* Stages and commits what was encoded; prints a row. */
static void measure_form(const model &m, const gap_step &s, bool beside, double bound_ms,
                         unsigned rounds) {
    const double encode_ms = median_ms(rounds, [&] { encode(s, beside ? BESIDE : PLAIN); });
    gap_stage stage = make_stage(s, beside);
    const double check_ms = median_ms(rounds, [&] { stage_all(stage, xci_cuda_gap_check); });
    const uint64_t refused = place_forms(&stage);
    const double ready_ms = median_ms(rounds, [&] { stage_all(stage, xci_cuda_gap_ready); });
    const auto apply = [&] { CUDA(xci_cuda_apply(&stage.commit, nullptr)); };
    const std::vector<xorcast_digest> before = digests_at(s, s.old_at);
    apply();
    const bool right =
        refused == 0 && stage.raw == 0 && equal(digests_at(s, s.old_at), digests_at(s, s.new_at));
    apply();
    const bool undone = equal(before, digests_at(s, s.old_at));
    const double commit_ms = median_ms(rounds | 1, apply); /* an even number of times in all */
    printf("{\"row\":\"gap\",\"case\":\"%s\",\"beside\":%d,\"right\":%s,\"bytes\":%llu,"
           "\"blocks\":%llu,\"raw\":%llu,\"refused\":%llu,\"payload_bytes\":%llu,"
           "\"params_bytes\":%llu,\"forms_bytes\":%llu,\"bound_ms\":%.3f,\"encode_ms\":%.3f,"
           "\"of_bound\":%.3f,\"encode_tb_s\":%.3f,\"check_ms\":%.3f,\"ready_ms\":%.3f,"
           "\"stage_tb_s\":%.3f,\"commit_ms\":%.3f}\n",
           m.name, beside, right && undone ? "true" : "false", (unsigned long long)m.bytes,
           (unsigned long long)stage.blocks.size(), (unsigned long long)stage.raw,
           (unsigned long long)refused, (unsigned long long)stage.payload_bytes,
           (unsigned long long)stage.params_bytes, (unsigned long long)stage.forms_bytes, bound_ms,
           encode_ms, bound_ms / encode_ms, 1e-9 * (double)m.bytes / encode_ms, check_ms, ready_ms,
           1e-9 * (double)m.bytes / (check_ms + ready_ms), commit_ms);
    fflush(stdout);
    free_stage(&stage);
}

/* Old, as it was before it became new. */
static void refill(const gap_step &s, uint64_t new_minus_old) {
    k_fill_chunks<<<(unsigned)s.chunk_count, 256>>>(s.mask_chunks, s.rules, new_minus_old);
    CUDA(cudaDeviceSynchronize());
}

static uint64_t payload_bytes(const gap_step &s) {
    uint64_t bytes = 0;
    for (const xci_cuda_gap_used &used : to_host(s.used, s.calls.size()))
        bytes += used.bytes;
    return bytes;
}

/* A form, or both, and the shadow; `streams` as for encode. */
static void measure_publishing(const model &m, const gap_step &s, uint64_t new_minus_old,
                               const choosing &by, forms wanted, unsigned streams, double bound_ms,
                               unsigned rounds) {
    std::vector<double> encodes, all;
    bool right = true;
    for (unsigned i = 0; i <= rounds; ++i)
        encodes.push_back(once_ms([&] { encode(s, wanted, by, false, streams); }));
    for (unsigned i = 0; i <= rounds; ++i) {
        all.push_back(once_ms([&] { encode(s, wanted, by, true, streams); }));
        right = right && equal(digests_at(s, s.old_at), digests_at(s, s.new_at));
        refill(s, new_minus_old);
    }
    const double encode_ms = median(encodes), all_ms = median(all);
    printf("{\"row\":\"publish\",\"case\":\"%s\",\"choice\":\"%s\",\"forms\":%d,"
           "\"streams\":%u,\"right\":%s,\"payload_bytes\":%llu,\"bound_ms\":%.3f,"
           "\"encode_ms\":%.3f,\"with_move_ms\":%.3f}\n",
           m.name, by.name, wanted == BOTH ? 2 : 1, streams, right ? "true" : "false",
           (unsigned long long)payload_bytes(s), bound_ms, encode_ms, all_ms);
    fflush(stdout);
}

static void measure_case(const model &m, uint8_t *new_weights, uint8_t *old_weights,
                         uint64_t call_groups, unsigned rounds) {
    const uint64_t new_minus_old = (uint64_t)(new_weights - old_weights);
    gap_step s = make_gap_step(m, new_minus_old, call_groups);
    uint32_t *const sink = device_array<uint32_t>(1);
    refill(s, new_minus_old);
    double bound_ms = 1e9;
    for (unsigned blocks = 4; blocks <= 16; blocks *= 2)
        bound_ms = std::min(bound_ms, median_ms(rounds, [&] {
                                k_read_both<<<132 * blocks, 256>>>((const uint4 *)old_weights,
                                                                   (const uint4 *)new_weights,
                                                                   m.bytes / 16, sink);
                            }));
    measure_form(m, s, false, bound_ms, rounds);
    measure_form(m, s, true, bound_ms, rounds);
    const double both_ms = median_ms(rounds, [&] { encode(s, BOTH); });
    printf("{\"row\":\"both forms\",\"case\":\"%s\",\"encode_ms\":%.3f}\n", m.name, both_ms);
    fflush(stdout);
    for (const choosing &by : choices)
        for (const forms wanted : {PLAIN, BOTH})
            measure_publishing(m, s, new_minus_old, by, wanted, CALLS_AT_ONCE, bound_ms, rounds);
    measure_publishing(m, s, new_minus_old, choices[0], PLAIN, 1, bound_ms, rounds);
    CUDA(cudaFree(sink));
    free_gap_step(&s);
}

int main(int argc, char **argv) {
    uint64_t bytes = 55600000000;
    unsigned rounds = 7;
    const argument options[] = {{"--bytes", ARGUMENT_BYTES, &bytes},
                                {"--rounds", ARGUMENT_COUNT, &rounds},
                                {"--stage-groups", ARGUMENT_COUNT, &stage_groups}};
    const int names = read_arguments(argc, argv, options, 3);
    bytes = bytes / 65536 * 65536;
    uint8_t *const olds = device_array<uint8_t>(bytes), *const news = device_array<uint8_t>(bytes);
    const uint32_t usual = 64 << 10;
    const std::vector<model> models = {
        make_mix(olds, bytes, usual),
        make_model("nvfp4 mix, clustered", olds, bytes, usual,
                   {clustered(nvfp4, 0.0002), clustered(bf16, 0.013)}, 25),
        make_model("bf16 1 %", olds, bytes, usual, {scattered(bf16, 0.01)}, 0),
    };
    for (const model &m : models)
        if (is_wanted(names, argv, m.name))
            measure_case(m, news, olds, m.rules.size() > 1 ? 1320 : 256, rounds);
    CUDA(cudaFree(olds));
    CUDA(cudaFree(news));
    return 0;
}
