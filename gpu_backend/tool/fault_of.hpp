// Finds the ops of the plan that --fault and --delay-op name.
#pragma once

#include <span>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/injected_fault.hpp"
#include "gpu_backend/tool/exec_options.hpp"

namespace mfsdp {

/// The first kernel or collective of the train plan with this name. `flag` is the flag to name in
/// errors.
[[nodiscard]] Result<const Op*> find_op(const Program& program, const std::string& name,
                                        const std::string& flag);

/// `programs`: of a job; the op is one of the rank's class. Errors: no such op or rank; a miscount of
/// an op that is no collective.
[[nodiscard]] Result<InjectedFault> fault_of(const FaultFlag& flag,
                                             std::span<const Program> programs);

}  // namespace mfsdp
