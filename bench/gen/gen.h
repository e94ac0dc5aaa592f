/* Deterministic weights, steps and checkpoints for benchmarks and tests.
 *
 * Every byte is a function of (seed, tensor, step, position) alone: any range can be made by
 * itself, in any order, on any thread, and is the same. Knows checkpoints and number formats;
 * knows nothing of xorcast, so that it can judge it. Allocates only for plans and while writing
 * files.
 *
 * Three levels, each standing on the one above:
 *     weights and masks   ranges of one tensor's bytes
 *     plans               which tensors a bundle has, and how much of each changes in a step
 *     checkpoints         a plan's bytes at a step as safetensors files
 */
#ifndef GEN_H
#define GEN_H

#include <stdbool.h>
#include <stdint.h>

/* ---- Random numbers ---------------------------------------------------------------------------*/

#define GEN_GOLDEN UINT64_C(0x9E3779B97F4A7C15)

/* Functions that kernels use too. */
#ifdef __CUDACC__
#define GEN_FN static inline __host__ __device__
#else
#define GEN_FN static inline
#endif

/* The finaliser of splitmix64. gen_mix64(key + (i + 1) * GEN_GOLDEN) is number i of a sequence that
 * can be entered anywhere. */
GEN_FN uint64_t gen_mix64(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* The sequence as a stream. Start it from any number. */
GEN_FN uint64_t gen_next(uint64_t *state) {
    *state += GEN_GOLDEN;
    return gen_mix64(*state);
}

/* Key of an independent sequence for each triple. */
GEN_FN uint64_t gen_key(uint64_t seed, uint64_t a, uint64_t b) {
    const uint64_t first = gen_mix64(seed + GEN_GOLDEN);
    return gen_mix64(gen_mix64(first + a * GEN_GOLDEN) ^ (b + GEN_GOLDEN));
}

/* ---- Weights ----------------------------------------------------------------------------------*/

typedef enum gen_kind {
    GEN_ZERO,      /* U8, all zero */
    GEN_RANDOM,    /* U8, every byte alike */
    GEN_BF16,      /* normal, standard deviation 0.02 */
    GEN_FP8,       /* E4M3, normal, scaled to use the range */
    GEN_NVFP4,     /* U8, two E2M1 numbers in each byte, normal */
    GEN_FP8_SCALE, /* E4M3, positive: block scales of NVFP4 */
    GEN_F32_SCALE, /* positive: block scales of FP8, global scales of NVFP4 */
    GEN_KINDS
} gen_kind;

/* The name that safetensors has for it, and the bytes of an element. */
const char *gen_kind_dtype(gen_kind kind);
uint32_t gen_kind_element_bytes(gen_kind kind);

/* Writes bytes [offset, offset + count) of a tensor at step 0. */
void gen_weights(gen_kind kind, uint64_t seed, uint64_t tensor, uint64_t offset, void *bytes,
                 uint64_t count);

/* ---- Masks --------------------------------------------------------------------------------------
 * A mask changes a share of the elements, each by the XOR of a small step of its last place: an
 * odd value 2^k - 1 with probability 2^-k, as counting up or down by one gives it. It does not look
 * at the weights, so that XORing it twice undoes it. */

#define GEN_BLOCK_BYTES 4096u  /* unit of clustering */
#define GEN_CLUSTER_SHARE 0.05 /* of the blocks hold all changes when clustered */

typedef struct gen_mask {
    gen_kind kind;
    bool clustered;
    double density; /* share of elements that change, 0 to 1; above 0.05 a clustered mask is full */
    uint64_t seed, tensor, step;
} gen_mask;

/* bytes ^= mask over [offset, offset + count) of the tensor. Returns the number of bytes
 * changed. */
uint64_t gen_mask_xor(const gen_mask *mask, uint64_t offset, void *bytes, uint64_t count);

/* The density of elements at which this share of bytes changes. */
double gen_density_of_bytes(gen_kind kind, double share_of_bytes);

/* Like an optimizer at a small rate instead: counts elements up or down by one (rarely two), small
 * numbers more often than large ones, because a step of fixed size crosses a finer last place
 * sooner. Reads the weights; `offset` is a multiple of the element. Kinds without a last place of
 * their own (scales in F32, U8) and clustered masks fall back to gen_mask_xor. Returns the bytes
 * changed. */
uint64_t gen_update(const gen_mask *mask, uint64_t offset, void *bytes, uint64_t count);

/* ---- Plans ------------------------------------------------------------------------------------*/

/* What a tensor holds of a matrix of masters. */
typedef enum gen_part {
    GEN_PART_NUMBERS,
    GEN_PART_BLOCK_SCALES, /* one for each block of a row; FP8: F32, NVFP4: E4M3 */
    GEN_PART_GLOBAL_SCALE
} gen_part;

typedef struct gen_tensor {
    char name[72];
    gen_kind kind;
    uint32_t rank;
    uint64_t shape[2];
    uint64_t bytes;
    uint64_t id;    /* of its random sequences; index in the plan */
    double density; /* share of elements that change in a step */
    /* Steps from masters: */
    gen_part part;
    uint64_t master;  /* id of the tensor that has the numbers */
    uint64_t columns; /* numbers in a row of the matrix */
    uint32_t block; /* numbers that share a scale, 0: no scales; a row's last block has the rest */
    bool norm;      /* near one instead of near zero */
} gen_tensor;

typedef struct gen_plan {
    gen_tensor *tensors;
    uint64_t count, room;
    uint64_t total_bytes;
} gen_plan;

/* Plans are zeroed before first use and freed by gen_plan_free. 0, or an errno value. */
int gen_plan_add(gen_plan *plan, gen_kind kind, double density, uint32_t rank, uint64_t rows,
                 uint64_t columns, const char *name_format, ...)
    __attribute__((format(printf, 7, 8)));
void gen_plan_free(gen_plan *plan);

/* A mixture of experts of `bytes` in all (rounded down to an even number), experts in BF16, FP8
 * (F32 scale for each 64 columns of a row) or NVFP4 (E4M3 scale for each 32 columns' bytes, F32
 * global scale of rank 0), the rest BF16, interleaved as checkpoints are. Densities are those of
 * one step at 1e-6. NVFP4 is the mix of the bars: 92 % of bytes with 0.02 % changed, 8 % BF16 with
 * 1.3 % of elements changed. */
int gen_plan_model(gen_plan *plan, gen_kind experts, uint64_t bytes);

/* `count` tensors: NVFP4 matrices of `matrix_bytes`, each with block scales and a global scale. */
int gen_plan_many(gen_plan *plan, uint64_t count, uint64_t matrix_bytes);

/* Shapes that trip readers: an empty tensor, a rank-0 one, an odd number of bytes. */
int gen_plan_add_extras(gen_plan *plan);

/* Sets the density of all tensors of a kind that change at all. */
void gen_plan_set_density(gen_plan *plan, gen_kind kind, double density);

/* ---- Checkpoints ------------------------------------------------------------------------------*/

typedef struct gen_run {
    const gen_plan *plan;
    uint64_t seed;
    bool clustered;
    bool lr_like; /* steps by gen_update instead of gen_mask_xor */
    bool zeros;   /* weights are zero at step 0: with holes on disk wherever they stay so */
    /* Steps from masters instead: weights are rounded from numbers in FP32 that an optimizer moves,
     * so that values and scales move together and a change depends on the number. Tensors that are
     * neither numbers nor their scales step as above. */
    bool masters;
    bool heavy;           /* tails heavier than normal, rows of different size */
    bool power_of_two;    /* block scales of FP8 */
    double learning_rate; /* of masters whose deviation is 0.02 */
} gen_run;

/* Does the tensor follow masters in this run? Scales of nothing do not. */
bool gen_has_masters(const gen_run *run, const gen_tensor *tensor);
/* As gen_run_bytes, for those. Time grows with the step. */
void gen_master_bytes(const gen_run *run, const gen_tensor *tensor, uint64_t step, uint64_t offset,
                      void *bytes, uint64_t count);

/* Bytes [offset, offset + count) of a tensor after `step` steps; `offset` is a multiple of 8. */
void gen_run_bytes(const gen_run *run, const gen_tensor *tensor, uint64_t step, uint64_t offset,
                   void *bytes, uint64_t count);

/* Takes bytes of step - 1 to `step`, in place. Returns the bytes changed. */
uint64_t gen_run_advance(const gen_run *run, const gen_tensor *tensor, uint64_t step,
                         uint64_t offset, void *bytes, uint64_t count);

/* Writes the weights at `step` into the existing directory: model.safetensors, or for more than one
 * shard model-00001-of-0000N.safetensors ..., their index and a config.json. Memory does not grow
 * with the bytes. 0, or an errno value. */
int gen_checkpoint_write(const gen_run *run, uint64_t step, uint32_t shards, const char *directory);

/* Writes `steps` of them under `directory`, which is made: step_000000, step_000001, ... */
int gen_checkpoints_write(const gen_run *run, uint64_t steps, uint32_t shards,
                          const char *directory);

#endif
