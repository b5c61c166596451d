// A plan as JSON under edits, in which things are called by id and name.
//
//   {"op": 10, "name": "only: wait fresh.layers.0 (all_gather)"}   segment: kind name (stream)
//   {"buffer": 3, "name": "layers.0.main_grad"}
//
// Likewise event, pool, communicator (its purpose), unit and group (its unit). Of equal names in
// one segment or list the second one ends in " #2". So names are as good as ids, and where the two
// disagree the plan is not the one that the edits were written for.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "verify/bugs/bug_row.hpp"

namespace mfsdp::bugs {

class PlanDocument {
 public:
  explicit PlanDocument(const Program& program);

  /// Errors: an id or name that the plan does not have, or a patch that does not fit.
  [[nodiscard]] Result<void> apply(const Edit& edit);

  /// The edited plan. Its waits are bound anew, to the latest record of their event at issue: that
  /// is what a GPU does, whatever the planner had in mind.
  [[nodiscard]] Result<Program> program(const std::string& where) const;

  /// The id that the name stands for, if there is one of that kind ("op", "buffer", ...).
  [[nodiscard]] std::optional<std::int64_t> id_of(std::string_view kind,
                                                  const std::string& name) const;

 private:
  using Json = nlohmann::json;
  struct Names {
    std::map<std::int64_t, std::string> by_id;
    std::map<std::string, std::int64_t> by_name;
  };
  /// Where a thing stands.
  struct Position {
    Json* list = nullptr;
    std::size_t index = 0;

    [[nodiscard]] Json& thing() const { return (*list)[index]; }
  };

  void name(const std::string& kind, std::int64_t id, const std::string& name);
  void name_ops();
  [[nodiscard]] Result<std::int64_t> id_at(const Json& reference, const std::string& where) const;
  [[nodiscard]] Result<Position> find(const Json& reference, const std::string& where,
                                      bool must_be_op);
  /// References anywhere in a value become ids.
  [[nodiscard]] Result<Json> with_ids(const Json& value, const std::string& where) const;
  [[nodiscard]] Result<Json> patched(const Json& thing, const Edit& edit) const;
  [[nodiscard]] Result<void> insert(const Edit& edit, Json op);
  [[nodiscard]] Result<void> add(const Edit& edit);

  Json document_;
  std::map<std::string, Names, std::less<>> names_;  ///< by kind
};

}  // namespace mfsdp::bugs
