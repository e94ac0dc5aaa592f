/* Writes directories of consecutive checkpoints, made from a seed, for tests and benchmarks. Reads
 * nothing and knows nothing of xorcast. Owns only the directory it is told to make. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/gen.h"
#include "gen/measure.h"

static const char help[] =
    "usage: gen_checkpoints --out DIR [options]\n"
    "\n"
    "Writes DIR/step_000000, step_000001, ...: a mixture of experts and what a few optimizer "
    "steps\n"
    "make of it, the same bytes for the same options.\n"
    "\n"
    "  --dtype bf16|fp8|nvfp4  of the experts (bf16); the rest is BF16\n"
    "  --bytes N[k|m|g]        of all tensors (7000000); k, m, g are powers of 1000\n"
    "  --steps N               checkpoints to write (2)\n"
    "  --shards N              files for each, with an index (1)\n"
    "  --seed N                (1)\n"
    "  --density X             share of the experts' bytes that change in a step (as at 1e-6)\n"
    "  --clustered             5 % of the 4 KiB blocks hold all changes\n"
    "  --lr-like               step small numbers more often than large ones, as an optimizer "
    "does\n"
    "  --lr X                  steps of Adam at this rate on FP32 masters, which weights and "
    "scales\n"
    "                          are rounded from; takes the place of all densities\n"
    "  --heavy                 with --lr: heavy-tailed masters, rows of different size\n"
    "  --pow2                  with --lr: block scales of FP8 are powers of two\n"
    "  --sparse                weights start as zeros: holes on disk where nothing changed\n"
    "  --extras                add an empty tensor, a scalar and one of odd size\n"
    "  --many N                N small NVFP4 tensors instead of a model\n";

typedef struct options {
    const char *out;
    gen_kind kind;
    uint64_t bytes, steps, seed, many;
    uint32_t shards;
    double density; /* negative: the plan's own */
    bool extras;
    gen_run run;
} options;

static gen_kind kind_named(const char *name) {
    return strcmp(name, "bf16") == 0    ? GEN_BF16
           : strcmp(name, "fp8") == 0   ? GEN_FP8
           : strcmp(name, "nvfp4") == 0 ? GEN_NVFP4
                                        : GEN_KINDS;
}

/* What --lr and its companions ask for. */
static bool parse_masters(int letter, const char *value, options *o) {
    char *end;
    switch (letter) {
    case 'a':
        o->run.masters = true;
        o->run.learning_rate = strtod(value, &end);
        return end != value && *end == '\0' && o->run.learning_rate > 0 &&
               o->run.learning_rate <= 1;
    case 'v':
        return o->run.heavy = true;
    case 'p':
        return o->run.power_of_two = true;
    default:
        return false;
    }
}

/* False: the usage was shown. */
static bool parse(int argc, char **argv, options *o) {
    static const struct option table[] = {
        {"out", 1, NULL, 'o'},     {"dtype", 1, NULL, 't'},     {"bytes", 1, NULL, 'b'},
        {"steps", 1, NULL, 'n'},   {"shards", 1, NULL, 's'},    {"seed", 1, NULL, 'r'},
        {"density", 1, NULL, 'd'}, {"clustered", 0, NULL, 'c'}, {"lr-like", 0, NULL, 'l'},
        {"sparse", 0, NULL, 'z'},  {"extras", 0, NULL, 'e'},    {"many", 1, NULL, 'm'},
        {"lr", 1, NULL, 'a'},      {"heavy", 0, NULL, 'v'},     {"pow2", 0, NULL, 'p'},
        {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
    bool good = true;
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        switch (c) {
        case 'o':
            o->out = optarg;
            break;
        case 't':
            good = good && (o->kind = kind_named(optarg)) != GEN_KINDS;
            break;
        case 'b':
            good = measure_size(optarg, &o->bytes) && good;
            break;
        case 'n':
            good = measure_size(optarg, &o->steps) && good;
            break;
        case 's':
            o->shards = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'r':
            o->run.seed = strtoull(optarg, NULL, 10);
            break;
        case 'd':
            o->density = strtod(optarg, NULL);
            break;
        case 'c':
            o->run.clustered = true;
            break;
        case 'l':
            o->run.lr_like = true;
            break;
        case 'z':
            o->run.zeros = true;
            break;
        case 'e':
            o->extras = true;
            break;
        case 'm':
            good = measure_size(optarg, &o->many) && good;
            break;
        case 'h':
            fputs(help, stdout);
            exit(0);
        default:
            good = parse_masters(c, optarg, o) && good;
            break;
        }
    }
    good = good && (o->run.masters || (!o->run.heavy && !o->run.power_of_two));
    good = good && o->out != NULL && optind == argc && o->shards > 0 && o->shards < 100000;
    if (!good) {
        fputs(help, stderr);
        fputs("\ngen_checkpoints: an option is wrong or missing, or cannot have that value\n",
              stderr);
    }
    return good;
}

int main(int argc, char **argv) {
    options o = {
        .kind = GEN_BF16, .bytes = 7000000, .steps = 2, .shards = 1, .density = -1, .run.seed = 1};
    if (!parse(argc, argv, &o)) {
        return 2;
    }
    gen_plan plan = {0};
    int error = o.many > 0 ? gen_plan_many(&plan, o.many, o.bytes / o.many)
                           : gen_plan_model(&plan, o.kind, o.bytes);
    if (error == 0 && o.extras) {
        error = gen_plan_add_extras(&plan);
    }
    if (o.density >= 0) {
        gen_plan_set_density(&plan, o.kind, gen_density_of_bytes(o.kind, o.density));
    }
    o.run.plan = &plan;
    if (error == 0) {
        error = gen_checkpoints_write(&o.run, o.steps, o.shards, o.out);
    }
    if (error != 0) {
        fprintf(stderr, "gen_checkpoints: %s: %s\n", o.out, strerror(error));
    } else {
        printf("{\"out\":\"%s\",\"tensors\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"steps\":%" PRIu64
               "}\n",
               o.out, plan.count, plan.total_bytes, o.steps);
    }
    gen_plan_free(&plan);
    return error == 0 ? 0 : 1;
}
