/* Plans as safetensors files on disk: one file or shards with an index, header by header as the
 * public format says, written with code of its own so that the library's reader is tested by other
 * hands. Bytes go through one buffer of 4 MiB. Owns the files while it writes them. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gen/gen.h"

#define PIECE_BYTES (UINT64_C(4) << 20)

static gen_mask mask_of(const gen_run *run, const gen_tensor *tensor, uint64_t step) {
    return (gen_mask){tensor->kind, run->clustered, tensor->density, run->seed, tensor->id, step};
}

/* Puts the bytes of `step` over those of any other step. */
static uint64_t replace(const gen_run *run, const gen_tensor *tensor, uint64_t step,
                        uint64_t offset, uint8_t *bytes, uint64_t count) {
    uint8_t now[GEN_BLOCK_BYTES];
    uint64_t changed = 0;
    for (uint64_t at = 0; at < count; at += sizeof now) {
        const uint64_t part = count - at < sizeof now ? count - at : sizeof now;
        gen_master_bytes(run, tensor, step, offset + at, now, part);
        for (uint64_t i = 0; i < part; i++) {
            changed += bytes[at + i] != now[i];
        }
        memcpy(bytes + at, now, part);
    }
    return changed;
}

uint64_t gen_run_advance(const gen_run *run, const gen_tensor *tensor, uint64_t step,
                         uint64_t offset, void *bytes, uint64_t count) {
    const gen_mask mask = mask_of(run, tensor, step);
    if (gen_has_masters(run, tensor)) {
        return replace(run, tensor, step, offset, bytes, count);
    }
    return run->lr_like ? gen_update(&mask, offset, bytes, count)
                        : gen_mask_xor(&mask, offset, bytes, count);
}

void gen_run_bytes(const gen_run *run, const gen_tensor *tensor, uint64_t step, uint64_t offset,
                   void *bytes, uint64_t count) {
    if (gen_has_masters(run, tensor)) {
        gen_master_bytes(run, tensor, step, offset, bytes, count);
        return;
    }
    gen_weights(run->zeros ? GEN_ZERO : tensor->kind, run->seed, tensor->id, offset, bytes, count);
    for (uint64_t s = 1; s <= step; s++) {
        gen_run_advance(run, tensor, s, offset, bytes, count);
    }
}

/* ---- One file ---------------------------------------------------------------------------------*/

/* The order of the format's own writer: wide elements first, so that all are aligned, then by
 * name. */
static int by_width_and_name(const void *a, const void *b) {
    const gen_tensor *x = *(const gen_tensor *const *)a, *y = *(const gen_tensor *const *)b;
    const uint32_t width_x = gen_kind_element_bytes(x->kind),
                   width_y = gen_kind_element_bytes(y->kind);
    return width_x != width_y ? (width_x > width_y ? -1 : 1) : strcmp(x->name, y->name);
}

/* The length of the header and the header, padded to a multiple of 8 as the format asks. */
static int make_header(const gen_tensor *const *tensors, uint64_t count, char **text_out,
                       size_t *size_out) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        return errno;
    }
    fprintf(out, "%8s{\"__metadata__\":{\"format\":\"pt\"}", "");
    for (uint64_t i = 0, at = 0; i < count; at += tensors[i++]->bytes) {
        const gen_tensor *t = tensors[i];
        fprintf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, gen_kind_dtype(t->kind));
        for (uint32_t d = 0; d < t->rank; d++) {
            fprintf(out, "%s%" PRIu64, d == 0 ? "" : ",", t->shape[d]);
        }
        fprintf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, at + t->bytes);
    }
    fputc('}', out);
    while (ftell(out) % 8 != 0) {
        fputc(' ', out);
    }
    if (fclose(out) != 0) {
        free(text);
        return ENOMEM;
    }
    const uint64_t length = size - 8;
    for (uint32_t i = 0; i < 8; i++) {
        text[i] = (char)(uint8_t)(length >> 8 * i);
    }
    *text_out = text;
    *size_out = size;
    return 0;
}

static int write_at(int file, const uint8_t *bytes, uint64_t count, uint64_t offset) {
    while (count > 0) {
        const ssize_t done = pwrite(file, bytes, count, (off_t)offset);
        if (done <= 0) {
            if (done < 0 && errno == EINTR) {
                continue;
            }
            return done < 0 ? errno : EIO;
        }
        bytes += done, offset += (uint64_t)done, count -= (uint64_t)done;
    }
    return 0;
}

/* Leaves blocks of zeros as holes. */
static int write_sparse(int file, const uint8_t *bytes, uint64_t count, uint64_t offset) {
    static const uint8_t zeros[GEN_BLOCK_BYTES];
    for (uint64_t at = 0; at < count; at += GEN_BLOCK_BYTES) {
        const uint64_t part = count - at < GEN_BLOCK_BYTES ? count - at : GEN_BLOCK_BYTES;
        const int error = memcmp(bytes + at, zeros, part) == 0
                              ? 0
                              : write_at(file, bytes + at, part, offset + at);
        if (error != 0) {
            return error;
        }
    }
    return 0;
}

