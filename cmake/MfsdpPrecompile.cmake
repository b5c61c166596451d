# Common headers take a quarter to a half of the compile time of clang without optimisation.
# Sanitizer builds (CMakePresets.json) therefore precompile them once for each kind of target.
# Off elsewhere: g++ gains little from precompiled headers, and builds without them find a source
# that lacks an include.
option(MFSDP_PRECOMPILE "Precompile what most sources include" OFF)

set(MFSDP_HEADERS_OF_LIBRARIES
  <algorithm> <array> <charconv> <chrono> <cmath> <cstddef> <cstdint> <cstring> <filesystem>
  <functional> <fstream> <limits> <map> <memory> <numeric> <optional> <random> <ranges> <set>
  <span> <sstream> <string> <string_view> <tuple> <unordered_map> <utility> <variant> <vector>
  <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp> <tl/expected.hpp>)
set(MFSDP_HEADERS_OF_TESTS ${MFSDP_HEADERS_OF_LIBRARIES}
  <gmock/gmock.h> <gtest/gtest.h> <rapidcheck/gtest.h>)

# mfsdp_precompile(<target> LIBRARIES|TESTS): takes effect after all options of the folder are set.
function(mfsdp_precompile target headers)
  if(MFSDP_PRECOMPILE)
    cmake_language(EVAL CODE
      "cmake_language(DEFER CALL mfsdp_precompile_now ${target} MFSDP_HEADERS_OF_${headers})")
  endif()
endfunction()

# The first target of a kind compiles the headers; others with the same list, options and
# definitions use what it has.
function(mfsdp_precompile_now target headers)
  get_target_property(options ${target} COMPILE_OPTIONS)
  get_target_property(definitions ${target} COMPILE_DEFINITIONS)
  string(MD5 kind "${headers} ${options} ${definitions}")
  get_property(first GLOBAL PROPERTY MFSDP_PRECOMPILED_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    set_property(GLOBAL PROPERTY MFSDP_PRECOMPILED_${kind} ${target})
    target_precompile_headers(${target} PRIVATE ${${headers}})
  endif()
endfunction()
