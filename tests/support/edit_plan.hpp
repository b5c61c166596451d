// Edits of planner plans by the names of their ops, for tests of what the proofs find.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/kernel_spec.hpp"
#include "core/schedule/build.hpp"
#include "verify/proof/ledger/kernel_roles.hpp"

namespace mfsdp::test {

/// A train plan that is about to go wrong.
struct EditedPlan {
  Program program;

  explicit EditedPlan(const PlanConfig& config) : program(build_program(config, {}).value()) {}

  /// The first kernel or collective of that name in a segment.
  Op& op(const std::string& segment, const std::string& name) { return *at(segment, name).second; }
  Kernel& kernel(const std::string& segment, const std::string& name) {
    return std::get<Kernel>(op(segment, name).body);
  }
  Collective& collective(const std::string& segment, const std::string& name) {
    return std::get<Collective>(op(segment, name).body);
  }
  Operand& operand(const std::string& segment, const std::string& name, const std::string& role) {
    for (Operand& operand : kernel(segment, name).operands)
      if (operand.role == role) return operand;
    throw std::logic_error(name + " has no operand " + role);
  }
  /// With "beta" goes how the sum is accessed.
  void set(const std::string& segment, const std::string& name, const std::string& attribute,
           std::int64_t value) {
    Kernel& edited = kernel(segment, name);
    for (Attribute& a : edited.attributes)
      if (a.name == attribute) a.value = {.num = value};
    if (attribute != "beta") return;
    for (Operand& operand : edited.operands)
      if (adds_to(edited, operand)) operand.access = access_of(OperandUse::adds, value != 0);
  }
  void drop(const std::string& segment, const std::string& name) {
    const auto [ops, place] = at(segment, name);
    ops->erase(place);
  }
  /// Runs it again at once; `copy` distinguishes the ids of repetitions.
  void repeat(const std::string& segment, const std::string& name, std::size_t copy = 0) {
    const auto [ops, place] = at(segment, name);
    Op again = *place;
    again.id = OpId(1'000'000 + copy);
    ops->insert(place + 1, std::move(again));
  }
  /// Clears the contents of an operand, after an op and on its stream.
  void clear_behind(const std::string& segment, const std::string& name, Operand cleared) {
    cleared.role = "padding";
    cleared.access = Access::write;
    const auto [ops, place] = at(segment, name);
    Op clears = *place;
    clears.id = OpId(1'000'000);
    clears.name += ".clear";
    clears.body = Kernel{.kind = KernelKind::zero_padding, .operands = {cleared}, .attributes = {}};
    ops->insert(place + 1, std::move(clears));
  }
  /// A reduce-scatter becomes an all-reduce of the slice that it made: ranks add up different
  /// elements.
  void sum_slices(const std::string& segment, const std::string& name) {
    Collective& c = collective(segment, name);
    c.kind = CollectiveKind::all_reduce;
    c.input = c.output;
    c.input.role = "input";
    c.input.access = Access::read;
  }
  Buffer& buffer(const std::string& name) {
    for (Buffer& buffer : program.buffers)
      if (buffer.name == name) return buffer;
    throw std::logic_error("no buffer " + name);
  }

 private:
  static bool adds_to(const Kernel& kernel, const Operand& operand) {
    const std::vector<OperandSpec>& form = spec_of(kernel)->operands;
    if (form.empty()) return operand.role == "output" || operand.role == "weight_grad";
    const auto found = std::ranges::find(form, operand.role, &OperandSpec::role);
    return found != form.end() && found->use == OperandUse::adds;
  }

  std::pair<std::vector<Op>*, std::vector<Op>::iterator> at(const std::string& segment,
                                                            const std::string& name) {
    for (Segment& s : program.plans[0].segments) {
      if (s.name != segment) continue;
      for (auto op = s.ops.begin(); op != s.ops.end(); ++op)
        if (op->name == name && (op->kind() == OpKind::kernel || op->kind() == OpKind::collective))
          return {&s.ops, op};
    }
    throw std::logic_error("no op " + name + " in " + segment);
  }
};

}  // namespace mfsdp::test
