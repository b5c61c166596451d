// Whether what a gradient holds is what it should hold when it is read.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "verify/proof/ledger/gradient_memory.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// How often each run used a parameter on its way forward.
struct Uses {
  std::uint32_t run = 0;  ///< the first one of its repetition
  std::uint32_t count = 0;
};

/// Reports what is wrong with gradients: at most one finding of a rule for each group, and none
/// for a group after a gradient of it went astray.
class GradientVerdict {
 public:
  GradientVerdict(const UnrolledPlan& unrolled, const Layouts& layouts, FindingList& findings);

  /// A forward kernel used an atom of a group.
  void use(std::uint32_t group, std::uint32_t atom, std::uint32_t run);
  /// A kernel reads a gradient that is to be complete.
  void judge(std::uint32_t instance, const GradientMemory& memory, const Spot& spot);
  /// An instance goes wrong with a group's gradient; `what` follows its name. Places are the
  /// instance, then `other` if there is one.
  void report(const char* rule, std::uint32_t group, std::uint32_t instance,
              const std::string& what, std::uint32_t other = kNone);
  /// After this nothing that the group's gradient holds is judged.
  void give_up(std::uint32_t group) { given_up_[group] = true; }
  [[nodiscard]] bool given_up(std::uint32_t group) const { return given_up_[group]; }

 private:
  struct Fault {
    const char* rule;
    std::string what;
    std::uint32_t instance;
  };
  void judge_atoms(std::uint32_t instance, const GradientMemory& memory, const Spot& spot,
                   bool parameters);
  void judge_parameter(std::uint32_t instance, std::uint32_t group, std::uint32_t atom,
                       const Held& held);
  [[nodiscard]] std::vector<Fault> faults_of(std::uint32_t instance, std::uint32_t group,
                                             std::uint32_t atom, const Held& held);
  static void add_sum_faults(const Term& term, AxisSums wanted_sums, std::vector<Fault>& faults);
  void count_contributions(const std::vector<Uses>& uses, const Held& held,
                           std::vector<Fault>& faults);
  [[nodiscard]] const std::vector<Uses>& uses_of(std::uint32_t group, std::uint32_t atom,
                                                 std::int64_t step) const;
  [[nodiscard]] std::int64_t step_of(std::uint32_t instance) const;
  [[nodiscard]] std::string run_name(std::uint32_t run) const;
  [[nodiscard]] std::string summary(const std::vector<Uses>& uses, const Held& held) const;

  const UnrolledPlan& unrolled_;
  const Layouts& layouts_;
  FindingList& findings_;
  std::vector<std::size_t> first_atom_;   ///< by group: where its atoms' uses begin
  std::vector<std::vector<Uses>> uses_;   ///< by atom, of one step
  std::vector<std::uint32_t> instances_;  ///< scratch, for its memory
  std::vector<AxisSums> wanted_sums_;     // of each group
  std::vector<bool> given_up_;
  std::set<std::pair<std::string, std::uint32_t>> reported_;
};

}  // namespace mfsdp
