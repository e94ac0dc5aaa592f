#!/usr/bin/env python3
"""PyTorch's sparse update at 1 % of BF16: nonzero of what differs, gather of the new values there,
and indexed assignment of as many elements as commit changes. One JSON line.

usage: torch_scatter.py [BYTES [ROUNDS]]

Indices are sorted, which is their best case, and of 64 bits, which is their only type. Weights are
done in pieces of 2 GB, each a view, as a model's tensors would be. nonzero and the gather are timed
on as many pieces as there is memory for beside a second copy, and scaled to all bytes.
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


def encode_ms(pieces, total, rounds):
    """nonzero and gather of changed elements, piece by piece, in milliseconds for all bytes."""
    room = torch.cuda.mem_get_info()[0] // 2 // (2 * PIECE)
    some = pieces[:max(1, min(len(pieces), room))]
    news = []
    for view, indices, values in some:
        news.append(view.clone())
        news[-1][indices] ^= values | 1  # every one of them differs

    def find():
        for (view, _, _), new in zip(some, news):
            torch.nonzero(view != new)

    def find_and_gather():
        for (view, _, _), new in zip(some, news):
            torch.take(new, torch.nonzero(view != new).squeeze(1))

    scale = total / sum(2 * view.numel() for view, _, _ in some)
    return [round(scale * median_ms(work, rounds), 3) for work in (find, find_and_gather)]


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

    nonzero, with_gather = encode_ms(pieces, total, rounds)
    print(json.dumps({
        "row": "torch", "bytes": total,
        "nonzero_ms": nonzero, "nonzero_gather_ms": with_gather,
        "elements": sum(indices.numel() for _, indices, _ in pieces),
        "index_put_ms": round(median_ms(index_put, rounds), 3),
        "scatter_ms": round(median_ms(scatter, rounds), 3),
    }))


if __name__ == "__main__":
    main()
