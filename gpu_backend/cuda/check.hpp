// Return codes of CUDA's libraries as errors of the environment.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp::cuda {

[[nodiscard]] inline Result<void> check(cudaError_t status, std::string_view call) {
  if (status == cudaSuccess) return {};
  return fail(std::string(call), cudaGetErrorString(status), Fault::environment);
}
[[nodiscard]] inline Result<void> check(cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return fail(std::string(call), cublasLtGetStatusString(status), Fault::environment);
}
[[nodiscard]] inline Result<void> check(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  return fail(std::string(call), cudnnGetErrorString(status), Fault::environment);
}

}  // namespace mfsdp::cuda
