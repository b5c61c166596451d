// Settings of a measured run that are not in its plan, as facts of its record.
#pragma once

#include "core/base/error.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "gpu_backend/tool/run_inputs.hpp"
#include "reports/record/facts.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// The recipe: rates, warm-up, decay, betas, seed, the data, and the source of the weights. Errors:
/// those of reading some of the data.
[[nodiscard]] Result<Facts> recipe_facts(const ExecOptions& options, const RunInputs& inputs,
                                         const RunHead& run);

/// The CPU of this machine, its threads and its memory.
[[nodiscard]] Facts cpu_facts();

}  // namespace mfsdp
