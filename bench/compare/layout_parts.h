/* What the codecs of compare.h are made of: growing buffers, small numbers, zstd, and the families
 * that codecs.c lists. Owns nothing. */
#ifndef LAYOUT_PARTS_H
#define LAYOUT_PARTS_H

#include "compare/compare.h"

#define COMPARE_CHUNK (UINT64_C(64) << 10)

void compare_free(compare_bytes *bytes);
/* Empties it; there is memory even if nothing comes. */
bool compare_begin(compare_bytes *bytes);
/* Makes room for `more` bytes after `count`. */
bool compare_reserve(compare_bytes *bytes, uint64_t more);
bool compare_put(compare_bytes *bytes, const void *data, uint64_t count);
bool compare_put_number(compare_bytes *bytes, uint64_t number); /* as a varint */
uint64_t compare_take_number(const uint8_t **at);

/* out = a ^ b, and whether any byte of it is not 0. */
bool compare_xor(uint8_t *out, const uint8_t *a, const uint8_t *b, uint64_t count);

/* One zstd frame of `count` bytes, added to `out`; and back to where there is room for exactly
 * `bytes`. Contexts are kept in `work`. */
compare_result compare_zstd(compare_work *work, int level, const uint8_t *bytes, uint64_t count,
                            compare_bytes *out);
compare_result compare_unzstd(compare_work *work, const uint8_t *frame, uint64_t count,
                              uint8_t *out, uint64_t bytes);

/* All of `plain` as one frame behind its size, added to `out`; and such a frame, all that
 * work->encoded has, undone into work->scratch. */
compare_result compare_put_frame(compare_work *work, int level, const compare_bytes *plain,
                                 compare_bytes *out);
compare_result compare_open_frame(compare_work *work);

compare_result compare_blocks_encode(const compare_codec *codec, const compare_step *step,
                                     compare_work *work);
compare_result compare_blocks_stage(const compare_codec *codec, const compare_step *step,
                                    compare_work *work);
compare_result compare_blocks_commit(const compare_codec *codec, const compare_step *step,
                                     compare_work *work);
/* The same blocks, all in one zstd-1 frame. */
compare_result compare_packed_encode(const compare_codec *codec, const compare_step *step,
                                     compare_work *work);
compare_result compare_packed_stage(const compare_codec *codec, const compare_step *step,
                                    compare_work *work);
compare_result compare_index_encode(const compare_codec *codec, const compare_step *step,
                                    compare_work *work);
compare_result compare_index_stage(const compare_codec *codec, const compare_step *step,
                                   compare_work *work);
compare_result compare_gaps_encode(const compare_codec *codec, const compare_step *step,
                                   compare_work *work);
compare_result compare_gaps_stage(const compare_codec *codec, const compare_step *step,
                                  compare_work *work);
compare_result compare_coo_encode(const compare_codec *codec, const compare_step *step,
                                  compare_work *work);
compare_result compare_coo_stage(const compare_codec *codec, const compare_step *step,
                                 compare_work *work);
/* Scatters the elements that one of the three above staged: set, or XORed. */
compare_result compare_elements_set(const compare_codec *codec, const compare_step *step,
                                    compare_work *work);
compare_result compare_elements_xor(const compare_codec *codec, const compare_step *step,
                                    compare_work *work);

#endif
