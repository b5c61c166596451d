# Finds the CUDA toolkit, NCCL and cuDNN without any download. All three are needed. Sets
#   MFSDP_CUDA_ENABLED                                  whether gpu_backend/cuda is compiled
#   MFSDP_CUDA_VERSION, MFSDP_NCCL_VERSION, MFSDP_CUDNN_VERSION   empty where not found
# and, where enabled, the targets mfsdp::nccl and mfsdp::cudnn. Where it is left out, one line says
# why; with MFSDP_CUDA=ON that is an error.
set(MFSDP_CUDA_ENABLED OFF)
set(MFSDP_CUDA_VERSION "")
set(MFSDP_NCCL_VERSION "")
set(MFSDP_CUDNN_VERSION "")

# The version that a header's #define lines state: mfsdp_header_version(OUT file prefix).
function(mfsdp_header_version out file prefix)
  set(parts)
  foreach(part MAJOR MINOR PATCH PATCHLEVEL)
    file(STRINGS ${file} line REGEX "^#define ${prefix}_${part} +[0-9]+" LIMIT_COUNT 1)
    if(line MATCHES "([0-9]+)[ \t]*(/.*)?$")
      list(APPEND parts ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(JOIN parts "." version)
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

# mfsdp_cuda_library(<target> <header> <library>): imported target, where both are found.
function(mfsdp_cuda_library target header library)
  string(TOUPPER ${library} name)
  find_path(${name}_INCLUDE_DIR ${header} HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(${name}_LIBRARY ${library} HINTS ${CUDAToolkit_LIBRARY_DIR})
  mark_as_advanced(${name}_INCLUDE_DIR ${name}_LIBRARY)
  if(${name}_INCLUDE_DIR AND ${name}_LIBRARY)
    add_library(${target} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(${target} PROPERTIES
      IMPORTED_LOCATION ${${name}_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${${name}_INCLUDE_DIR})
  endif()
endfunction()

# mfsdp_leave_out_cuda(<why>)
function(mfsdp_leave_out_cuda why)
  if(MFSDP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MFSDP_CUDA=ON, but ${why}")
  endif()
  message(STATUS "gpu_backend/cuda is left out: ${why}")
endfunction()

if(MFSDP_CUDA STREQUAL "OFF")
  message(STATUS "gpu_backend/cuda is left out: MFSDP_CUDA=OFF")
  return()
endif()

find_program(MFSDP_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(MFSDP_NVCC)
if(NOT MFSDP_NVCC)
  mfsdp_leave_out_cuda("nvcc is neither in PATH nor in /usr/local/cuda/bin")
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90)
endif()
set(ENV{CUDACXX} ${MFSDP_NVCC})
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  mfsdp_leave_out_cuda("${MFSDP_NVCC} cannot compile a program")
  return()
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc has C++20.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
find_package(CUDAToolkit REQUIRED)

mfsdp_cuda_library(mfsdp::nccl nccl.h nccl)
mfsdp_cuda_library(mfsdp::cudnn cudnn_version.h cudnn)
set(missing)
foreach(library NCCL cuDNN)
  string(TOLOWER mfsdp::${library} target)
  if(NOT TARGET ${target})
    list(APPEND missing ${library})
  endif()
endforeach()
if(missing)
  list(JOIN missing " and " missing)
  mfsdp_leave_out_cuda("no header and library of ${missing} found")
  return()
endif()

set(MFSDP_CUDA_ENABLED ON)
set(MFSDP_CUDA_VERSION ${CMAKE_CUDA_COMPILER_VERSION})
mfsdp_header_version(MFSDP_NCCL_VERSION ${NCCL_INCLUDE_DIR}/nccl.h NCCL)
mfsdp_header_version(MFSDP_CUDNN_VERSION ${CUDNN_INCLUDE_DIR}/cudnn_version.h CUDNN)

if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
# g++ compiles the host's half, of text that nvcc has written: what -Wpedantic, -Wconversion and
# -Wunused say of that is not of ours. Device code asks the spans of core/runtime/calls for their
# pointers.
set(cuda_options --expt-relaxed-constexpr -lineinfo -Xcompiler=-Wall,-Wextra,-Wshadow)
if(MFSDP_WERROR)
  list(APPEND cuda_options -Werror=all-warnings -Xcompiler=-Werror)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:${cuda_options}>")
