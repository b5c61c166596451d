#include "core/runtime/calls/take_update.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/shard/groups.hpp"

namespace mfsdp::kernels {
namespace {

std::vector<DecayRun> runs_of(const Group& group, std::int64_t begin, std::int64_t end) {
  std::vector<const PlacedParameter*> parameters;
  for (const PlacedParameter& parameter : group.parameters) parameters.push_back(&parameter);
  std::ranges::sort(parameters, {}, &PlacedParameter::offset);
  std::vector<DecayRun> runs;
  std::int64_t at = begin;
  const auto go_to = [&](std::int64_t next, bool decays, float rate) {
    next = std::min(next, end);
    if (next <= at) return;
    runs.push_back({.first = at - begin, .count = next - at, .decays = decays, .rate = rate});
    at = next;
  };
  for (const PlacedParameter* parameter : parameters) {
    const double rate = parameter->rate ? parameter->rate->value() : 1;
    go_to(parameter->offset, false, 1);
    go_to(parameter->offset + parameter->elements(), parameter->decay, static_cast<float>(rate));
  }
  go_to(end, false, 1);
  return runs;
}

}  // namespace

Result<const Group*> take_updated_group(const KernelCall& call, const Program& program) {
  const auto group = std::ranges::find(program.groups, call.group, &Group::id);
  if (group == program.groups.end() || !group->optimizer)
    return fail(fmt::format("kernel {}", to_string(call.kernel->kind)),
                "expected an op that names the group whose weights it updates");
  return &*group;
}

Result<std::vector<DecayRun>> take_decay_runs(const KernelCall& call, const Group& group,
                                              const Mesh& mesh) {
  OperandReader in(call);
  const std::int64_t elements = in.attribute("elements");
  MFSDP_TRY(in.result());
  const std::int64_t begin = updated_interval(group, mesh, call.rank).begin;
  if (begin + elements > group.elements)
    in.report_mismatch("grad",
                       fmt::format("expected a slice of the group's {} elements, got [{}, {})",
                                   group.elements, begin, begin + elements));
  MFSDP_TRY(in.result());
  return runs_of(group, begin, begin + elements);
}

}  // namespace mfsdp::kernels
