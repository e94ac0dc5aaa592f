/* The gap encoder, compiled for the emulation. */
#include "warp_emulator.h"

#include "backend/cuda/cuda_gap_encode.cu"
