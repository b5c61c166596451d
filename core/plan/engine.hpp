// The engines that train: one row of traits for each (kEngines). Code asks for a trait and not for the
// engine.
//
// To add a variant of an engine: its name in EngineKind, its row in kEngines, its behaviour in
// sim/engines where no trait states it yet, its line in docs/guide/engines.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// `mfsdp` is ours, whose plan runs as it is predicted. The others are described (sim/engines).
enum class EngineKind {
  mfsdp,
  fsdp2,
  fsdp2_compile,
  fsdp2_compile_loss,
  megatron_fsdp_v1,
  megatron_fsdp_v2,
  megatron_fsdp_v2_eager,
  mcore,
  mcore_unfused_loss,
  ddp,
  fsdp1,
  deepspeed_zero1,
  deepspeed_zero2,
  deepspeed_zero3
};

/// Engines of one family have one schedule and differ in kernels alone.
enum class EngineFamily {
  mfsdp,
  fsdp2,
  megatron_fsdp_v1,
  megatron_fsdp_v2,
  mcore,
  ddp,
  fsdp1,
  deepspeed_states,  ///< ZeRO-1 and ZeRO-2: weights are whole on every rank
  deepspeed_weights  ///< ZeRO-3
};

struct EngineTraits {
  EngineKind kind;
  EngineFamily family;
  std::string_view name;         ///< as --engine and messages have it
  std::string_view stored = {};  ///< in results and stores where that is not `name`
  std::string_view trainer;      ///< what people call the program that trains

  // Its behaviour.
  bool runs_plans = false;             ///< mfsdp-exec runs the plan; the host issues nothing else
  bool compiles_blocks = false;        ///< by Inductor
  bool compiles_loss = false;          ///< by Inductor
  bool fuses_elementwise = false;      ///< Megatron's functions in place of PyTorch's kernels
  bool fuses_loss = false;             ///< the cross entropy over a vocabulary is one kernel
  bool keeps_main_dtype = false;       ///< gradients have the type of weights between steps
  bool reduces_in_grad_dtype = false;  ///< gradients cross the wire in the type that they have
  bool reduces_in_bf16 = false;        ///< whatever type is asked for
  bool recomputes_expert_modules = false;  ///< selective: `layernorm` before experts, `moe_act`
  /// Its strategy, if it has only one.
  std::optional<Strategy> only_strategy = std::nullopt;
  /// The type of its gradients, between steps and in reductions, if it has only one.
  std::optional<DType> only_gradients = std::nullopt;
  bool has_groups_of_its_own = false;     ///< its communicators are never the default group's
  bool has_tensor_parallel_axis = false;  ///< of one rank, with a communicator of its own
  bool recomputes_some_blocks = false;    ///< full recomputation of the first blocks alone
  bool has_bf16_weights = false;  ///< between steps; gradients and states have their type then
  /// The rule of its strategies, where another one is no choice of the engine.
  std::string_view shards = {};

  // The limits of its predictions.
  bool has_experts = false;          ///< mixtures of experts
  bool has_gpt = false;              ///< GPT's blocks: LayerNorm, learned positions, biases, GELU
  bool has_sliding_windows = false;  ///< attention over a window of tokens
  bool has_qk_norms = true;          ///< norms of query and key heads
  bool has_fp8 = false;              ///< GEMMs of blocks in FP8 with a scale for each tensor
  bool has_recomputation = true;     ///< --recompute full
  bool has_replicas = true;          ///< --outer-dp
  bool needs_two_shards = false;     ///< a single rank that shards was never recorded
  /// Flags of kOwnChoices that it has nevertheless.
  std::optional<std::string_view> own_choice = std::nullopt;
  std::optional<EngineKind> compiled_as = std::nullopt;  ///< the engine with compiled blocks
  std::optional<EngineKind> eager_as = std::nullopt;     ///< the engine with PyTorch's own kernels
  /// After "reduces gradients in every microbatch" in answers: what changes that, or that nothing
  /// does. Empty: other software on the same engine does otherwise, which is not described.
  std::string_view deferral = {};
  /// Where the description is from, where it is not from recorded runs.
  std::string_view basis = {};
};

