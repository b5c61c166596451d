// Requests as a sweep makes them: many at once, with one cost model and one cache.
#include "sim/predict/prediction_request.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "core/model/hf_config.hpp"
#include "sim/search/parallel.hpp"
#include "tests/support/scenarios.hpp"

namespace mfsdp {
namespace {

using test::kScenarios;

/// Llama-nano on 8 H100, by micro-batch.
std::shared_ptr<const CostModel> costs_of(const char* name) {
  const auto gpu = load_gpu(name, kScenarios / "gpus");
  return std::make_shared<const CostModel>(make_cost_model(*make_cluster(*gpu, 8, 8)).value());
}

std::vector<PredictionRequest> requests(std::int64_t count) {
  const auto costs = costs_of("h100");
  const auto cache = std::make_shared<AllocationCache>();
  std::vector<PredictionRequest> all;
  for (std::int64_t i = 0; i < count; ++i) {
    PredictionRequest request;
    request.config.model = load_model("llama_nano", kScenarios / "models")->shape;
    request.config.mesh.resize(Axis::dp_shard, 8);
    request.config.seq_len = 64;
    request.config.micro_batch = 1 + i % 5;
    request.costs = costs;
    request.cache = cache;
    all.push_back(std::move(request));
  }
  return all;
}

/// The model is like those of measured runs, so that memory of engines has a band.
PredictionRequest measured_request() {
  PredictionRequest request = requests(1).front();
  request.config.model = load_model("llama3_1b", kScenarios / "models")->shape;
  request.own_runs =
      std::make_shared<const OwnRuns>(load_own_runs(kScenarios / "fidelity").value());
  return request;
}

TEST(PredictionRequest, AnswersAreTheSameOnManyThreads) {
  const std::vector<PredictionRequest> all = requests(40);
  std::vector<std::pair<std::string, Nanos>> alone;
  for (const PredictionRequest& request : requests(5)) {
    const auto prediction = predict(request);
    ASSERT_TRUE(prediction) << prediction.error().message();
    alone.emplace_back(prediction->run.plan_hash, prediction->run.time.step);
  }
  run_in_parallel(
      all.size(), 4,
      [&](std::size_t i) {
        const auto prediction = predict(all[i]);
        return std::pair(prediction->run.plan_hash, prediction->run.time.step);
      },
      [&](std::size_t i, std::pair<std::string, Nanos> answered) {
        EXPECT_EQ(answered, alone[i % 5]);
        return true;
      });
}

TEST(PredictionRequest, FitsIsDecidedByPoolsRuntimeAndReserve) {
  PredictionRequest request = requests(1).front();
  const auto ready = with_program(request);
  ASSERT_TRUE(ready);
  const Program& program = *ready->program;
  const Gpu& gpu = request.costs->cluster().gpu;
  const Footprint memory = footprint(program, gpu);
  Bytes pools;
  for (const Pool& pool : program.pools)
    if (pool.space == MemorySpace::device) pools += pool.height;
  EXPECT_EQ(memory.allocated, pools + runtime_bytes(gpu, std::ssize(program.communicators)));
  EXPECT_LE(memory.least, memory.allocated);
  request.reserve = gpu.capacity - memory.allocated;  // to the byte
  EXPECT_TRUE(predict(request)->run.memory.fits);
  EXPECT_EQ(predict(request)->run.memory.headroom, Bytes(0));
  request.reserve += Bytes(1);
  EXPECT_FALSE(predict(request)->run.memory.fits);
}

/// For another engine, the reserved bytes of its allocator decide, if they fit.
TEST(PredictionRequest, AnEnginesVerdictIsItsAllocators) {
  PredictionRequest request = measured_request();
  request.engine = EngineKind::fsdp2;
  const auto config = engine_config(request.engine, request.config);
  ASSERT_TRUE(config) << config.error().message();
  request.config = *config;
  const auto free = predict(request);
  ASSERT_TRUE(free) << free.error().message();
  const MemorySummary& memory = free->run.memory;
  ASSERT_TRUE(memory.cached);
  const Bytes outside = memory.deciding() - memory.cached->reserved;
  EXPECT_EQ(free->run.engine, "fsdp2");
  EXPECT_TRUE(memory.fits);
  EXPECT_TRUE(memory.cached->certain);
  EXPECT_EQ(memory.cached->fits_certain, std::optional(true));
  EXPECT_LE(memory.allocated, memory.cached->reserved);
  EXPECT_EQ(memory.headroom, memory.capacity - memory.deciding());
  EXPECT_EQ(with_program(request)->step->memory.counters.retries, 0);
  EXPECT_EQ(footprint_of(*with_program(request)).allocated, memory.deciding());
  EXPECT_EQ(footprint_of(*with_program(request)).least, memory.allocated + outside);
  EXPECT_TRUE(fits(*with_program(request)));

  // With exactly enough memory there are no retries, but 1 % less memory would change the result.
  request.allocator.limit = memory.cached->reserved.value;
  EXPECT_EQ(predict(request)->run.memory.cached->retries, 0);
  EXPECT_TRUE(predict(request)->run.memory.fits);
  EXPECT_TRUE(predict(request)->run.memory.barely_fits());
  EXPECT_EQ(predict(request)->run.memory.cached->fits_certain, std::optional(false));
  // Less than the peak of allocated memory cannot be enough.
  request.allocator.limit = memory.allocated.value - 1;
  EXPECT_EQ(predict(request)->run.memory.cached->fits_certain, std::optional(false));
  EXPECT_FALSE(predict(request)->run.memory.fits);
  EXPECT_FALSE(fits(*with_program(request)));
  // The run states the limit to which its headroom refers.
  const auto limited = predict(request);
  const Fact* limit = find_fact(limited->run.facts, "simulation", kMemoryLimit);
  ASSERT_NE(limit, nullptr);
  EXPECT_EQ(limit->value, FactValue(memory.allocated.value - 1));
  EXPECT_EQ(limited->run.memory.headroom,
            memory.allocated - Bytes(1) - limited->run.memory.cached->reserved);
  EXPECT_EQ(find_fact(free->run.facts, "simulation", kMemoryLimit), nullptr);
  // The reserve counts as well.
  request.allocator.limit.reset();
  request.reserve = memory.capacity - outside - memory.allocated + Bytes(1);
  EXPECT_FALSE(predict(request)->run.memory.fits);
  EXPECT_FALSE(fits(*with_program(request)));
  EXPECT_EQ(predict(request)->run.memory.headroom, memory.headroom - request.reserve);
}

/// Margin with which a fit is certain: 1 %, or the error of the engine's reserved memory.
TEST(PredictionRequest, AFitIsCertainWithTheEnginesErrorToSpare) {
  PredictionRequest request = measured_request();
  const auto with = [&](EngineKind engine, double room) {
    request.engine = engine;
    request.config = *engine_config(engine, measured_request().config);
    request.allocator.limit.reset();
    const Bytes reserved = predict(request)->run.memory.cached->reserved;
    request.allocator.limit = static_cast<std::int64_t>(room * static_cast<double>(reserved.value));
    const auto prediction = predict(request);
    EXPECT_TRUE(prediction->run.memory.fits);
    return prediction->run.memory.cached->fits_certain;
  };
  EXPECT_EQ(with(EngineKind::fsdp2, 1.005), std::optional(false));
  EXPECT_EQ(with(EngineKind::fsdp2, 1.015), std::optional(true));
  request.costs = costs_of("h200");
  EXPECT_EQ(with(EngineKind::fsdp1, 1.07), std::optional(false));  // 8.0 % at worst
  EXPECT_EQ(with(EngineKind::fsdp1, 1.09), std::optional(true));
  EXPECT_EQ(with(EngineKind::mcore, 1.5), std::nullopt);  // assumed, never measured
}

/// A run that must release cached blocks has no memory to spare, even if it succeeds with still
/// less memory.
TEST(PredictionRequest, RetriesAreWithinError) {
  PredictionRequest request;
  request.engine = EngineKind::fsdp2;
  request.config.model = load_model("llama3_8b", kScenarios / "models")->shape;
  request.config.mesh.resize(Axis::dp_shard, 8);
  request.config = *engine_config(request.engine, request.config);
  const auto gpu = load_gpu("h200", kScenarios / "gpus");
  request.costs =
      std::make_shared<const CostModel>(make_cost_model(*make_cluster(*gpu, 8, 8)).value());
  request.allocator.limit = std::int64_t{775} << 30;  // 77.5 GiB where 77.9 would be reserved
  *request.allocator.limit /= 10;
  const auto step = with_program(request)->step;
  EXPECT_TRUE(step->fits);
  EXPECT_EQ(step->memory.counters.retries, 4);
  EXPECT_FALSE(step->certain);
  // Nor is it with 1 % to spare, if that takes retries.
  request.allocator.limit = *request.allocator.limit * 101 / 100;
  EXPECT_FALSE(with_program(request)->step->certain);
}

TEST(PredictionRequest, WhatCannotFitDoesNotFitWhenItIsBuilt) {
  const auto least = std::make_shared<LeastMemoryTable>();
  for (PredictionRequest request : requests(1)) {
    request.least = least;
    const Bytes capacity = request.costs->cluster().gpu.capacity;
    for (const std::int64_t micro_batch : {1, 3, 8, 100}) {
      request.config.micro_batch = micro_batch;
      request.reserve = {};
      const auto ready = with_program(request);
      ASSERT_TRUE(ready) << ready.error().message();
      const Bytes needed = footprint(*ready->program, request.costs->cluster().gpu).least;
      EXPECT_LE(least_allocated(request), needed);
      EXPECT_FALSE(cannot_fit(request));
      request.reserve = capacity - needed;  // it fits to the byte
      EXPECT_FALSE(cannot_fit(request));
      request.reserve = capacity - least_allocated(request) + Bytes(1);
      EXPECT_TRUE(cannot_fit(request));
    }
  }
}

}  // namespace
}  // namespace mfsdp
