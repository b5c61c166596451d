#include "verify/mutation/field_mutants.hpp"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "core/plan/name_choices.hpp"

namespace mfsdp {
namespace {

using PlanJson = nlohmann::json;

/// A value in the document, or the place of one that is left out.
struct Slot {
  PlanJson::json_pointer parent;
  std::string key;        ///< of an object; an index of a list
  std::string place;      ///< for people
  bool is_entry = false;  ///< of a list
  const PlanJson* value = nullptr;
  std::size_t entries = 0;  ///< of the list

  [[nodiscard]] PlanJson::json_pointer pointer() const { return parent / key; }
};

struct Field {
  std::vector<Slot> present;
  std::vector<Slot> absent;  ///< places of the same objects that leave it out
};

using Fields = std::map<std::string, Field>;

/// The kind or role that an object states, where objects at one path are of several kinds.
std::string label_of(const PlanJson& node) {
  if (!node.is_object()) return {};
  for (const char* says : {"kind", "role"})
    if (node.contains(says) && node[says].is_string())
      return "{" + node[says].get<std::string>() + "}";
  // A name with a value, such as an attribute, which may have steps by rank.
  if (node.size() == (node.contains("per") ? 3 : 2) && node.contains("name") &&
      node.contains("value"))
    return "{" + node["name"].dump() + "}";
  // One of several alternatives, named by its only key.
  for (const auto& [key, member] : node.items())
    if (member.is_object() && member.size() == 1 && member.begin()->is_object())
      return "{" + member.begin().key() + "}";
  return {};
}

/// Collects slots by field, and the objects of each path by the keys that they have.
class Walk {
 public:
  explicit Walk(const PlanJson& plan) {
    visit(plan, PlanJson::json_pointer(), "", "");
    for (const auto& [path, kind] : kinds_) add_absent(path, kind);
  }

  [[nodiscard]] Fields& fields() { return fields_; }

 private:
  struct Object {
    PlanJson::json_pointer pointer;
    std::string place;
    const PlanJson* value;
  };
  struct Kind {
    std::set<std::string> keys;
    std::vector<Object> objects;
  };

  void visit(const PlanJson& node, const PlanJson::json_pointer& at, const std::string& path,
             const std::string& place) {
    if (node.is_object()) {
      Kind& kind = kinds_[path];
      kind.objects.push_back({at, place, &node});
      for (const auto& [key, member] : node.items()) {
        kind.keys.insert(key);
        const std::string dot = path.empty() ? "" : ".";
        const std::string member_place = place + dot + key;
        fields_[path + dot + key].present.push_back(
            {.parent = at, .key = key, .place = member_place, .value = &member});
        visit(member, at / key, path + dot + key + (member.is_object() ? label_of(member) : ""),
              member_place);
      }
    } else if (node.is_array()) {
      for (std::size_t i = 0; i < node.size(); ++i) {
        const std::string entry_path = path + "[]" + label_of(node[i]);
        const std::string entry_place = fmt::format("{}[{}]", place, i);
        fields_[entry_path].present.push_back({.parent = at,
                                               .key = std::to_string(i),
                                               .place = entry_place,
                                               .is_entry = true,
                                               .value = &node[i],
                                               .entries = node.size()});
        visit(node[i], at / i, entry_path, entry_place);
      }
    }
  }

  void add_absent(const std::string& path, const Kind& kind) {
    const std::string dot = path.empty() ? "" : ".";
    for (const std::string& key : kind.keys)
      for (const Object& object : kind.objects)
        if (!object.value->contains(key))
          fields_[path + dot + key].absent.push_back(
              {.parent = object.pointer, .key = key, .place = object.place + dot + key});
  }

  Fields fields_;
  std::map<std::string, Kind> kinds_;
};

std::string shortened(const PlanJson& value) {
  constexpr std::size_t kMost = 60;
  if (value.is_structured() && value.size() > kMost)
    return fmt::format("{} of {} entries", value.is_array() ? "a list" : "an object", value.size());
  std::string text = value.dump();
  if (text.size() > kMost) text = text.substr(0, kMost - 3) + "...";
  return text;
}

PlanJson change(const char* op, const PlanJson::json_pointer& at, const PlanJson& value) {
  return {{"op", op}, {"path", at.to_string()}, {"value", value}};
}

/// Draws changes of one field.
class Draw {
 public:
  Draw(const PlanJson& plan, std::string name, const Field& field, std::uint64_t seed)
      : plan_(plan), name_(std::move(name)), field_(field), random_(seed) {
    for (const char c : name_) random_.seed(random_() ^ static_cast<unsigned char>(c));
  }

  /// Goes round the edits that the field's values have, so that each comes; ends where nothing new
  /// is found.
  std::vector<FieldMutant> take(std::size_t most) {
    constexpr std::size_t kTriesEach = 12;
    std::vector<FieldMutant> list;
    std::set<std::string> known;
    const std::size_t first = random_() % 64;  // so that few changes are not all of one edit
    for (std::size_t turn = 0; list.size() < most && turn < most * kTriesEach; ++turn) {
      auto mutant = try_one(first + turn);
      if (mutant && known.insert(mutant->patch).second) list.push_back(std::move(*mutant));
    }
    return list;
  }

 private:
  const Slot& any(const std::vector<Slot>& slots) { return slots[random_() % slots.size()]; }

