#include "verify/proof/ledger/gradient_verdict.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace mfsdp {
namespace {

constexpr const char* kStale = "MF305";

}  // namespace

GradientVerdict::GradientVerdict(const UnrolledPlan& unrolled, const Layouts& layouts,
                                 FindingList& findings)
    : unrolled_(unrolled),
      layouts_(layouts),
      findings_(findings),
      given_up_(layouts.groups.size()) {
  std::size_t atoms = 0;
  for (const GroupLayout& layout : layouts.groups) {
    first_atom_.push_back(atoms);
    atoms += layout.atoms.size();
    AxisSums& wanted = wanted_sums_.emplace_back();
    for (const Axis axis : layout.group->reduce)
      if (unrolled.program->config.mesh.size(axis) > 1 && wanted.on(axis) == 0) wanted.add(axis);
  }
  uses_.resize(atoms);
}

std::int64_t GradientVerdict::step_of(std::uint32_t instance) const {
  return unrolled_.runs[unrolled_.instances[instance].run].step;
}

std::string GradientVerdict::run_name(std::uint32_t run) const {
  const ListRun& of = unrolled_.runs[run];
  return repetition_name(unrolled_.plan->segments[of.segment].name, of.repetition);
}

void GradientVerdict::use(std::uint32_t group, std::uint32_t atom, std::uint32_t run) {
  std::vector<Uses>& uses = uses_[first_atom_[group] + atom];
  if (!uses.empty() && unrolled_.runs[uses.back().run].step != unrolled_.runs[run].step)
    uses.clear();
  if (uses.empty() || uses.back().run != run) uses.push_back({.run = run, .count = 0});
  ++uses.back().count;
}

const std::vector<Uses>& GradientVerdict::uses_of(std::uint32_t group, std::uint32_t atom,
                                                  std::int64_t step) const {
  static const std::vector<Uses> none;
  const std::vector<Uses>& uses = uses_[first_atom_[group] + atom];
  return uses.empty() || unrolled_.runs[uses.back().run].step != step ? none : uses;
}

void GradientVerdict::report(const char* rule, std::uint32_t group, std::uint32_t instance,
                             const std::string& what, std::uint32_t other) {
  if (!findings_.wants(rule) || !reported_.emplace(rule, group).second) return;
  Finding finding = finding_in_step(unrolled_, instance, rule, what);
  if (other != kNone) finding.places.push_back(place_of(unrolled_, other));
  findings_.add(std::move(finding));
}

void GradientVerdict::judge(std::uint32_t instance, const GradientMemory& memory,
                            const Spot& spot) {
  if (given_up_[spot.group]) return;
  judge_atoms(instance, memory, spot, true);
  // Padding is as stale as the parameters beside it.
  if (!reported_.contains({kStale, spot.group})) judge_atoms(instance, memory, spot, false);
}

void GradientVerdict::judge_atoms(std::uint32_t instance, const GradientMemory& memory,
                                  const Spot& spot, bool parameters) {
  const GroupLayout& layout = layouts_.groups[spot.group];
  for (int level = spot.level; level < memory.levels(); ++level) {
    if (level != spot.level && !memory.differs(spot.buffer, level)) continue;
    for (std::uint32_t a = spot.atoms.first; a < spot.atoms.last; ++a) {
      const Held& held = memory.at(spot.buffer, level, a);
      const Atom& atom = layout.atoms[a];
      if ((atom.parameter != nullptr) != parameters) continue;
      if (parameters) {
        judge_parameter(instance, spot.group, a, held);
      } else if (held.garbage || !held.terms.empty()) {
        report("MF309", spot.group, instance,
               fmt::format("reads the gradient of '{}', whose padding [{}, {}) {}", layout.name,
                           atom.begin, atom.end,
                           held.terms.empty() ? "was never set to zero" : "is not zero"));
      }
    }
  }
}

void GradientVerdict::judge_parameter(std::uint32_t instance, std::uint32_t group,
                                      std::uint32_t atom, const Held& held) {
  for (const Fault& fault : faults_of(instance, group, atom, held)) {
    const GroupLayout& layout = layouts_.groups[group];
    const Atom& range = layout.atoms[atom];
    report(fault.rule, group, instance,
           fmt::format("reads the gradient of '{}', elements [{}, {}) ('{}'), {}; contributions "
                       "found of those expected: {}",
                       layout.name, range.begin, range.end, range.parameter->name, fault.what,
                       summary(uses_of(group, atom, step_of(instance)), held)),
           fault.instance);
  }
}

