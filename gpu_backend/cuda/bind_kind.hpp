// Binds a kind of kernel to a launch, once, before the first step.
#pragma once

#include <cuda_runtime.h>

#include <string_view>
#include <type_traits>
#include <utility>

#include "core/base/error.hpp"
#include "core/runtime/calls/call_reader.hpp"
#include "core/runtime/operand_view.hpp"
#include "gpu_backend/cuda/kernels/exact_outlier.hpp"
#include "gpu_backend/cuda/launch.hpp"

namespace mfsdp::cuda {

class KernelBinder;

/// Element types that the kernels of this folder support.
using CudaTypes = ElementTypes<Bf16, Fp16, float>;
/// Element types of gradients between microbatches.
using KeptGradientTypes = ElementTypes<Bf16, float>;

template <class T>
struct GradientTypesOf {
  using Types = ElementTypes<Bf16, float>;
};
template <>
struct GradientTypesOf<Fp16> {
  using Types = ElementTypes<Fp16, float>;
};
/// Element types of weight gradients for a compute type: no kernel supports two different 16-bit
/// types.
template <class T>
using GradientTypes = GradientTypesOf<T>::Types;

/// Types with which call structs are read (core/runtime/calls/call_reader.hpp).
struct CudaCallTypes {
  using First = CudaTypes;
  template <class T>
  using Second = GradientTypes<T>;
};

/// A call of one kind, which is converted to a launch.
template <KernelKind kind>
struct KernelBinding {
  const KernelCall& call;
  KernelBinder& binder;  ///< planners of GEMMs and attention; its memory outlives the launch
  ExactOutlier* outlier = nullptr;  ///< null if the kernel reports no outlier
  cudaStream_t stream = nullptr;

  /// The launch of `queue(k, stream)` or `queue(k, stream, outlier)`, with the kind's call struct
  /// k.
  template <class Types = CudaCallTypes, class Queue>
  [[nodiscard]] Result<Launch> launch(const Queue& queue) const {
    return bind<Types>([&](const auto& k) -> Result<Launch> { return launch_of(k, queue); });
  }
  /// The launch that `make(k)` makes.
  template <class Types = CudaCallTypes, class Make>
  [[nodiscard]] Result<Launch> bind(const Make& make) const {
    Launch made;
    MFSDP_TRY((with_call<kind, Types>(call, [&](const auto& k) -> Result<void> {
      MFSDP_LET(launch, make(k));
      made = std::move(launch);
      return {};
    })));
    return made;
  }
  /// As launch(), for a call that has been read.
  template <class Call, class Queue>
  [[nodiscard]] Launch launch_of(const Call& k, const Queue& queue) const {
    if constexpr (std::is_invocable_v<Queue, const Call&, cudaStream_t>)
      return [k, queue, stream = stream] { return queue(k, stream); };
    else
      return [k, queue, stream = stream, outlier = outlier] { return queue(k, stream, outlier); };
  }
};

/// Binds the call. There is one function for each kind, defined after the kernel that it launches.
/// A kind without a definition is an undefined symbol at link time.
template <KernelKind kind>
[[nodiscard]] Result<Launch> bind_kind(const KernelBinding<kind>& to);

using K = KernelKind;

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
