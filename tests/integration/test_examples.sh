#!/usr/bin/env bash
# The examples run and do what they say: buffers end equal, a sampler ends with its trainer's
# digest. The C of README.md is theirs, word for word, so that it compiles and works too. Needs
# XORCAST_BUILD and XORCAST_SOURCE; exits 77 where the examples are not built.
set -euo pipefail

examples=${XORCAST_BUILD:?the build folder}/examples
source=${XORCAST_SOURCE:?the source folder}
for program in 01_two_buffers 02_publish_follow; do
    [ -x "$examples/$program" ] || { echo "SKIPPED $program is not built here"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED %s\n' "$*"; exit 1; }

timeout 60 "$examples/01_two_buffers" >"$work/buffers" || fail "01_two_buffers: status $?"
[ "$(tail -n 1 "$work/buffers")" = equal ] || fail "01_two_buffers: $(cat "$work/buffers")"
echo "ok 01_two_buffers: $(head -n 1 "$work/buffers")"

timeout 60 "$examples/02_publish_follow" >"$work/digests" || fail "02_publish_follow: status $?"
[ "$(grep -cE '^digest [0-9a-f]{16} [0-9a-f]{16}$' "$work/digests")" -eq 2 ] &&
    [ "$(sort -u "$work/digests" | wc -l)" -eq 1 ] ||
    fail "02_publish_follow: $(cat "$work/digests")"
echo "ok 02_publish_follow: $(head -n 1 "$work/digests")"

# Each block of C in README.md stands in an example as it is.
awk -v work="$work" '/^```c$/ { n++; on = 1; next } /^```$/ { on = 0 }
                     on { print > (work "/block" n) }' "$source/README.md"
blocks=0
for block in "$work"/block*; do
    found=no
    for example in "$source"/examples/*.c; do
        [[ $(<"$example") == *"$(<"$block")"* ]] && found=yes
    done
    [ $found = yes ] || fail "no example has this C of README.md: $(cat "$block")"
    blocks=$((blocks + 1))
done
[ $blocks -eq 2 ] || fail "README.md has $blocks blocks of C, not a trainer's and a sampler's"
echo "ok README.md"

for example in "$source"/examples/*.c; do
    [ "$(wc -l <"$example")" -lt 100 ] || fail "${example##*/} has 100 lines or more"
done
