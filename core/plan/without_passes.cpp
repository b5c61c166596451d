#include "core/plan/without_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/plan/instances.hpp"

namespace mfsdp {
namespace {

std::vector<Op> called_ops(const Plan& plan, std::size_t segment, std::int64_t repetition) {
  std::vector<Op> ops;
  for (const ListCall& call : calls_of(plan, segment))
    for (Op op : op_list(plan, call.list)) {
      op.lag += call.lag_in(repetition);
      if (auto* wait = std::get_if<Wait>(&op.body)) wait->bindings.clear();
      if (auto* wait = std::get_if<HostWait>(&op.body)) wait->bindings.clear();
      ops.push_back(std::move(op));
    }
  return ops;
}

std::vector<Segment> segments_without_calls(const Plan& plan) {
  std::vector<Segment> made;
  for (std::size_t s = 0; s < plan.segments.size(); ++s) {
    const Segment& segment = plan.segments[s];
    const bool steps =
        std::ranges::any_of(segment.calls, [](const PassCall& call) { return call.lag_step != 0; });
    for (std::int64_t repetition = 0; repetition < (steps ? segment.repeat : 1); ++repetition) {
      Segment& written = made.emplace_back(segment);
      if (segment.calls.empty()) continue;
      if (steps) {
        written.repeat = 1;
        written.name += fmt::format(".{}", repetition);
      }
      written.calls.clear();
      written.ops = called_ops(plan, s, repetition);
    }
  }
  return made;
}

}  // namespace

bool has_passes(const Job& job) {
  return std::ranges::any_of(job.programs, [](const Program& program) {
    return std::ranges::any_of(program.plans,
                               [](const Plan& plan) { return !plan.passes.empty(); });
  });
}

Job without_passes(Job job) {
  for (Program& program : job.programs)
    for (Plan& plan : program.plans) {
      if (plan.passes.empty()) continue;
      plan.segments = segments_without_calls(plan);
      plan.passes.clear();
    }
  return job;
}

}  // namespace mfsdp
