// The contents of buffers of directions, matrix by matrix: nothing, a step's momentum, or the
// orthogonalised momentum; and the kind of ranks on which it holds (Spot). All-to-alls distribute
// directions: each rank sends slices of several groups, receives all of one group, and sends slices
// of it back.
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
  /// Clears the bytes that belong to no group on this rank.
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
    std::vector<std::vector<Mark>> slots{};     ///< of each group; if distributed, of all groups
    bool rest = false;                          ///< bytes that belong to no group are zero
    std::vector<std::pair<Index, Int>> from{};  ///< the source slices of distributed directions
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
