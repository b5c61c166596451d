#include "reports/record/kernel_times.hpp"

#include <cstddef>
#include <string>

namespace mfsdp {
namespace {

constexpr const char* kKernelsTopic = "kernels";

std::string fact_name(std::size_t group) {
  return std::string(Names<KernelGroup>::values[group]) + "_ns";
}

}  // namespace

KernelGroup group_of(KernelKind kind) {
  using enum KernelKind;
  switch (kind) {
    case gemm:
    case grouped_input_gradient:
    case grouped_product:
    case grouped_weight_gradient: return KernelGroup::gemm;
    case gemm_blocks:
    case gemm_fp8: return KernelGroup::gemm_fp8;
    case attention_forward:
    case attention_backward: return KernelGroup::attention;
    case amax:
    case amax_history:
    case cast_blocks:
    case cast_scaled:
    case transpose: return KernelGroup::casts;
    case update: return KernelGroup::optimizer;
    default: return KernelGroup::others;
  }
}

TimeByKernelGroup kernel_times(const std::vector<OpTime>& timeline) {
  TimeByKernelGroup times{};
  for (const OpTime& op : timeline)
    if (const auto kind = parse<KernelKind>(op.kind))
      times[static_cast<std::size_t>(group_of(*kind))] += op.end - op.start;
  return times;
}

Facts kernel_facts(const TimeByKernelGroup& times) {
  Facts facts;
  for (std::size_t group = 0; group < times.size(); ++group)
    facts.push_back(
        {.topic = kKernelsTopic, .name = fact_name(group), .value = times[group].value});
  return facts;
}

std::optional<Nanos> time_of(KernelGroup group, const Facts& facts) {
  const Fact* fact = find_fact(facts, kKernelsTopic, fact_name(static_cast<std::size_t>(group)));
  const auto* time = fact == nullptr ? nullptr : std::get_if<std::int64_t>(&fact->value);
  return time == nullptr ? std::nullopt : std::optional(Nanos(*time));
}

}  // namespace mfsdp
