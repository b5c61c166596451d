// The models of recorded runs, and what holds of any engine's steps.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/engines/engine.hpp"
#include "sim/engines/engine_memory.hpp"
#include "sim/engines/plan_engine.hpp"
#include "tests/support/scenarios.hpp"

namespace mfsdp::test {

inline ModelShape llama(std::int64_t hidden, std::int64_t intermediate, std::int64_t layers,
                        std::int64_t heads, std::int64_t kv_heads, std::int64_t vocab) {
  ModelShape shape;
  shape.vocab = vocab;
  shape.hidden = hidden;
  shape.layers = layers;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = hidden / heads;
  shape.intermediate = intermediate;
  shape.max_seq_len = 1 << 20;
  return shape;
}

/// The model of the recordings: four blocks, so that each is fast.
inline ModelShape small_llama() { return llama(1024, 2816, 4, 16, 4, 32000); }
inline ModelShape llama3_8b() { return llama(4096, 14336, 32, 32, 8, 128256); }

inline PlanConfig config_of(const ModelShape& shape, std::int64_t seq_len, std::int64_t ranks = 8) {
  PlanConfig config;
  config.model = shape;
  config.mesh = data_parallel_mesh(1, ranks);
  config.seq_len = seq_len;
  config.recompute.kind = Recompute::none;
  config.clip = {0, 1};
  return config;
}

/// "--modules=transformers", "--reshard-root", "no_sync=true".
inline EngineOptions engine_options(const std::vector<std::string>& texts) {
  EngineOptions options;
  for (const std::string& text : texts) {
    const std::size_t sign = std::min(text.find('='), text.size());
    const auto set =
        text.starts_with("--")
            ? options.set(text.substr(0, sign), text.substr(std::min(sign + 1, text.size())))
            : options.set(text);
    EXPECT_TRUE(set) << set.error().message();
  }
  return options;
}

inline EnginePlan plan_of(EngineKind engine, const PlanConfig& config,
                          const EngineOptions& options = {}) {
  const auto own = engine_config(engine, config, options);
  EXPECT_TRUE(own) << own.error().message();
  return engine_plan_of(engine, *own, {}, kL2OfH200, options);
}

/// An allocation of this number of bytes on a stream, or a free of the allocation with this number.
using MemoryEventLine = std::tuple<bool, std::int64_t, std::int64_t>;
inline constexpr std::int64_t kLeastRecorded = 65536;  // bytes that are compared

/// The order of consecutive frees does not matter to an allocator.
inline std::vector<MemoryEventLine> with_frees_in_order(std::vector<MemoryEventLine> events) {
  const auto is_free = [](const MemoryEventLine& event) { return std::get<0>(event); };
  for (auto begin = events.begin(); begin != events.end();) {
    const auto end = std::find_if_not(begin, events.end(), is_free);
    std::sort(begin, end);
    begin = std::find_if(end, events.end(), is_free);
  }
  return events;
}

/// Events of a record of scenarios/memory.
inline std::vector<MemoryEventLine> recorded_events(const std::string& name) {
  std::ifstream file(kScenarios / "memory" / name);
  EXPECT_TRUE(file) << name;
  std::vector<MemoryEventLine> events;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    const std::size_t blank = line.find(' ');
    if (line.starts_with('-'))
      events.emplace_back(true, std::stoll(line.substr(1)), 0);
    else
      events.emplace_back(false, std::stoll(line.substr(0, blank)), std::stoll(line.substr(blank)));
  }
  return with_frees_in_order(std::move(events));
}

/// Events of three steps from their first gather on, as in the recordings.
inline std::vector<MemoryEventLine> derived_events(const EnginePlan& plan) {
  const std::vector<HostAllocation> before = host_allocations(plan, 0);
  std::vector<HostAllocation> all = host_allocations(plan, 3);
  all.erase(all.begin(), all.begin() + std::ssize(before));
  all.erase(all.begin(),
            std::ranges::find_if(all, [](const HostAllocation& made) { return made.stream != 0; }));
  std::vector<MemoryEventLine> events;
  std::map<std::uint32_t, std::int64_t> numbers;
  std::int64_t next = 0;
  for (const HostAllocation& made : all) {
    if (made.is_free) {
      const auto found = numbers.find(made.buffer.value);
      if (found == numbers.end()) continue;
      events.emplace_back(true, found->second, 0);
      numbers.erase(found);
    } else if (!made.is_returned && made.size >= kLeastRecorded) {
      numbers[made.buffer.value] = next++;
      events.emplace_back(false, made.size, made.stream);
    }
  }
  return with_frees_in_order(std::move(events));
}

inline std::int64_t pick(std::initializer_list<std::int64_t> values) {
  return *rc::gen::elementOf(std::vector<std::int64_t>(values));
}

inline ModelShape any_llama() {
  const std::int64_t kv_heads = pick({1, 2, 4});
  const std::int64_t heads = kv_heads * pick({1, 2, 4});
  ModelShape shape =
      llama(heads * 64, 64 * pick({3, 5, 8}), pick({1, 2, 5}), heads, kv_heads, pick({1000, 4096}));
  shape.tied_embeddings = pick({0, 1}) == 1;
  shape.qk_norm = pick({0, 1}) == 1;
  shape.qkv_bias = pick({0, 1}) == 1;
  return shape;
}

inline PlanConfig any_engine_config() {
  PlanConfig config = config_of(any_llama(), 128 * pick({1, 3, 8}), pick({1, 2, 7, 8, 64}));
  config.micro_batch = pick({1, 2, 3});
  config.microbatches = pick({1, 2, 4});
  config.reduce_dtype = pick({0, 1}) == 1 ? DType::bf16 : DType::fp32;
  if (pick({0, 1}) == 1) config.recompute.kind = Recompute::full;
  return config;
}

/// Bytes allocated after the given steps, and the total requested. Nothing is allocated twice or
/// freed twice in between.
struct Balance {
  std::int64_t kept = 0;
  std::int64_t bytes = 0;
};

inline Balance balance_of(const EnginePlan& plan, std::int64_t steps) {
  std::map<std::size_t, bool> live;  // by instance of a buffer
  Balance balance;
  for (const HostAllocation& made : host_allocations(plan, steps)) {
    if (made.empties_cache || made.is_returned) continue;
    RC_ASSERT(live[made.slot] == made.is_free);
    live[made.slot] = !made.is_free;
    balance.kept += made.is_free ? -1 : 1;
    balance.bytes += made.is_free ? 0 : made.size;
  }
  return balance;
}

/// Each allocation is freed once or kept, and every step but the first asks for the same.
inline void check_balance(const EnginePlan& plan) {
  const std::int64_t kept = std::ranges::count_if(
      plan.kept, [](const KeptFrom& made) { return !made.brief && !made.empties_cache; });
  const Balance first = balance_of(plan, 1);
  const Balance second = balance_of(plan, 2);
  const Balance third = balance_of(plan, 3);
  RC_ASSERT(first.kept == kept);
  RC_ASSERT(second.kept == kept);
  RC_ASSERT(third.kept == kept);
  RC_ASSERT(third.bytes - second.bytes == second.bytes - first.bytes);
  RC_ASSERT(third.bytes > second.bytes);
}

}  // namespace mfsdp::test