std::vector<GradientVerdict::Fault> GradientVerdict::faults_of(std::uint32_t instance,
                                                               std::uint32_t group,
                                                               std::uint32_t atom,
                                                               const Held& held) {
  std::vector<Fault> faults;
  const std::int64_t step = step_of(instance);
  const Group& its_group = *layouts_.groups[group].group;
  bool stale = held.garbage;
  if (held.garbage) faults.push_back({kStale, "which contains bytes that nothing wrote", kNone});
  if (held.uneven)
    faults.push_back(
        {"MF304", "which is a sum over ranks of values that some ranks had summed before", kNone});
  for (const Term& term : held.terms) {
    if (step_of(term.instance) != step) {
      stale = true;
      faults.push_back(
          {kStale, "which still contains a gradient of the step before", term.instance});
      continue;
    }
    const std::uint32_t of_unit = unrolled_.facts(term.instance).unit;
    if (of_unit != kNone && unrolled_.program->units[of_unit].id != its_group.unit)
      faults.push_back({"MF306", "which contains a gradient of another unit", term.instance});
    if (term.sums != wanted_sums_[group]) add_sum_faults(term, wanted_sums_[group], faults);
  }
  // Stale contributions violate other rules too; only the cause is reported.
  if (stale)
    std::erase_if(faults, [](const Fault& fault) { return fault.rule != kStale; });
  else
    count_contributions(uses_of(group, atom, step), held, faults);
  return faults;
}

/// Each contribution is summed once over each axis that its group names, and over no other.
void GradientVerdict::add_sum_faults(const Term& term, AxisSums wanted_sums,
                                     std::vector<Fault>& faults) {
  for (std::size_t i = 0; i < Names<Axis>::values.size(); ++i) {
    const auto axis = static_cast<Axis>(i);
    const unsigned sums = term.sums.on(axis);
    const bool wanted = wanted_sums.on(axis) != 0;
    if (sums == 0 && wanted)
      faults.push_back(
          {"MF303", fmt::format("which is not summed over {}", to_string(axis)), term.instance});
    if (sums > (wanted ? 1U : 0U))
      faults.push_back({"MF304",
                        fmt::format("which is summed over {} {} times; expected {}",
                                    to_string(axis), sums, wanted ? 1 : 0),
                        term.instance});
  }
}

void GradientVerdict::count_contributions(const std::vector<Uses>& uses, const Held& held,
                                          std::vector<Fault>& faults) {
  std::vector<std::uint32_t>& instances = instances_;
  instances.clear();
  instances.reserve(held.terms.size());
  for (const Term& term : held.terms) instances.push_back(term.instance);
  if (!std::ranges::is_sorted(instances)) std::ranges::sort(instances);
  const auto twice = std::ranges::adjacent_find(instances);
  if (twice != instances.end())
    faults.push_back({"MF302", "which contains one contribution twice", *twice});
  const auto last = std::ranges::unique(instances).begin();
  auto next = instances.begin();
  const auto too_much = [&](std::uint32_t from) {
    const std::uint32_t run = unrolled_.work_run(from);
    faults.push_back({"MF302",
                      fmt::format("which contains more contributions of microbatch '{}' than its "
                                  "forward pass used parameters",
                                  run_name(run)),
                      from});
  };
  if (unrolled_.lags)
    std::stable_sort(instances.begin(), last, [&](std::uint32_t a, std::uint32_t b) {
      return unrolled_.work_run(a) < unrolled_.work_run(b);
    });
  for (const Uses& use : uses) {
    for (; next != last && unrolled_.work_run(*next) < use.run; ++next) too_much(*next);
    std::uint32_t found = 0;
    for (; next != last && unrolled_.work_run(*next) == use.run; ++next) ++found;
    if (found > use.count) too_much(*(next - 1));
    if (found < use.count)
      faults.push_back(
          {"MF301", fmt::format("which lacks a contribution of microbatch '{}'", run_name(use.run)),
           kNone});
  }
  for (; next != last; ++next) too_much(*next);
}

std::string GradientVerdict::summary(const std::vector<Uses>& uses, const Held& held) const {
  std::string text;
  for (const Uses& use : uses) {
    const auto count = std::ranges::count_if(
        held.terms, [&](const Term& term) { return unrolled_.work_run(term.instance) == use.run; });
    text += fmt::format("{}{} of {} in microbatch '{}'", text.empty() ? "" : ", ", count, use.count,
                        run_name(use.run));
  }
  return text.empty() ? "none expected" : text;
}

}  // namespace mfsdp
