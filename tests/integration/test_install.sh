#!/usr/bin/env bash
# Installs the build into a prefix of its own and builds a small program against it as others would:
# through pkg-config and through find_package, shared and static, in C and C++; runs each. Moves the
# prefix first, to a name with a blank, so that no file may remember where it was. Needs
# XORCAST_BUILD; exits 77 where a tool is missing.
set -euo pipefail

for tool in cmake pkg-config; do
    command -v "$tool" >/dev/null || { echo "SKIPPED $tool is not installed"; exit 77; }
done
cc=${CC:-cc}
build=${XORCAST_BUILD:?the build folder}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { printf 'FAILED %s\n' "$*"; exit 1; }

cmake --install "$build" --prefix "$work/first" >install.log 2>&1 || { cat install.log; exit 1; }
# pkgconf quotes a blank in the folder of a .pc file; pkg-config 0.29 does not.
prefix=$work/prefix
[[ $(pkg-config --about 2>/dev/null) == pkgconf* ]] && prefix="$work/a prefix"
mv first "$prefix"
lib=$(dirname "$(find "$prefix" -name libxorcast.a)")

version=$(sed -n 's/.*XORCAST_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\)$/\2/p' \
    "$prefix/include/xorcast.h" | paste -sd.)
for file in "$lib/libxorcast.so" "$lib/libxorcast.so.$version" "$lib/pkgconfig/xorcast.pc" \
    "$lib/cmake/xorcast/xorcast-config.cmake" "$prefix/bin/xorcast"; do
    [ -e "$file" ] || fail "not installed: ${file#"$prefix"/}"
done
grep -rl "$work/first" "$prefix" --include='*.pc' --include='*.cmake' &&
    fail "a file names the prefix that it was installed to"

cat >program.c <<'C'
#include <stdio.h>
#include <string.h>
#include <xorcast.h>

int main(void) {
    unsigned char weights[100] = {1, 2, 3};
    xorcast_context *context = NULL;
    xorcast_bundle *bundle = NULL;
    xorcast_layout layout;
    const uint64_t shape[] = {100};
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    tensor.name = "w";
    tensor.dtype = "U8";
    tensor.shape = shape;
    tensor.rank = 1;
    tensor.bytes = sizeof weights;
    tensor.data = weights;
    if (xorcast_context_create(NULL, &context) || xorcast_bundle_create(context, NULL, &bundle) ||
        xorcast_bundle_add(bundle, &tensor) || xorcast_bundle_seal(bundle, &layout))
        return 1;
    xorcast_bundle_destroy(bundle);
    xorcast_context_destroy(context);
    printf("%u %llu %s\n", xorcast_library_version(), (unsigned long long)layout.total_bytes,
           xorcast_status_name(XORCAST_OK));
    return xorcast_library_version() == XORCAST_VERSION_NUMBER ? 0 : 1;
}
C

# expect NAME COMMAND...: the program runs and prints what it should.
expect() {
    local name=$1 output
    shift
    output=$("$@") || fail "$name: status $?"
    [[ $output == *" 100 OK" ]] || fail "$name printed: $output"
    echo "ok $name"
}

export PKG_CONFIG_PATH=$lib/pkgconfig
[ "$(pkg-config --modversion xorcast)" = "$version" ] || fail "pkg-config gives another version"
eval "cflags=($(pkg-config --cflags xorcast))" # words quoted for a shell
eval "shared=($(pkg-config --libs xorcast))"
eval "static=($(pkg-config --libs --static xorcast))"

"$cc" -std=c17 -Wall -Wextra -Werror program.c "${cflags[@]}" "${shared[@]}" -o shared
expect "pkg-config, shared" env LD_LIBRARY_PATH="$lib" ./shared
ldd shared | grep libxorcast.so >/dev/null || fail "the shared program does not use the library"

"$cc" program.c "${cflags[@]}" "${static[@]/#-lxorcast/-l:libxorcast.a}" -o static
expect "pkg-config, static" ./static
ldd static | grep libxorcast.so >/dev/null && fail "the static program needs the shared library"

if command -v c++ >/dev/null; then
    sed 's/= NULL/= nullptr/' program.c >program.cc
    c++ -std=c++17 -Wall -Werror program.cc "${cflags[@]}" "${shared[@]}" -o cxx
    expect "pkg-config, C++" env LD_LIBRARY_PATH="$lib" ./cxx
fi

mkdir package
cp program.c package/
cat >package/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(xorcast 0.1 REQUIRED)
add_executable(shared program.c)
target_link_libraries(shared PRIVATE xorcast::xorcast)
add_executable(static program.c)
target_link_libraries(static PRIVATE xorcast::static)
CMAKE
CC=$cc cmake -S package -B package/build -DCMAKE_PREFIX_PATH="$prefix" >package.log 2>&1 &&
    cmake --build package/build >>package.log 2>&1 || { cat package.log; exit 1; }
expect "find_package, shared" package/build/shared
expect "find_package, static" package/build/static

"$prefix/bin/xorcast" --help >/dev/null || fail "the installed tool does not start"
echo "ok tool"
if [ -e "$lib/libxorcast_cuda.so" ]; then
    # Whether or not there is a GPU: the plug-in was found, if not the driver.
    "$prefix/bin/xorcast" inspect --device 2>&1 | grep -F "there is no backend" &&
        fail "the installed tool does not find the installed plug-in"
    echo "ok plug-in"
fi
