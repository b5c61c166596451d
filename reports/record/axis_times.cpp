#include "reports/record/axis_times.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

namespace mfsdp {
namespace {

constexpr std::string_view kExposedTopic = "exposed";
constexpr std::string_view kUnit = "_ns";

/// The communicator's axes with several ranks; empty for one of a single rank.
std::string axes_text(const Communicator& communicator, const Mesh& mesh) {
  std::vector<std::string_view> axes;
  for (const Axis axis : communicator.axes)
    if (mesh.size(axis) > 1) axes.push_back(to_string(axis));
  return fmt::format("{}", fmt::join(axes, "+"));
}

}  // namespace

Facts axis_facts(const Program& program, std::span<const std::int64_t> by_communicator) {
  std::map<std::string, std::int64_t> times;
  for (std::size_t i = 0; i < program.communicators.size(); ++i)
    times[axes_text(program.communicators[i], program.config.mesh)] += by_communicator[i];
  times.erase("");
  Facts facts;
  const bool is_plain = times.size() == 1 && times.contains(std::string(to_string(Axis::dp_shard)));
  if (is_plain) return facts;
  for (const auto& [axes, time] : times)
    facts.push_back(
        {.topic = std::string(kExposedTopic), .name = axes + std::string(kUnit), .value = time});
  return facts;
}

std::vector<AxesTime> axis_times(const Facts& facts) {
  std::vector<AxesTime> times;
  for (const Fact& fact : facts) {
    const auto* time = std::get_if<std::int64_t>(&fact.value);
    if (fact.topic != kExposedTopic || time == nullptr || !fact.name.ends_with(kUnit)) continue;
    times.emplace_back(fact.name.substr(0, fact.name.size() - kUnit.size()), Nanos(*time));
  }
  std::ranges::stable_sort(times, std::greater{}, &AxesTime::second);
  return times;
}

}  // namespace mfsdp
