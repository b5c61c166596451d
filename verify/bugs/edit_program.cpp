#include "verify/bugs/edit_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/json_text.hpp"
#include "core/base/text.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/bindings.hpp"
#include "verify/bugs/plan_names.hpp"

namespace mfsdp::bugs {
namespace {

using Json = nlohmann::json;

/// Kinds of things whose list is at the top of a plan's JSON.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kLists{
    {{"buffer", "buffers"},
     {"communicator", "communicators"},
     {"event", "events"},
     {"group", "groups"},
     {"pool", "pools"},
     {"stream", "streams"},
     {"unit", "units"}}};

/// The position of an object in its list.
struct Position {
  Json* list = nullptr;
  std::size_t index = 0;

  [[nodiscard]] Json& thing() const { return (*list)[index]; }
};

std::optional<Position> find_in(Json& list, std::int64_t id) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i]["id"] == id) return Position{.list = &list, .index = i};
  return std::nullopt;
}

Result<void> check_new(const Json& thing, std::string_view kind, const std::string& where) {
  const auto id = thing.find("id");
  const auto name = thing.find("name");
  if (id != thing.end() && id->is_number_unsigned() && name != thing.end() && name->is_string())
    return {};
  return fail(where,
              fmt::format("expected a new {} with id and name, got {}", kind, json_excerpt(thing)));
}

class PlanDocument {
 public:
  explicit PlanDocument(const Program& program)
      : document_(Json::parse(to_canonical_json(program))), names_(program) {}

  [[nodiscard]] const Json& json() const { return document_; }

  Result<void> apply(const Edit& edit) {
    switch (edit.kind) {
      case EditKind::add: return add(edit);
      case EditKind::insert: {
        MFSDP_LET(op, value_of(edit));
        MFSDP_TRY(check_new(op, "op", edit.where));
        return insert(edit, std::move(op));
      }
      case EditKind::patch: {
        MFSDP_LET(position, find(edit.subject, edit.where));
        MFSDP_SET(position.thing(), patched(position.thing(), edit));
        return {};
      }
      case EditKind::copy: {
        MFSDP_LET(position, find_op(edit.subject, edit.where));
        MFSDP_LET(op, patched(position.thing(), edit));
        op["id"] = edit.id;
        return insert(edit, std::move(op));
      }
      case EditKind::drop:
      case EditKind::move: break;
    }
    MFSDP_LET(position, find_op(edit.subject, edit.where));
    Json op = std::move(position.thing());
    position.list->erase(position.index);
    return edit.kind == EditKind::drop ? Result<void>{} : insert(edit, std::move(op));
  }

 private:
  /// The thing's id, if it has the name that goes with it.
  [[nodiscard]] Result<std::int64_t> id_of(const Thing& thing, const std::string& where) const {
    const auto name = names_.name_of(thing.kind, thing.id);
    if (name == thing.name) return thing.id;
    const auto other = names_.id_of(thing.kind, thing.name);
    return fail(
        where,
        fmt::format("{} {} is {}, expected \"{}\", which is {}", thing.kind, thing.id,
                    name ? fmt::format("\"{}\"", *name) : "not in the plan", printable(thing.name),
                    other ? fmt::format("{}", *other) : "not in it either"));
  }

  Result<Position> find(const Thing& thing, const std::string& where) {
    MFSDP_LET(id, id_of(thing, where));
    for (const auto& [kind, list] : kLists)
      if (kind == thing.kind)
        if (const auto found = find_in(document_[list], id)) return *found;
    if (thing.kind == "op")
      for (Json& plan : document_["plans"])
        for (const char* lists : {"segments", "passes"})
          for (Json& list : plan.contains(lists) ? plan[lists] : none_)
            if (list.contains("ops"))
              if (const auto found = find_in(list["ops"], id)) return *found;
    return fail(where, fmt::format("an earlier edit has dropped {} {}", thing.kind, id));
  }
  Result<Position> find_op(const Thing& thing, const std::string& where) {
    if (thing.kind != "op") return fail(where, fmt::format("expected an op, got a {}", thing.kind));
    return find(thing, where);
  }

  /// Things anywhere in a value become their ids.
  [[nodiscard]] Result<Json> with_ids(const Json& value, const std::string& where) const {
    if (const auto thing = read_thing(value)) {
      MFSDP_LET(id, id_of(*thing, where));
      return Json(static_cast<std::uint64_t>(id));
    }
    Json made = value;
    if (made.is_structured())
      for (Json& child : made) MFSDP_SET(child, with_ids(child, where));
    return made;
  }
  [[nodiscard]] Result<Json> value_of(const Edit& edit) const {
    return with_ids(Json::parse(edit.value), edit.where);
  }

  [[nodiscard]] Result<Json> patched(const Json& thing, const Edit& edit) const {
    MFSDP_LET(changes, value_of(edit));
    try {
      Json changed = thing.patch(changes);
      if (changed.is_object() && changed.value("id", Json()) == thing["id"]) return changed;
      return fail(edit.where + ".with", "the patch removes the id");
    } catch (const Json::exception& error) {
      return fail(edit.where + ".with", std::string("the patch does not apply: ") + error.what());
    }
  }

  Result<void> insert(const Edit& edit, Json op) {
    MFSDP_LET(anchor, find_op(edit.anchor, edit.where));
    const auto place = static_cast<std::ptrdiff_t>(anchor.index) + (edit.after ? 1 : 0);
    anchor.list->insert(anchor.list->begin() + place, std::move(op));
    return {};
  }

  /// The value is {"buffer": {...}}.
  Result<void> add(const Edit& edit) {
    MFSDP_LET(value, value_of(edit));
    for (const auto& [kind, list] : kLists) {
      if (!value.is_object() || value.size() != 1 || !value.contains(kind)) continue;
      Json& thing = value[kind];
      MFSDP_TRY(check_new(thing, kind, edit.where));
      names_.add(kind, thing["id"].get<std::int64_t>(), thing["name"].get<std::string>());
      document_[list].push_back(std::move(thing));
      return {};
    }
    return fail(edit.where,
                "expected one thing to add, {\"buffer\": {...}}, got " + json_excerpt(value));
  }

  Json document_;
  Json none_ = Json::array();
  PlanNames names_;
};

bool is_of_class(const Edit& edit, const Program& program) {
  return !edit.role || (!program.classes.empty() && program.classes[0].role == *edit.role);
}

}  // namespace

Result<Program> edit_program(const Program& program, std::span<const Edit> edits,
                             const std::string& where) {
  PlanDocument document(program);
  for (const Edit& edit : edits)
    if (is_of_class(edit, program)) MFSDP_TRY(document.apply(edit));
  MFSDP_LET(edited, unchecked_job_from_json(document.json().dump(), where));
  Program& made = edited.programs[0];
  for (Plan& plan : made.plans) resolve_bindings(plan, made.events);
  return std::move(made);
}

Result<Job> edit_job(const Job& job, std::span<const Edit> edits, const std::string& where) {
  for (const Edit& edit : edits)
    if (std::ranges::none_of(job.programs,
                             [&](const Program& program) { return is_of_class(edit, program); }))
      return fail(edit.where,
                  fmt::format("there is no class of ranks \"{}\"", printable(*edit.role)));
  Job edited;
  for (const Program& program : job.programs) {
    MFSDP_LET(made, edit_program(program, edits, where));
    edited.programs.push_back(std::move(made));
  }
  return edited;
}

}  // namespace mfsdp::bugs
