#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "core/base/text.hpp"
#include "verify/traces/step_windows.hpp"
#include "verify/traces/stream_waits.hpp"
#include "verify/traces/trace_rules.hpp"
#include "verify/traces/trace_words.hpp"

namespace mfsdp::traces {
namespace {

// ---- copy engines

/// nccl.h: NCCL_CTA_POLICY_ZERO is bit 1; the variable takes numbers and names.
bool asks_for_copy_engines(std::string_view policy) {
  const bool digits = !policy.empty() && policy.size() <= 2 &&
                      policy.find_first_not_of("0123456789") == std::string_view::npos;
  if (!digits) return holds_in_any_case(policy, "zero");
  constexpr int kZeroPolicy = 2;
  return (std::stoi(std::string(policy)) & kZeroPolicy) != 0;
}

/// Numbers of one process group's gathers that ran as kernels and as copies.
struct GatherPaths {
  std::int64_t kernels = 0;
  std::int64_t copies = 0;
};

RuleVerdict judge_copy_engines(const Trace& trace, const ReportSettings& settings) {
  const std::string& policy = settings.cta_policy.empty() ? trace.cta_policy : settings.cta_policy;
  const bool asked = asks_for_copy_engines(policy);
  std::map<std::uint32_t, GatherPaths> groups;
  for (const CollectiveCall& call : trace.collectives)
    if (call.op == CollectiveOp::all_gather) ++groups[call.group].kernels;
  for (const CopiedCollective& call : trace.copied_collectives)
    if (call.op == CollectiveOp::all_gather) ++groups[call.group].copies;
  RuleVerdict verdict;
  for (const auto& [group, paths] : groups) {
    if (paths.kernels == 0 || (paths.copies == 0 && !asked)) continue;
    const std::string& name = trace.names[group];
    verdict.findings.push_back(finding_without_ops(
        "MF810",
        fmt::format("{} of {} gathers of group {} ran as NCCL kernels, though {}; NCCL falls back "
                    "without a message if buffers are not registered as symmetric memory, or if "
                    "ranks are on several nodes",
                    paths.kernels, paths.kernels + paths.copies,
                    name.empty() ? "without a name" : name,
                    paths.copies > 0 ? "the others ran as copies between GPUs"
                                     : fmt::format("NCCL_CTA_POLICY is {}", printable(policy)))));
  }
  return verdict;
}

// ---- the allocator

/// The host's calls of cudaMalloc and cudaFree within a step.
struct StepAllocations {
  std::int64_t step = 0;
  std::int64_t asked = 0;
  std::int64_t gave_back = 0;
  Nanos first;
  std::optional<Nanos> first_return;
  bool asked_after_return = false;

  void add(const DriverAllocation& call) {
    if (asked + gave_back == 0) first = call.begin;
    ++(call.gives_back ? gave_back : asked);
    if (call.gives_back && !first_return) first_return = call.begin;
    if (!call.gives_back && first_return) asked_after_return = true;
  }
};

/// Steps with at least one such call.
std::vector<StepAllocations> allocations_by_step(const std::vector<StepWindow>& windows,
                                                 std::vector<DriverAllocation> calls) {
  std::ranges::stable_sort(calls, {}, &DriverAllocation::begin);
  std::vector<StepAllocations> list;
  for (const StepWindow& window : windows) {
    StepAllocations row{.step = window.step, .first = {}, .first_return = {}};
    const auto begin = std::ranges::lower_bound(calls, window.begin, {}, &DriverAllocation::begin);
    for (auto call = begin; call != calls.end() && call->begin < window.end; ++call) row.add(*call);
    if (row.asked + row.gave_back > 0) list.push_back(row);
  }
  return list;
}

/// Adds one finding for all steps that break the rule.
void add_allocations(RuleVerdict& verdict, std::string_view rule,
                     const std::vector<StepAllocations>& steps, std::string_view what) {
  if (steps.empty()) return;
  std::int64_t asked = 0;
  std::int64_t gave_back = 0;
  for (const StepAllocations& row : steps) {
    asked += row.asked;
    gave_back += row.gave_back;
  }
  verdict.findings.push_back(finding_without_ops(
      rule, fmt::format("{}, the first is step {}: memory was requested from the driver {} "
                        "(cudaMalloc) and returned {} (cudaFree); {}",
                        counted(std::ssize(steps), "step"), steps.front().step,
                        counted(asked, "time"), counted(gave_back, "time"), what)));
}

RuleVerdict judge_allocations(const Trace& trace) {
  RuleVerdict verdict;
  if (trace.allocations.empty()) return verdict;
  const std::vector<StepWindow> windows = step_windows(trace.steps, std::nullopt);
  if (windows.empty()) {
    verdict.not_judged.push_back(
        {"MF811", fmt::format("{} calls of cudaMalloc and cudaFree may lie within steps or outside "
                              "of them: call the profiler's step() once a step",
                              trace.allocations.size())});
    return verdict;
  }
  std::vector<StepAllocations> retries;
  std::vector<StepAllocations> growth;
  for (const StepAllocations& row : allocations_by_step(windows, trace.allocations))
    if (row.asked > 0) (row.asked_after_return ? retries : growth).push_back(row);
  add_allocations(verdict, "MF811", retries,
                  "probably the allocator found no space, returned its cache and tried again: each "
                  "return waits for the device. Use less memory, or a setting that fragments less "
                  "(expandable_segments:True)");
  add_allocations(verdict, "MF812", growth,
                  "the allocator's cache still grew: profile later steps if this is not usual");
  return verdict;
}

// ---- waits

RuleVerdict judge_waits(const Trace& trace) {
  const auto has = [&](auto predicate) {
    return std::ranges::any_of(trace.collectives, predicate, &CollectiveCall::op);
  };
  const bool gathers = has([](CollectiveOp op) { return op == CollectiveOp::all_gather; });
  if (!gathers || !has(is_reduction) || waits_known(trace) != WaitsKnown::dropped) return {};
  const auto waits = std::ranges::count_if(trace.syncs, &SyncMark::stream_wait);
  RuleVerdict verdict;
  verdict.not_judged.push_back(
      {"MF813",
       fmt::format(
           "none of {} stream waits names the event record that it waits for: with CUDA 12.9 and "
           "later Kineto drops event records (pytorch/kineto 1552, pytorch 195068); "
           "profile with a version that keeps them",
           waits)});
  return verdict;
}

}  // namespace

RuleVerdict judge_host(const Trace& trace, const ReportSettings& settings) {
  RuleVerdict verdict = judge_copy_engines(trace, settings);
  verdict.add(judge_allocations(trace));
  verdict.add(judge_waits(trace));
  return verdict;
}

}  // namespace mfsdp::traces
