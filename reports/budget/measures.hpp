// What can be limited: one list for reading, checking and writing budgets. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reports/record/result.hpp"

namespace mfsdp {

enum class MeasureUnit { bytes, nanoseconds, count };

struct BudgetMeasure {
  std::string table;  ///< "memory.peak_categories"
  std::string name;   ///< "activation_bytes"
  MeasureUnit unit = MeasureUnit::count;
  std::int64_t value = 0;  ///< the run's

  [[nodiscard]] std::string key() const { return table + "." + name; }
};

/// Every measure of the run, tables together, in the order in which files are written.
[[nodiscard]] std::vector<BudgetMeasure> budget_measures(const RunFigures& run);

}  // namespace mfsdp
