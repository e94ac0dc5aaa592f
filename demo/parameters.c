/* The table of the policy's parameters and their first values.
 *
 * Names follow the checkpoints of mixture-of-experts models on public hubs, so that what the demo
 * publishes looks like what a real trainer publishes. Does not own any array of values. */
#include "parameters.h"

#include "seeded.h"

#include <stdio.h>
#include <string.h>

static void add(parameter_table *table, size_t index, const char *name, size_t rows, size_t columns,
                bool quantised, float initial_spread) {
    parameter *item = &table->items[index];
    (void)snprintf(item->name, sizeof item->name, "%s", name);
    item->rows = rows;
    item->columns = columns;
    item->vector = rows == 1;
    item->quantised = quantised;
    item->initial_spread = initial_spread;
    item->offset = table->value_count;
    table->value_count += rows * columns;
}

static void add_expert(parameter_table *table, size_t first, size_t layer, size_t expert) {
    static const char *const words[PARAMETERS_PER_EXPERT] = {"gate_proj", "up_proj", "down_proj"};
    for (size_t i = 0; i < PARAMETERS_PER_EXPERT; i++) {
        const bool down = i == EXPERT_DOWN;
        char name[72];
        (void)snprintf(name, sizeof name, "model.layers.%zu.mlp.experts.%zu.%s.weight", layer,
                       expert, words[i]);
        add(table, first + i, name, down ? MODEL_HIDDEN : MODEL_INNER,
            down ? MODEL_INNER : MODEL_HIDDEN, true, down ? 0.05F : 0.0625F);
    }
}

static void add_layer(parameter_table *table, size_t layer) {
    const size_t first = PARAMETER_LAYERS + layer * PARAMETERS_PER_LAYER;
    static const struct {
        const char *word;
        size_t rows, columns;
        bool quantised;
        float spread;
    } parts[LAYER_EXPERTS] = {
        [LAYER_INPUT_NORM] = {"input_layernorm", 1, MODEL_HIDDEN, false, 0},
        [LAYER_QKV] = {"self_attn.qkv_proj", 3 * (size_t)MODEL_HIDDEN, MODEL_HIDDEN, true, 0.0625F},
        [LAYER_OUTPUT] = {"self_attn.o_proj", MODEL_HIDDEN, MODEL_HIDDEN, true, 0.0625F},
        [LAYER_POST_NORM] = {"post_attention_layernorm", 1, MODEL_HIDDEN, false, 0},
        [LAYER_ROUTER] = {"mlp.gate", MODEL_EXPERTS, MODEL_HIDDEN, false, 0.0625F},
    };
    for (size_t i = 0; i < LAYER_EXPERTS; i++) {
        char name[72];
        (void)snprintf(name, sizeof name, "model.layers.%zu.%s.weight", layer, parts[i].word);
        add(table, first + i, name, parts[i].rows, parts[i].columns, parts[i].quantised,
            parts[i].spread);
    }
    for (size_t expert = 0; expert < MODEL_EXPERTS; expert++)
        add_expert(table, first + LAYER_EXPERTS + expert * PARAMETERS_PER_EXPERT, layer, expert);
}

void parameters_describe(parameter_table *table_out) {
    memset(table_out, 0, sizeof *table_out);
    add(table_out, PARAMETER_EMBEDDING, "model.embed_tokens.weight", MODEL_VOCABULARY, MODEL_HIDDEN,
        false, 1.0F);
    add(table_out, PARAMETER_POSITION, "model.embed_positions.weight", MODEL_CONTEXT, MODEL_HIDDEN,
        false, 1.0F);
    for (size_t layer = 0; layer < MODEL_LAYERS; layer++)
        add_layer(table_out, layer);
    add(table_out, PARAMETER_FINAL_NORM, "model.norm.weight", 1, MODEL_HIDDEN, false, 0);
    add(table_out, PARAMETER_HEAD, "lm_head.weight", MODEL_VOCABULARY, MODEL_HIDDEN, false, 0.02F);
}

void parameters_initialise(const parameter_table *table, uint64_t seed, float *values) {
    for (size_t i = 0; i < PARAMETER_COUNT; i++) {
        const parameter *item = &table->items[i];
        float *place = values + item->offset;
        seeded random = seeded_begin(seed, i, 0, 0);
        for (size_t j = 0; j < item->rows * item->columns; j++)
            place[j] =
                item->initial_spread > 0 ? item->initial_spread * seeded_bell(&random) : 1.0F;
    }
}
