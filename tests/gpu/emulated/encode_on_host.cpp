/* The encode kernel and its launcher, compiled for the emulation. */
#include "warp_emulator.h"

#include "backend/cuda/cuda_encode.cu"
