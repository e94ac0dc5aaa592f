/* Staging of gap blocks, compiled for the emulation. */
#include "warp_emulator.h"

#include "backend/cuda/cuda_gap_check.cu"
