// Attributes of kernels for --exact-sums.
#pragma once

#include "core/plan/plan.hpp"

namespace mfsdp::schedule {

/// Gives the kernels of all plans the attributes of core/plan/exact_sums.hpp. Does nothing without
/// --exact-sums.
void mark_exact_sums(Program& program);

}  // namespace mfsdp::schedule
