// Plans of engines with framework options, and what tests read from them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/sim/engines/recorded_llamas.hpp"

namespace mfsdp::test {

inline EnginePlan framework_plan(EngineKind engine, const PlanConfig& config,
                                 const std::vector<std::string>& options = {}) {
  return plan_of(engine, config, engine_options(options));
}

/// Bytes that are allocated after two steps and more: weights, states and buffers, and what inputs
/// and cuBLAS keep.
inline std::int64_t resting_bytes(const EnginePlan& plan) {
  std::map<std::uint32_t, std::int64_t> live;
  for (const HostAllocation& one : host_allocations(plan, 3)) {
    if (one.empties_cache || one.is_returned) continue;
    if (one.is_free)
      live.erase(one.buffer.value);
    else
      live[one.buffer.value] = one.size;
  }
  std::int64_t bytes = 0;
  for (const auto& [buffer, size] : live) bytes += size;
  return bytes;
}

/// Elements of small_llama(): embedding and head 32000 x 1024 each; a block 2 x 1024 (norms) +
/// 1536 x 1024 (qkv) + 1024 x 1024 (out) + 5632 x 1024 (gate and up) + 1024 x 2816 (down); a norm.
inline constexpr std::int64_t kSmallVocabulary = 32'768'000;
inline constexpr std::int64_t kSmallBlock = 11'274'240;
inline constexpr std::int64_t kSmallParameters = 2 * kSmallVocabulary + 4 * kSmallBlock + 1024;
/// Bytes that a run of 3072 tokens keeps: cosines and sines of 64 columns in fp32, ids and labels.
inline constexpr std::int64_t kSmallInputs = 2 * 3072 * 64 * 4 + 3073 * 8;

/// cuBLAS's workspaces of forward and backward, on Hopper.
inline constexpr std::int64_t kGemmWorkspaces = 2 * (std::int64_t{32} << 20);

/// Elements of all collectives of that kind, in the order of the plan.
inline std::vector<std::int64_t> collective_counts(const EnginePlan& plan, CollectiveKind kind) {
  std::vector<std::int64_t> counts;
  for (const Segment& segment : plan.program.find_plan(PlanRole::train)->segments)
    for (const Op& op : segment.ops)
      if (const auto* made = std::get_if<Collective>(&op.body); made && made->kind == kind)
        counts.push_back(made->count);
  return counts;
}

/// Bytes of the first buffer of that name, without its unit.
inline std::int64_t bytes_of(const EnginePlan& plan, std::string_view name) {
  for (const Buffer& buffer : plan.program.buffers)
    if (buffer.name.ends_with("." + std::string(name))) return buffer.size.value;
  return 0;
}

}  // namespace mfsdp::test
