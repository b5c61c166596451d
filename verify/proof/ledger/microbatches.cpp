// Whether a plan begins as many microbatches as it states and the configuration asks for.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <variant>

#include "verify/proof/ledger/checks.hpp"

namespace mfsdp {
namespace {

/// A microbatch begins where tokens are taken.
std::int64_t begun_in(const Segment& segment) {
  return std::ranges::count_if(segment.ops, [](const Op& op) {
    const auto* kernel = std::get_if<Kernel>(&op.body);
    return kernel != nullptr && kernel->kind == KernelKind::token_copy;
  });
}

}  // namespace

void check_microbatches(const UnrolledPlan& unrolled, FindingList& findings) {
  Int128 count = 0;
  for (const Segment& segment : unrolled.plan->segments)
    count += Int128{segment.repeat} * begun_in(segment);
  for (const Segment& segment : unrolled.plan->segments) {
    const std::int64_t begun = begun_in(segment);
    if ((count > 0 || segment.microbatches < 0) && begun != segment.microbatches)
      findings.add(
          {.rule = "MF312",
           .message = fmt::format("segment '{}' of plan '{}' begins {} microbatches, but "
                                  "states {}",
                                  segment.name, unrolled.plan->name, begun, segment.microbatches)});
  }
  if (unrolled.plan->name != "train" || count == 0 ||
      count == unrolled.program->config.microbatches)
    return;
  findings.add(
      {.rule = "MF312",
       .message = fmt::format("plan '{}' runs {} microbatches in a step; the configuration has {}",
                              unrolled.plan->name, static_cast<std::int64_t>(count),
                              unrolled.program->config.microbatches)});
}

}  // namespace mfsdp
