/* The list of a chunk's changed bytes: what check makes of an LZ4 block, and apply goes through
 * without having to read tokens. Never on a wire, and its number is none of the format: check
 * refuses it.
 *
 *     block = entry...
 *     entry = position in the chunk << 8 | mask of the byte; 4 bytes
 *
 * Positions rise. A mask may be 0 only where a foreign block is not canonical. A list never has
 * more bytes than the LZ4 block that it replaces. */
#ifndef XCI_LIST_BLOCK_H
#define XCI_LIST_BLOCK_H

#include <stdint.h>

#define XCI_CODEC_LIST 0x101u
#define XCI_LIST_ENTRY 4u
#define XCI_LIST_STEP 8u /* entries that must have room before more are written */
/* Room, in entries, for the list of an LZ4 block. */
#define XCI_LIST_ROOM(block_bytes) ((uint64_t)(block_bytes) / XCI_LIST_ENTRY + XCI_LIST_STEP)

#endif
