// Whether a program is that of its configuration's model, or one written by hand for another.
#pragma once

#include "core/plan/plan.hpp"
#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/program_index.hpp"

namespace mfsdp {

/// Whether some kernel of the plan reads a microbatch's tokens.
[[nodiscard]] bool takes_tokens(const Plan& plan);
/// Whether the plan receives from another rank: a pipeline stage works on what others made of
/// tokens.
[[nodiscard]] bool receives(const Plan& plan);

/// Whether units and parameters are those of the program's configured model.
[[nodiscard]] bool is_of_model(const Program& program, const ProgramIndex& index);
/// Whether its plans compute that model too: some plan takes tokens or receives.
[[nodiscard]] bool computes_model(const Program& program, const ProgramIndex& index);

/// Axes on which the proofs cannot follow the model (MF113): each rank has whole weights there, but
/// for the experts of ep. So ranks on etp would multiply by a part of a weight as if it were all. So
/// would ranks on tp where no weight is cut along it, or where values are not followed: `of_model`;
/// and there ranks on cp might attend to their own tokens only.
void check_axes(const Program& program, bool of_model, FindingList& findings);

}  // namespace mfsdp
