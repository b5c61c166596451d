// Return codes of CUDA's libraries as errors of the environment.
#pragma once

#include <cuda_runtime.h>
#include <cudnn.h>
#include <nccl.h>

#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "gpu_backend/cuda/cublas_lt.hpp"

namespace mfsdp::cuda {

/// "place: call: reason". `place` is an op, a rank or a shape.
[[nodiscard]] inline Result<void> check_failed(std::string_view call, std::string_view place,
                                               std::string_view reason) {
  std::string where = place.empty() ? std::string() : std::string(place) + ": ";
  where += call;
  return fail(std::move(where), std::string(reason), Fault::environment);
}

[[nodiscard]] inline Result<void> check(cudaError_t status, std::string_view call,
                                        std::string_view place = {}) {
  if (status == cudaSuccess) return {};
  return check_failed(call, place, cudaGetErrorString(status));
}
[[nodiscard]] inline Result<void> check(cublasStatus_t status, std::string_view call,
                                        std::string_view place = {}) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return check_failed(call, place, cublas_lt().status_string(status));
}
[[nodiscard]] inline Result<void> check(cudnnStatus_t status, std::string_view call,
                                        std::string_view place = {}) {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  return check_failed(call, place, cudnnGetErrorString(status));
}
[[nodiscard]] inline Result<void> check(ncclResult_t status, std::string_view call,
                                        std::string_view place = {}) {
  if (status == ncclSuccess) return {};
  return check_failed(call, place, ncclGetErrorString(status));
}

}  // namespace mfsdp::cuda
