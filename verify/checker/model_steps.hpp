// A kernel that is a step of the configuration's model: its operands have the step's form, and hold
// the values and the weights that the model has there.
#pragma once

#include <set>
#include <tuple>

#include "verify/checker/amaxes.hpp"
#include "verify/checker/statistics.hpp"

namespace mfsdp::checker {

class ModelSteps {
 public:
  ModelSteps(StepState& state, Statistics& statistics, Amaxes& amaxes)
      : state_(state), statistics_(statistics), amaxes_(amaxes) {}

  /// Refuses a kernel that is no step of the model.
  void run(const Op& op);

 private:
  void match(const Op& op, const std::string& kernel, const Step& step, Work& work);
  void check_parameter(const Flow& flow, const Operand& operand) const;
  void check_value(const Op& op, const Step& step, const Flow& flow, const Operand& operand,
                   Work& work, bool first);
  void check_phase(const Op& op, const Step& step, const Work& work);
  void perform(const Op& op, const Step& step, Work& work);
  void use(const Op& op, const Flow& flow, const Operand& operand, Work& work);

  StepState& state_;
  Statistics& statistics_;
  Amaxes& amaxes_;
  /// By kernel and parameter, owner, microbatch and row.
  std::set<std::tuple<std::string, Int, Int, Int>> computed_{};
};

}  // namespace mfsdp::checker
