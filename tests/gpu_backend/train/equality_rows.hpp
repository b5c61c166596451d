// Results of combinations that must be equal, as rows of a table.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/gpu_backend/train/equality_cases.hpp"
#include "tests/gpu_backend/train/training.hpp"

namespace mfsdp::test {

inline std::uint64_t hash_of(const Weights& weights, std::uint64_t hash = 0xcbf29ce484222325U) {
  for (const auto& [name, values] : weights)
    for (const float value : values) {
      hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3U;  // FNV-1a, by words
      hash ^= hash >> 32U;
    }
  return hash;
}

/// "norm.weight[3]: 0.5 and 0.25", or nothing.
inline std::string first_difference(const Weights& a, const Weights& b) {
  for (const auto& [name, values] : a)
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!same_bits(values[i], b.at(name)[i]))
        return fmt::format("{}[{}]: {} and {}", name, i, values[i], b.at(name)[i]);
  return "no";
}

inline bool has_nan(const Weights& weights) {
  return std::ranges::any_of(weights, [](const auto& parameter) {
    return std::ranges::any_of(parameter.second, [](float value) { return std::isnan(value); });
  });
}

/// Why a run is no good in itself, or nothing.
inline std::string fault_of(const Told& told) {
  if (!told.end) return told.end.error().message();
  if (!told.torn.empty()) return "ranks hold different bits of " + *told.torn.begin();
  if (!told.allocated_as_planned) return "allocated other bytes than the plan's pools";
  if (has_nan(told.weights) || has_nan(told.computed) || has_nan(told.gradients))
    return "some element is with no rank, or not a number";
  return "";
}

/// Combinations that should come to the same; the first one stands for all.
struct Row {
  std::string name;
  PlanConfig config = {};
  Told first = {};
  std::int64_t combinations = 0;
  std::set<std::uint64_t> weights = {};    ///< distinct hashes, after the last step
  std::set<std::uint64_t> gradients = {};  ///< of the last step
  std::set<std::vector<double>> norms = {};
  double seconds = 0;
  std::string difference = {};  ///< in a combination whose weights are not the first one's
  double worst = 0;             ///< see ClassesGiveOneResultEachAndAreClose
};

inline Row row_of(const std::string& name, const PlanConfig& config, Told told, double seconds) {
  Row row{.name = name, .config = config, .combinations = 1, .seconds = seconds};
  row.weights.insert(hash_of(told.computed, hash_of(told.weights)));
  row.gradients.insert(hash_of(told.gradients));
  std::vector<double> norms;
  for (const StepReport& step : told.steps) norms.push_back(step.grad_norm);
  row.norms.insert(norms);
  row.first = std::move(told);
  return row;
}

inline void merge(Row& into, const Row& row) {
  if (into.combinations == 0) {
    into.config = row.config;
    into.first = row.first;
  }
  into.combinations += row.combinations;
  into.weights.insert(row.weights.begin(), row.weights.end());
  into.gradients.insert(row.gradients.begin(), row.gradients.end());
  into.norms.insert(row.norms.begin(), row.norms.end());
  into.seconds += row.seconds;
  if (into.weights.size() > 1 && into.difference.empty())
    into.difference =
        fmt::format("{}\n  and {}\n  weight {}\n  gradient {}", describe(row.config),
                    describe(into.config), first_difference(row.first.weights, into.first.weights),
                    first_difference(row.first.gradients, into.first.gradients));
}

inline void expect_one(const Row& row) {
  EXPECT_EQ(row.weights.size(), 1U) << row.name << ": " << row.difference;
  EXPECT_EQ(row.gradients.size(), 1U) << row.name << ": " << row.difference;
  EXPECT_EQ(row.norms.size(), 1U) << row.name << ": " << row.difference;
}

inline void print_header(std::string_view title) {
  fmt::print("\n{}\n{:<48}{:>13}{:>9}{:>11}{:>7}{:>12}{:>9}\n", title, "class", "combinations",
             "weights", "gradients", "norms", "difference", "seconds");
}

inline void print_row(const Row& row) {
  fmt::print("{:<48}{:>13}{:>9}{:>11}{:>7}{:>12}{:>9.1f}\n", row.name, row.combinations,
             row.weights.size(), row.gradients.size(), row.norms.size(),
             row.worst == 0 ? "none" : fmt::format("{:.3f}", row.worst), row.seconds);
}

}  // namespace mfsdp::test
