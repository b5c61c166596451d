// cuBLASLt, loaded on first use. Loading takes half a second and 200 MB per process, which runs on
// CPUs and help texts do not need.
#pragma once

#include <cublasLt.h>

#include "core/base/error.hpp"

namespace mfsdp::cuda {

/// The functions that are used, each as cublasLt.h declares it.
struct CublasLt {
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatrixLayoutInit_internal) init_layout;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout;
  decltype(&cublasLtMatmulDescInit_internal) init_operation;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation;
  decltype(&cublasLtMatmulPreferenceInit_internal) init_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoCheck) check_algorithm;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) attribute_of;
  decltype(&cublasLtMatmulAlgoConfigSetAttribute) set_attribute;
  decltype(&cublasLtMatmul) matmul;
};

/// Loads the library for cublas_lt(). Errors name the missing library or function, as
/// Fault::environment.
[[nodiscard]] Result<void> load_cublas_lt();

/// Requires that the library is loaded: creating a planner or a GEMM call loads it.
[[nodiscard]] const CublasLt& cublas_lt();

}  // namespace mfsdp::cuda
