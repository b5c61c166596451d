// Every way to train a model on the GPUs there are comes to the same weights: bit for bit with
// --exact-sums, and without within the classes that add in one order. NCCL's all-reduce adds in
// another order than its reduce-scatter, so that no_shard, which alone reduces by the former, is a
// class of its own; so are symmetric reductions and those by copy engines, which add in the order
// of ranks.
//
// By default every seventh combination is run; MFSDP_EQUALITY=full runs all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpu_backend/cuda/device.hpp"
#include "tests/gpu_backend/cuda/device/cuda_ranks.hpp"
#include "tests/gpu_backend/train/equality_rows.hpp"

namespace mfsdp::cuda {
namespace {

using test::Row;

constexpr std::int64_t kEqualitySteps = 3;

std::vector<PlanConfig> that_fit_here(std::vector<PlanConfig> configs) {
  const std::int64_t gpus = count_devices().value_or(0);
  std::erase_if(configs, [&](const PlanConfig& config) { return config.mesh.world_size() > gpus; });
  for (PlanConfig& config : configs) config.deterministic = true;
  return configs;
}

std::string class_of(const PlanConfig& config) {
  if (config.mesh.size(Axis::dp_shard) == 1) return test::class_of(config);
  const bool scatters = config.strategy >= Strategy::optim_grads;
  return fmt::format("{}, {}", test::class_of(config),
                     !scatters                          ? "all-reduce"
                     : config.reduce == Transport::nccl ? "reduce-scatter"
                                                        : to_string(config.reduce));
}

/// Runs the combinations and puts them together by class.
std::map<std::string, Row> run_all(const std::vector<PlanConfig>& configs) {
  std::map<std::string, Row> rows;
  for (const PlanConfig& config : configs) {
    const test::Skewed data(config.model.vocab, test::kGlobalBatch * kEqualitySteps);
    const auto begin = std::chrono::steady_clock::now();
    CudaTold told = train_on_gpus(config, kEqualitySteps, data);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(test::fault_of(told), "") << test::describe(config);
    if (!test::fault_of(told).empty()) continue;
    const std::string name = class_of(config);
    const Row one = test::row_of(name, config, std::move(told), taken.count());
    merge(rows.try_emplace(name, Row{.name = name}).first->second, one);
  }
  return rows;
}

TEST(CudaEquality, ClassesGiveOneResultEach) {
  set_environment();
  test::print_header("--deterministic on GPUs; distinct weights, gradients and norms");
  for (const auto& [name, row] : run_all(that_fit_here(test::combinations(test::nano().model)))) {
    test::print_row(row);
    test::expect_one(row);
  }
}

TEST(CudaEquality, ExactSumsGiveOneResult) {
  set_environment();
  std::vector<PlanConfig> configs = that_fit_here(test::combinations(test::nano().model));
  for (PlanConfig& config : configs) config.exact_sums = true;
  Row all{.name = "all of them"};
  test::print_header("--exact-sums on GPUs; distinct weights, gradients and norms");
  for (const auto& [name, row] : run_all(configs)) {
    test::print_row(row);
    merge(all, row);
  }
  test::print_row(all);
  test::expect_one(all);
  EXPECT_EQ(all.combinations, std::ssize(configs));
  ASSERT_FALSE(all.first.steps.empty());
  EXPECT_LT(all.first.steps.back().loss, all.first.steps.front().loss);
}

}  // namespace
}  // namespace mfsdp::cuda