  static std::vector<FieldEdit> edits_of(const Slot& slot) {
    using enum FieldEdit;
    std::vector<FieldEdit> edits{drop, copy, exchange};
    if (slot.is_entry) edits.push_back(twice_there);
    const PlanJson& value = *slot.value;
    if (value.is_boolean()) edits.push_back(flip);
    if (value.is_array() || value.is_string()) edits.push_back(empty);
    if (value.is_string() && name_choices().contains(value.get<std::string>()))
      edits.insert(edits.end(), {rename, rename, rename});
    if (value.is_number_integer())
      for (const FieldEdit edit :
           {zero, one, minus_one, one_more, one_less, doubled, halved, two_to_31, two_to_63_less_1})
        edits.push_back(edit);
    return edits;
  }

  std::optional<FieldMutant> try_one(std::size_t turn) {
    // One turn in eight gives the field to an object without it.
    if (!field_.absent.empty() && turn % 8 == 7) return added(any(field_.absent));
    const Slot& slot = any(field_.present);
    const std::vector<FieldEdit> edits = edits_of(slot);
    return altered(slot, edits[turn % edits.size()]);
  }

  FieldMutant made(const Slot& slot, FieldEdit edit, const PlanJson& patch) const {
    return {.number = 0,
            .field = name_,
            .place = slot.place,
            .edit = edit,
            .before = slot.value == nullptr ? "" : shortened(*slot.value),
            .after = {},
            .patch = patch.dump()};
  }

  std::optional<FieldMutant> added(const Slot& slot) {
    const PlanJson& value = *any(field_.present).value;
    FieldMutant mutant =
        made(slot, FieldEdit::add, PlanJson::array({change("add", slot.pointer(), value)}));
    mutant.after = shortened(value);
    return mutant;
  }

  std::optional<FieldMutant> replaced(const Slot& slot, FieldEdit edit,
                                      const PlanJson& value) const {
    if (value == *slot.value) return std::nullopt;
    FieldMutant mutant =
        made(slot, edit, PlanJson::array({change("replace", slot.pointer(), value)}));
    mutant.after = shortened(value);
    return mutant;
  }

  std::optional<FieldMutant> exchanged(const Slot& slot) {
    PlanJson::json_pointer other_at;
    if (slot.is_entry) {
      other_at = slot.parent / (random_() % slot.entries);
    } else {
      other_at = any(field_.present).pointer();
    }
    const PlanJson& other = plan_.at(other_at);
    if (other == *slot.value) return std::nullopt;
    FieldMutant mutant = made(slot, FieldEdit::exchange,
                              PlanJson::array({change("replace", slot.pointer(), other),
                                               change("replace", other_at, *slot.value)}));
    mutant.after = fmt::format("{} of {}", shortened(other), other_at.to_string());
    return mutant;
  }

  std::optional<FieldMutant> altered(const Slot& slot, FieldEdit edit) {
    const PlanJson& value = *slot.value;
    switch (edit) {
      case FieldEdit::drop:
        return made(slot, edit,
                    PlanJson::array({{{"op", "remove"}, {"path", slot.pointer().to_string()}}}));
      case FieldEdit::add: return std::nullopt;
      case FieldEdit::twice_there: {
        FieldMutant mutant =
            made(slot, edit, PlanJson::array({change("add", slot.pointer(), value)}));
        mutant.after = mutant.before;
        return mutant;
      }
      case FieldEdit::copy: return replaced(slot, edit, *any(field_.present).value);
      case FieldEdit::exchange: return exchanged(slot);
      case FieldEdit::empty:
        return replaced(slot, edit, value.is_array() ? PlanJson::array() : PlanJson(""));
      case FieldEdit::flip: return replaced(slot, edit, !value.get<bool>());
      case FieldEdit::rename: {
        const std::vector<std::string>& names = name_choices().at(value.get<std::string>());
        return replaced(slot, edit, names[random_() % names.size()]);
      }
      default: return replaced(slot, edit, number(value.get<std::int64_t>(), edit));
    }
  }

  static std::int64_t number(std::int64_t value, FieldEdit edit) {
    constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
    switch (edit) {
      case FieldEdit::zero: return 0;
      case FieldEdit::one: return 1;
      case FieldEdit::minus_one: return -1;
      case FieldEdit::one_more: return value == kLargest ? value : value + 1;
      case FieldEdit::one_less: return value == -kLargest ? value : value - 1;
      case FieldEdit::doubled: return value > kLargest / 2 ? kLargest : value * 2;
      case FieldEdit::halved: return value / 2;
      case FieldEdit::two_to_31: return std::int64_t{1} << 31U;
      default: return kLargest;
    }
  }

  const PlanJson& plan_;
  std::string name_;
  const Field& field_;
  std::mt19937_64 random_;
};

}  // namespace

FieldMutants field_mutants(const PlanJson& plan, std::size_t per_field, std::uint64_t seed) {
  Walk walk(plan);
  FieldMutants all;
  all.fields = std::ssize(walk.fields());
  for (const auto& [name, field] : walk.fields())
    for (FieldMutant& mutant : Draw(plan, name, field, seed).take(per_field)) {
      mutant.number = std::ssize(all.list);
      all.list.push_back(std::move(mutant));
    }
  return all;
}

std::string altered_text(const PlanJson& plan, const FieldMutant& mutant) {
  return plan.patch(PlanJson::parse(mutant.patch)).dump();
}

}  // namespace mfsdp
