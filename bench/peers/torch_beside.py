#!/usr/bin/env python3
"""What check and prepare cost a loop of matrix products that runs beside them: JSON lines.

usage: XORCAST_STEP_LIBRARY=FILE torch_beside.py [BYTES]

The library is bench/cuda/step_library.cu; `./run bench-gpu` names it. The products, BF16 of
8192 x 8192, run on a stream of their own, as a sampler's do while the next version is staged.
"""

import ctypes
import json
import os
import sys

try:
    import torch
except ImportError as error:
    print(json.dumps({"row": "beside", "SKIPPED": str(error)}))
    sys.exit(0)

PRODUCTS = 60


def timed(products_stream, products, beside_stream, beside):
    """Milliseconds of both, started together: each from its own stream's events."""
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    with torch.cuda.stream(beside_stream):
        events[2].record()
        beside()
        events[3].record()
    with torch.cuda.stream(products_stream):
        events[0].record()
        for _ in range(products):
            torch.matmul(left, right, out=result)
        events[1].record()
    torch.cuda.synchronize()
    return events[0].elapsed_time(events[1]), events[2].elapsed_time(events[3])


def row(name, beside_stream, work, calls):
    def beside():
        for _ in range(calls):
            assert work(ctypes.c_void_p(beside_stream.cuda_stream)) == 0

    products_stream = torch.cuda.Stream()
    nothing = lambda: None
    timed(products_stream, PRODUCTS, beside_stream, nothing)
    alone = sorted(timed(products_stream, PRODUCTS, beside_stream, nothing)[0] for _ in range(5))[2]
    # prepare consumes what it works on: it runs once, beside the products.
    work_alone = timed(products_stream, 0, beside_stream, beside)[1] if calls > 1 else None
    both, work_beside = timed(products_stream, PRODUCTS, beside_stream, beside)
    print(json.dumps({
        "row": "beside", "work": name, "calls": calls, "products_ms": round(alone, 3),
        "products_beside_ms": round(both, 3), "products_lost_ms": round(both - alone, 3),
        "work_ms": work_alone, "work_beside_ms": round(work_beside, 3),
    }), flush=True)


library = ctypes.CDLL(os.environ["XORCAST_STEP_LIBRARY"])
size = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000_000_000
weights = torch.empty(size, dtype=torch.uint8, device="cuda")
left, right = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
result = torch.empty_like(left)
library.step_open(ctypes.c_void_p(weights.data_ptr()), ctypes.c_uint64(size))
stream = torch.cuda.Stream()
row("check", stream, library.step_check, 4)
row("prepare", stream, library.step_prepare, 1)
row("commit", stream, library.step_apply, 4)
