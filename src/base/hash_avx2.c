/* XXH3 for AVX2; entered only where hash.c has found it. */
#include "base/hash_one.h"

const xci_hash_level xci_hash_avx2 = {xci_hash_one, xci_hash_one64, xci_hash_one_more};
