#include "verify/bugs/plan_names.hpp"

#include <fmt/format.h>

#include <array>

#include "core/plan/instances.hpp"

namespace mfsdp::bugs {

std::span<const std::string_view> thing_kinds() {
  static constexpr std::array<std::string_view, 8> kKinds{
      "buffer", "communicator", "event", "group", "op", "pool", "stream", "unit"};
  return kKinds;
}

PlanNames::PlanNames(const Program& program) {
  const auto add_all = [&](std::string_view kind, const auto& list, auto name_of) {
    for (const auto& thing : list)
      add(kind, static_cast<std::int64_t>(thing.id.value), std::string(name_of(thing)));
  };
  const auto by_name = [](const auto& thing) { return thing.name; };
  add_all("buffer", program.buffers, by_name);
  add_all("communicator", program.communicators, [](const auto& c) { return c.purpose; });
  add_all("event", program.events, by_name);
  add_all("pool", program.pools, by_name);
  add_all("stream", program.streams, [](const auto& stream) { return to_string(stream.role); });
  add_all("unit", program.units, by_name);
  add_all("group", program.groups, [&](const auto& group) {
    return name_of("unit", static_cast<std::int64_t>(group.unit.value)).value_or("");
  });
  add_ops(program);
}

void PlanNames::add_ops(const Program& program) {
  for (const Plan& plan : program.plans)
    for (std::size_t list = 0; list < count_op_lists(plan); ++list)
      for (const Op& op : op_list(plan, list))
        add("op", static_cast<std::int64_t>(op.id.value),
            fmt::format(
                "{}: {} {} ({})", list_name(plan, list), to_string(op.kind()), op.name,
                name_of("stream", static_cast<std::int64_t>(op.stream.value)).value_or("")));
}

void PlanNames::add(std::string_view kind, std::int64_t id, const std::string& name) {
  std::string unique = name;
  for (int n = 2; id_of(kind, unique); ++n) unique = fmt::format("{} #{}", name, n);
  ids_[{std::string(kind), unique}] = id;
  names_[{std::string(kind), id}] = unique;
}

std::optional<std::int64_t> PlanNames::id_of(std::string_view kind, const std::string& name) const {
  const auto found = ids_.find({std::string(kind), name});
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> PlanNames::name_of(std::string_view kind, std::int64_t id) const {
  const auto found = names_.find({std::string(kind), id});
  return found == names_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace mfsdp::bugs
