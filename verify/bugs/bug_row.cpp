#include "verify/bugs/bug_row.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "core/base/text.hpp"
#include "verify/bugs/plan_names.hpp"
#include "verify/findings/finding.hpp"

namespace mfsdp::bugs {
namespace {

using Json = nlohmann::json;

/// The fields of one object. Each is read once; a field that is never read is an error.
class Fields {
 public:
  static Result<Fields> of(const Json& node, std::string where) {
    if (!node.is_object()) return fail(where, "expected an object, got " + json_excerpt(node));
    return Fields(node, std::move(where));
  }

  [[nodiscard]] std::string place(std::string_view key) const {
    return where_.empty() || where_.back() == ' ' ? where_ + std::string(key)
                                                  : fmt::format("{}.{}", where_, key);
  }
  const Json* find(std::string_view key) {
    asked_.emplace_back(key);
    const auto found = node_->find(key);
    return found == node_->end() ? nullptr : &*found;
  }
  Result<const Json*> need(std::string_view key) {
    if (const Json* found = find(key)) return found;
    return fail(place(key), "missing");
  }
  Result<std::string> text(std::string_view key) {
    MFSDP_LET(found, need(key));
    if (!found->is_string() || found->get_ref<const std::string&>().empty())
      return fail(place(key), "expected a text, got " + json_excerpt(*found));
    return found->get<std::string>();
  }
  Result<std::int64_t> integer(std::string_view key) {
    MFSDP_LET(found, need(key));
    constexpr std::uint64_t kLargest = 0xffff'ffff;
    if (!found->is_number_unsigned() || found->get<std::uint64_t>() > kLargest)
      return fail(place(key), fmt::format("expected an integer from 0 to {}, got {}", kLargest,
                                          json_excerpt(*found)));
    return found->get<std::int64_t>();
  }
  /// Empty if the field is missing.
  Result<std::vector<std::string>> texts(std::string_view key) {
    const Json* found = find(key);
    std::vector<std::string> list;
    if (found == nullptr) return list;
    if (!found->is_array() || found->empty() ||
        !std::ranges::all_of(*found, [](const Json& item) { return item.is_string(); }))
      return fail(place(key), "expected a list of texts, got " + json_excerpt(*found));
    for (const Json& item : *found) list.push_back(item.get<std::string>());
    return list;
  }
  [[nodiscard]] Result<void> nothing_else() const {
    for (const auto& [key, unused] : node_->items())
      if (std::ranges::find(asked_, key) == asked_.end())
        return fail(place(printable(key)), "unknown key");
    return {};
  }

 private:
  Fields(const Json& node, std::string where) : node_(&node), where_(std::move(where)) {}

