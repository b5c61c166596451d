// What a collective brings to the kernels that wait for it.
#pragma once

#include <set>

#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// Knows the buffers with which the norm of all gradients begins, so that its gather is told from
/// the gathers of weights.
class AwaitedKinds {
 public:
  explicit AwaitedKinds(const Program& program, const Plan& plan);

  /// `collective`: the body of `op`, an op of the plan.
  ///   gradients      sums, and whatever moves in the phase `reduce`
  ///   gradient_norm  reads what kernels `norm_partial` write
  ///   expert_rows    exchanges beside forward and backward: all_to_all, and any collective on the
  ///                  compute stream itself
  ///   weights        all other gathers but the optimizer's
  ///   others         directions of matrices, the loss, pipelines
  [[nodiscard]] Awaited of(const Op& op, const Collective& collective) const;

 private:
  const Program& program_;
  std::set<BufferId> norm_parts_;
};

}  // namespace mfsdp
