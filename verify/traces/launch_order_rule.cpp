#include <fmt/format.h>

#include "verify/traces/held_up_gathers.hpp"
#include "verify/traces/stream_waits.hpp"
#include "verify/traces/trace_words.hpp"

namespace mfsdp::traces {
namespace {

constexpr std::string_view kSerialisedGather = "MF813";

/// Calls of one communicator never overlap.
bool may_overlap(const HeldUpGather& row) {
  const bool one_group = row.gather->group != 0 && row.gather->group == row.reduction->group;
  return row.gather->stream != row.reduction->stream && !one_group;
}

struct Serialised {
  std::int64_t calls = 0;
  std::int64_t undecided = 0;
  Nanos lost;
  HeldUpGather worst;

  void add(const HeldUpGather& row, Ordered ordered) {
    if (ordered == Ordered::yes) return;
    if (ordered == Ordered::unknown) {
      ++undecided;
      return;
    }
    ++calls;
    lost += row.lost;
    if (worst.gather == nullptr || row.lost > worst.lost) worst = row;
  }
};

std::string what_was_lost(const Serialised& found, const DeviceContext& device) {
  const CollectiveCall& gather = *found.worst.gather;
  return fmt::format(
      "device {}: {} began only as a reduction of another communicator ended, and compute "
      "lost {} ms; the worst, at {} ms: {}, launched {} ms earlier, ran after {}. No wait of the "
      "program orders them. Possible causes: NCCL_LAUNCH_ORDER_IMPLICIT=1, "
      "CUDA_DEVICE_MAX_CONNECTIONS=1, or no free SMs. Launch the gather first",
      device.report.device, counted(found.calls, "gather"), milliseconds(found.lost),
      milliseconds(gather.begin - device.report.begin), call_words(device.trace, gather),
      milliseconds(gather.begin - *gather.launched),
      call_words(device.trace, *found.worst.reduction));
}

std::string why_undecided(const Serialised& found, const DeviceContext& device) {
  const std::string_view missing =
      waits_known(device.trace) == WaitsKnown::absent
          ? "whether a wait orders them is not recorded: profile with "
            "_ExperimentalConfig(enable_cuda_sync_events=True)"
          : "their launches, or the event records of waits between them, are not in the trace";
  return fmt::format(
      "device {}: {} began as a reduction of another communicator ended, with compute "
      "waiting; {}",
      device.report.device, counted(found.undecided, "gather"), missing);
}

}  // namespace

RuleVerdict judge_launch_order(const DeviceContext& device) {
  if (waits_known(device.trace) == WaitsKnown::dropped) return {};  // reported by judge_host()
  const StreamWaits waits(device.trace);
  Serialised found;
  for (const HeldUpGather& row : held_up_gathers(device))
    if (may_overlap(row))
      found.add(row,
                row.launch_known ? waits.orders(*row.reduction, *row.gather) : Ordered::unknown);
  RuleVerdict verdict;
  if (found.lost >= device.settings.least_held_up)
    verdict.findings.push_back(
        finding_without_ops(kSerialisedGather, what_was_lost(found, device)));
  if (found.undecided > 0)
    verdict.not_judged.push_back({std::string(kSerialisedGather), why_undecided(found, device)});
  return verdict;
}

}  // namespace mfsdp::traces
