// Whether updates scale gradients by 1/T of this step, once, and clip them by this step's norm.
//
//   cross_entropy (each chunk) --+--> loss_sums -- all_gather --> loss_finish --> 1/T --> update
//   norm_partial (each group)  --+--> partials  -- all_gather --> norm_finish --> clip factor
//
// A configured loss scale is read by each cross_entropy and, unchanged, by loss_finish, which
// removes it; then norm_finish makes the next step's of it.
//
// Copies on the device carry all of these from buffer to buffer. Between classes of ranks 1/T, the
// norm and its partials are followed through sends; sums of the loss are not.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "verify/proof/ledger/followed_ops.hpp"
#include "verify/proof/order/unrolled_plan.hpp"
#include "verify/proof/order/wires.hpp"

namespace mfsdp {

/// What kernels at the end of a step make for its updates.
enum class Scale { loss, norm };

/// What of this step lies in a sent operand, by bytes from its first.
struct SentScales {
  std::vector<std::pair<std::int64_t, Scale>> finished;
  std::vector<std::pair<std::int64_t, GroupId>> partials;  ///< of the norm, with their groups
};

/// The check of one plan, as far as what it receives was sent.
class ScaleRun {
 public:
  ScaleRun(const UnrolledPlan& unrolled, const FollowedOps& followed, FindingList& findings);
  ScaleRun(const ScaleRun&) = delete;
  ScaleRun& operator=(const ScaleRun&) = delete;
  ScaleRun(ScaleRun&& other) noexcept;
  ~ScaleRun();

  /// False where it has to wait for a send; without wires it stops there.
  bool go_on(WireEnds<SentScales>* wires);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Finds MF307, MF308, MF311, what check_microbatches() does, and losses that are not scaled as
/// configured (MF313).
void check_scales(const UnrolledPlan& unrolled, const FollowedOps& followed, FindingList& findings);

}  // namespace mfsdp
