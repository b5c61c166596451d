// Comma lists: one command line that stands for many.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp {

/// A flag that was given several values.
struct SweepAxis {
  std::string flag;
  std::vector<std::string> values;

  /// The flag without its dashes: "seq-len".
  [[nodiscard]] std::string name() const { return flag.substr(2); }
};

struct Sweep {
  std::vector<SweepAxis> axes;  ///< in the order in which they were given
  /// The arguments of every combination, as if each had been given alone; the last axis changes
  /// fastest. One where no flag has a list.
  std::vector<std::vector<std::string>> arguments;

  /// The values of combination i, one for each axis.
  [[nodiscard]] std::vector<std::string> values(std::size_t i) const;
  /// A combination's values as flags: "--gpus 8 --micro-batch 2". Empty ones are left out: of axes
  /// that the combination has no choice of.
  [[nodiscard]] std::string text(const std::vector<std::string>& chosen) const;
};

inline constexpr std::size_t kMostCombinations = 20'000;

/// The flags that take lists in mfsdp-sim.
[[nodiscard]] const std::vector<std::string>& swept_flags();

/// Splits the comma lists of those flags; a value that names an existing file is no list. Errors:
/// an empty or repeated value, more than kMostCombinations. Everything else is left for parse_flags
/// to judge.
[[nodiscard]] Result<Sweep> expand_lists(const std::vector<std::string>& args);

}  // namespace mfsdp
