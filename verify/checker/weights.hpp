// The version of the weights in each element of a parameter's buffer, and on which ranks it holds.
// A version is the number of updates of the group, on ranks of a kind and above (Spot).
#pragma once

#include "verify/checker/model.hpp"

namespace mfsdp::checker {

/// Casts of weights have the weight's number of updates in place of a microbatch.
inline Int pass_of_update(Int updates) { return -2 - updates; }

class Weights {
 public:
  Weights(const PlanView& view, const Model& model);

  void begin_plan();
  void acquire(Index buffer);
  /// Refuses unless every rank that runs the op holds the present weights there.
  void read(const Op& op, const Operand& operand, const Spot& spot);
  void gather(const Op& op);
  /// A cast of a shard is of the version of its input.
  void cast(const Op& op, const Operand& input, const Operand& output);
  /// The operands of the group's optimizer, all of one slice.
  void update(const Op& op);
  /// After a step that trains: each group of this class that does was updated once.
  void end_step() const;
  /// How many updates that parameter of a unit has seen.
  [[nodiscard]] Int updates_of(Int unit, const std::string& role) const;

 private:
  struct Held {
    Int version = -1;  ///< -1: garbage
    Int kind = 0;
  };

  std::map<Int, Held>& held_in(const Op& op, const Operand& operand, const Spot& spot);

  const PlanView& view_;
  const Model& model_;
  std::map<std::pair<Index, Index>, std::map<Int, Held>>
      held_{};                       ///< by buffer and group, then element
  std::vector<Int> updates_;         ///< by group
  mutable std::vector<Int> before_;  ///< likewise, of the steps before
};

}  // namespace mfsdp::checker
