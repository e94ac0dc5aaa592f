# The plug-in libxorcast_cuda.so, where there is an nvcc: kernels for every architecture from sm_80
# on that this nvcc knows, and PTX of the newest for those to come. It carries the runtime inside and
# is loaded at run time, so that nothing else here knows CUDA.

option(XORCAST_CUDA "Build the CUDA plug-in where nvcc is" ON)
set(XORCAST_CUDA_ARCHITECTURES "" CACHE STRING
    "Architectures as CMake names them; empty: all from sm_80 on, and PTX of the newest")
set(XORCAST_HAVE_CUDA OFF)
if(NOT XORCAST_CUDA OR XORCAST_SANITIZE OR XORCAST_FUZZ)
    return()
endif()

include(CheckLanguage)
list(APPEND CMAKE_PROGRAM_PATH /usr/local/cuda/bin)
find_program(XORCAST_NVCC nvcc)
mark_as_advanced(XORCAST_NVCC)
if(NOT XORCAST_NVCC)
    message(STATUS "SKIPPED: the CUDA plug-in; there is no nvcc")
    return()
endif()

if(NOT XORCAST_CUDA_ARCHITECTURES)
    execute_process(COMMAND ${XORCAST_NVCC} --list-gpu-code OUTPUT_VARIABLE listed)
    string(REGEX MATCHALL "sm_[0-9]+" listed "${listed}")
    set(architectures)
    set(newest 0)
    foreach(code IN LISTS listed)
        string(REPLACE "sm_" "" number ${code})
        if(number GREATER_EQUAL 80)
            list(APPEND architectures ${number}-real)
            if(number GREATER newest)
                set(newest ${number})
            endif()
        endif()
    endforeach()
    list(APPEND architectures ${newest}-virtual)
else()
    set(architectures ${XORCAST_CUDA_ARCHITECTURES})
endif()

set(CMAKE_CUDA_COMPILER ${XORCAST_NVCC})
set(CMAKE_CUDA_ARCHITECTURES "${architectures}")
check_language(CUDA)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3 -lineinfo")
set(CMAKE_CUDA_EXTENSIONS OFF)

# The kernels by themselves, for the plug-in, for tests/gpu and for bench/cuda.
file(GLOB kernel_sources CONFIGURE_DEPENDS src/backend/cuda/*.cu)
add_library(xorcast_kernels STATIC ${kernel_sources})
set_target_properties(xorcast_kernels PROPERTIES
    CUDA_ARCHITECTURES "${architectures}" CUDA_RUNTIME_LIBRARY Static
    POSITION_INDEPENDENT_CODE ON CUDA_VISIBILITY_PRESET hidden)
target_include_directories(xorcast_kernels PUBLIC include src)
target_include_directories(xorcast_kernels SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
target_compile_options(xorcast_kernels PRIVATE
    --Werror=all-warnings --threads=0 -Xcompiler=-Wall,-Wextra,-Wno-maybe-uninitialized)
target_link_libraries(xorcast_kernels PUBLIC CUDA::cudart_static)

file(GLOB cuda_sources CONFIGURE_DEPENDS src/backend/cuda/*.c)
add_library(xorcast_cuda MODULE ${cuda_sources})
set_target_properties(xorcast_cuda PROPERTIES
    PREFIX lib OUTPUT_NAME xorcast_cuda LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
    C_VISIBILITY_PRESET hidden LINKER_LANGUAGE C)
target_link_libraries(xorcast_cuda PRIVATE xorcast_flags xorcast_kernels)
# Only a libc and a driver are asked of the machine.
target_link_options(xorcast_cuda PRIVATE
    -Wl,--exclude-libs,ALL -Wl,-z,defs -static-libgcc -static-libstdc++)
set(XORCAST_HAVE_CUDA ON)

# The kit: tests and benchmarks of the GPU, installed as one folder that needs a driver only, for
# machines without tools to build anything. `./run build-gpu` makes it.
install(TARGETS xorcast_cuda LIBRARY DESTINATION . COMPONENT gpu_kit EXCLUDE_FROM_ALL)

# A program over the kernels, in C or CUDA; part of the kit.
function(xorcast_gpu_program target source folder)
    add_executable(${target} ${source})
    cmake_path(GET source STEM stem)
    set_target_properties(${target} PROPERTIES
        OUTPUT_NAME ${stem} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder}
        CUDA_ARCHITECTURES "${architectures}" CUDA_RUNTIME_LIBRARY Static)
    target_include_directories(${target} PRIVATE
        ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/bench)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--threads=0>"
        "$<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra>")
    target_compile_definitions(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE=>")
    # By its file: the flags that C code gets through the target are none of nvcc's.
    add_dependencies(${target} xorcast_gen xorcast_static)
    target_link_libraries(${target} PRIVATE $<TARGET_FILE:xorcast_gen>
        $<TARGET_FILE:xorcast_static> xorcast_kernels xorcast_dependencies)
    install(TARGETS ${target} RUNTIME DESTINATION ${folder} COMPONENT gpu_kit EXCLUDE_FROM_ALL)
endfunction()

if(XORCAST_PROGRAMS)
    file(GLOB gpu_benches CONFIGURE_DEPENDS bench/cuda/*.cu bench/cuda/*.c)
    foreach(source IN LISTS gpu_benches)
        cmake_path(GET source STEM name)
        file(STRINGS ${source} program REGEX "^int main\\(")
        if(program)
            xorcast_gpu_program(bench_cuda_${name} ${source} bench/cuda)
        else() # for programs in other languages: bench/peers
            add_library(bench_cuda_${name} MODULE ${source})
            set_target_properties(bench_cuda_${name} PROPERTIES
                PREFIX "" OUTPUT_NAME ${name} CUDA_ARCHITECTURES "${architectures}"
                LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench/peers
                POSITION_INDEPENDENT_CODE ON CUDA_RUNTIME_LIBRARY Static)
            target_include_directories(bench_cuda_${name} PRIVATE ${PROJECT_SOURCE_DIR}/bench)
            target_link_libraries(bench_cuda_${name} PRIVATE xorcast_kernels)
            install(TARGETS bench_cuda_${name}
                LIBRARY DESTINATION bench/peers COMPONENT gpu_kit EXCLUDE_FROM_ALL)
        endif()
    endforeach()
endif()
