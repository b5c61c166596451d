// The gradient ledger, in symbols: what each element of a group holds, as a sum of contributions.
// Ranks of pure data parallelism run one plan, so an element is looked at on kinds of ranks (Spot).
// An operand that is a slice touches its elements on the ranks that own it. Knowledge about an
// element holds on ranks of some kind and above. A sum over an axis is followed only if all ranks
// of that axis take part, so that it is the sum of every rank.
//
// Where the norm or an update reads an element of a parameter, the element holds the gradient of
// each microbatch of the step. Each step of the model that makes this gradient has added all of its
// rows once, each axis is summed once, and nothing else is added. Padding holds nothing.
#pragma once

#include "verify/checker/model.hpp"

namespace mfsdp::checker {

/// The step of the model that a kernel runs, with its place, microbatch and rows.
struct Work {
  const Step* step = nullptr;
  std::string parameter{};  ///< of which it makes a gradient
  Int owner = -1, pass = -1, row = 0, rows = 0;
};

class Ledger {
 public:
  Ledger(const PlanView& view, const Model& model, CheckedPlan& figures);

  void begin_step() { passes_.clear(); }
  /// A run of a segment; `for_more`: it stands for further ones, too.
  void begin_run(bool for_more) {
    begun_.clear();
    for_more_ = for_more;
  }
  /// A microbatch of this step.
  void add_pass(Int pass) {
    passes_.insert(pass);
    begun_.insert(pass);
  }
  /// Marks the output of an op as no gradient, unless it is in a gradient buffer or a gradient.
  void overwritten(const Op& op);
  /// Follows a kernel that adds a gradient, or an op that moves, clears or reads gradients.
  void follow(const Op& op, const Work& work);
  [[nodiscard]] const std::set<Int>& passes() const { return passes_; }

 private:
  /// A contribution: of which parameter, by which step of the model, from which rows.
  struct Term {
    Int pass = -1;
    const Step* step = nullptr;  ///< null: garbage
    std::string parameter{};
    Int owner = -1, row = 0, end = 0;
    friend auto operator<=>(const Term&, const Term&) = default;
  };
  /// A sum of contributions with their coefficients.
  struct Held {
    std::map<Term, Int> terms{{Term{}, 1}};  ///< at first garbage
    PerAxis sums{};                          ///< times it was summed, by axis
    Int kind = 0;                            ///< of ranks that hold it, and above
    bool rounded = false;  ///< several microbatches were summed, in less than main gradients have
  };
  using Contents = std::map<Int, Held>;  ///< of a buffer, by first element

  /// `to`: the operand that lies there.
  void put(const Op& op, const Operand& to, Contents& into, const Spot& at, const Held& what,
           bool adds) const;
  void move(const Op& op, Contents& into, const Spot& to);
  void judge(const Op& op, Contents& held, const Spot& spot);
  void judge(const Op& op, Int at, const Held& held, const Spot& spot, const Parameter* parameter);

  const PlanView& view_;
  const Model& model_;
  CheckedPlan& figures_;
  std::map<Index, Contents> held_{};  ///< by buffer
  std::set<Int> passes_{};
  std::set<Int> begun_{};  ///< by this run of a segment
  bool for_more_ = false;
};

}  // namespace mfsdp::checker
