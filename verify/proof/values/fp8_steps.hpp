// The steps of FP8: a value has a largest magnitude, from which a cast of it gets its scale. A
// GEMM of a linear layer is the model's; it reads casts of what the model multiplies, each with
// the scale of that cast:
//
//   forward           E4M3 of x           and of W            as they are
//   input gradient    E5M2 of dy          and E4M3 of W       W transposed
//   weight gradient   E5M2 of dy          and E4M3 of x       both transposed
//
// With scales of blocks all casts are of one type, and a cast and its transpose have other scales.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "core/base/vocabulary.hpp"
#include "core/model/model.hpp"
#include "core/plan/plan.hpp"
#include "verify/proof/order/program_index.hpp"
#include "verify/proof/values/model_steps.hpp"

namespace mfsdp::fp8 {

/// The value that a matrix is, of which casts are made; none for parameters without FP8 GEMMs.
[[nodiscard]] std::optional<Value> weight_of(ParameterRole role);

/// Operands of `amax` and casts: forms of the value that is in their input. `of_shard`: which is a
/// shard of a weight, one of several.
[[nodiscard]] std::array<Flow, kMostFlows> cast_flows(const Kernel& kernel, Fp8Recipe recipe,
                                                      bool of_shard);

/// The largest magnitude, in operand `amax`, that a kernel takes of a value that it makes. None
/// where that kind has no such operand.
[[nodiscard]] std::optional<Flow> amax_flow(KernelKind kind, const ModelStep& step);

/// A cast of SwiGLU's output from its input; none where the model has none.
[[nodiscard]] std::optional<ModelStep> product_cast_step(const ModelShape& model,
                                                         const Kernel& kernel);

/// The GEMM of that parameter; `variant`: attribute "kind". None where the model has none.
[[nodiscard]] std::optional<ModelStep> product_step(const ModelShape& model, Fp8Recipe recipe,
                                                    std::int64_t variant,
                                                    std::optional<ParameterRole> parameter);

/// Whether a kernel may work on some rows of all tokens: of the gradient of SwiGLU's output, which need
/// not be there at once. A largest magnitude is of all rows.
[[nodiscard]] bool may_be_in_parts(const Kernel& kernel, const PlanConfig& config,
                                   std::optional<ParameterRole> parameter);

/// The kind of GEMMs of that recipe.
[[nodiscard]] KernelKind product_kind(Fp8Recipe recipe);

/// States what is wrong with the blocks of a cast or a GEMM; none of other kernels. `of_weight`: a cast of
/// one.
[[nodiscard]] std::optional<std::string> wrong_blocks(const Kernel& kernel, Fp8Recipe recipe,
                                                      bool of_weight);

/// States what is wrong with the places of `amax_history`'s operands: rows of the history in their
/// order. Values follow what is in the first two.
[[nodiscard]] std::optional<std::string> wrong_rows(const Kernel& kernel, const Program& program,
                                                    const ProgramIndex& index);
/// States what is wrong with the places that a cast, or `amax`, has in the history of delayed
/// scaling: a tensor has one column, in which its casts find this step's largest magnitude and keep
/// the next one. A first cast of a step keeps it; evaluation does not.
[[nodiscard]] std::optional<std::string> wrong_history(const Kernel& kernel, const Program& program,
                                                       const ProgramIndex& index, const Plan& plan);

}  // namespace mfsdp::fp8
