/* Tests of bench/gen: the same bytes for any range, order and thread; the densities asked for;
 * masks that undo themselves; plans of the promised sizes and mixes; checkpoints whose bytes lie
 * where the header says. Uses no xorcast call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gen/gen.h"
#include "gen/measure.h"
#include "support/pinned.h"

#define SIZE UINT64_C(1000003) /* odd on purpose */
#define CANARY 0xA5

/* Pinned: golden deltas and comparisons between machines stand on these bytes. */
static void weights_are_the_same_for_ever(void **state) {
    (void)state;
    static const uint64_t expected[GEN_KINDS] = {
        [GEN_ZERO] = UINT64_C(0xB93A0C83CE3B6325),
        [GEN_RANDOM] = UINT64_C(0x0D1E90D23E7268EC),
        [GEN_BF16] = UINT64_C(0x82E05B00301ED09D),
        [GEN_FP8] = UINT64_C(0xDF1D5ECA46D3EAAB),
        [GEN_NVFP4] = UINT64_C(0xD2AC396A30E6580F),
        [GEN_FP8_SCALE] = UINT64_C(0xD9927DABF1DFB20F),
        [GEN_F32_SCALE] = UINT64_C(0xA8044460AEFF54DE),
    };
    uint8_t bytes[4096];
    for (gen_kind kind = GEN_ZERO; kind < GEN_KINDS; kind++) {
        gen_weights(kind, 1, 2, 0, bytes, sizeof bytes);
        const gen_mask mask = {kind, false, 0.1, 1, 2, 3};
        gen_mask_xor(&mask, 0, bytes, sizeof bytes);
        gen_update(&mask, 0, bytes, sizeof bytes);
        if (fnv(bytes, sizeof bytes) != expected[kind]) {
            fail_msg("kind %d gives 0x%llX", (int)kind,
                     (unsigned long long)fnv(bytes, sizeof bytes));
        }
    }
}

/* Makes [0, SIZE) in pieces of random length, in falling order, and compares with one piece. */
static void any_range_alone(void **state) {
    (void)state;
    uint8_t *whole = bytes_of(SIZE), *parts = bytes_of(SIZE);
    for (gen_kind kind = GEN_ZERO; kind < GEN_KINDS; kind++) {
        const gen_mask mask = {kind, kind % 2 == 0, 0.02, 7, 11, 3};
        gen_weights(kind, 7, 11, 0, whole, SIZE);
        const uint64_t changed = gen_mask_xor(&mask, 0, whole, SIZE);
        uint64_t random = kind, changed_parts = 0;
        for (uint64_t end = SIZE; end > 0;) {
            const uint64_t step = gen_next(&random) % (gen_next(&random) % 3 == 0 ? 20000 : 19) + 1;
            const uint64_t from = end > step ? end - step : 0;
            const uint8_t before = parts[from > 0 ? from - 1 : 0];
            gen_weights(kind, 7, 11, from, parts + from, end - from);
            changed_parts += gen_mask_xor(&mask, from, parts + from, end - from);
            assert_true(from == 0 || parts[from - 1] == before);
            end = from;
        }
        assert_memory_equal(whole, parts, SIZE);
        assert_int_equal(changed, changed_parts);
    }
    free(whole);
    free(parts);
}

static void updates_of_any_range_alone(void **state) {
    (void)state;
    uint8_t *whole = bytes_of(SIZE), *parts = bytes_of(SIZE);
    for (gen_kind kind = GEN_ZERO; kind < GEN_KINDS; kind++) {
        const gen_mask mask = {kind, false, 0.02, 7, 11, 3};
        gen_weights(kind, 7, 11, 0, whole, SIZE);
        memcpy(parts, whole, SIZE);
        const uint64_t changed = gen_update(&mask, 0, whole, SIZE);
        uint64_t changed_parts = 0;
        for (uint64_t at = 0; at < SIZE; at += 1992) {
            changed_parts += gen_update(&mask, at, parts + at, SIZE - at < 1992 ? SIZE - at : 1992);
        }
        assert_memory_equal(whole, parts, SIZE);
        assert_int_equal(changed, changed_parts);
    }
    free(whole);
    free(parts);
}

static void canaries_stay(void **state) {
    (void)state;
    uint8_t bytes[64];
    for (gen_kind kind = GEN_ZERO; kind < GEN_KINDS; kind++) {
        for (uint64_t offset = 0; offset < 9; offset++) {
            for (uint64_t count = 0; count < 18; count++) {
                const gen_mask mask = {kind, false, 1, 1, 1, 1};
                memset(bytes, CANARY, sizeof bytes);
                gen_weights(kind, 1, 1, offset, bytes + 16, count);
                gen_mask_xor(&mask, offset, bytes + 16, count);
                gen_update(&mask, offset / 8 * 8, bytes + 16, count);
                for (uint64_t i = 0; i < sizeof bytes; i++) {
                    assert_true((i >= 16 && i < 16 + count) || bytes[i] == CANARY);
                }
            }
        }
    }
}

