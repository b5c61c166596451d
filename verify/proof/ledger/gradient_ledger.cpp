#include "verify/proof/ledger/gradient_ledger.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace mfsdp::ledger {
namespace {

bool is_of_several(const Ledger& s, const Held& held) {
  const auto run = [&](const Term& term) { return s.unrolled.work_run(term.instance); };
  return !held.terms.empty() && std::ranges::any_of(held.terms, [&](const Term& term) {
    return run(term) != run(held.terms.front());
  });
}

}  // namespace

const FollowedOperand* gradient(const Ledger& s, const Operand& operand) {
  for (const FollowedOperand& followed : s.operands)
    if (followed.operand == &operand && followed.gradient) return &followed;
  return nullptr;
}

std::uint32_t buffer_of(const Ledger& s, const Operand& operand) {
  return static_cast<std::uint32_t>(s.unrolled.index->buffers[operand.buffer]);
}

void go_astray(Ledger& s, const char* rule, const FollowedOperand& operand,
               const std::string& what) {
  const std::uint32_t group = operand.located.group;
  if (s.verdict.given_up(group)) return;
  s.verdict.report(
      rule, group, s.now,
      fmt::format("has operand '{}' at {} of the gradient of '{}', {}", operand.operand->role,
                  to_text(operand.located.region), s.layouts.groups[group].name, what));
  s.verdict.give_up(group);
}

void put(Ledger& s, Held& edited, const Held& held, bool adds, std::uint32_t group,
         const Operand& output) {
  const bool was_rounded = adds && (edited.rounded || held.rounded);
  if (adds)
    edited += held;
  else
    edited = held;
  const bool narrow = size_of(output.dtype) < size_of(s.config.grad_dtype);
  if ((!narrow && !was_rounded) || !is_of_several(s, edited)) return;
  edited.rounded = true;
  if (adds)
    report_width(s, group, narrow ? output.dtype : s.config.reduce_dtype, s.config.grad_dtype,
                 "sums microbatches");
}

void put(Ledger& s, const Spot& at, const Held& held, bool adds, const Operand& output) {
  for (int level = at.level; level < s.memory.levels(); ++level) {
    if (level != at.level && !s.memory.differs(at.buffer, level)) continue;
    for (std::uint32_t a = at.atoms.first; a < at.atoms.last; ++a)
      put(s, s.memory.edit(at.buffer, level, a), held, adds, at.group, output);
  }
}

bool is_late(const Ledger& s, const Held& held) {
  const std::uint32_t now = s.unrolled.head_of(s.now);
  return s.unrolled.runs[now].for_more && std::ranges::any_of(held.terms, [&](const Term& t) {
           return s.unrolled.head_of(t.instance) != now;
         });
}

bool is_late(const Ledger& s, const Spot& from) {
  if (!s.unrolled.runs[s.unrolled.instances[s.now].run].for_more) return false;
  for (int level = from.level; level < s.memory.levels(); ++level)
    for (std::uint32_t a = from.atoms.first; a < from.atoms.last; ++a)
      if (is_late(s, s.memory.at(from.buffer, level, a))) return true;
  return false;
}

std::optional<Axis> unsummed_in(const Ledger& s, const FollowedOperand& operand) {
  return s.layouts.homes[operand.located.buffer].unsummed_over;
}

void report_width(Ledger& s, std::uint32_t group, DType narrow, DType wide, const char* what) {
  s.verdict.report("MF310", group, s.now,
                   fmt::format("{} of the gradient of '{}' in {}, narrower than {}", what,
                               s.layouts.groups[group].name, to_string(narrow), to_string(wide)));
}

void add_axis(const Ledger& s, Held& held, Axis axis) {
  if (s.config.mesh.size(axis) == 1) return;
  for (Term& term : held.terms) term.sums.add(axis);
}

}  // namespace mfsdp::ledger
