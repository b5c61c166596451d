# Options of the build, compiler flags and the packages that the libraries need.
option(MFSDP_BUILD_TESTS "Build tests and benchmarks" ON)
option(MFSDP_BUILD_FUZZERS "Build libFuzzer targets (clang only)" OFF)
option(MFSDP_COVERAGE "Count executed lines; target coverage-report writes the table" OFF)
set(MFSDP_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")
set(MFSDP_CUDA AUTO CACHE STRING "Compile gpu_backend/cuda: AUTO (if nvcc is found), ON or OFF")
set_property(CACHE MFSDP_CUDA PROPERTY STRINGS AUTO ON OFF)

# Warnings are errors where they are known: with the pinned compiler (g++ 12), outside sanitizer
# builds, whose instrumentation makes g++ warn of uninitialised values that are none.
set(pinned_compiler OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13
   AND NOT MFSDP_SANITIZE AND NOT MFSDP_COVERAGE)
  set(pinned_compiler ON)
endif()
option(MFSDP_WERROR "Treat warnings as errors" ${pinned_compiler})

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=mold>)
endif()

set(cxx_options -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports a false overlap inside std::string operator+ (GCC bug 105651).
  list(APPEND cxx_options -Wno-restrict)
  if(CMAKE_UNITY_BUILD)
    # It takes a source that a batch includes for a header, whose types others could see.
    list(APPEND cxx_options -Wno-subobject-linkage)
  endif()
else()
  # clang counts sign changes as conversions, g++ does not; g++ sets the rule here. And it warns of
  # what libstdc++ 12 itself calls inside std::stable_sort.
  list(APPEND cxx_options -Wno-sign-conversion -Wno-deprecated-declarations)
endif()
if(MFSDP_WERROR)
  list(APPEND cxx_options -Werror)
endif()
# Simulated nanoseconds must not depend on the compiler: no fused multiply-add.
list(APPEND cxx_options -ffp-contract=off)

if(MFSDP_SANITIZE)
  # g++ and clang have different macros for the active sanitizer; sources test these instead.
  add_compile_definitions(MFSDP_SANITIZED)
  if(MFSDP_SANITIZE MATCHES "thread")
    add_compile_definitions(MFSDP_THREAD_SANITIZED)
  endif()
  list(APPEND cxx_options -fsanitize=${MFSDP_SANITIZE} -fno-sanitize-recover=all
       -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Instrumented, std::regex and std::variant look uninitialised to g++ 12 (GCC bug 105562).
    list(APPEND cxx_options -Wno-maybe-uninitialized)
  endif()
  add_link_options(-fsanitize=${MFSDP_SANITIZE})
endif()
if(MFSDP_COVERAGE)
  list(APPEND cxx_options --coverage)
  add_link_options(--coverage)
endif()
if(MFSDP_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "MFSDP_BUILD_FUZZERS needs clang (libFuzzer): cmake --preset fuzz")
  endif()
  # libFuzzer learns from this instrumentation which code an input reaches. If tests are built too,
  # only blocks are counted: a call at each comparison would slow the tests.
  set(MFSDP_FUZZ_COVERAGE -fsanitize=fuzzer-no-link)
  if(MFSDP_BUILD_TESTS)
    set(MFSDP_FUZZ_COVERAGE -fsanitize-coverage=inline-8bit-counters,pc-table)
  endif()
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${cxx_options}>")

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS program_options)
find_package(SQLiteCpp REQUIRED)
find_package(ZLIB REQUIRED)

# Debian's packages of these have no CMake files: mfsdp_find_library(<name> <header> <library>...), the
# first of the libraries that is there.
function(mfsdp_find_library name header)
  find_path(${name}_INCLUDE_DIR ${header} REQUIRED)
  find_library(${name}_LIBRARY NAMES ${ARGN} REQUIRED)
  mark_as_advanced(${name}_INCLUDE_DIR ${name}_LIBRARY)
  add_library(mfsdp::${name} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(mfsdp::${name} PROPERTIES
    IMPORTED_LOCATION ${${name}_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${${name}_INCLUDE_DIR})
endfunction()
mfsdp_find_library(pcre2 pcre2.h pcre2-8)
mfsdp_find_library(utf8proc utf8proc.h utf8proc)
# Static where it is there: machines with GPUs have it less often than the others.
mfsdp_find_library(nettle nettle/hmac.h libnettle.a nettle)
