#!/usr/bin/env bash
# The public header stands alone in C17 and C++17, twice in one file, with every warning; the shared
# library exports exactly what it declares, and needs nothing but the C library where its own
# dependencies were linked in. Needs XORCAST_BUILD and XORCAST_SOURCE.
set -euo pipefail

build=${XORCAST_BUILD:?the build folder}
header=${XORCAST_SOURCE:?the source folder}/include/xorcast.h
library=$build/libxorcast.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED %s\n' "$*"; exit 1; }

printf '#include "%s"\n#include "%s"\nint main(void) { return 0; }\n' "$header" "$header" \
    >"$work/twice.c"
cp "$work/twice.c" "$work/twice.cc"
strict=(-fsyntax-only -pedantic-errors -Wall -Wextra -Wshadow -Wconversion -Werror)
for compiler in gcc clang-14; do
    command -v "$compiler" >/dev/null || { echo "no $compiler"; continue; }
    "$compiler" -std=c17 -Wstrict-prototypes "${strict[@]}" "$work/twice.c"
    "$compiler" -std=c11 "${strict[@]}" "$work/twice.c"
    echo "ok $compiler"
done
for compiler in g++ clang++-14; do
    command -v "$compiler" >/dev/null || { echo "no $compiler"; continue; }
    "$compiler" -std=c++17 "${strict[@]}" "$work/twice.cc" || fail "$compiler rejects the header"
    echo "ok $compiler"
done

# Comments go first: they name calls too.
gcc -fpreprocessed -dD -E -P "$header" 2>/dev/null | grep -oE '\bxorcast_[a-z0-9_]+\(' |
    tr -d '(' | sort -u >"$work/declared"
nm -D --defined-only "$library" | awk '$2 != "A" {print $3}' | sort -u >"$work/exported"
if ! diff "$work/declared" "$work/exported" >"$work/difference"; then
    sed -n 's/^< /declared but not exported: /p; s/^> /exported but not declared: /p' \
        "$work/difference"
    fail "the library does not export what the header declares"
fi
echo "ok $(wc -l <"$work/exported") exported calls"

if grep -q '^XORCAST_STATIC_DEPENDENCIES:BOOL=ON' "$build/CMakeCache.txt"; then
    needed=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
        grep -vE '^(libc|libm|libpthread|ld-linux.*)\.so' || true)
    [ -z "$needed" ] || fail "the library needs $needed"
    echo "ok needs only libc"
fi