namespace engine_rows {

inline constexpr EngineTraits kFsdp2{
    .kind = EngineKind::fsdp2,
    .family = EngineFamily::fsdp2,
    .name = "fsdp2",
    .trainer = "PyTorch FSDP2",
    .keeps_main_dtype = true,
    .recomputes_some_blocks = true,
    .has_bf16_weights = true,
    .shards =
        "shards gradients, states and parameters: always (optim_grads_params), or parameters "
        "outside forward and backward only (optim_grads)"};

inline constexpr EngineTraits kMegatronFsdp2{.kind = EngineKind::megatron_fsdp_v2,
                                             .family = EngineFamily::megatron_fsdp_v2,
                                             .name = "megatron-fsdp-v2",
                                             .trainer = "Megatron-FSDP v2",
                                             .fuses_elementwise = true,
                                             .reduces_in_bf16 = true,
                                             .has_qk_norms = false,
                                             .needs_two_shards = true};

inline constexpr EngineTraits kMcore{
    .kind = EngineKind::mcore,
    .family = EngineFamily::mcore,
    .name = "mcore",
    .trainer = "Megatron-Core",
    .fuses_loss = true,
    .reduces_in_grad_dtype = true,
    .recomputes_expert_modules = true,
    .only_strategy = Strategy::optim,
    .has_groups_of_its_own = true,
    .shards = "shards the optimizer's states alone (optim)",
    .has_experts = true,
    .has_gpt = true,
    .has_sliding_windows = true,
    .has_fp8 = true,
    .has_replicas = false,
    .basis =
        "mcore: from the sources of Megatron-Core and Transformer Engine alone, never held "
        "to a recorded run"};

inline constexpr EngineTraits kDdp{
    .kind = EngineKind::ddp,
    .family = EngineFamily::ddp,
    .name = "ddp",
    .trainer = "PyTorch DDP with autocast",
    .only_strategy = Strategy::no_shard,
    .only_gradients = DType::fp32,
    .shards = "shards nothing (no_shard)",
    .has_qk_norms = false,
    .has_replicas = false,
    .needs_two_shards = true,
    .deferral =
        "--engine-option no_sync=true reduces once a step, as Accelerate and Hugging "
        "Face's Trainer do",
    .basis = "ddp: from PyTorch's sources, fp32 weights under torch.autocast(bfloat16)"};

inline constexpr EngineTraits kFsdp1{
    .kind = EngineKind::fsdp1,
    .family = EngineFamily::fsdp1,
    .name = "fsdp1",
    .trainer = "PyTorch FSDP1",
    .keeps_main_dtype = true,
    .shards =
        "shards gradients, states and parameters: always (optim_grads_params, FULL_SHARD), or "
        "parameters outside forward and backward only (optim_grads, SHARD_GRAD_OP)",
    .has_gpt = true,
    .has_replicas = false,
    .needs_two_shards = true,
    .deferral =
        "--engine-option no_sync=true reduces once a step, with a full copy of the "
        "gradients on every rank",
    .basis =
        "fsdp1: from PyTorch's sources, one flat parameter for each block and one for the rest, "
        "host work as FSDP2's"};

inline constexpr EngineTraits kDeepSpeed{
    .kind = EngineKind::deepspeed_zero1,
    .family = EngineFamily::deepspeed_states,
    .name = "deepspeed-zero1",
    .trainer = "DeepSpeed ZeRO-1",
    .only_strategy = Strategy::optim,
    .only_gradients = DType::bf16,
    .has_groups_of_its_own = true,
    .shards = "shards the optimizer's states alone (optim)",
    .has_qk_norms = false,
    .has_replicas = false,
    .needs_two_shards = true,
    .basis =
        "deepspeed-zero1: from the sources of DeepSpeed 0.19.6 and runs, bf16, for the rank "
        "that needs most memory, the last"};

/// The row of `base` with a name of its own, after `change`.
[[nodiscard]] constexpr EngineTraits variant(EngineTraits base, EngineKind kind,
                                             std::string_view name, std::string_view trainer,
                                             auto change) {
  base.kind = kind;
  base.name = name;
  base.trainer = trainer;
  change(base);
  return base;
}

}  // namespace engine_rows

