#!/usr/bin/env python3
"""PyTorch's indexed assignment of as many elements as commit changes at 1 % of BF16: one JSON line.

usage: torch_scatter.py [BYTES [ROUNDS]]

Indices are sorted, which is their best case, and of 64 bits, which is their only type. Weights are
done in pieces of 2 GB, each a view, as a model's tensors would be.
"""

import json
import sys

try:
    import torch
except ImportError as error:
    print(json.dumps({"row": "torch", "SKIPPED": str(error)}))
    sys.exit(0)

SHARE = 0.01
PIECE = 1 << 30  # elements


def make_piece(view):
    gaps = torch.empty(int(view.numel() * SHARE * 1.02), device="cuda").geometric_(SHARE)
    indices = torch.cumsum(gaps.to(torch.int64), 0) - 1
    indices = indices[indices < view.numel()].contiguous()
    values = torch.randint(-32768, 32767, (indices.numel(),), dtype=torch.int16, device="cuda")
    return view, indices, values


def median_ms(work, rounds):
    work()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[rounds // 2]


def main():
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 55_600_000_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 11
    weights = torch.empty(total // 2, dtype=torch.int16, device="cuda")
    pieces = []
    for view in weights.split(PIECE):
        view.random_(-32768, 32767)
        pieces.append(make_piece(view))

    def index_put():
        for view, indices, values in pieces:
            view[indices] = values

    def scatter():
        for view, indices, values in pieces:
            view.scatter_(0, indices, values)

    print(json.dumps({
        "row": "torch", "bytes": total,
        "elements": sum(indices.numel() for _, indices, _ in pieces),
        "index_put_ms": round(median_ms(index_put, rounds), 3),
        "scatter_ms": round(median_ms(scatter, rounds), 3),
    }))


if __name__ == "__main__":
    main()
