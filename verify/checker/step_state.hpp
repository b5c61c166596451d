// The state of the steps that the checker has followed so far, in the host's order, for
// check_values.cpp, statistics.cpp and model_steps.cpp. It also checks the operands of every op.
#pragma once

#include <utility>

#include "verify/checker/directions.hpp"
#include "verify/checker/values.hpp"
#include "verify/checker/weights.hpp"

namespace mfsdp::checker {

/// The nth operand of that role; one that is missing is refused.
const Operand& operand(const Op& op, const std::string& role, std::ptrdiff_t nth = 0);
bool has(const Op& op, const std::string& role);
/// Numerator and denominator: integers are written without one.
std::pair<Json, Json> number(const Json& value);

struct StepState {
  StepState(const PlanView& plan, CheckedPlan& figures);
  ~StepState() = default;
  StepState(const StepState&) = delete;
  StepState& operator=(const StepState&) = delete;

  /// Refuses all but these operands, each once with that access, and these attributes.
  void forms(const Op& op, const std::map<std::string, std::string>& roles,
             const Names& attributes) const;
  /// Checks that exact attributes have the values that exact sums need of a kernel of `rows` rows.
  /// The caller checks the attributes in `named`.
  void check_attributes(const Op& op, const std::string& kernel, Int rows,
                        const Names& named) const;
  /// Refuses a workspace of fewer bytes, and has garbage there.
  void check_scratch(const Op& op, Int least);
  /// Four numbers of fp32: loss or norm, and what goes with it.
  Value scalar(const Op& op, const std::string& role);
  void make_scalar(const Op& op, const std::string& role, const Value& value);

  [[nodiscard]] bool is_direction(const Operand& operand) const {
    return view.homes[operand.buffer].kind == "direction";
  }
  [[nodiscard]] bool is_gradient(const Operand& operand) const {
    return view.homes[operand.buffer].kind == "gradient";
  }

  const PlanView& view;
  const Model model;
  Ledger ledger;
  Values values;
  Weights weights;
  Directions directions;
  bool trains = false;  ///< the plan that is followed
  Int step = -1;        ///< of all plans, one after the other
};

}  // namespace mfsdp::checker