static int write_tensor(const gen_run *run, const gen_tensor *tensor, uint64_t step, int file,
                        uint64_t offset, uint8_t *piece) {
    int error = 0;
    for (uint64_t at = 0; at < tensor->bytes && error == 0; at += PIECE_BYTES) {
        const uint64_t count = tensor->bytes - at < PIECE_BYTES ? tensor->bytes - at : PIECE_BYTES;
        gen_run_bytes(run, tensor, step, at, piece, count);
        error = run->zeros ? write_sparse(file, piece, count, offset + at)
                           : write_at(file, piece, count, offset + at);
    }
    return error;
}

/* `tensors` is sorted here. */
static int write_file(const gen_run *run, const gen_tensor **tensors, uint64_t count, uint64_t step,
                      const char *path) {
    char *header = NULL;
    size_t header_bytes = 0;
    qsort(tensors, count, sizeof *tensors, by_width_and_name);
    int error = make_header(tensors, count, &header, &header_bytes);
    if (error != 0) {
        return error;
    }
    uint8_t *piece = malloc(PIECE_BYTES);
    const int file =
        piece == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) {
        error = piece == NULL ? ENOMEM : errno;
        goto free_buffers;
    }
    error = write_at(file, (const uint8_t *)header, header_bytes, 0);
    uint64_t offset = header_bytes;
    for (uint64_t i = 0; i < count && error == 0; offset += tensors[i++]->bytes) {
        error = write_tensor(run, tensors[i], step, file, offset, piece);
    }
    if (error == 0 && ftruncate(file, (off_t)offset) != 0) {
        error = errno;
    }
    if (close(file) != 0 && error == 0) {
        error = errno;
    }
free_buffers:
    free(piece);
    free(header);
    return error;
}

/* ---- Directories ------------------------------------------------------------------------------*/

static int close_text(FILE *out) {
    const bool bad = ferror(out) != 0;
    return fclose(out) != 0 || bad ? EIO : 0;
}

/* The shard of a tensor: equal shares of the bytes, in the plan's order. */
static uint32_t shard_of(const gen_plan *plan, uint64_t bytes_before, uint32_t shards) {
    const uint64_t share = plan->total_bytes / shards + 1;
    const uint64_t shard = bytes_before / share;
    return shard < shards ? (uint32_t)shard : shards - 1;
}

static int write_index(const gen_plan *plan, uint32_t shards, const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", directory);
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        return errno;
    }
    fprintf(out, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
            plan->total_bytes);
    for (uint64_t i = 0, before = 0; i < plan->count; before += plan->tensors[i++].bytes) {
        fprintf(out, "%s\n    \"%s\": \"model-%05u-of-%05u.safetensors\"", i == 0 ? "" : ",",
                plan->tensors[i].name, shard_of(plan, before, shards) + 1, shards);
    }
    fputs("\n  }\n}\n", out);
    const int error = close_text(out);
    if (error != 0) {
        return error;
    }
    snprintf(path, sizeof path, "%s/config.json", directory);
    out = fopen(path, "w");
    if (out == NULL) {
        return errno;
    }
    fprintf(out,
            "{\n  \"architectures\": [\"GeneratedForCausalLM\"],\n  \"tensors\": %" PRIu64 "\n}\n",
            plan->count);
    return close_text(out);
}

int gen_checkpoint_write(const gen_run *run, uint64_t step, uint32_t shards,
                         const char *directory) {
    const gen_plan *plan = run->plan;
    char path[4096];
    const gen_tensor **chosen = calloc(plan->count + 1, sizeof *chosen);
    if (chosen == NULL) {
        return ENOMEM;
    }
    int error = shards > 1 ? write_index(plan, shards, directory) : 0;
    for (uint32_t shard = 0; shard < (shards > 1 ? shards : 1) && error == 0; shard++) {
        uint64_t count = 0;
        for (uint64_t i = 0, before = 0; i < plan->count; before += plan->tensors[i++].bytes) {
            if (shards <= 1 || shard_of(plan, before, shards) == shard) {
                chosen[count++] = &plan->tensors[i];
            }
        }
        if (shards > 1) {
            snprintf(path, sizeof path, "%s/model-%05u-of-%05u.safetensors", directory, shard + 1,
                     shards);
        } else {
            snprintf(path, sizeof path, "%s/model.safetensors", directory);
        }
        error = write_file(run, chosen, count, step, path);
    }
    free(chosen);
    return error;
}

static int make_directory(const char *path) {
    return mkdir(path, 0755) != 0 && errno != EEXIST ? errno : 0;
}

int gen_checkpoints_write(const gen_run *run, uint64_t steps, uint32_t shards,
                          const char *directory) {
    int error = make_directory(directory);
    for (uint64_t step = 0; step < steps && error == 0; step++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/step_%06" PRIu64, directory, step);
        error = make_directory(path);
        if (error == 0) {
            error = gen_checkpoint_write(run, step, shards, path);
        }
    }
    return error;
}
