// A row of the corpus as its file states it: a plan that is right, and the edits that bring the bug
// back.
//
//   {"row": 1, "title": "...", "thread": "NVIDIA/Megatron-LM#4435", "bug": "...",
//    "base": {"flags": ["--model", "llama_nano", ...], "plan_hash": "..."},
//    "broken": {"edits": [{"drop": {"op": 10, "name": "only: wait fresh.layers.0 (all_gather)"}}]},
//    "rules": ["MF101"]}
//
// scenarios/bugs/README.md describes every field.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp::bugs {

/// The plan that edits start from: built from common flags, or a file beside the row's.
struct BasePlan {
  std::vector<std::string> flags;
  std::optional<std::string> plan;  ///< path from the row's folder; no flags then
  std::string hash;                 ///< of the plan, so that its ids mean what they meant
};

enum class EditKind { add, copy, drop, insert, move, patch };

/// Things of the plan are objects {"op": 10, "name": "..."}: see plan_document.hpp.
struct Edit {
  EditKind kind = EditKind::drop;
  std::string where;       ///< of the edit: file and place
  nlohmann::json subject;  ///< what is copied, dropped, moved or patched; the new thing of the rest
  nlohmann::json anchor;   ///< the op beside which a copied, inserted or moved one goes
  bool after = false;      ///< the anchor, otherwise before it
  nlohmann::json changes;  ///< of a patch, and of a copy if there are any: JSON Patch, RFC 6902
  std::int64_t id = 0;     ///< of a copy
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
  /// The broken plan is that of some ranks beside others that run the base plan.
  bool some_ranks = false;
  std::vector<std::string> rules;  ///< errors that must fire, no others: ascending
  std::vector<std::string> notes;  ///< notes that must fire more often than on the base: ascending
};

/// Reads a row strictly; errors name the file and the place in it.
[[nodiscard]] Result<BugRow> read_bug_row(std::string_view text, const std::string& file);

}  // namespace mfsdp::bugs
