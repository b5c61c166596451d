// What buffers of directions hold, matrix by matrix: nothing, a step's momentum, or that
// orthogonalised; and on ranks of which kind (Spot). Directions are dealt out by all_to_alls: of
// slices of several groups each rank gets all of one, and gives slices of it back.
#pragma once

#include "verify/checker/plan_view.hpp"

namespace mfsdp::checker {

class Directions {
 public:
  explicit Directions(const PlanView& view);

  void begin_step() { ++step_; }
  /// Each group that is orthogonalised has made its momentum once.
  void end_step() const;
  void acquire(Index buffer);
  /// The slice of a gradient becomes that of a direction, with the state that is kept for it.
  void momentum(const Op& op);
  /// What no group is dealt to.
  void zero(const Op& op, const Operand& operand);
  void newton_schulz(const Op& op);
  void gather(const Op& op);
  void exchange(const Op& op);
  /// An update along a direction, if it has one.
  void update(const Op& op);

 private:
  struct Mark {
    Int stage = 0;  ///< 1: momentum, 2: orthogonalised
    Int step = -1;
    Int kind = 0;
    friend bool operator==(const Mark&, const Mark&) = default;
  };
  struct Matrix {
    Int begin, rows, cols;
  };
  struct Held {
    std::vector<std::vector<Mark>> slots{};     ///< of each group; of those dealt out, of all
    bool rest = false;                          ///< what no group is dealt to is zero
    std::vector<std::pair<Index, Int>> from{};  ///< of what is dealt out, the slices it came of
  };

  [[nodiscard]] std::vector<Matrix> matrices_of(const Group& group) const;
  std::vector<Mark>& marks(const Op& op, const Operand& operand, const Spot& spot);
  [[nodiscard]] Int slice_bytes(Index buffer) const;

  const PlanView& view_;
  std::vector<std::vector<Matrix>> matrices_{};  ///< by group
  std::map<Index, Held> held_{};                 ///< by buffer
  std::map<Index, Int> momentums_{};             ///< by group: the step of the last
  Int step_ = -1;
};

}  // namespace mfsdp::checker
