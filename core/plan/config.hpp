// The configuration of a plan. Equal configurations give equal plans and hashes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/rational.hpp"
#include "core/base/vocabulary.hpp"
#include "core/model/model.hpp"
#include "core/plan/mesh.hpp"
#include "core/plan/optimizer_spec.hpp"
#include "core/plan/work.hpp"

namespace mfsdp {

/// State that is sharded along one mesh axis. A strategy is a preset of these.
struct Sharded {
  bool parameter = false;
  bool gradient = false;
  bool state = false;  ///< main weights and the optimizer's states

  friend bool operator==(const Sharded&, const Sharded&) = default;
};

/// The state that a strategy shards along an axis. An axis of size 1 shards nothing.
[[nodiscard]] Sharded sharded_by(Strategy strategy, std::int64_t axis_size);

struct RecomputePolicy {
  Recompute kind = Recompute::selective;
  /// With `full`: the number of first blocks; the others are `selective`. 0 means all.
  std::int64_t full_blocks = 0;

  friend bool operator==(const RecomputePolicy&, const RecomputePolicy&) = default;
};

/// Matrices of a block that can multiply in FP8.
inline constexpr std::array kFp8Matrices{ParameterRole::qkv, ParameterRole::attention_out,
                                         ParameterRole::gate_up, ParameterRole::down};

/// Each member is a field with an entry in config_fields.hpp, which explains how to add one. Only
/// the model has its own description.
struct PlanConfig {
  ModelShape model;
  Mesh mesh;
  Strategy strategy = Strategy::optim_grads_params;
  Strategy outer_strategy = Strategy::no_shard;  ///< no_shard (HSDP) or optim (HFSDP)
  LayoutRule layout = LayoutRule::packed;        ///< of each group's flat buffer
  std::int64_t seq_len = 8192;                   ///< tokens
  std::int64_t micro_batch = 1;                  ///< sequences per data rank and microbatch
  std::int64_t microbatches = 1;                 ///< per rank and step
  RecomputePolicy recompute;
  DType param_dtype = DType::bf16;   ///< compute weights
  DType main_dtype = DType::fp32;    ///< main weights
  DType grad_dtype = DType::fp32;    ///< main gradients
  DType reduce_dtype = DType::fp32;  ///< of gradient reductions
  std::int64_t prefetch = 1;         ///< units whose gather starts early
  std::int64_t grad_slots = 2;       ///< live full gradients
  AllocatorPolicy allocator = AllocatorPolicy::best_fit;
  Optimizer optimizer = Optimizer::adamw;
  Rational clip{1, 1};                        ///< gradient norm limit; 0 switches clipping off
  bool deterministic = false;                 ///< deterministic kernels
  bool exact_sums = false;                    ///< order-independent gradient sums: exact_sums.hpp
  std::vector<std::string> frozen;            ///< parameters whose name contains one of these
  std::int64_t logits_chunk = 1024;           ///< tokens whose logits are live at once
  StateDtype state_dtype = StateDtype::full;  ///< of the optimizer's states between steps
  std::vector<std::string> lr_scale;  ///< "TEXT=X": the rate's factor where a name contains TEXT
  std::vector<std::string> no_decay;  ///< parameters whose name contains one do not decay
  /// A token attends within its document only, and each document's positions begin at 0.
  bool document_mask = false;
  Rational loss_scale{};               ///< initial, of the mean loss; 0: none (loss_scale.hpp)
  std::int64_t loss_scale_window = 0;  ///< finite steps in a row before it grows; 0: fixed
  CollectivePlacement placement = CollectivePlacement::earliest;
  Transport gather = Transport::nccl;     ///< of weights, inside the groups that share shards
  Transport reduce = Transport::nccl;     ///< of gradients, inside the same groups
  std::int64_t keep_gathered = 0;         ///< last blocks that stay gathered until their backward
  std::int64_t lora_rank = 0;             ///< of adapters; only these train then; 0: no adapters
  Rational lora_alpha{0, 1};              ///< scale of adapters times rank; 0 without adapters
  std::vector<std::string> lora_targets;  ///< layers with adapters, in the order of a block
  std::int64_t expert_parallel = 0;       ///< ranks that divide a block's experts; 0: not divided
  Rational capacity_factor{};  ///< capacity over a balanced share of rows; 0: capacity for all rows
  std::optional<Strategy> expert_strategy{};  ///< of expert-parallel groups; none: as the others
  BaseDType base_dtype = BaseDType::compute;  ///< of frozen linear layers beside adapters
  Fp8Recipe fp8 = Fp8Recipe::off;             ///< GEMMs of blocks' linear layers in FP8
  std::int64_t fp8_keep_bf16 = 0;             ///< first and as many last blocks without FP8
  Fp8Accumulate fp8_accumulate = Fp8Accumulate::fast_forward;
  std::int64_t fp8_history = 0;     ///< delayed: steps whose amaxes are kept; 0: amax_slots()
  Fp8Amax fp8_amax = Fp8Amax::max;  ///< delayed: the one that gives a scale
  bool fp8_gather = false;          ///< weights of FP8 GEMMs are cast once a step, then gathered
  ContextExchange cp_comm = ContextExchange::a2a;  ///< of ranks that share sequences
  /// Of stages, on ranks of pp.
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  std::int64_t virtual_stages = 0;  ///< chunks of blocks of each stage; 0: one
  std::int64_t microbatch_group =
      0;  ///< that pass a chunk before the next one's turn; 0: the stages
  std::vector<std::int64_t> layers_of_stages{};  ///< blocks of each stage; none: equal numbers

