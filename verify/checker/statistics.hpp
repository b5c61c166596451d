// Loss, norm and loss scale: numbers that come of every rank's part, each once.
#pragma once

#include <array>

#include "verify/checker/step_state.hpp"

namespace mfsdp::checker {

class Statistics {
 public:
  explicit Statistics(StepState& state) : state_(state) {}

  /// What each rank has of a value, side by side.
  void gather(const Op& op, const Operand& from, const Operand& to);
  /// The sum of squares of a rank's slice of a gradient.
  void take_partial(const Op& op);
  /// Of partial norms of all groups that train, each element once.
  void finish_norm(const Op& op);
  /// The loss of some rows of a microbatch is added up.
  void add_loss(const Op& op, const Operand& operand, const Work& work);
  /// The mean over all tokens of all ranks and microbatches.
  void finish_loss(const Op& op);
  /// Of losses, by the step whose norm made it.
  [[nodiscard]] const Value& scale() const { return scale_; }

 private:
  /// What an all-gather took from each rank, by the axes on which they differ.
  struct Gathered {
    Axes axes{};
    Int bytes = 0;
    std::vector<std::pair<Int, Cell>> cells{};
  };
  /// What ranks have gathered, or one has by itself, as the part of each and the axes on which
  /// they differ. Neighbours of a communicator differ on its last axes.
  struct Members {
    Names axes{};
    std::vector<std::pair<Int, Cell>> cells{};
    Int bytes = 0;
  };
  struct Partial {
    Index group;
    Int kind;
  };
  using Sums = std::vector<std::array<Int, 3>>;  ///< microbatch, first row, behind the last

  Members members_of(const Op& op, const Operand& operand);
  [[nodiscard]] std::string partial_dtype() const;
  void keep_scale(const Op& op);

  StepState& state_;
  Value scale_{"loss_scale", -1, -1};
  std::vector<Gathered> gathered_{};
  std::vector<Partial> partials_{};
  std::vector<Sums> sums_{};
};

}  // namespace mfsdp::checker
