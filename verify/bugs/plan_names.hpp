// Names for all objects of a plan that have ids.
//
//   op             "only: wait fresh.layers.0 (all_gather)"    segment or pass: kind name (stream)
//   buffer         "layers.0.main_grad"; likewise event, pool and unit
//   communicator   its purpose; stream: its role; group: the name of its unit
//
// If names are equal, the second one ends in " #2". So a name identifies an object as an id does.
// If name and id identify different objects, the row was written for another plan.
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

  /// The id of the object of that kind and name; none if the plan has no such object.
  [[nodiscard]] std::optional<std::int64_t> id_of(std::string_view kind,
                                                  const std::string& name) const;
  [[nodiscard]] std::optional<std::string> name_of(std::string_view kind, std::int64_t id) const;

 private:
  void add_ops(const Program& program);

  std::map<std::pair<std::string, std::string>, std::int64_t> ids_;    ///< by kind and name
  std::map<std::pair<std::string, std::int64_t>, std::string> names_;  ///< by kind and id
};

}  // namespace mfsdp::bugs
