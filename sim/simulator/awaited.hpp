// Classifies a collective by what the kernels that wait for it need.
#pragma once

#include <set>

#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// Finds the buffers from which the norm of all gradients is computed, to distinguish their gather
/// from the gathers of weights.
class AwaitedKinds {
 public:
  explicit AwaitedKinds(const Program& program, const Plan& plan);

  /// `collective`: the body of `op`, an op of the plan. Kinds:
  ///   sends          of ranks to their peers, and receives
  ///   gradients      sums, and all transfers in the phase `reduce`
  ///   gradient_norm  reads what kernels `norm_partial` write
  ///   expert_rows    token exchange of forward and backward: all_to_all, and collectives on the
  ///                  compute stream itself
  ///   heads          the same over cp, of ranks that share sequences: also gathers, sums and sends of
  ///                  keys, values and their gradients
  ///   rows           gathers and sums over tp, of ranks that share blocks
  ///   weights        all other gathers but the optimizer's
  ///   others         directions of matrices, the loss
  [[nodiscard]] Awaited of(const Op& op, const Collective& collective) const;

 private:
  [[nodiscard]] bool crosses(const Collective& collective, Axis axis) const;

  const Program& program_;
  std::set<BufferId> norm_parts_;
};

}  // namespace mfsdp