typedef struct job {
    uint64_t hash;
} job;

static void *run_job(void *argument) {
    uint8_t *bytes = bytes_of(SIZE);
    gen_weights(GEN_BF16, 5, 6, 0, bytes, SIZE);
    ((job *)argument)->hash = fnv(bytes, SIZE);
    free(bytes);
    return NULL;
}

static void threads_agree(void **state) {
    (void)state;
    job jobs[4];
    pthread_t threads[4];
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_job, &jobs[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(jobs[i].hash == jobs[0].hash);
    }
}

static void seeds_tensors_and_steps_differ(void **state) {
    (void)state;
    uint8_t a[64], b[64];
    gen_weights(GEN_RANDOM, 1, 1, 0, a, sizeof a);
    gen_weights(GEN_RANDOM, 2, 1, 0, b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
    gen_weights(GEN_RANDOM, 1, 2, 0, b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
    gen_mask mask = {GEN_RANDOM, false, 0.5, 1, 1, 1};
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    gen_mask_xor(&mask, 0, a, sizeof a);
    mask.step = 2;
    gen_mask_xor(&mask, 0, b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
}

static uint64_t changed_between(const uint8_t *a, const uint8_t *b, uint64_t count) {
    uint64_t changed = 0;
    for (uint64_t i = 0; i < count; i++) {
        changed += a[i] != b[i];
    }
    return changed;
}

/* The share of bytes asked for, within five standard deviations, and the number returned
 * exactly. */
static void densities_hold(void **state) {
    (void)state;
    static const double densities[] = {0, 0.0002, 0.006, 0.17, 0.5};
    const uint64_t size = UINT64_C(4) << 20;
    uint8_t *old = bytes_of(size), *now = bytes_of(size);
    for (gen_kind kind = GEN_RANDOM; kind < GEN_KINDS; kind++) {
        for (uint32_t d = 0; d < 5; d++) {
            for (uint32_t way = 0; way < 2; way++) {
                const double density = kind == GEN_BF16 && d == 4        ? 0.45
                                       : kind == GEN_F32_SCALE && d == 4 ? 0.3
                                                                         : densities[d];
                if (way == 1 && d > 2) { /* small numbers cannot change more than always */
                    continue;
                }
                const gen_mask mask = {kind, false, gen_density_of_bytes(kind, density), 3, 4, 5};
                gen_weights(kind, 3, 4, 0, old, size);
                memcpy(now, old, size);
                const uint64_t told =
                    way == 0 ? gen_mask_xor(&mask, 0, now, size) : gen_update(&mask, 0, now, size);
                assert_int_equal(told, changed_between(old, now, size));
                const double expected = density * (double)size;
                assert_true(fabs((double)told - expected) <=
                            8 * sqrt(expected) + 0.03 * expected * way);
            }
        }
    }
    free(old);
    free(now);
}

static void full_mask_changes_every_element(void **state) {
    (void)state;
    for (gen_kind kind = GEN_ZERO; kind < GEN_KINDS; kind++) {
        uint8_t bytes[8192] = {0};
        const gen_mask mask = {kind, false, 1, 3, 4, 5};
        const uint32_t size = gen_kind_element_bytes(kind);
        gen_mask_xor(&mask, 0, bytes, sizeof bytes);
        for (uint64_t i = 0; i < sizeof bytes; i += size) {
            static const uint8_t zeros[4];
            assert_true(memcmp(bytes + i, zeros, size) != 0);
        }
    }
}

static void clustered_masks_leave_most_blocks(void **state) {
    (void)state;
    const uint64_t size = UINT64_C(32) << 20;
    uint8_t *bytes = bytes_of(size);
    const gen_mask mask = {GEN_NVFP4, true, 0.006, 3, 4, 5};
    const double changed = (double)gen_mask_xor(&mask, 0, bytes, size);
    uint64_t blocks = 0;
    for (uint64_t at = 0; at < size; at += GEN_BLOCK_BYTES) {
        static const uint8_t zeros[GEN_BLOCK_BYTES];
        blocks += memcmp(bytes + at, zeros, GEN_BLOCK_BYTES) != 0;
    }
    const double share = (double)blocks * GEN_BLOCK_BYTES / (double)size;
    assert_true(share > 0.04 && share < 0.06);
    assert_true(changed / (double)size > 0.005 && changed / (double)size < 0.007);
    free(bytes);
}

static void masks_undo_themselves(void **state) {
    (void)state;
    uint8_t *bytes = bytes_of(SIZE);
    const gen_mask mask = {GEN_BF16, false, 0.013, 3, 4, 5};
    gen_weights(GEN_BF16, 3, 4, 0, bytes, SIZE);
    const uint64_t before = fnv(bytes, SIZE);
    gen_mask_xor(&mask, 0, bytes, SIZE);
    assert_true(fnv(bytes, SIZE) != before);
    gen_mask_xor(&mask, 0, bytes, SIZE);
    assert_true(fnv(bytes, SIZE) == before);
    free(bytes);
}

/* An update at a small rate is a step of one or two, no sign turns, nothing becomes infinite. */
static void updates_step_the_last_place(void **state) {
    (void)state;
    uint8_t *old = bytes_of(SIZE), *now = bytes_of(SIZE);
    const gen_mask mask = {GEN_BF16, false, 0.05, 3, 4, 5};
    gen_weights(GEN_BF16, 3, 4, 0, old, SIZE);
    memcpy(now, old, SIZE);
    gen_update(&mask, 0, now, SIZE);
    uint64_t ones = 0, all = 0;
    for (uint64_t i = 0; i + 1 < SIZE; i += 2) {
        const int a = old[i] | old[i + 1] << 8, b = now[i] | now[i + 1] << 8;
        assert_true(abs(a - b) <= 2 && (a & 0x8000) == (b & 0x8000) && (b & 0x7FFF) < 0x7F80);
        all += a != b;
        ones += abs(a - b) == 1;
    }
    assert_true(all > 0 && ones * 10 > all * 9);
    free(old);
    free(now);
}

static void plans_have_their_size_and_mix(void **state) {
    (void)state;
    static const uint64_t sizes[] = {
        100, 5000, 70001, 7000000, UINT64_C(4000000000), UINT64_C(55600000000)};
    static const gen_kind experts[] = {GEN_BF16, GEN_FP8, GEN_NVFP4};
    for (uint32_t e = 0; e < 3; e++) {
        for (uint32_t s = 0; s < 6; s++) {
            gen_plan plan = {0};
            assert_int_equal(gen_plan_model(&plan, experts[e], sizes[s]), 0);
            assert_int_equal(plan.total_bytes, sizes[s] / 2 * 2);
            uint64_t quantised = 0, sum = 0;
            for (uint64_t i = 0; i < plan.count; i++) {
                quantised += plan.tensors[i].kind != GEN_BF16 ? plan.tensors[i].bytes : 0;
                sum += plan.tensors[i].bytes;
                assert_int_equal(plan.tensors[i].id, i);
            }
            assert_int_equal(sum, plan.total_bytes);
            const double share = (double)quantised / (double)sum;
            assert_true(experts[e] != GEN_NVFP4 || s < 3 || (share > 0.915 && share < 0.925));
            gen_plan_free(&plan);
        }
    }
}

static void many_tensors(void **state) {
    (void)state;
    gen_plan plan = {0};
    assert_int_equal(gen_plan_many(&plan, 200000, 4096), 0);
    assert_int_equal(plan.count, 200000);
    assert_string_equal(plan.tensors[2].name,
                        "model.layers.0.mlp.experts.0.gate_proj.weight_scale_2");
    assert_int_equal(plan.tensors[2].rank, 0);
    assert_int_equal(plan.tensors[2].bytes, 4);
    gen_plan_free(&plan);
}

/* ---- Checkpoints ------------------------------------------------------------------------------*/

static uint8_t *read_file(const char *path, uint64_t *size_out) {
    FILE *in = fopen(path, "rb");
    if (in == NULL) {
        fail_msg("%s cannot be opened", path);
    }
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    *size_out = (uint64_t)ftell(in);
    rewind(in);
    uint8_t *bytes = bytes_of(*size_out);
    assert_int_equal(fread(bytes, 1, *size_out, in), *size_out);
    fclose(in);
    return bytes;
}

/* Finds the tensor's offsets in the header and compares the bytes there with gen_run_bytes. */
static bool file_has(const char *path, const gen_run *run, const gen_tensor *tensor,
                     uint64_t step) {
    uint64_t size, header = 0, begin, end;
    char key[96];
    uint8_t *file = read_file(path, &size);
    memcpy(&header, file, 8);
    assert_true(header % 8 == 0 && header + 8 <= size);
    char *text = (char *)file + 8;
    snprintf(key, sizeof key, "\"%s\":{", tensor->name);
    const uint8_t first = file[8 + header];
    text[header] = '\0';
    const char *entry = strstr(text, key);
    const char *offsets = entry == NULL ? NULL : strstr(entry, "\"data_offsets\":[");
    file[8 + header] = first;
    if (offsets == NULL) {
        free(file);
        return false;
    }
    assert_int_equal(sscanf(offsets, "\"data_offsets\":[%lu,%lu]", &begin, &end), 2);
    assert_true(end - begin == tensor->bytes && 8 + header + end <= size);
    uint8_t *expected = bytes_of(tensor->bytes);
    gen_run_bytes(run, tensor, step, 0, expected, tensor->bytes);
    assert_memory_equal(file + 8 + header + begin, expected, tensor->bytes);
    free(expected);
    free(file);
    return true;
}

static void write_and_check(const gen_run *run, uint32_t shards) {
    char directory[] = "/tmp/test_gen_XXXXXX", path[256], command[300];
    assert_non_null(mkdtemp(directory));
    assert_int_equal(gen_checkpoints_write(run, 3, shards, directory), 0);
    for (uint64_t i = 0; i < run->plan->count; i++) {
        uint32_t found = 0;
        for (uint32_t shard = 0; shard < shards; shard++) {
            snprintf(path, sizeof path, "%s/step_000002/model.safetensors", directory);
            if (shards > 1) {
                snprintf(path, sizeof path, "%s/step_000002/model-%05u-of-%05u.safetensors",
                         directory, shard + 1, shards);
            }
            found += file_has(path, run, &run->plan->tensors[i], 2);
        }
        assert_int_equal(found, 1);
    }
    snprintf(path, sizeof path, "%s/step_000001/model.safetensors.index.json", directory);
    assert_int_equal(access(path, R_OK) == 0, shards > 1);
    snprintf(command, sizeof command, "rm -rf %s", directory);
    assert_int_equal(system(command), 0);
}

static void checkpoints_hold_the_bytes(void **state) {
    (void)state;
    static const gen_kind experts[] = {GEN_BF16, GEN_FP8, GEN_NVFP4};
    for (uint32_t e = 0; e < 3; e++) {
        gen_plan plan = {0};
        assert_int_equal(gen_plan_model(&plan, experts[e], 60000), 0);
        assert_int_equal(gen_plan_add_extras(&plan), 0);
        gen_run run = {.plan = &plan, .seed = 9};
        write_and_check(&run, 1);
        run.lr_like = true;
        write_and_check(&run, 3);
        run.lr_like = false;
        run.zeros = true;
        run.clustered = true;
        write_and_check(&run, 1);
        gen_plan_free(&plan);
    }
}

static void pieces_of_a_large_tensor_join(void **state) {
    (void)state;
    gen_plan plan = {0};
    assert_int_equal(gen_plan_add(&plan, GEN_RANDOM, 0.01, 1, 0, 9000001, "large"), 0);
    const gen_run run = {.plan = &plan, .seed = 9};
    write_and_check(&run, 1);
    gen_plan_free(&plan);
}

static void failures_are_told(void **state) {
    (void)state;
    gen_plan plan = {0};
    assert_int_equal(gen_plan_model(&plan, GEN_BF16, 1000), 0);
    const gen_run run = {.plan = &plan, .seed = 9};
    assert_int_not_equal(gen_checkpoints_write(&run, 1, 1, "/nonexistent/directory"), 0);
    assert_int_not_equal(gen_plan_add(&plan, GEN_BF16, 0, 0, 0, 0, "%0100d", 1), 0);
    gen_plan_free(&plan);
}

static void sizes_and_medians(void **state) {
    (void)state;
    uint64_t bytes = 0;
    double values[] = {5, 1, 9, 2};
    assert_true(measure_size("4g", &bytes) && bytes == UINT64_C(4000000000));
    assert_true(measure_size("512k", &bytes) && bytes == 512000);
    assert_false(measure_size("4x", &bytes) || measure_size("", &bytes) ||
                 measure_size("-1", &bytes));
    assert_true(measure_median(values, 4) == 3.5 && measure_median(values, 3) == 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_the_same_for_ever),
        cmocka_unit_test(any_range_alone),
        cmocka_unit_test(updates_of_any_range_alone),
        cmocka_unit_test(canaries_stay),
        cmocka_unit_test(threads_agree),
        cmocka_unit_test(seeds_tensors_and_steps_differ),
        cmocka_unit_test(densities_hold),
        cmocka_unit_test(full_mask_changes_every_element),
        cmocka_unit_test(clustered_masks_leave_most_blocks),
        cmocka_unit_test(masks_undo_themselves),
        cmocka_unit_test(updates_step_the_last_place),
        cmocka_unit_test(plans_have_their_size_and_mix),
        cmocka_unit_test(many_tensors),
        cmocka_unit_test(checkpoints_hold_the_bytes),
        cmocka_unit_test(pieces_of_a_large_tensor_join),
        cmocka_unit_test(failures_are_told),
        cmocka_unit_test(sizes_and_medians),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
