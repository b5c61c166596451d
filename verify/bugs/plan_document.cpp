#include "verify/bugs/plan_document.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "core/base/json_text.hpp"
#include "core/base/text.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/bindings.hpp"

namespace mfsdp::bugs {
namespace {

/// Kinds of things with their list in the plan's JSON; units before groups, which are named so.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kKinds{
    {{"buffer", "buffers"},
     {"communicator", "communicators"},
     {"event", "events"},
     {"op", ""},
     {"pool", "pools"},
     {"stream", "streams"},
     {"unit", "units"},
     {"group", "groups"}}};

/// The kind of thing that an object {"<kind>": 3, "name": "..."} refers to; empty for others.
std::string_view kind_of(const nlohmann::json& value) {
  if (!value.is_object() || value.size() != 2 || !value.contains("name")) return {};
  for (const auto& [kind, list] : kKinds)
    if (const auto found = value.find(kind); found != value.end() && found->is_number_unsigned())
      return kind;
  return {};
}

/// A thing that is new to the plan.
Result<void> check_new(const nlohmann::json& thing, std::string_view kind,
                       const std::string& where) {
  const auto is = [&](const char* key, auto check) {
    const auto found = thing.find(key);
    return found != thing.end() && check(*found);
  };
  if (is("id", [](const auto& id) { return id.is_number_unsigned(); }) &&
      is("name", [](const auto& name) { return name.is_string(); }))
    return {};
  return fail(where,
              fmt::format("expected a new {} with id and name, got {}", kind, json_excerpt(thing)));
}

}  // namespace

PlanDocument::PlanDocument(const Program& program)
    : document_(Json::parse(to_canonical_json(program))) {
  for (const auto& [kind, list] : kKinds) {
    if (list.empty()) continue;
    for (const Json& thing : document_[list]) {
      const char* field = kind == "stream" ? "role" : kind == "communicator" ? "purpose" : "name";
      const std::string text = kind == "group"
                                   ? names_["unit"].by_id[thing["unit"].get<std::int64_t>()]
                                   : thing[field].get<std::string>();
      name(std::string(kind), thing["id"].get<std::int64_t>(), text);
    }
  }
  name_ops();
}

void PlanDocument::name(const std::string& kind, std::int64_t id, const std::string& name) {
  Names& names = names_[kind];
  std::string unique = name;
  for (int n = 2; names.by_name.contains(unique); ++n) unique = fmt::format("{} #{}", name, n);
  names.by_name[unique] = id;
  names.by_id[id] = unique;
}

void PlanDocument::name_ops() {
  for (const Json& plan : document_["plans"])
    for (const Json& segment : plan["segments"])
      for (const Json& op : segment["ops"])
        name("op", op["id"].get<std::int64_t>(),
             fmt::format("{}: {} {} ({})", segment["name"].get<std::string>(),
                         op["body"].begin().key(), op["name"].get<std::string>(),
                         names_["stream"].by_id[op["stream"].get<std::int64_t>()]));
}

std::optional<std::int64_t> PlanDocument::id_of(std::string_view kind,
                                                const std::string& name) const {
  const auto names = names_.find(kind);
  if (names == names_.end()) return std::nullopt;
  const auto found = names->second.by_name.find(name);
  return found == names->second.by_name.end() ? std::nullopt : std::optional(found->second);
}

Result<std::int64_t> PlanDocument::id_at(const Json& reference, const std::string& where) const {
  const std::string kind{kind_of(reference)};
  if (kind.empty() || !reference["name"].is_string())
    return fail(where, "expected an id and its name, {\"op\": 3, \"name\": \"...\"}, got " +
                           json_excerpt(reference));
  const std::int64_t id = reference[kind].get<std::int64_t>();
  const std::string name = reference["name"].get<std::string>();
  const auto names = names_.find(kind);
  const auto found = names == names_.end() ? std::map<std::int64_t, std::string>::const_iterator{}
                                           : names->second.by_id.find(id);
  const bool known = names != names_.end() && found != names->second.by_id.end();
  if (known && found->second == name) return id;
  const auto other = id_of(kind, name);
  return fail(where,
              fmt::format("{} {} is {}, expected \"{}\", which is {}", kind, id,
                          known ? fmt::format("\"{}\"", found->second) : "not in the plan",
                          printable(name), other ? fmt::format("{}", *other) : "not in it either"));
}

