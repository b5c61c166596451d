// Whether a plan begins as many microbatches as it states and the configuration asks for.
#include <fmt/format.h>

#include <cstdint>
#include <variant>

#include "core/plan/instances.hpp"
#include "verify/proof/ledger/checks.hpp"

namespace mfsdp {
namespace {

/// A microbatch begins where tokens are taken.
std::int64_t begun_in(const Plan& plan, std::size_t segment) {
  std::int64_t begun = 0;
  for_each_op_of_run(plan, segment, [&](const Op& op) {
    const auto* kernel = std::get_if<Kernel>(&op.body);
    if (kernel != nullptr && kernel->kind == KernelKind::token_copy) ++begun;
  });
  return begun;
}

}  // namespace

void check_microbatches(const UnrolledPlan& unrolled, FindingList& findings) {
  Int128 count = 0;
  const std::vector<Segment>& segments = unrolled.plan->segments;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const std::int64_t times =
        unrolled.unfolded.empty() ? segments[s].repeat : unrolled.unfolded[s].times;
    count += Int128{times} * begun_in(*unrolled.plan, s);
  }
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    const std::int64_t begun = begun_in(*unrolled.plan, s);
    if ((count > 0 || segment.microbatches < 0) && begun != segment.microbatches)
      findings.add(
          {.rule = "MF312",
           .message = fmt::format("segment '{}' of plan '{}' begins {} microbatches, but "
                                  "states {}",
                                  segment.name, unrolled.plan->name, begun, segment.microbatches)});
  }
  if (unrolled.plan->role() != PlanRole::train || count == 0 ||
      count == unrolled.program->config.microbatches)
    return;
  findings.add(
      {.rule = "MF312",
       .message = fmt::format("plan '{}' runs {} microbatches in a step; the configuration has {}",
                              unrolled.plan->name, static_cast<std::int64_t>(count),
                              unrolled.program->config.microbatches)});
}

}  // namespace mfsdp
