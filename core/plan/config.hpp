// Everything that shapes a plan. Two equal configurations give the same plan and the same hash.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/rational.hpp"
#include "core/base/vocabulary.hpp"
#include "core/model/model.hpp"

namespace mfsdp {

/// The data-parallel mesh: dp_outer groups of dp_shard ranks. Rank = outer * dp_shard + shard.
struct Mesh {
  std::int64_t dp_outer = 1;
  std::int64_t dp_shard = 1;

  [[nodiscard]] std::int64_t world_size() const { return checked_mul(dp_outer, dp_shard); }
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

/// How each kind of state lies on one mesh axis.
enum class Placement { replicate, shard };

/// Per kind of state, its placement on an axis. A preset of these is a strategy.
struct Placements {
  Placement parameter = Placement::replicate;
  Placement gradient = Placement::replicate;
  Placement optimizer = Placement::replicate;

  friend bool operator==(const Placements&, const Placements&) = default;
};

/// The placements that a strategy stands for. On an axis of size 1 nothing is sharded.
[[nodiscard]] Placements placements_of(Strategy strategy, std::int64_t axis_size);

struct RecomputePolicy {
  Recompute kind = Recompute::selective;
  /// With `full`: how many of the first blocks; the others are `selective`. 0 means all.
  std::int64_t full_blocks = 0;

  friend bool operator==(const RecomputePolicy&, const RecomputePolicy&) = default;
};

/// Each member is a field with an entry in config_fields.hpp, which says how one is added; only the
/// model has its own description.
struct PlanConfig {
  ModelShape model;
  Mesh mesh;
  Strategy strategy = Strategy::optim_grads_params;
  Strategy outer_strategy = Strategy::no_shard;  ///< no_shard (HSDP) or optim (HFSDP)
  std::int64_t seq_len = 8192;                   ///< tokens
  std::int64_t micro_batch = 1;                  ///< sequences per rank and microbatch
  std::int64_t microbatches = 1;                 ///< per rank and step
  RecomputePolicy recompute;
  DType param_dtype = DType::bf16;   ///< compute weights
  DType main_dtype = DType::fp32;    ///< main weights
  DType grad_dtype = DType::fp32;    ///< main gradients
  DType reduce_dtype = DType::fp32;  ///< gradients on the wire
  std::int64_t prefetch = 1;         ///< units gathered ahead
  std::int64_t grad_slots = 2;       ///< live full gradients
  AllocatorPolicy allocator = AllocatorPolicy::best_fit;
  Optimizer optimizer = Optimizer::adamw;
  Rational clip{1, 1};               ///< gradient norm limit; 0 switches clipping off
  bool deterministic = false;        ///< deterministic kernels
  bool exact_sums = false;           ///< gradient sums without an order: exact_sums.hpp
  std::vector<std::string> frozen;   ///< parameters whose name contains one of these
  std::int64_t logits_chunk = 1024;  ///< tokens whose logits exist at one time

  friend bool operator==(const PlanConfig&, const PlanConfig&) = default;

  [[nodiscard]] std::int64_t tokens_per_microbatch() const {
    return checked_mul(seq_len, micro_batch);
  }
  /// Tokens that one rank works on in a step.
  [[nodiscard]] std::int64_t tokens_per_step() const {
    return checked_mul(tokens_per_microbatch(), microbatches);
  }
  /// What sums, statistics of rows and the optimizer's moments are kept in.
  [[nodiscard]] DType statistic_dtype() const {
    return param_dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  }
  /// Sequences of a step, over all ranks.
  [[nodiscard]] std::int64_t global_batch() const {
    return checked_mul(checked_mul(micro_batch, microbatches), mesh.world_size());
  }
  [[nodiscard]] bool is_frozen(const std::string& parameter_name) const;
};

/// Checks every field against the others; the error names the flag that sets the field.
[[nodiscard]] Result<void> validate(const PlanConfig& config);

}  // namespace mfsdp
