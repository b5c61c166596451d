// A row of the corpus, as in its file: a correct plan, and the edits that reproduce the bug.
//
//   {"row": 1, "title": "...", "thread": "NVIDIA/Megatron-LM#4435", "bug": "...",
//    "base": {"flags": ["--model", "llama_nano", ...], "plan_hash": "..."},
//    "broken": {"edits": [{"drop": {"op": 10, "name": "only: wait fresh.layers.0 (all_gather)"}}]},
//    "rules": ["MF101"]}
//
// scenarios/bugs/README.md describes every field.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "verify/bugs/base_plan.hpp"

namespace mfsdp::bugs {

/// An object of a plan, {"op": 10, "name": "..."}: see plan_names.hpp.
struct Thing {
  std::string kind;
  std::int64_t id = 0;
  std::string name;
};

/// None if the value is not an object with a kind and a name.
[[nodiscard]] std::optional<Thing> read_thing(const nlohmann::json& value);

enum class EditKind { add, copy, drop, insert, move, patch };

struct Edit {
  EditKind kind = EditKind::drop;
  std::optional<std::string> role{};  ///< the class of ranks whose plan it changes; none: of all
  std::string where;                  ///< of the edit: file and place
  Thing subject;                      ///< what is copied, dropped, moved or patched
  Thing anchor;         ///< the op before or after which the copied, inserted or moved op is placed
  bool after = false;   ///< after the anchor; otherwise before it
  std::int64_t id = 0;  ///< of the copy
  /// JSON: the op to insert, {"buffer": {...}} to add, or the changes of a patch or copy as JSON
  /// Patch (RFC 6902). Things in it stand for their ids.
  std::string value;
};

struct BugRow {
  std::int64_t number = 0;  ///< of the catalogue
  std::string file;
  std::string title;
  std::string thread;  ///< where the bug was reported: "NVIDIA/Megatron-LM#4435"
  std::string bug;     ///< what went wrong
  BasePlan base;
  std::optional<BasePlan> broken_base;  ///< what the broken plan starts from, if not `base`
  std::vector<Edit> edits;
  /// Some ranks run the broken plan, the others the base plan.
  bool some_ranks = false;
  std::vector<std::string> rules;  ///< errors that must fire, no others: ascending
  std::vector<std::string> notes;  ///< notes that must fire more often than on the base: ascending
};

/// Reads a row strictly; errors name the file and the place in it.
[[nodiscard]] Result<BugRow> read_bug_row(std::string_view text, const std::string& file);

}  // namespace mfsdp::bugs
