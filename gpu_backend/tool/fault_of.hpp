// From what --fault and --delay-op name to ops of the plan.
#pragma once

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/injected_fault.hpp"
#include "gpu_backend/tool/exec_options.hpp"

namespace mfsdp {

/// The first kernel or collective of the train plan that has the name. `flag` is whose value
/// it is.
[[nodiscard]] Result<const Op*> find_op(const Program& program, const std::string& name,
                                        const std::string& flag);

/// Errors: no such op or rank; a miscount of what is no collective.
[[nodiscard]] Result<InjectedFault> fault_of(const FaultFlag& flag, const Program& program);

}  // namespace mfsdp
