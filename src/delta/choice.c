/* Prices: see choice.h. */
#include "delta/choice.h"

#include "base/bytes.h"

#define PICOSECONDS UINT64_C(1000000000000)
#define SLOWEST_LINK 1000u /* bytes a second: products stay in 64 bits */

/* CPU: stage of 256 MB with 0.6 % of its bytes changed, one core (bench/cpu_rows): 94 ps a byte
 * with LZ4, 236 with gap; Snappy is decoded into a mask first, as gap is; beside the old weights
 * every element is looked at; zstd gives about 1 GB/s. The GPU has no figures of its own yet: a
 * hundredth of the CPU's where blocks are decoded there, and the CPU's for zstd, which it leaves
 * to the host. A decompression engine takes LZ4 and Snappy off the GPU's hands. */
static const xci_prices receivers[] = {
    [XORCAST_RECEIVER_CPU] = {0, {0, 60, 94, 300, 236}, 500, 1000},
    [XORCAST_RECEIVER_GPU] = {0, {0, 1, 1, 3, 3}, 5, 1000},
    [XORCAST_RECEIVER_ENGINE] = {0, {0, 1, 0, 0, 3}, 5, 1000},
};

xci_prices xci_prices_of(const xorcast_encoding *encoding) {
    if (encoding->link_bytes_per_second == 0)
        return (xci_prices){.wire = 1};
    xci_prices prices = receivers[encoding->receiver];
    prices.wire = xci_max(1, PICOSECONDS / xci_max(encoding->link_bytes_per_second, SLOWEST_LINK));
    return prices;
}
