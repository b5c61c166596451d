// Delayed scaling: largest magnitudes that casts keep for scales of later steps. The port
// amax_history has rows of one number for each tensor: this step's, those that scales are of, and
// then the history. The columns of a block are its own.
#pragma once

#include <map>
#include <set>
#include <string>

#include "verify/checker/step_state.hpp"

namespace mfsdp::checker {

class Amaxes {
 public:
  explicit Amaxes(StepState& state) : state_(state) {}

  /// A cast of that value of an owner reads what all casts of the step before kept of it.
  void read_kept(const Op& op, const Operand& operand, const std::string& of, Int owner);
  /// It keeps the largest magnitude of a microbatch for later steps.
  void keep(const Op& op, const Operand& operand, const std::string& of, Int owner, Int pass);
  /// The maximum over all ranks.
  void reduce(const Op& op, const Operand& from, const Operand& to);
  /// The history takes all of the step.
  void finish(const Op& op);
  /// Those of evaluation keep nothing.
  void begin_microbatch() { in_step_ += state_.trains ? 1 : 0; }

 private:
  /// The row of the port in which the operand, of one number or of a whole row, begins.
  [[nodiscard]] Int row_of(const Op& op, const Operand& operand) const;

  StepState& state_;
  Int kept_ = 0;     ///< steps whose amaxes the history has taken
  Int in_step_ = 0;  ///< microbatches since
  bool reduced_ = false;
  std::map<Int, std::set<Int>> seen_{};  ///< by the byte of a column: its microbatches
};

}  // namespace mfsdp::checker
