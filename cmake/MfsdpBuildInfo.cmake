# The values that `--version` prints, as a header of macros. Each build regenerates it but touches it
# only when a value changed. Only sources that use MFSDP_COMMIT include it, so that a commit recompiles
# those and nothing else.
#   MFSDP_VERSION MFSDP_COMMIT MFSDP_COMPILER MFSDP_CUDA_VERSIONS
set(MFSDP_CUDA_VERSIONS "built without CUDA, NCCL and cuDNN")
if(MFSDP_CUDA_ENABLED)
  set(MFSDP_CUDA_VERSIONS "CUDA ${MFSDP_CUDA_VERSION}")
  foreach(library NCCL cuDNN)
    string(TOUPPER ${library} name)
    if(MFSDP_${name}_VERSION)
      string(APPEND MFSDP_CUDA_VERSIONS ", ${library} ${MFSDP_${name}_VERSION}")
    else()
      string(APPEND MFSDP_CUDA_VERSIONS ", no ${library}")
    endif()
  endforeach()
endif()

set(MFSDP_BUILD_INFO_HEADER ${CMAKE_BINARY_DIR}/generated/mfsdp_build_info.hpp)

add_custom_target(mfsdp_build_info
  COMMAND ${CMAKE_COMMAND}
    -D "SOURCE_DIR=${CMAKE_SOURCE_DIR}"
    -D "TEMPLATE=${CMAKE_CURRENT_LIST_DIR}/build_info.hpp.in"
    -D "HEADER=${MFSDP_BUILD_INFO_HEADER}"
    -D "MFSDP_VERSION=${PROJECT_VERSION}"
    -D "MFSDP_COMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
    -D "MFSDP_CUDA_VERSIONS=${MFSDP_CUDA_VERSIONS}"
    -P ${CMAKE_CURRENT_LIST_DIR}/WriteBuildInfo.cmake
  BYPRODUCTS ${MFSDP_BUILD_INFO_HEADER}
  COMMENT "Commit and versions for --version"
  VERBATIM)

# mfsdp_use_build_info(<target>): gives the macros to those of its sources that use them.
function(mfsdp_use_build_info target)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    file(STRINGS ${source} uses REGEX "MFSDP_COMMIT" LIMIT_COUNT 1)
    if(uses)
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
        -include ${MFSDP_BUILD_INFO_HEADER})
      set_property(SOURCE ${source} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
  add_dependencies(${target} mfsdp_build_info)
endfunction()
