/* Encode, check, prepare and commit over density, chunk size and bundle size, each beside what
 * reading both versions takes in the same run. Every row's weights are compared. One JSON line a
 * point; medians.
 *
 *     curves [--bytes 55.6e9] [--rounds 11] [density chunk bundle] */
#include "cuda/arguments.h"
#include "cuda/cycle.cuh"
#include "cuda/read_bound.cuh"

#include <string.h>

#define SOME_BYTES (UINT64_C(8) << 30) /* of the curves of density and chunk size */
#define USUAL_CHUNK (64u << 10)

static void point(const char *curve, const version_pair &p, const model &m, double share,
                  uint32_t chunk_bytes, unsigned rounds) {
    make_new(p, m);
    cycle c = open_cycle(p, m);
    const cycle_times t = run_cycle(&c, rounds);
    const double bound = read_bound_ms(p.old_bytes, p.new_bytes, m.bytes, rounds);
    printf("{\"bench\":\"curves\",\"curve\":\"%s\",\"weights\":\"%s\",\"bytes\":%llu,"
           "\"share_of_elements\":%g,\"chunk_bytes\":%u,\"blocks\":%llu,\"block_bytes\":%llu,"
           "\"lists\":%llu,\"ready_bytes\":%llu,\"right\":%s,\"read_both_ms\":%.3f,"
           "\"encode_ms\":%.3f,\"encode_of_bound\":%.3f,\"check_ms\":%.3f,\"prepare_ms\":%.3f,"
           "\"commit_ms\":%.3f}\n",
           curve, m.name, (unsigned long long)m.bytes, share, chunk_bytes,
           (unsigned long long)c.call.count, (unsigned long long)c.packed_bytes,
           (unsigned long long)c.lists, (unsigned long long)c.ready_bytes,
           t.right ? "true" : "false", bound, t.encode_ms, bound / t.encode_ms, t.check_ms,
           t.prepare_ms, t.commit_ms);
    fflush(stdout);
    close_cycle(&c);
}

static void density(const version_pair &p, unsigned rounds) {
    const uint64_t bytes = std::min(p.bytes, SOME_BYTES);
    for (double share : {0.0, 0.0001, 0.0005, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 1.0})
        point("density", p, make_bf16(p.old_bytes, bytes, USUAL_CHUNK, share), share, USUAL_CHUNK,
              rounds);
    point("density", p,
          make_model("all bytes", p.old_bytes, bytes, USUAL_CHUNK, {scattered(nvfp4, 1)}, 0), 1,
          USUAL_CHUNK, rounds);
}

static void chunk(const version_pair &p, unsigned rounds) {
    const uint64_t bytes = std::min(p.bytes, SOME_BYTES);
    for (uint32_t size = 16 << 10; size <= 1 << 20; size *= 2) {
        point("chunk", p, make_mix(p.old_bytes, bytes, size), 0, size, rounds);
        point("chunk", p, make_bf16(p.old_bytes, bytes, size, 0.01), 0.01, size, rounds);
    }
}

static void bundle(const version_pair &p, unsigned rounds) {
    for (uint64_t some = UINT64_C(1000013824); some < p.bytes * 2; some *= 2) {
        const uint64_t bytes = std::min(some, p.bytes);
        point("bundle", p, make_mix(p.old_bytes, bytes, USUAL_CHUNK), 0, USUAL_CHUNK, rounds);
        point("bundle", p, make_bf16(p.old_bytes, bytes, USUAL_CHUNK, 0.01), 0.01, USUAL_CHUNK,
              rounds);
    }
}

int main(int argc, char **argv) {
    uint64_t bytes = 55600000000;
    unsigned rounds = 11;
    const argument options[] = {{"--bytes", ARGUMENT_BYTES, &bytes},
                                {"--rounds", ARGUMENT_COUNT, &rounds}};
    const int names = read_arguments(argc, argv, options, 2);
    bytes = bytes / USUAL_CHUNK * USUAL_CHUNK;
    if (bytes == 0 || rounds == 0)
        return fprintf(stderr, "curves: nothing to do\n"), 2;
    static const struct {
        const char *name;
        void (*run)(const version_pair &p, unsigned rounds);
    } curves[] = {{"density", density}, {"chunk", chunk}, {"bundle", bundle}};
    /* Blocks that fill all of SOME_BYTES, with a packing to 16 bytes each. */
    const version_pair p = make_pair(bytes, std::min(bytes, SOME_BYTES) + (64u << 20));
    for (const auto &curve : curves)
        if (is_wanted(names, argv, curve.name))
            curve.run(p, rounds);
    free_pair(p);
    return 0;
}
