// Questions as a sweep asks them: many at a time, with one cost model and one cache.
#include "sim/search/question.hpp"

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
std::vector<Question> questions(std::int64_t count) {
  const auto gpu = load_gpu("h100", kScenarios / "gpus");
  const auto costs =
      std::make_shared<const CostModel>(make_cost_model(*make_cluster(*gpu, 8, 8)).value());
  const auto cache = std::make_shared<AllocationCache>();
  std::vector<Question> all;
  for (std::int64_t i = 0; i < count; ++i) {
    Question question;
    question.config.model = load_model("llama_nano", kScenarios / "models")->shape;
    question.config.mesh.resize(Axis::dp_shard, 8);
    question.config.seq_len = 64;
    question.config.micro_batch = 1 + i % 5;
    question.costs = costs;
    question.cache = cache;
    all.push_back(std::move(question));
  }
  return all;
}

TEST(Question, AnswersAreTheSameOnManyThreads) {
  const std::vector<Question> all = questions(40);
  std::vector<std::pair<std::string, Nanos>> alone;
  for (const Question& question : questions(5)) {
    const auto prediction = answer(question);
    ASSERT_TRUE(prediction) << prediction.error().message();
    alone.emplace_back(prediction->run.plan_hash, prediction->run.time.step);
  }
  run_in_parallel(
      all.size(), 4,
      [&](std::size_t i) {
        const auto prediction = answer(all[i]);
        return std::pair(prediction->run.plan_hash, prediction->run.time.step);
      },
      [&](std::size_t i, std::pair<std::string, Nanos> answered) {
        EXPECT_EQ(answered, alone[i % 5]);
        return true;
      });
}

TEST(Question, FitsIsDecidedByPoolsRuntimeAndReserve) {
  Question question = questions(1).front();
  const auto ready = built(question);
  ASSERT_TRUE(ready);
  const Program& program = *ready->program;
  const Gpu& gpu = question.costs->cluster().gpu;
  const Footprint memory = footprint(program, gpu);
  Bytes pools;
  for (const Pool& pool : program.pools)
    if (pool.space == MemorySpace::device) pools += pool.height;
  EXPECT_EQ(memory.allocated, pools + runtime_bytes(gpu, std::ssize(program.communicators)));
  EXPECT_LE(memory.least, memory.allocated);
  question.reserve = gpu.capacity - memory.allocated;  // to the byte
  EXPECT_TRUE(answer(question)->run.memory.fits);
  EXPECT_EQ(answer(question)->run.memory.headroom, Bytes(0));
  question.reserve += Bytes(1);
  EXPECT_FALSE(answer(question)->run.memory.fits);
}

/// Of another engine what its allocator reserves decides, as long as there is room for it.
TEST(Question, AnEnginesVerdictIsItsAllocators) {
  Question question = questions(1).front();
  question.engine = EngineKind::fsdp2;
  const auto config = engine_config(question.engine, question.config);
  ASSERT_TRUE(config) << config.error().message();
  question.config = *config;
  const auto free = answer(question);
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
  EXPECT_EQ(built(question)->step->memory.counters.retries, 0);
  EXPECT_EQ(footprint_of(*built(question)).allocated, memory.deciding());
  EXPECT_EQ(footprint_of(*built(question)).least, memory.allocated + outside);
  EXPECT_TRUE(fits(*built(question)));

  // To the byte nothing is tried again, but 1 % less room would change something.
  question.allocator.limit = memory.cached->reserved.value;
  EXPECT_EQ(answer(question)->run.memory.cached->retries, 0);
  EXPECT_TRUE(answer(question)->run.memory.fits);
  EXPECT_TRUE(answer(question)->run.memory.barely_fits());
  EXPECT_EQ(answer(question)->run.memory.cached->fits_certain, std::optional(false));
  // Less than is allocated at one time cannot do.
  question.allocator.limit = memory.allocated.value - 1;
  EXPECT_EQ(answer(question)->run.memory.cached->fits_certain, std::optional(false));
  EXPECT_FALSE(answer(question)->run.memory.fits);
  EXPECT_FALSE(fits(*built(question)));
  // The run says which limit its headroom is of.
  const auto limited = answer(question);
  const Fact* limit = find_fact(limited->run.facts, "simulation", kMemoryLimit);
  ASSERT_NE(limit, nullptr);
  EXPECT_EQ(limit->value, FactValue(memory.allocated.value - 1));
  EXPECT_EQ(limited->run.memory.headroom,
            memory.allocated - Bytes(1) - limited->run.memory.cached->reserved);
  EXPECT_EQ(find_fact(free->run.facts, "simulation", kMemoryLimit), nullptr);
  // What is to be kept free counts as well.
  question.allocator.limit.reset();
  question.reserve = memory.capacity - outside - memory.allocated + Bytes(1);
  EXPECT_FALSE(answer(question)->run.memory.fits);
  EXPECT_FALSE(fits(*built(question)));
  EXPECT_EQ(answer(question)->run.memory.headroom, memory.headroom - question.reserve);
}

