/* The Decompression Engine beside the kernels: who decodes the LZ4 blocks of a batch that is loaded
 * onto a device, and everything that is asked of the engine and checked round it.
 *
 *     block, walked to its end by the host -> engine -> mask in a window of bounded size
 *         -> kernel: as many bytes as it should be, old words, counts, list written over the block
 *
 * so that what follows, commit above all, is the same whoever decoded. Masks never outlive their
 * turn in the window. Which of the two decodes is measured: the first batches that are large enough
 * go to each in turn, the rest to the faster one. Whatever the engine refuses, cannot reach or gets
 * wrong is the kernels' from then on, and `why` says so. Owns the window and the tables of jobs.
 * One thread, except xci_engine_form. */
#ifndef XCI_DEVICE_ENGINE_H
#define XCI_DEVICE_ENGINE_H

#include "backend/device.h"
#include "bundle/bundle.h"

/* What the host has seen of a block. */
typedef enum xci_block_form {
    XCI_FORM_OTHER,  /* not for the engine */
    XCI_FORM_READY,  /* LZ4 of the zero-run profile, walked to its end */
    XCI_FORM_FOREIGN /* other LZ4, walked to its end: kernels can take it as a list only */
} xci_block_form;

/* What a slot of the loader has of it. */
typedef struct xci_engine_batch {
    bool wanted;              /* the engine is to have its blocks; else only times are taken */
    uint8_t *forms;           /* xci_block_form of the blocks, in the order of the slot's table */
    xci_decompress_job *jobs; /* the driver may read them until the work is done */
    uint64_t room;            /* of both */
    uint64_t decoded;         /* how many of the first blocks the engine got */
    uint64_t mask_bytes;      /* of all blocks */
    void *begun, *ended;      /* events, of the decoding */
} xci_engine_batch;

typedef struct xci_engine_pace {
    uint32_t samples;
    double bytes_per_ns; /* the best of them */
} xci_engine_pace;

typedef struct xci_device_engine {
    xorcast_context *context;
    const xorcast_bundle *bundle;
    bool able;                /* until it fails */
    uint64_t max_bytes;       /* of a block or a mask */
    xci_device_memory window; /* masks, then what was decoded of each; NULL before it is needed */
    uint64_t mask_count;      /* that it holds */
    xci_engine_pace engine_pace, kernel_pace;
    xorcast_decoding decoding; /* since reset; `why` since open */
} xci_device_engine;

/* Finds out whether there is one; takes no memory yet. */
void xci_engine_open(xci_device_engine *engine, const xorcast_bundle *bundle);
void xci_engine_close(xci_device_engine *engine);
/* Counts begin anew. */
void xci_engine_reset(xci_device_engine *engine);
const xorcast_decoding *xci_engine_decoding(xci_device_engine *engine);

void xci_engine_batch_close(xci_device_engine *engine, xci_engine_batch *batch);
/* Decides who is to decode the next batch of up to `blocks`, and makes its tables large enough. */
xorcast_status xci_engine_begin(xci_device_engine *engine, xci_engine_batch *batch,
                                uint64_t blocks);
/* Looks at a block of `bytes` weights before it goes to the device. Any thread. */
xci_block_form xci_engine_form(const xci_device_engine *engine, const xci_engine_batch *batch,
                               uint32_t codec, const uint8_t *block, uint32_t block_bytes,
                               uint32_t bytes);
/* Puts the blocks that are for the engine first in `table`, and their forms. */
void xci_engine_sort(const xci_device_engine *engine, xci_engine_batch *batch,
                     xci_cuda_block *table, uint64_t count);
/* Puts check and prepare of the batch on `stream`, by the engine and by kernels. `call` is of all
 * its blocks, `table` the same on the host. */
xorcast_status xci_engine_check(xci_device_engine *engine, xci_engine_batch *batch,
                                const xci_cuda_block_call *call, const xci_cuda_block *table,
                                void *stream);
/* Once that is done: marks as DATA_CORRUPT, for the host to make them ready, the blocks that are
 * not good for commit, and books times and counts. */
xorcast_status xci_engine_end(xci_device_engine *engine, xci_engine_batch *batch,
                              xci_cuda_result *results, uint64_t count);

#endif
