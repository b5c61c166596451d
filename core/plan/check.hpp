// Checks a program against the rules that readers of plans, proofs and backends rely on. The
// schedule is not checked here.
#pragma once

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Checks the following; the error names the place as a path into the JSON. The configuration is
/// valid and the program has no structure_faults(). Ranks, communicators, parameters, microbatches
/// and the sharding of groups are the configured ones. Segment boundaries agree, and their number
/// is limited. The transient buffers of a pool are acquired on one stream. Kernels have the costs
/// of their attributes.
[[nodiscard]] Result<void> check_structure(const Program& program);

/// Checks that groups have the configured optimizers, are sharded by the configured strategies into
/// multiples of their chunk, and contain all their parameters; and that the stated contents of
/// buffers are inside them. Requires a program without structure_faults() and a valid
/// configuration. Throws OverflowError where sizes exceed 63 bits.
[[nodiscard]] Result<void> check_groups(const Program& program);

/// Checks that units and parameters are those of the configured model, and that segments have the
/// configured microbatches. Requires that ids resolve; throws OverflowError.
[[nodiscard]] Result<void> check_model(const Program& program);

}  // namespace mfsdp
