/* Quantile tables of the weights: what number stands at which 16-bit random index. gen_weights.c
 * owns them; gen_mask.c reads them to know how often each code occurs. */
#ifndef GEN_TABLES_H
#define GEN_TABLES_H

#include "gen/gen.h"

#define GEN_TABLE 65536u

typedef struct gen_tables {
    uint16_t bf16[GEN_TABLE];
    uint8_t fp8[GEN_TABLE], nvfp4[GEN_TABLE], scale[GEN_TABLE];
} gen_tables;

/* Made on first use, once for all threads. */
const gen_tables *gen_tables_get(void);

#endif
