// Whether a program is a plan: the one list of what readers of plans, the proofs and those who run
// plans take for granted. No schedule is judged here.
#pragma once

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Checks that the configuration is valid and the program has no structure_faults(); that ranks,
/// communicators, parameters, microbatches and how groups are cut are the configured ones; that
/// segment boundaries agree, the transient buffers of a pool are acquired on one stream, kernels
/// cost what their attributes come to, and there is no horde of segments. The error names the place
/// as a path into the JSON.
[[nodiscard]] Result<void> check_structure(const Program& program);

}  // namespace mfsdp
