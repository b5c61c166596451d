// Declares the function that runs a kind of kernel on the CPU; run_*.cpp define it for each kind.
#pragma once

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
  [[nodiscard]] Result<void> operator()(const auto& compute) const {
    return with_call<kind>(call, compute);
  }
};

/// Runs the call. A kind that no run_*.cpp defines is an undefined symbol at link time.
template <KernelKind kind>
[[nodiscard]] Result<void> run_kind(const KernelRun<kind>& run);

using K = KernelKind;

}  // namespace mfsdp::kernels
