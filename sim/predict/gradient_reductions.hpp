// When a step of several microbatches reduces its gradients.
#pragma once

#include <optional>
#include <string>

#include "core/plan/engine.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

enum class GradientReductions { every_microbatch, once_a_step };

/// From the collectives of the plan: every_microbatch if gradients are summed in other microbatches
/// than the last one, too. Empty with one microbatch, or if nothing is reduced.
[[nodiscard]] std::optional<GradientReductions> gradient_reductions(const Program& program,
                                                                    const Plan& plan);

/// One sentence for a prediction of that engine: the assumption, and how other software differs.
/// `parameters`: number of parameters of the model.
[[nodiscard]] std::string reduction_statement(EngineKind engine, GradientReductions when,
                                              std::int64_t parameters);

}  // namespace mfsdp
