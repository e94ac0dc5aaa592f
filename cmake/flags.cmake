# Compiler flags of everything built here, as the interface target xorcast_flags: the language, the
# warnings and the sanitizers. Knows no source file.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Kind of build" FORCE)
endif()
# The coder loops gain from -O3. Asserts are off here (the library never aborts) and on in Debug and
# sanitizer builds, which is where they are meant to speak.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O3 -g -DNDEBUG")

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(xorcast_flags INTERFACE)
# Defined as nothing, so that a file may define it once more itself.
target_compile_definitions(xorcast_flags INTERFACE _GNU_SOURCE= XXH_INLINE_ALL=)
target_compile_options(xorcast_flags INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes -Wmissing-prototypes)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # Outputs are written only on success, and gcc cannot see across files that a status is a failure.
    # Real uses of unset variables are found by clang, by the sanitizers and by -Wuninitialized.
    target_compile_options(xorcast_flags INTERFACE -Wno-maybe-uninitialized)
endif()
if(XORCAST_WERROR)
    target_compile_options(xorcast_flags INTERFACE -Werror)
endif()

if(XORCAST_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "XORCAST_FUZZ needs clang: configure with CC=clang-14.")
    endif()
    if(NOT XORCAST_SANITIZE)
        set(XORCAST_SANITIZE "address,undefined")
    endif()
    target_compile_options(xorcast_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

if(XORCAST_SANITIZE)
    # -O1 keeps backtraces readable and the tests fast enough; an undefined operation ends the test.
    set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g")
    set(sanitizer_options -fsanitize=${XORCAST_SANITIZE} -fno-omit-frame-pointer)
    if(XORCAST_SANITIZE MATCHES "undefined")
        list(APPEND sanitizer_options -fno-sanitize-recover=undefined)
    endif()
    target_compile_options(xorcast_flags INTERFACE ${sanitizer_options})
    target_link_options(xorcast_flags INTERFACE ${sanitizer_options})
endif()
