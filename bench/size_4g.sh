#!/bin/bash
# diff and apply of a checkpoint much larger than the memory they may have: 4 GB under 512 MiB of
# address space. Prints one JSON row; what failed goes to standard error.
#
# usage: bench/size_4g.sh [BUILD] [BYTES] [SHARDS]      (build, 4g, 1)
# TMPDIR needs three times BYTES.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$here/build}
bytes=${2:-4g}
shards=${3:-1}
limit_kib=524288

folder=$(mktemp -d "${TMPDIR:-/tmp}/xorcast_size.XXXXXX")
trap 'rm -rf "$folder"' EXIT

"$build/bench/gen_checkpoints" --out "$folder" --bytes "$bytes" --shards "$shards" --steps 2 >&2

limited() { (ulimit -v $limit_kib && exec "$@"); }
now_ms() { date +%s%3N; }

start=$(now_ms)
limited "$build/xorcast" diff "$folder/step_000000" "$folder/step_000001" -o "$folder/delta" >&2
differed=$(now_ms)
limited "$build/xorcast" apply "$folder/step_000000" "$folder/delta" -o "$folder/out" >&2
applied=$(now_ms)
diff -r "$folder/out" "$folder/step_000001" >&2

commit=$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)
diff_ms=$((differed - start)) apply_ms=$((applied - differed))
printf '{"row":"size_limited","commit":"%s","command":"bench/size_4g.sh","bytes":"%s",' \
    "$commit" "$bytes"
printf '"shards":%d,"limit_bytes":%d,"delta_bytes":%d,"diff_ms":%d,"apply_ms":%d}\n' \
    "$shards" $((limit_kib * 1024)) "$(stat -c %s "$folder/delta")" $diff_ms $apply_ms
printf 'diff %d ms, apply %d ms of %s under %d MiB: the same files\n' \
    $diff_ms $apply_ms "$bytes" $((limit_kib / 1024)) >&2
