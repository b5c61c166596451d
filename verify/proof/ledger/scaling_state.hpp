// State of the check of 1/T, norm and loss scale (gradient_scaling.hpp): what small buffers hold
// while the plan's ops are followed in host order. The steps are in loss_scaling.cpp,
// norm_scaling.cpp and gradient_scaling.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "verify/proof/ledger/followed_ops.hpp"
#include "verify/proof/ledger/gradient_scaling.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp::scaling {

/// A finished loss or norm, with what the host reads beside it.
inline constexpr std::int64_t kReportBytes = 16;

/// Bytes of a buffer.
struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] bool has(std::int64_t from, std::int64_t bytes) const {
    return begin <= from && bytes <= end - from;
  }
};

/// A partial norm of a group that another class of ranks has.
struct ReceivedPartial {
  GroupId group;
  std::uint32_t instance = 0;  ///< that received it
  std::int64_t bytes = 0;
};

/// A loss (with its 1/T) or a norm that an instance has finished.
struct Finished {
  Scale what = Scale::loss;
  std::uint32_t by = 0;  ///< instance
};

/// A loss scale as a kernel reads it: where it is, and how often it has changed.
struct LossScale {
  BufferId buffer;
  std::int64_t changes = 0;

  friend bool operator==(const LossScale&, const LossScale&) = default;
};

/// Loss sums or partial norms in a buffer, by byte offset. An all-gather keeps the offsets that
/// they had on each rank, and notes from where to where it wrote.
struct Sums {
  std::multimap<std::int64_t, std::uint32_t> made_by;  ///< instances
  std::map<std::int64_t, ReceivedPartial> received{};
  bool garbage = true;  ///< something was added to bytes that nothing had written
  std::int64_t ranks = 1;
  std::optional<CommunicatorId> over{};  ///< gathered over these ranks
  std::optional<std::int64_t> begin{};   ///< gathered to this offset
  ByteRange there{};                     ///< bytes of the gathered values that the buffer has
  std::int64_t count = 0;                ///< gathered elements of each rank

  [[nodiscard]] std::int64_t values() const;
};

struct State {
  State(const UnrolledPlan& its_plan, const FollowedOps& its_ops, FindingList& list);

  const UnrolledPlan& unrolled;
  const PlanConfig& config;
  const FollowedOps& followed;
  FindingList& findings;
  std::set<GroupId> trainable;
  std::map<BufferId, Sums> sums;
  std::map<std::pair<BufferId, std::int64_t>, Finished> finished;  ///< by buffer and offset
  std::set<std::pair<Scale, BufferId>> finished_in;  ///< buffers that have ever held such a value
  std::map<std::uint32_t, LossScale> scaled_by;      ///< by instance of cross_entropy
  std::map<BufferId, std::int64_t> changes;          ///< of loss scales
  std::map<BufferId, std::int64_t> changed_in;       ///< step in which a loss scale last changed
  std::int64_t microbatches = 0;                     ///< that this step has begun
  std::uint32_t run = kNone;                         ///< of the instance that runs
  std::uint32_t now = 0;                             ///< the instance that runs
  std::uint32_t next = 0;                            ///< the instance to go on with
  std::set<std::pair<std::string, std::uint32_t>> reported;  ///< rules and ops

  [[nodiscard]] std::int64_t step_of(std::uint32_t instance) const {
    return unrolled.runs[unrolled.instances[instance].run].step;
  }
  [[nodiscard]] std::int64_t step() const { return step_of(now); }
  [[nodiscard]] const Kernel& kernel_of(std::uint32_t instance) const {
    return std::get<Kernel>(unrolled.instances[instance].op->body);
  }
  /// The group of whose gradient an instance computed a partial norm.
  [[nodiscard]] std::optional<GroupId> group_of(std::uint32_t instance) const;
  /// Contents of a kernel's operand "input".
  [[nodiscard]] const Sums& input_of(const Kernel& kernel) const;
  /// Whether the operand is this step's loss or norm.
  [[nodiscard]] bool is_fresh(const Operand* operand, Scale what) const;
};

/// Bytes of the loss sum or partial norm that an instance wrote.
[[nodiscard]] std::int64_t bytes_made(const State& s, std::uint32_t instance);
/// These bytes no longer hold a loss, a norm, or a part of one.
void write_over(State& s, BufferId buffer, std::int64_t begin, std::int64_t end);
void write_over(State& s, const Operand& operand);
/// The instance that runs has written a loss or a norm.
void finish(State& s, const Operand* output, Scale what);
/// At most one finding of a rule for each op, as all steps are alike. `what` follows its name.
void report(State& s, const char* rule, const std::string& what);

/// Whether an operand lies within what was gathered, if anything was.
[[nodiscard]] inline bool is_gathered(const Sums& input, const Operand& operand) {
  return !input.begin || input.there.has(operand.offset, operand.span_bytes());
}

// ---- steps -------------------------------------------------------------------------------------

/// cross_entropy adds the losses of some rows, and multiplies their gradient by the loss scale.
void sum_loss(State& s, const Kernel& kernel);
/// router_backward adds losses of its own, which have the loss scale of the step's loss.
void check_router_losses(State& s, const Kernel& kernel);
/// loss_finish: 1/T counts each token of each microbatch of this step on each rank once.
void finish_loss(State& s, const Kernel& kernel);
/// norm_finish makes the loss scale of the next step, once.
void change_loss_scale(State& s, const Kernel& kernel);
/// norm_partial writes the partial norm of a group.
void keep_partial(State& s, const Kernel& kernel);
/// norm_finish: the norm counts each element of each trainable group of this step once.
void finish_norm(State& s, const Kernel& kernel);

}  // namespace mfsdp::scaling
