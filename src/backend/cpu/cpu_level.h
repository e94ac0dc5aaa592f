/* The levels of the CPU backend, one table for each instruction set. All give the same bytes.
 * Used by cpu_backend.c, which picks one, and by tests and benchmarks, which compare them. */
#ifndef XCI_CPU_LEVEL_H
#define XCI_CPU_LEVEL_H

#include "backend/backend.h"

typedef enum xci_cpu_level {
    XCI_CPU_PORTABLE,
    XCI_CPU_AVX2,   /* with BMI1, BMI2, LZCNT and POPCNT */
    XCI_CPU_AVX512, /* AVX2's, with F, BW, DQ and VL */
    XCI_CPU_LEVELS
} xci_cpu_level;

/* NULL: this CPU cannot run it. */
const xci_backend *xci_cpu_backend_at(xci_cpu_level level);

extern const xci_backend xci_cpu_portable;
#if defined(__x86_64__)
extern const xci_backend xci_cpu_avx2;
extern const xci_backend xci_cpu_avx512;
#endif

#endif
