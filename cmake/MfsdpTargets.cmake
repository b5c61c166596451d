# Sanitizer builds optimise nothing, as that doubles the compiling: but these, most of what tests run.
set(MFSDP_BUSY_ROOMS mfsdp_plan mfsdp_planner mfsdp_sim mfsdp_cpu
  mfsdp_proof_order mfsdp_proof_memory mfsdp_proof_ledger mfsdp_proof_values mfsdp_proof_ranks
  mfsdp_proof mfsdp_checker)

# mfsdp_room(<target> FOLDERS <folder>... SEES <target or library>...)
# A static library of every .cpp and .cu in the folders, except mains and probes. SEES is the arrow of the design:
# tests/arrows checks it against the table, and that includes follow it.
# scripts/check-headers compiles each header on its own.
function(mfsdp_room target)
  cmake_parse_arguments(ROOM "" "" "FOLDERS;SEES" ${ARGN})
  set(sources)
  foreach(folder IN LISTS ROOM_FOLDERS)
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND sources ${found})
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cu)
    list(APPEND sources ${found})
    set_property(GLOBAL PROPERTY MFSDP_ROOM_OF_${folder} ${target})
  endforeach()
  list(FILTER sources EXCLUDE REGEX "(/main|_probe)\\.(cpp|cu)$")
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX MFSDP_FOLDERS "${ROOM_FOLDERS}")
  target_link_libraries(${target} PUBLIC ${ROOM_SEES})
  if(MFSDP_SANITIZE AND target IN_LIST MFSDP_BUSY_ROOMS)
    target_compile_options(${target} PRIVATE -O1)
  endif()
  mfsdp_precompile(${target} LIBRARIES)
  if(MFSDP_BUILD_FUZZERS)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${MFSDP_FUZZ_COVERAGE}>)
  endif()
endfunction()
