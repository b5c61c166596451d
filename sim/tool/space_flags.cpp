#include "sim/tool/space_flags.hpp"

#include <algorithm>
#include <utility>

#include "sim/tool/engine_refusals.hpp"

namespace mfsdp {
namespace {

Result<SearchAxis> read_axis(const FlagList& list, const std::vector<FlagGroup>& groups,
                             const SimOptions& bound) {
  SearchAxis axis{.flag = list.flag, .values = {}};
  for (const FlagGroup& group : groups)
    for (const Flag& flag : group.flags) {
      if (flag.name != list.flag) continue;
      for (const std::string& text : list.values) {
        MFSDP_TRY(flag.apply(text));
        axis.values.push_back(
            {.flag = list.flag, .value = value_of(bound, list.flag), .text = text});
      }
    }
  return axis;
}

}  // namespace

Result<SearchSpace> read_space(const SweptArguments& swept) {
  SimOptions options;
  const std::vector<FlagGroup> groups = sim_flags(options);
  MFSDP_LET(given, parse_flags(groups, swept.arguments));
  options.given = given;
  const SimOptions first = options;
  SearchSpace space;
  for (const FlagList& list : swept.lists) {
    MFSDP_LET(axis, read_axis(list, groups, options));
    space.axes.push_back(std::move(axis));
  }
  for (std::size_t i = 0; i < space.size(); ++i) {
    options = first;
    for (const Setting& setting : space.combination(i)) apply(setting, options);
    MFSDP_TRY(check_sim_options(options, groups));
    MFSDP_TRY(check_engine_flags(options));
  }
  return space;
}

Result<std::vector<GivenFlag>> candidate_flags(const std::vector<std::string>& arguments,
                                               const Candidate& candidate,
                                               const std::vector<FlagGroup>& kinds) {
  const std::vector<std::string> names = flag_names(kinds);
  std::vector<GivenFlag> flags;
  SimOptions unused;
  std::vector<FlagGroup> groups = sim_flags(unused);
  for (FlagGroup& group : groups)
    for (Flag& flag : group.flags)
      flag.apply = [&, name = flag.name](const std::string& value) -> Result<void> {
        if (contains(names, name)) flags.push_back({.name = name, .value = value});
        return {};
      };
  MFSDP_TRY(parse_flags(groups, arguments));
  for (const Setting& setting : candidate.settings) {
    if (!contains(names, setting.flag)) continue;
    const auto given = std::ranges::find(flags, setting.flag, &GivenFlag::name);
    if (given != flags.end())
      given->value = setting.text;
    else
      flags.push_back({.name = setting.flag, .value = setting.text});
  }
  return flags;
}

}  // namespace mfsdp
