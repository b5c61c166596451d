// When a step of several microbatches reduces its gradients.
#pragma once

#include <optional>
#include <string>

#include "core/plan/engine.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

enum class GradientReductions { every_microbatch, once_a_step };

/// From the collectives of the plan: every_microbatch where one that sums gradients runs in other
/// microbatches than the last, too. Empty where there is one microbatch, or nothing is reduced.
[[nodiscard]] std::optional<GradientReductions> gradient_reductions(const Program& program,
                                                                    const Plan& plan);

/// One sentence for a prediction of that engine: what was assumed, and what others do instead.
/// `parameters`: of the whole model.
[[nodiscard]] std::string reduction_statement(EngineKind engine, GradientReductions when,
                                              std::int64_t parameters);

}  // namespace mfsdp
