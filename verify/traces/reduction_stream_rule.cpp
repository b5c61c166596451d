#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "core/base/text.hpp"
#include "verify/traces/held_up_gathers.hpp"
#include "verify/traces/trace_words.hpp"

namespace mfsdp::traces {
namespace {

constexpr std::string_view kReductionStream = "MF814";
/// Smaller reductions are sums of losses and norms, which belong on the compute stream.
constexpr Bytes kLeastGradients{1 << 20};

/// Words in a group's description that identify its parallelism, as in Megatron-LM's
/// DATA_PARALLEL_GROUP_WITH_CP and PyTorch's mesh_dp_shard. Words of data parallelism come first.
constexpr std::array<std::string_view, 6> kDataWords{"data",  "dp",        "fsdp",
                                                     "shard", "replicate", "ddp"};
constexpr std::array<std::string_view, 9> kModelWords{"tensor", "tp", "sequence", "context", "cp",
                                                      "expert", "ep", "pipeline", "pp"};

bool holds_word(std::string_view text, const auto& words) {
  const std::string lower = lower_case(text);
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  for (std::size_t begin = 0; begin < lower.size();) {
    const auto first =
        std::find_if(lower.begin() + static_cast<std::ptrdiff_t>(begin), lower.end(), is_letter);
    const auto last = std::find_if_not(first, lower.end(), is_letter);
    if (std::ranges::find(words, std::string_view(first, last)) != words.end()) return true;
    begin = static_cast<std::size_t>(last - lower.begin());
  }
  return false;
}

/// A trace does not contain what is reduced. Reduce-scatters and large all-reduces count as
/// gradients, except in groups whose description names model parallelism.
bool reduces_gradients(const Trace& trace, const CollectiveCall& call) {
  const std::string& description = trace.names[call.description];
  if (!holds_word(description, kDataWords) && holds_word(description, kModelWords)) return false;
  if (call.op == CollectiveOp::reduce_scatter) return true;
  const auto bytes = bytes_of(trace, call);
  return is_reduction(call.op) && bytes && *bytes >= kLeastGradients;
}

/// The stream with the most kernel time; none without kernels.
std::optional<std::int32_t> compute_stream(const DeviceContext& device) {
  std::map<std::int32_t, Nanos> times;
  for (const GpuWork& work : device.trace.work)
    if (work.device == device.report.device && work.kind == WorkKind::kernel)
      times[work.stream] += work.end - work.begin;
  const auto most = std::ranges::max_element(times, {}, [](const auto& row) { return row.second; });
  return most == times.end() ? std::nullopt : std::optional(most->first);
}

struct Lost {
  std::int64_t calls = 0;
  Nanos time;
  const CollectiveCall* worst = nullptr;
  Nanos most;

  void add(const CollectiveCall& reduction, Nanos lost) {
    ++calls;
    time += lost;
    if (worst == nullptr || lost > most) {
      worst = &reduction;
      most = lost;
    }
  }
};

void add_finding(RuleVerdict& verdict, const Lost& lost, const DeviceContext& device,
                 std::string_view whose, std::string_view advice) {
  if (lost.time < device.settings.least_held_up) return;
  std::string message = fmt::format(
      "device {}: {} of gradients ran on the stream of {}, and compute lost {} ms; the worst, at "
      "{} ms: {}; {}",
      device.report.device, counted(lost.calls, "reduction"), whose, milliseconds(lost.time),
      milliseconds(lost.worst->begin - device.report.begin), call_words(device.trace, *lost.worst),
      advice);
  verdict.findings.push_back(finding_without_ops(kReductionStream, std::move(message)));
}

Lost on_compute_stream(const DeviceContext& device) {
  Lost lost;
  const auto stream = compute_stream(device);
  for (const ExposedCall& row : device.calls) {
    if (row.call->stream != stream || !reduces_gradients(device.trace, *row.call)) continue;
    const auto stall = stall_of(row, device.compute, device.settings);
    if (stall && *stall >= device.settings.least_hidable) lost.add(*row.call, *stall);
  }
  return lost;
}

}  // namespace

RuleVerdict judge_reduction_streams(const DeviceContext& device) {
  RuleVerdict verdict;
  add_finding(verdict, on_compute_stream(device), device, "compute",
              "reduce on a separate stream that waits for the gradients");
  Lost lost;
  std::int64_t undecided = 0;
  for (const HeldUpGather& row : held_up_gathers(device)) {
    if (row.gather->stream != row.reduction->stream) continue;
    if (!reduces_gradients(device.trace, *row.reduction)) continue;
    if (row.launch_known)
      lost.add(*row.reduction, row.lost);
    else
      ++undecided;
  }
  add_finding(verdict, lost, device, "gathers", "reduce on a separate stream and communicator");
  if (undecided > 0)
    verdict.not_judged.push_back(
        {std::string(kReductionStream),
         fmt::format("device {}: {} began as an earlier reduction on their stream ended, with "
                     "compute waiting; it is not known whether they waited for it, as their "
                     "launches are not in the trace",
                     device.report.device, counted(undecided, "gather"))});
  return verdict;
}

RuleVerdict judge_device(const DeviceContext& device) {
  RuleVerdict verdict = judge_launch_order(device);
  verdict.add(judge_reduction_streams(device));
  return verdict;
}

}  // namespace mfsdp::traces
