// How a kind of kernel is bound: one function a kind, defined beside the kernel or in a bind_*.cpp.
#pragma once

#include <cuda_runtime.h>

#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "core/runtime/calls/operand_reader.hpp"
#include "core/runtime/operand_view.hpp"
#include "gpu_backend/cuda/kernels/exact_outlier.hpp"
#include "gpu_backend/cuda/launch.hpp"

namespace mfsdp::cuda {

class KernelBinder;

/// What a call is bound to.
struct BindTarget {
  KernelBinder& binder;  ///< planners of products and attention, memory that outlives the launch
  ExactOutlier* outlier = nullptr;  ///< null where a kernel leaves none
  cudaStream_t stream = nullptr;
};

/// The launch of a call, ready but for being queued. A kind that no source defines is an undefined
/// symbol when a program is linked.
template <KernelKind kind>
[[nodiscard]] Result<Launch> bind_kind(const KernelCall& call, const BindTarget& to);

/// Element types that the kernels of this folder are made for.
using CudaTypes = ElementTypes<Bf16, Fp16, float>;
/// Element types that gradients are kept in between microbatches.
using KeptGradientTypes = ElementTypes<Bf16, float>;

template <class T>
struct GradientTypesOf {
  using Types = ElementTypes<Bf16, float>;
};
template <>
struct GradientTypesOf<Fp16> {
  using Types = ElementTypes<Fp16, float>;
};
/// Element types of weight gradients beside a compute type: no kernel takes both of 16 bits.
template <class T>
using GradientTypes = GradientTypesOf<T>::Types;

/// The launch that `make(TypeTag<T>)` makes for the type of an operand, one of `Types`.
template <class Types, class Make>
[[nodiscard]] Result<Launch> bind_by_type(Types types, const KernelCall& call,
                                          std::string_view role, const Make& make) {
  Launch launch;
  MFSDP_TRY(with_type_of(types, call, role, [&](auto type) -> Result<void> {
    MFSDP_LET(made, make(type));
    launch = std::move(made);
    return {};
  }));
  return launch;
}
template <class Make>
[[nodiscard]] Result<Launch> bind_by_type(const KernelCall& call, std::string_view role,
                                          const Make& make) {
  return bind_by_type(CudaTypes{}, call, role, make);
}

}  // namespace mfsdp::cuda
