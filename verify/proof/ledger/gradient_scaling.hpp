// Whether updates scale gradients by 1/T of this step, once, and clip them by this step's norm.
//
//   cross_entropy (each chunk) --+--> loss_sums -- all_gather --> loss_finish --> 1/T --> update
//   norm_partial (each group)  --+--> partials  -- all_gather --> norm_finish --> clip factor
//
// A configured loss scale is read by each cross_entropy and, unchanged, by loss_finish, which
// divides 1/T by it; then norm_finish computes the next step's loss scale.
//
// Copies on the device move all of these from buffer to buffer. Between classes of ranks, sends
// move 1/T, the norm and partial norms; loss sums are not followed from class to class.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "verify/proof/ledger/followed_ops.hpp"
#include "verify/proof/order/messages.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

namespace scaling {
struct State;
}

/// A value that a kernel at the end of a step computes for the updates.
enum class Scale { loss, norm };

/// Values of this step in a sent operand, by bytes from its first.
struct SentScaling {
  std::vector<std::pair<std::int64_t, Scale>> finished;
  std::vector<std::pair<std::int64_t, GroupId>> partials;  ///< partial norms
};

/// The check of one plan, as far as what it receives was sent.
class GradientScaling {
 public:
  GradientScaling(const UnrolledPlan& unrolled, const FollowedOps& followed, FindingList& findings);
  GradientScaling(const GradientScaling&) = delete;
  GradientScaling& operator=(const GradientScaling&) = delete;
  GradientScaling(GradientScaling&& other) noexcept;
  ~GradientScaling();

  /// False where it has to wait for a send; without a mailbox it stops there.
  bool go_on(Mailbox<SentScaling>* mailbox);

 private:
  std::unique_ptr<scaling::State> state_;
};

/// Finds MF307, MF308, MF311, what check_microbatches() does, and losses that are not scaled as
/// configured (MF313).
void check_gradient_scaling(const UnrolledPlan& unrolled, const FollowedOps& followed,
                            FindingList& findings);

}  // namespace mfsdp
