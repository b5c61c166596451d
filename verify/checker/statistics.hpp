// Loss, norm and loss scale: numbers that are computed from every rank's part, each once.
#pragma once

#include <array>

#include "verify/checker/step_state.hpp"

namespace mfsdp::checker {

/// The parts of norms, losses and gathers, in all classes. Values name entries of these tables.
struct StatisticTables {
  /// The parts that an all-gather took from each rank, by the axes on which they differ.
  struct Gathered {
    Axes axes{};
    Int bytes = 0;
    std::vector<std::pair<Int, Cell>> cells{};
  };
  struct Partial {
    Index group;
    Int kind;
  };
  using Sums = std::vector<std::array<Int, 3>>;  ///< microbatch, first row, end of the rows

  std::vector<Gathered> gathered{};
  std::vector<Partial> partials{};
  std::vector<Sums> sums{};
};

class Statistics {
 public:
  Statistics(StepState& state, StatisticTables& tables) : state_(state), tables_(tables) {}

  /// Gathers the values of all ranks side by side.
  void gather(const Op& op, const Operand& from, const Operand& to);
  /// The sum of squares of a rank's slice of a gradient.
  void take_partial(const Op& op);
  /// Computes the norm from partial norms of all groups that train, each element once.
  void finish_norm(const Op& op);
  /// The loss of some rows of a microbatch is added up.
  void add_loss(const Op& op, const Operand& operand, const Work& work);
  /// The mean over all tokens of all ranks and microbatches.
  void finish_loss(const Op& op);
  /// The loss scale, by the step whose norm made it.
  [[nodiscard]] const Value& scale() const { return scale_; }

 private:
  /// The parts of ranks, gathered or of one rank alone, with the axes on which they differ.
  /// Neighbours of a communicator differ on its last axes.
  struct Members {
    Names axes{};
    std::vector<std::pair<Int, Cell>> cells{};
    Int bytes = 0;
  };

  Members members_of(const Op& op, const Operand& operand);
  [[nodiscard]] std::string partial_dtype() const;
  void keep_scale(const Op& op);

  StepState& state_;
  StatisticTables& tables_;
  Value scale_{"loss_scale", -1, -1};
};

}  // namespace mfsdp::checker
