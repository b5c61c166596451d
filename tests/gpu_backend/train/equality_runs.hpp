// Runs combinations that should come to the same, and puts them together.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
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

inline constexpr std::int64_t kFewSteps = kThinner > 1 ? 2 : 4;

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

/// Runs so many steps of the combinations and puts them together by class, in the order of the
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

}  // namespace mfsdp::test
