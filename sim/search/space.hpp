// A search space: fields of a job, each with the values that a search tries.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "sim/search/prediction_requests.hpp"
#include "sim/search/setting.hpp"

namespace mfsdp {

struct SearchAxis {
  std::string flag;
  std::vector<Setting> values;  ///< at least one
  bool by_default = false;      ///< added by with_open_axes(), not asked for

  /// The flag without its dashes: "seq-len".
  [[nodiscard]] std::string name() const { return flag.substr(2); }
  /// "--gpus 8,16".
  [[nodiscard]] std::string text() const;
};

/// An axis of these values, at least one. Not for fields whose values have different types.
[[nodiscard]] SearchAxis axis(std::string_view flag, const auto& values) {
  return {.flag = std::string(flag), .values = settings(flag, values)};
}

/// All combinations of the axes' values. An axis of one value sets its field, and is not reported
/// as varied.
struct SearchSpace {
  std::vector<SearchAxis> axes;

  /// How many combinations there are: 1 without axes.
  [[nodiscard]] std::size_t size() const;
  /// The settings of combination i, one for each axis; the last axis changes fastest.
  [[nodiscard]] std::vector<Setting> combination(std::size_t i) const;
  /// The axis of that flag, or null.
  [[nodiscard]] const SearchAxis* find(std::string_view flag) const;
};

/// Whether neither the job nor the space sets the field, so that a search may choose it.
[[nodiscard]] bool is_open(const JobOptions& job, const SearchSpace& space, std::string_view flag);

}  // namespace mfsdp