  const Json* node_;
  std::string where_;
  std::vector<std::string> asked_;
};

Result<BasePlan> read_base(const Json& node, const std::string& where) {
  MFSDP_LET(fields, Fields::of(node, where));
  BasePlan base;
  MFSDP_SET(base.hash, fields.text("plan_hash"));
  if (fields.find("plan") != nullptr) {
    MFSDP_SET(base.plan, fields.text("plan"));
  } else {
    MFSDP_SET(base.flags, fields.texts("flags"));
    if (base.flags.empty()) return fail(where, "expected flags of a plan, or a plan's file");
  }
  MFSDP_TRY(fields.nothing_else());
  return base;
}

constexpr std::array<std::pair<std::string_view, EditKind>, 6> kEdits{{{"add", EditKind::add},
                                                                       {"copy", EditKind::copy},
                                                                       {"drop", EditKind::drop},
                                                                       {"insert", EditKind::insert},
                                                                       {"move", EditKind::move},
                                                                       {"patch", EditKind::patch}}};

Result<Thing> need_thing(const Json& node, const std::string& where) {
  if (auto thing = read_thing(node)) return *std::move(thing);
  return fail(where, "expected an id and its name, {\"op\": 3, \"name\": \"...\"}, got " +
                         json_excerpt(node));
}

Result<void> read_anchor(Fields& fields, Edit& edit) {
  const Json* after = fields.find("after");
  const Json* before = fields.find("before");
  if ((after == nullptr) == (before == nullptr))
    return fail(edit.where, "expected either after or before");
  edit.after = after != nullptr;
  MFSDP_SET(edit.anchor, need_thing(edit.after ? *after : *before,
                                    fields.place(edit.after ? "after" : "before")));
  return {};
}

/// The key of an edit that names its kind; there must be exactly one.
Result<std::pair<std::string, const Json*>> read_kind(Fields& fields, Edit& edit) {
  std::pair<std::string, const Json*> subject{"", nullptr};
  for (const auto& [name, kind] : kEdits)
    if (const Json* found = fields.find(name)) {
      if (subject.second != nullptr) return fail(edit.where, "expected one edit");
      subject = {std::string(name), found};
      edit.kind = kind;
    }
  if (subject.second == nullptr)
    return fail(edit.where, "expected one of add, copy, drop, insert, move or patch");
  return subject;
}

Result<Edit> read_edit(const Json& node, const std::string& where) {
  MFSDP_LET(fields, Fields::of(node, where));
  Edit edit;
  edit.where = where;
  if (fields.find("class") != nullptr) MFSDP_SET(edit.role, fields.text("class"));
  MFSDP_LET(kind, read_kind(fields, edit));
  const auto& [name, subject] = kind;
  const bool copies = edit.kind == EditKind::copy;
  const bool inserts = edit.kind == EditKind::insert;
  if (inserts || edit.kind == EditKind::add) {
    edit.value = subject->dump();
  } else {
    MFSDP_SET(edit.subject, need_thing(*subject, fields.place(name)));
  }
  if (copies || inserts || edit.kind == EditKind::move) MFSDP_TRY(read_anchor(fields, edit));
  if (copies) MFSDP_SET(edit.id, fields.integer("id"));
  if (copies || edit.kind == EditKind::patch) {
    const Json* changes = fields.find("with");
    if (changes == nullptr && !copies) return fail(fields.place("with"), "missing");
    if (changes != nullptr && !changes->is_array())
      return fail(fields.place("with"), "expected a JSON Patch, got " + json_excerpt(*changes));
    edit.value = changes == nullptr ? "[]" : changes->dump();
  }
  MFSDP_TRY(fields.nothing_else());
  return edit;
}

Result<void> read_broken(const Json& node, const std::string& where, BugRow& row) {
  MFSDP_LET(fields, Fields::of(node, where));
  if (const Json* base = fields.find("base"))
    MFSDP_SET(row.broken_base, read_base(*base, fields.place("base")));
  if (const Json* ranks = fields.find("ranks")) {
    row.some_ranks = *ranks == "some";
    if (!row.some_ranks)
      return fail(fields.place("ranks"), "expected \"some\", got " + json_excerpt(*ranks));
  }
  if (const Json* edits = fields.find("edits")) {
    if (!edits->is_array())
      return fail(fields.place("edits"), "expected a list, got " + json_excerpt(*edits));
    for (std::size_t i = 0; i < edits->size(); ++i) {
      MFSDP_LET(edit, read_edit((*edits)[i], fmt::format("{}[{}]", fields.place("edits"), i)));
      row.edits.push_back(std::move(edit));
    }
  }
  if (row.edits.empty() && !row.broken_base)
    return fail(where, "expected edits, or a separate base");
  return fields.nothing_else();
}

Result<std::vector<std::string>> read_rules(Fields& fields, std::string_view key,
                                            Severity severity) {
  MFSDP_LET(rules, fields.texts(key));
  for (const std::string& rule : rules)
    if (const RuleInfo* known = find_rule(rule); known == nullptr || known->severity != severity)
      return fail(fields.place(key), fmt::format("expected rules of severity {}, got \"{}\"",
                                                 to_string(severity), printable(rule)));
  if (!std::ranges::is_sorted(rules, std::less_equal{}))
    return fail(fields.place(key), "expected rules in ascending order, each once");
  return std::move(rules);
}

/// "owner/repository#12", as GitHub writes it.
bool is_thread(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::size_t hash = text.find('#');
  if (slash == 0 || slash == std::string_view::npos || hash == std::string_view::npos) return false;
  const std::string_view number = text.substr(hash + 1);
  return hash > slash + 1 && !number.empty() &&
         number.find_first_not_of("0123456789") == std::string_view::npos;
}

/// "05-name.json" is row 5.
Result<void> check_file_name(const BugRow& row) {
  const std::string name = row.file.substr(row.file.find_last_of('/') + 1);
  if (name.starts_with(fmt::format("{:02}-", row.number))) return {};
  return fail(
      row.file + ": row",
      fmt::format("expected the number that the file's name begins with, got {}", row.number));
}

}  // namespace

std::optional<Thing> read_thing(const Json& value) {
  if (!value.is_object() || value.size() != 2) return std::nullopt;
  const auto name = value.find("name");
  if (name == value.end() || !name->is_string()) return std::nullopt;
  for (const std::string_view kind : thing_kinds())
    if (const auto id = value.find(kind); id != value.end() && id->is_number_unsigned())
      return Thing{.kind = std::string(kind),
                   .id = id->get<std::int64_t>(),
                   .name = name->get<std::string>()};
  return std::nullopt;
}

Result<BugRow> read_bug_row(std::string_view text, const std::string& file) {
  MFSDP_LET(document, parse_json(text, file));
  MFSDP_LET(fields, Fields::of(document, file + ": "));
  BugRow row;
  row.file = file;
  MFSDP_SET(row.number, fields.integer("row"));
  MFSDP_TRY(check_file_name(row));
  for (auto [key, field] : {std::pair{"title", &row.title}, std::pair{"thread", &row.thread},
                            std::pair{"bug", &row.bug}}) {
    MFSDP_SET(*field, fields.text(key));
  }
  if (!is_thread(row.thread))
    return fail(fields.place("thread"),
                fmt::format("expected owner/repository#number, got \"{}\"", printable(row.thread)));
  MFSDP_LET(base, fields.need("base"));
  MFSDP_SET(row.base, read_base(*base, fields.place("base")));
  MFSDP_LET(broken, fields.need("broken"));
  MFSDP_TRY(read_broken(*broken, fields.place("broken"), row));
  MFSDP_SET(row.rules, read_rules(fields, "rules", Severity::error));
  MFSDP_SET(row.notes, read_rules(fields, "notes", Severity::note));
  if (row.rules.empty() && row.notes.empty())
    return fail(fields.place("rules"), "expected at least one rule or note");
  MFSDP_TRY(fields.nothing_else());
  return row;
}

}  // namespace mfsdp::bugs
