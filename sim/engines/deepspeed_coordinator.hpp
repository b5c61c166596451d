// Which parameters DeepSpeed's ZeRO-3 gathers and releases at each module: the decisions of
// PartitionedParameterCoordinator (deepspeed/runtime/zero/partitioned_param_coordinator.py, 0.19.6)
// with a complete trace, as from the third step on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace mfsdp {

/// The limits, in elements: stage3_prefetch_bucket_size, stage3_max_live_parameters,
/// stage3_max_reuse_distance.
struct CoordinatorLimits {
  std::int64_t prefetch_bucket = 0;
  std::int64_t live_parameters = 0;
  std::int64_t reuse_distance = 0;
};

class DeepSpeedCoordinator {
 public:
  struct Parameter {
    std::int64_t elements = 0;
    bool is_persistent = false;  ///< whole on every rank at all times
  };
  /// Parameters that a call of a module uses.
  using Call = std::vector<std::size_t>;

  /// `trace`: the calls of one forward and backward, in order.
  DeepSpeedCoordinator(std::vector<Parameter> parameters, std::vector<Call> trace,
                       CoordinatorLimits limits)
      : parameters_(std::move(parameters)), trace_(std::move(trace)), limits_(limits) {}

  /// Before a forward.
  void reset();

  struct Fetched {
    std::vector<std::size_t> now;    ///< gathered at once, ascending
    std::vector<std::size_t> ahead;  ///< gathered afterwards, for later calls, ascending
  };
  /// The next call of the trace begins. All its parameters are available afterwards.
  [[nodiscard]] Fetched fetch();
  /// A call that was fetched ends: returns the parameters that are released.
  [[nodiscard]] std::vector<std::size_t> release(const Call& call);
  /// The calls fetched so far.
  [[nodiscard]] std::size_t calls() const { return step_; }
  [[nodiscard]] const Call& call(std::size_t position) const { return trace_[position]; }

 private:
  struct InTrace {
    std::size_t parameter = 0;
    std::size_t call = 0;
  };

  std::vector<std::size_t> prefetch();

  std::vector<Parameter> parameters_;
  std::vector<Call> trace_;
  CoordinatorLimits limits_;
  std::vector<bool> is_here_{};              ///< or on its way
  std::vector<std::int64_t> fetched_for_{};  ///< latest call; -1 before the first
  std::deque<InTrace> queue_{};
  std::size_t step_ = 0;
  std::int64_t live_ = 0;  ///< elements that were gathered and not released
};

}  // namespace mfsdp
