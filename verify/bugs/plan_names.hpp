// Names for everything in a plan that has an id.
//
//   op             "only: wait fresh.layers.0 (all_gather)"    segment: kind name (stream)
//   buffer         "layers.0.main_grad"; likewise event, pool and unit
//   communicator   its purpose; stream: its role; group: the name of its unit
//
// Of equal names the second one ends in " #2". So a name is as good as an id, and where the two
// disagree the plan is not the one that somebody had in mind.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/plan/plan.hpp"

namespace mfsdp::bugs {

/// "buffer", "communicator", "event", "group", "op", "pool", "stream" and "unit".
[[nodiscard]] std::span<const std::string_view> thing_kinds();

class PlanNames {
 public:
  explicit PlanNames(const Program& program);

  void add(std::string_view kind, std::int64_t id, const std::string& name);

  /// What the plan has of that kind, or nothing.
  [[nodiscard]] std::optional<std::int64_t> id_of(std::string_view kind,
                                                  const std::string& name) const;
  [[nodiscard]] std::optional<std::string> name_of(std::string_view kind, std::int64_t id) const;

 private:
  void add_ops(const Program& program);

  std::map<std::pair<std::string, std::string>, std::int64_t> ids_;    ///< by kind and name
  std::map<std::pair<std::string, std::int64_t>, std::string> names_;  ///< by kind and id
};

}  // namespace mfsdp::bugs
