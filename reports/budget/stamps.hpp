// The stamps that describe a budget's run: one list for reading, writing and comparing.
// Internal to this folder.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "reports/budget/budget.hpp"

namespace mfsdp {

struct StampKind {
  std::string key;
  std::string title;     ///< as messages call it
  bool integer = false;  ///< in the file; else text
  Breaks breaks = Breaks::everything;
  std::function<std::string(const RunResult&)> read;  ///< "" where the run has none
  std::optional<ResultFigure> figure = {};            ///< without which there is nothing to read
};

/// In the order in which files are written.
[[nodiscard]] const std::vector<StampKind>& stamp_kinds();

/// "line 3: cost model 1, now 2: times are not comparable".
[[nodiscard]] std::string mismatch_text(const StampMismatch& mismatch);

}  // namespace mfsdp
