// Records of runs for tests: by hand, of the simulator and of the CPU's machine.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/plan/index.hpp"
#include "sim/simulator/simulation.hpp"
#include "tests/support/plan_builder.hpp"
#include "verify/conformance/conformance.hpp"

namespace mfsdp::test {

/// Records of ranks that run one op after the other: each op takes 10 ns, begins 3 ns after its
/// issue and is issued 10 ns after the one before it. Every rank is `skew` ns later than the one
/// before it, except in collectives, which end 10 ns after the last rank has joined.
inline std::vector<OpLaunch> one_by_one(const Program& program, std::int64_t ranks,
                                        std::int64_t first_step, std::int64_t steps,
                                        std::int64_t skew = 0) {
  std::vector<OpLaunch> launches;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t at = 0;
    for (std::int64_t step = first_step; step < first_step + steps; ++step)
      for (const Segment& segment : program.plans[0].segments)
        for (std::int64_t repetition = 0; repetition < segment.repeat; ++repetition)
          for (const Op& op : segment.ops) {
            OpLaunch& launch = launches.emplace_back();
            launch.op = op.id;
            launch.rank = rank;
            launch.step = step;
            if (op.kind() != OpKind::host_wait) launch.stream = op.stream;
            const std::int64_t late = at + rank * skew;
            const bool meets = op.kind() == OpKind::collective;
            launch.issued = Nanos(late);
            launch.begin = Nanos(late + 3);
            launch.end = Nanos((meets ? at + (ranks - 1) * skew : late) + 13);
            at += 100;
          }
  }
  return launches;
}

/// The simulated second step as a record of `ranks`: work only, each op issued as late as its own
/// begin and those of later ops allow. Empty where the simulator has no second step.
inline std::vector<OpLaunch> simulated(const Program& program, std::int64_t ranks,
                                       const Prices& prices) {
  const Plan& plan = program.plans[0];
  const auto simulation = simulate(program, plan, prices);
  if (!simulation) return {};
  std::map<std::tuple<std::uint32_t, std::int64_t, std::uint32_t>, const OpSpan*> order;
  std::int64_t first = 0;
  for (const OpSpan& span : simulation->spans) {
    order[{span.segment, span.instance, span.op}] = &span;
    first = std::min(first, span.start.value);
  }
  std::vector<OpLaunch> of_rank;
  for (const auto& [place, span] : order) {
    const Op& op = plan.segments[span->segment].ops[span->op];
    OpLaunch& launch = of_rank.emplace_back();
    launch.op = op.id;
    launch.step = 2;
    launch.stream = op.stream;
    launch.begin = launch.issued = Nanos(span->start.value - first);
    launch.end = Nanos(span->end.value - first);
  }
  for (std::size_t i = of_rank.size(); i-- > 1;)
    of_rank[i - 1].issued = std::min(of_rank[i - 1].issued, of_rank[i].issued);
  std::vector<OpLaunch> launches;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    for (OpLaunch launch : of_rank) {
      launch.rank = rank;
      launches.push_back(launch);
    }
  return launches;
}

/// The rules that a record breaks.
inline std::set<std::string> broken_rules(const Program& program,
                                          const std::vector<OpLaunch>& launches,
                                          const ConformanceSettings& settings = {}) {
  const auto checked = check_conformance(program, program.plans[0], launches, settings);
  if (!checked) return {checked.error().message()};
  std::set<std::string> rules;
  for (const Finding& finding : checked->findings) rules.insert(finding.rule);
  return rules;
}

}  // namespace mfsdp::test
