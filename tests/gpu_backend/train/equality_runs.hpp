// Runs combinations that should come to the same, and puts them together.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu_backend/train/equality_rows.hpp"
#include "tests/support/samples.hpp"

namespace mfsdp::test {

inline constexpr std::int64_t kFewSteps = kOneCase ? 2 : 4;

inline std::int64_t steps() { return runs_all() ? 20 : kFewSteps; }

/// Calls work(i) for i in [0, count) on two threads: ranks and streams are threads themselves, but
/// small meshes leave a core idle.
inline void for_each_on_two_threads(std::size_t count,
                                    const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto serve = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  const std::jthread other(serve);
  serve();
}

/// Runs `steps` steps of the combinations and groups the results by class, in the order of the
/// classes' names.
inline std::vector<Row> run_all(const std::vector<PlanConfig>& configs, const Dataset& data,
                                std::int64_t count = steps()) {
  std::map<std::string, Row> rows;
  std::mutex mutex;
  for_each_on_two_threads(configs.size(), [&](std::size_t i) {
    const auto begin = std::chrono::steady_clock::now();
    Told told = train(configs[i], count, data);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    const std::string fault = fault_of(told);
    const Row one = row_of(class_of(configs[i]), configs[i], std::move(told), taken.count());
    const std::scoped_lock lock(mutex);
    EXPECT_EQ(fault, "") << describe(configs[i]);
    if (!fault.empty()) return;
    merge(rows.try_emplace(one.name, Row{.name = one.name}).first->second, one);
  });
  std::vector<Row> sorted;
  for (auto& [name, row] : rows) sorted.push_back(std::move(row));
  return sorted;
}

/// The samples of another dataset's order, from number `first` on.
class Later final : public Dataset {
 public:
  Later(const Dataset& all, std::uint64_t seed, std::int64_t first, std::int64_t count)
      : all_(all) {
    for (std::int64_t i = 0; i < count; ++i)
      instead_[shuffled_sample(seed, i, samples())] = shuffled_sample(seed, first + i, samples());
  }

  [[nodiscard]] std::string describe() const override { return "later " + all_.describe(); }
  [[nodiscard]] std::int64_t samples() const override { return all_.samples(); }
  [[nodiscard]] std::optional<double> unigram_entropy() const override { return std::nullopt; }
  [[nodiscard]] Result<void> read(std::int64_t index, const SampleSpans& out) const override {
    return all_.read(instead_.at(index), out);
  }

 private:
  const Dataset& all_;
  std::map<std::int64_t, std::int64_t> instead_;
};

/// By parameter and element: how far sums of the same parts in other orders may be apart.
using Bounds = std::map<std::string, std::vector<double>>;

/// Adds the share of one of `parts`: parts 2^-23 |g|.
inline void widen(Bounds& bounds, const Weights& part, std::int64_t parts) {
  for (const auto& [name, gradients] : part) {
    std::vector<double>& to = bounds[name];
    to.resize(gradients.size());
    for (std::size_t i = 0; i < gradients.size(); ++i)
      to[i] += std::fabs(double{gradients[i]}) * static_cast<double>(parts) * 0x1p-23;
  }
}

/// The largest |a - b| / bound; infinite where elements differ whose bound is 0.
inline double worst_ratio(const Weights& a, const Weights& b, const Bounds& bounds) {
  double worst = 0;
  for (const auto& [name, values] : a)
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double difference = std::fabs(double{values[i]} - double{b.at(name)[i]});
      if (difference > 0) worst = std::max(worst, difference / bounds.at(name)[i]);
    }
  return worst;
}

}  // namespace mfsdp::test