  friend bool operator==(const PlanConfig&, const PlanConfig&) = default;

  /// Tokens that one rank computes of a microbatch.
  [[nodiscard]] std::int64_t tokens_per_microbatch() const {
    return sequence_tokens() / sequence_parts(mesh);
  }
  /// Rows that one rank has of them between blocks, and for experts.
  [[nodiscard]] std::int64_t rows_per_microbatch() const {
    return tokens_per_microbatch() / mesh.size(Axis::tp);
  }
  /// Tokens that one rank computes in a step.
  [[nodiscard]] std::int64_t tokens_per_step() const {
    return checked_mul(tokens_per_microbatch(), microbatches);
  }
  /// Tokens of the whole sequences of which one rank computes a part.
  [[nodiscard]] std::int64_t sequence_tokens() const { return checked_mul(seq_len, micro_batch); }
  /// Whether ranks share sequences and each has all heads of two chunks of them.
  [[nodiscard]] bool has_chunks() const {
    return sequence_parts(mesh) > 1 && cp_comm != ContextExchange::a2a;
  }
  /// Whether each of these has the keys of all of them at once.
  [[nodiscard]] bool gathers_keys() const {
    return has_chunks() && cp_comm == ContextExchange::all_gather;
  }
  /// Whether it has the keys of one of them at a time, which go around.
  [[nodiscard]] bool passes_keys() const { return has_chunks() && cp_comm == ContextExchange::p2p; }
  /// Rows of int32 that the host sends for a microbatch: ids, labels and, with document_mask, the
  /// position of each token in its document, of whole sequences.
  [[nodiscard]] std::int64_t token_rows() const {
    return document_mask ? 2 + sequence_parts(mesh) : 2;
  }
  /// The dtype of sums and statistics of rows, and of the optimizer's arithmetic.
  [[nodiscard]] DType statistic_dtype() const {
    return param_dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  }
  /// Whether gradients are scaled, and steps without a finite norm are skipped.
  [[nodiscard]] bool scales_loss() const { return loss_scale.num != 0; }
  /// Whether updates need the norm, to clip or to skip the step.
  [[nodiscard]] bool updates_by_norm() const { return clip.num != 0 || scales_loss(); }
  /// Sequences of a step, over all ranks.
  [[nodiscard]] std::int64_t global_batch() const {
    return checked_mul(checked_mul(micro_batch, microbatches), data_ranks(mesh));
  }
  /// Tokens of a step, over all ranks.
  [[nodiscard]] std::int64_t global_tokens() const { return checked_mul(global_batch(), seq_len); }
  [[nodiscard]] bool is_frozen(const std::string& parameter_name) const;
  [[nodiscard]] bool has_fp8() const { return fp8 != Fp8Recipe::off; }
  /// Whether the linear layers of that block multiply in FP8.
  [[nodiscard]] bool has_fp8(std::int64_t block) const {
    return has_fp8() && block >= fp8_keep_bf16 && block < model.layers - fp8_keep_bf16;
  }
  /// Whether GEMMs of that block read casts of its matrix that are gathered. Then its group has no
  /// other parameter.
  [[nodiscard]] bool gathers_fp8(std::int64_t block, ParameterRole role) const {
    return fp8_gather && has_fp8(block) &&
           std::ranges::find(kFp8Matrices, role) != kFp8Matrices.end();
  }
  [[nodiscard]] bool has_lora() const { return lora_rank > 0; }
  /// Whether a parameter of a unit is stored in fewer bits than the compute dtype has.
  [[nodiscard]] bool is_quantised(UnitKind unit, const Parameter& parameter) const;
  [[nodiscard]] bool is_expert_parallel() const { return expert_parallel > 1; }
  [[nodiscard]] Strategy strategy_of_experts() const { return expert_strategy.value_or(strategy); }
  /// Experts of a block that one rank has.
  [[nodiscard]] std::int64_t experts_per_rank() const {
    return is_expert_parallel() ? model.experts / expert_parallel : model.experts;
  }
  /// Capacity, in rows, of what a rank can send to each rank of ep: all its rows, so that none is
  /// ever dropped, or capacity_factor times an equal share, rounded up.
  [[nodiscard]] std::int64_t rows_per_peer() const {
    const std::int64_t all = checked_mul(rows_per_microbatch(), model.experts_per_token);
    if (capacity_factor.num == 0 || !is_expert_parallel()) return all;
    return std::min(all, ceil_div(checked_mul(all, capacity_factor.num),
                                  checked_mul(capacity_factor.den, expert_parallel)));
  }
  /// The factor of adapters' output: alpha / rank, in lowest terms. Requires has_lora().
  [[nodiscard]] Rational lora_scale() const;
  /// Whether a parameter decays; `by_shape`: whether parameters of its shape do.
  [[nodiscard]] bool decays(const std::string& parameter_name, bool by_shape) const;
  /// The parameter's factor of the learning rate, if it has one. Requires a valid configuration.
  [[nodiscard]] std::optional<Rational> rate_of(const std::string& parameter_name) const;
  /// The states that an optimizer keeps of a group.
  [[nodiscard]] std::vector<KeptState> kept_states(Optimizer of_group) const {
    return mfsdp::kept_states(of_group, state_dtype, statistic_dtype());
  }
  /// The optimizer of a parameter. With Muon, AdamW updates all except matrices of blocks.
  [[nodiscard]] Optimizer optimizer_of(UnitKind unit, const Parameter& parameter) const {
    const bool other =
        orthogonalises(optimizer) && (unit != UnitKind::block || parameter.shape.size() != 2);
    return other ? Optimizer::adamw : optimizer;
  }
  /// The dtype of directions before and after orthogonalisation: that of compute weights, but bf16
  /// instead of fp16, whose smallest numbers are above those of gradients.
  [[nodiscard]] DType direction_dtype() const {
    return param_dtype == DType::fp16 ? DType::bf16 : param_dtype;
  }
};

/// The model of a plan: the configuration's shape, with its adapters. Parameters have the dtype of
/// compute weights.
[[nodiscard]] Model make_model(const PlanConfig& config);

/// A configuration keeps the planner's rules of --cp, --tp and --pp, or those of an engine of others
/// (sim/engines/engine.hpp).
enum class MeshRules { planner, others };

/// Checks every field against the others; the error names the flag that sets the field. Rules of
/// other engines are theirs to check.
[[nodiscard]] Result<void> validate(const PlanConfig& config, MeshRules rules = MeshRules::planner);

}  // namespace mfsdp