/// In the order of EngineKind.
inline constexpr std::array kEngines{
    EngineTraits{.kind = EngineKind::mfsdp,
                 .family = EngineFamily::mfsdp,
                 .name = "mfsdp",
                 .trainer = "mfsdp-exec",
                 .runs_plans = true},
    engine_rows::variant(engine_rows::kFsdp2, EngineKind::fsdp2, "fsdp2", "PyTorch FSDP2",
                         [](EngineTraits& row) {
                           row.has_gpt = true;
                           row.compiled_as = EngineKind::fsdp2_compile;
                         }),
    engine_rows::variant(engine_rows::kFsdp2, EngineKind::fsdp2_compile, "fsdp2-compile",
                         "PyTorch FSDP2 with compiled blocks",
                         [](EngineTraits& row) {
                           row.compiles_blocks = true;
                           row.has_fp8 = true;
                         }),
    engine_rows::variant(engine_rows::kFsdp2, EngineKind::fsdp2_compile_loss, "fsdp2-compile-loss",
                         "PyTorch FSDP2 with compiled blocks and loss",
                         [](EngineTraits& row) {
                           row.compiles_blocks = true;
                           row.compiles_loss = true;
                           row.has_fp8 = true;
                         }),
    EngineTraits{.kind = EngineKind::megatron_fsdp_v1,
                 .family = EngineFamily::megatron_fsdp_v1,
                 .name = "megatron-fsdp-v1",
                 .stored = "mfsdp1",
                 .trainer = "Megatron-FSDP v1",
                 .fuses_elementwise = true,
                 .has_tensor_parallel_axis = true,
                 .has_qk_norms = false,
                 .has_recomputation = false,
                 .needs_two_shards = true,
                 .own_choice = "--allocator"},  // it has two buffers, or not
    engine_rows::variant(engine_rows::kMegatronFsdp2, EngineKind::megatron_fsdp_v2,
                         "megatron-fsdp-v2", "Megatron-FSDP v2",
                         [](EngineTraits& row) {
                           row.stored = "mfsdp2";
                           row.eager_as = EngineKind::megatron_fsdp_v2_eager;
                         }),
    engine_rows::variant(engine_rows::kMegatronFsdp2, EngineKind::megatron_fsdp_v2_eager,
                         "megatron-fsdp-v2-eager", "Megatron-FSDP v2 with PyTorch's kernels",
                         [](EngineTraits& row) {
                           row.stored = "mfsdp2-eager";
                           row.fuses_elementwise = false;
                           row.has_qk_norms = true;
                         }),
    engine_rows::kMcore,
    engine_rows::variant(engine_rows::kMcore, EngineKind::mcore_unfused_loss, "mcore-unfused-loss",
                         "Megatron-Core with the unfused loss",
                         [](EngineTraits& row) { row.fuses_loss = false; }),
    engine_rows::kDdp,
    engine_rows::kFsdp1,
    engine_rows::kDeepSpeed,
    engine_rows::variant(engine_rows::kDeepSpeed, EngineKind::deepspeed_zero2, "deepspeed-zero2",
                         "DeepSpeed ZeRO-2",
                         [](EngineTraits& row) {
                           row.only_strategy = Strategy::optim_grads;
                           row.shards = "shards gradients and the optimizer's states (optim_grads)";
                           row.deferral = "it does so under every trainer";
                           row.basis =
                               "deepspeed-zero2: from the sources of DeepSpeed 0.19.6 and runs, "
                               "bf16, for the rank that needs most memory, the last";
                         }),
    engine_rows::variant(engine_rows::kDeepSpeed, EngineKind::deepspeed_zero3, "deepspeed-zero3",
                         "DeepSpeed ZeRO-3", [](EngineTraits& row) {
                           row.family = EngineFamily::deepspeed_weights;
                           row.only_strategy = Strategy::optim_grads_params;
                           row.shards =
                               "shards gradients, states and parameters (optim_grads_params)";
                           row.deferral = "it does so under every trainer";
                           row.basis =
                               "deepspeed-zero3: from the sources of DeepSpeed 0.19.6 and runs, "
                               "bf16, with host work of hooks as measured";
                         })};

static_assert([] {
  for (std::size_t i = 0; i < kEngines.size(); ++i)
    if (static_cast<std::size_t>(kEngines[i].kind) != i) return false;
  return true;
}());

[[nodiscard]] constexpr const EngineTraits& traits_of(EngineKind engine) {
  return kEngines.at(static_cast<std::size_t>(engine));
}

/// As people give and read them.
template <>
struct Names<EngineKind> {
  static constexpr std::array<std::string_view, kEngines.size()> values = [] {
    std::array<std::string_view, kEngines.size()> names{};
    std::ranges::transform(kEngines, names.begin(), &EngineTraits::name);
    return names;
  }();
};

/// By its name, or by the one that results have: "mfsdp1" is megatron-fsdp-v1.
template <>
[[nodiscard]] constexpr std::optional<EngineKind> parse<EngineKind>(std::string_view name) {
  for (const EngineTraits& engine : kEngines)
    if (name == engine.name || (!name.empty() && name == engine.stored)) return engine.kind;
  return std::nullopt;
}

/// As results, stores and tables of measured steps have it: "mfsdp1" for megatron-fsdp-v1.
[[nodiscard]] constexpr std::string_view stored_name(EngineKind engine) {
  const EngineTraits& traits = traits_of(engine);
  return traits.stored.empty() ? traits.name : traits.stored;
}

/// A result's engine as people read it; what is no engine of ours stays.
[[nodiscard]] constexpr std::string_view shown_engine(std::string_view stored) {
  const auto engine = parse<EngineKind>(stored);
  return engine ? to_string(*engine) : stored;
}

/// Flags of the configuration that other engines do not have.
inline constexpr std::array<std::string_view, 12> kOwnChoices{
    "--prefetch",      "--grad-slots", "--allocator", "--layout",
    "--deterministic", "--exact-sums", "--attention", "--logits-chunk",
    "--placement",     "--gather",     "--reduce",    "--keep-gathered"};

/// Whether the flag is a choice of the engine.
[[nodiscard]] constexpr bool has_choice(EngineKind engine, std::string_view flag) {
  const EngineTraits& traits = traits_of(engine);
  return traits.runs_plans || traits.own_choice == flag ||
         std::ranges::find(kOwnChoices, flag) == kOwnChoices.end();
}

}  // namespace mfsdp
