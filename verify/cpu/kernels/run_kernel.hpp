// The CPU's kernels, one entry for all kinds.
#pragma once

#include "core/base/error.hpp"
#include "core/runtime/operand_view.hpp"
#include "verify/cpu/kernels/kernel_settings.hpp"

namespace mfsdp {

/// Runs the kernel on the calling thread; safe to call from several threads at once. Operands and
/// attributes are those that core/recipe and core/schedule emit. Errors name the kernel, the role
/// and what was expected; nothing is written then.
[[nodiscard]] Result<void> run_kernel(const KernelCall& call, const KernelSettings& settings);

}  // namespace mfsdp
