// cuBLASLt, loaded when it is first asked for: its start takes each process half a second and 200
// MB, and what runs on CPUs, or prints a help text, does without.
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

/// From now on `cublas_lt()` has them. An error of the environment names the library or function
/// that is not there.
[[nodiscard]] Result<void> load_cublas_lt();

/// Once loaded: what makes a planner or a call of a product has seen to that.
[[nodiscard]] const CublasLt& cublas_lt();

}  // namespace mfsdp::cuda
