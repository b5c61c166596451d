// How a kind of kernel runs on the CPU: one function a kind, in the run_*.cpp of its kernel.
#pragma once

#include <string_view>

#include "core/base/error.hpp"
#include "core/runtime/calls/call_reader.hpp"
#include "core/runtime/calls/kernel_settings.hpp"

namespace mfsdp::kernels {

/// A call of one kind.
template <KernelKind kind>
struct KernelRun {
  const KernelCall& call;
  const KernelSettings& settings;

  [[nodiscard]] const Kernel& kernel() const { return *call.kernel; }
  /// Runs `compute`, which may fail, with the kind's call struct.
  template <class Compute>
  [[nodiscard]] Result<void> operator()(const Compute& compute) const {
    return with_call<kind>(call, compute);
  }
};

/// Runs it. A kind that no run_*.cpp defines is an undefined symbol when a program is linked.
template <KernelKind kind>
[[nodiscard]] Result<void> run_kind(const KernelRun<kind>& run);

using K = KernelKind;

}  // namespace mfsdp::kernels