/// Room by which a fit is certain: 1 %, or what the engine's reserved memory was off by.
TEST(Question, AFitIsCertainWithTheEnginesErrorToSpare) {
  Question question = questions(1).front();
  const auto with = [&](EngineKind engine, double room) {
    question.engine = engine;
    question.config = *engine_config(engine, questions(1).front().config);
    question.allocator.limit.reset();
    const Bytes reserved = answer(question)->run.memory.cached->reserved;
    question.allocator.limit =
        static_cast<std::int64_t>(room * static_cast<double>(reserved.value));
    const auto prediction = answer(question);
    EXPECT_TRUE(prediction->run.memory.fits);
    return prediction->run.memory.cached->fits_certain;
  };
  EXPECT_EQ(with(EngineKind::fsdp2, 1.005), std::optional(false));
  EXPECT_EQ(with(EngineKind::fsdp2, 1.015), std::optional(true));
  EXPECT_EQ(with(EngineKind::fsdp2_compile_loss, 1.05), std::optional(false));  // 5.5 % at worst
  EXPECT_EQ(with(EngineKind::fsdp2_compile_loss, 1.06), std::optional(true));
  EXPECT_EQ(with(EngineKind::mcore, 1.5), std::nullopt);  // assumed, never measured
}

/// A run that must give its cache back has no memory to spare, also where it ends well with even
/// less room.
TEST(Question, RetriesAreWithinError) {
  Question question;
  question.engine = EngineKind::fsdp2;
  question.config.model = load_model("llama3_8b", kScenarios / "models")->shape;
  question.config.mesh.resize(Axis::dp_shard, 8);
  question.config = *engine_config(question.engine, question.config);
  const auto gpu = load_gpu("h200", kScenarios / "gpus");
  question.costs =
      std::make_shared<const CostModel>(make_cost_model(*make_cluster(*gpu, 8, 8)).value());
  question.allocator.limit = std::int64_t{775} << 30;  // 77.5 GiB where 77.9 would be reserved
  *question.allocator.limit /= 10;
  const auto step = built(question)->step;
  EXPECT_TRUE(step->fits);
  EXPECT_EQ(step->memory.counters.retries, 4);
  EXPECT_FALSE(step->certain);
  // Nor is it with 1 % to spare, if that takes retries.
  question.allocator.limit = *question.allocator.limit * 101 / 100;
  EXPECT_FALSE(built(question)->step->certain);
}

TEST(Question, WhatCannotFitDoesNotFitWhenItIsBuilt) {
  const auto least = std::make_shared<LeastMemoryTable>();
  for (Question question : questions(1)) {
    question.least = least;
    const Bytes capacity = question.costs->cluster().gpu.capacity;
    for (const std::int64_t micro_batch : {1, 3, 8, 100}) {
      question.config.micro_batch = micro_batch;
      question.reserve = {};
      const auto ready = built(question);
      ASSERT_TRUE(ready) << ready.error().message();
      const Bytes needed = footprint(*ready->program, question.costs->cluster().gpu).least;
      EXPECT_LE(least_allocated(question), needed);
      EXPECT_FALSE(cannot_fit(question));
      question.reserve = capacity - needed;  // it fits to the byte
      EXPECT_FALSE(cannot_fit(question));
      question.reserve = capacity - least_allocated(question) + Bytes(1);
      EXPECT_TRUE(cannot_fit(question));
    }
  }
}

}  // namespace
}  // namespace mfsdp
