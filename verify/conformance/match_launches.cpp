#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/plan/index.hpp"
#include "verify/conformance/checked_run.hpp"
#include "verify/findings/place_names.hpp"

namespace mfsdp {
namespace {

class Matching {
 public:
  Matching(CheckedRun& run, std::span<const OpLaunch> launches)
      : run_(run), launches_(launches), streams_(run.program.streams) {
    record_.rank = launches.front().rank;
    record_.launches.assign(run.size(), nullptr);
    record_.timed.assign(run.size(), false);
    seen_.assign(run.instances.ops() * run.steps.size(), 0);
  }

  RankRecord match() {
    std::optional<std::size_t> before;
    for (const OpLaunch& launch : launches_) {
      const auto number = instance_of(launch);
      if (!number) continue;
      record_.launches[*number] = &launch;
      record_.timed[*number] = check_times(launch, *number);
      check_stream(launch, *number);
      if (before) check_succession(*before, *number);
      before = number;
    }
    return std::move(record_);
  }

 private:
  /// The next instance of its op in its step that was not launched yet.
  std::optional<std::size_t> instance_of(const OpLaunch& launch) {
    const auto place = std::ranges::lower_bound(run_.steps, launch.step) - run_.steps.begin();
    const auto step = static_cast<std::size_t>(place);
    const auto op = run_.instances.find(launch.op);
    if (!op) {
      run_.findings.add({.rule = "MF802",
                         .message = fmt::format(
                             "rank {}, step {}: op {} was launched, and plan '{}' has no such op",
                             record_.rank, launch.step, launch.op.value, run_.plan.name)});
      return std::nullopt;
    }
    const std::int64_t n = seen_[step * run_.instances.ops() + *op]++;
    const std::int64_t repeat = run_.instances.repeat(*op);
    if (n < repeat) return step * run_.instances.size() + run_.instances.number(*op, n);
    const Place last = run_.instances.place(run_.instances.number(*op, repeat - 1), launch.step);
    run_.findings.add(
        {.rule = "MF802",
         .message = fmt::format("{}: {} was launched more often than the plan has it, "
                                "which is {} times a step",
                                where(record_.rank, last), to_text(last), repeat),
         .places = {last}});
    return std::nullopt;
  }

  void check_stream(const OpLaunch& launch, std::size_t number) {
    const auto planned = run_.instances.at(number % run_.instances.size()).stream;
    const std::optional<std::size_t> ran =
        launch.stream ? streams_.find(*launch.stream) : std::nullopt;
    if (ran == planned && launch.stream.has_value() == planned.has_value()) return;
    const Place place = run_.place(number);
    const std::string other =
        launch.stream && !ran
            ? fmt::format("stream {}, which the program lacks", launch.stream->value)
            : stream_name(run_.program, ran);
    run_.findings.add({.rule = "MF804",
                       .message = fmt::format("{}: {} ran on {}", where(record_.rank, place),
                                              to_text(place), other),
                       .places = {place}});
  }

  bool check_times(const OpLaunch& launch, std::size_t number) {
    const bool began_issued = launch.issued <= launch.begin + run_.settings.resolution;
    if (Nanos(0) <= launch.issued && began_issued && launch.begin <= launch.end) return true;
    if (!run_.findings.wants("MF809")) return false;
    const Place place = run_.place(number);
    run_.findings.add(
        {.rule = "MF809",
         .message = fmt::format("{}: {} was issued at {} ns, began at {} ns and ended at {} ns",
                                where(record_.rank, place), to_text(place), launch.issued.value,
                                launch.begin.value, launch.end.value),
         .places = {place}});
    return false;
  }

  /// Checks the order of two consecutive launches.
  void check_succession(std::size_t before, std::size_t after) {
    const bool swapped = after < before;
    const bool earlier = record_.launches[after]->issued < record_.launches[before]->issued;
    if ((!swapped && !earlier) || !run_.findings.wants("MF803")) return;
    const Place first = run_.place(before);
    const Place then = run_.place(after);
    run_.findings.add(
        {.rule = "MF803",
         .message = swapped
                        ? fmt::format("{}: {} was issued after {}, but comes before it in the plan",
                                      where(record_.rank, then), to_text(then), to_text(first))
                        : fmt::format("{}: {} was issued at {} ns, before {}, issued at {} ns",
                                      where(record_.rank, then), to_text(then),
                                      record_.launches[after]->issued.value, to_text(first),
                                      record_.launches[before]->issued.value),
         .places = {first, then}});
  }

  CheckedRun& run_;
  std::span<const OpLaunch> launches_;
  IdIndex<StreamId> streams_;
  RankRecord record_;
  std::vector<std::int64_t> seen_;  ///< by step and op: launches so far
};

}  // namespace

RankRecord match_launches(CheckedRun& run, std::span<const OpLaunch> launches) {
  return Matching(run, launches).match();
}

}  // namespace mfsdp
