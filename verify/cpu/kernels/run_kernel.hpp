// The entry to all kinds of CPU kernels.
#pragma once

#include "core/base/error.hpp"
#include "core/runtime/calls/kernel_settings.hpp"
#include "core/runtime/operand_view.hpp"

namespace mfsdp {

/// Runs the kernel on the calling thread; safe to call from several threads at once. Operands and
/// attributes must be as core/recipe and core/schedule emit them. Errors name the kernel, the role
/// and the expected value; nothing is written then.
[[nodiscard]] Result<void> run_kernel(const KernelCall& call, const KernelSettings& settings);

}  // namespace mfsdp
