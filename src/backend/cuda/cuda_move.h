/* How a piece is copied whose ends lie anywhere: bytes, then words of the target, then bytes. A
 * word is put together from aligned words of the source. Plain arithmetic, for the kernel and for
 * its test on the host. */
#ifndef XCI_CUDA_MOVE_H
#define XCI_CUDA_MOVE_H

#include "base/both.h"

typedef struct xci_move_cut {
    uint64_t first, end; /* [first, end) goes by words of 4 bytes */
} xci_move_cut;

/* Words are aligned in the target, and no aligned word of the source that they need reaches out of
 * the piece. */
XCI_BOTH xci_move_cut xci_cut_move(uintptr_t to, uintptr_t from, uint64_t bytes) {
    const uint64_t head = (0 - to) & 3;
    const uint64_t shift = (from + head) & 3;              /* the same for every word */
    const uint64_t first = head + (shift > head ? 4 : 0);  /* its first source word begins before */
    const uint64_t behind = first + 4 + ((0 - shift) & 3); /* where the first word's source ends */
    xci_move_cut cut;
    cut.first = first < bytes ? first : bytes;
    cut.end = behind <= bytes ? first + ((bytes - behind + 4) & ~(uint64_t)3) : cut.first;
    return cut;
}

#endif