Result<PlanDocument::Position> PlanDocument::find(const Json& reference, const std::string& where,
                                                  bool must_be_op) {
  MFSDP_LET(id, id_at(reference, where));
  const std::string_view kind = kind_of(reference);
  const auto in = [&](Json& list) {
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i]["id"] == id) return Position{.list = &list, .index = i};
    return Position{};
  };
  if (must_be_op && kind != "op")
    return fail(where, "expected an op, got " + json_excerpt(reference));
  for (const auto& [known, list] : kKinds)
    if (known == kind && !list.empty())
      if (const Position found = in(document_[list]); found.list != nullptr) return found;
  if (kind == "op")
    for (Json& plan : document_["plans"])
      for (Json& segment : plan["segments"])
        if (const Position found = in(segment["ops"]); found.list != nullptr) return found;
  return fail(where, fmt::format("an edit before has dropped {} {}", kind, id));
}

Result<nlohmann::json> PlanDocument::with_ids(const Json& value, const std::string& where) const {
  if (!kind_of(value).empty()) {
    MFSDP_LET(id, id_at(value, where));
    return Json(static_cast<std::uint64_t>(id));
  }
  Json made = value;
  if (made.is_structured())
    for (auto& [key, child] : made.items()) {
      MFSDP_LET(resolved, with_ids(child, where));
      child = std::move(resolved);
    }
  return made;
}

Result<nlohmann::json> PlanDocument::patched(const Json& thing, const Edit& edit) const {
  MFSDP_LET(changes, with_ids(edit.changes, edit.where));
  try {
    Json changed = thing.patch(changes);
    if (changed.is_object() && changed.value("id", Json()) == thing["id"]) return changed;
    return fail(edit.where + ".with", "the patch takes away the id");
  } catch (const Json::exception& error) {
    return fail(edit.where + ".with", std::string("the patch does not fit: ") + error.what());
  }
}

Result<void> PlanDocument::insert(const Edit& edit, Json op) {
  MFSDP_LET(anchor, find(edit.anchor, edit.where, true));
  const auto place = static_cast<std::ptrdiff_t>(anchor.index) + (edit.after ? 1 : 0);
  anchor.list->insert(anchor.list->begin() + place, std::move(op));
  return {};
}

Result<void> PlanDocument::add(const Edit& edit) {
  for (const auto& [kind, list] : kKinds) {
    if (list.empty() || !edit.subject.is_object() || edit.subject.size() != 1) continue;
    const auto found = edit.subject.find(kind);
    if (found == edit.subject.end()) continue;
    MFSDP_LET(thing, with_ids(*found, edit.where));
    MFSDP_TRY(check_new(thing, kind, edit.where));
    name(std::string(kind), thing["id"].get<std::int64_t>(), thing["name"].get<std::string>());
    document_[list].push_back(std::move(thing));
    return {};
  }
  return fail(edit.where,
              "expected one thing to add, {\"buffer\": {...}}, got " + json_excerpt(edit.subject));
}

Result<void> PlanDocument::apply(const Edit& edit) {
  if (edit.kind == EditKind::add) return add(edit);
  if (edit.kind == EditKind::insert) {
    MFSDP_LET(op, with_ids(edit.subject, edit.where));
    MFSDP_TRY(check_new(op, "op", edit.where));
    return insert(edit, std::move(op));
  }
  MFSDP_LET(position, find(edit.subject, edit.where, edit.kind != EditKind::patch));
  Json thing = position.thing();
  if (edit.kind == EditKind::patch || edit.kind == EditKind::copy) {
    MFSDP_LET(changed, patched(thing, edit));
    thing = std::move(changed);
  }
  switch (edit.kind) {
    case EditKind::patch: position.thing() = std::move(thing); return {};
    case EditKind::copy: thing["id"] = edit.id; break;
    default: position.list->erase(position.index);
  }
  return edit.kind == EditKind::drop ? Result<void>{} : insert(edit, std::move(thing));
}

Result<Program> PlanDocument::program(const std::string& where) const {
  MFSDP_LET(program, unchecked_program_from_json(document_.dump(), where));
  for (Plan& plan : program.plans) resolve_bindings(plan);
  return std::move(program);
}

}  // namespace mfsdp::bugs
