// The table of the configuration's fields. Flags with their ranges and help, result JSON, CSV and
// sweeps are made from it.
//
// To add a field:
//   1. its member in PlanConfig, with its default (core/plan/config.hpp);
//   2. its entry in kConfigFields, and its key in core/plan/describe.hpp, where keys are sorted. A
//      test fails while one of the two is missing;
//   3. its use in the planner, and in validate() where it depends on other fields.
//
// An enumeration needs Names<> and, if its type is new, a line in FieldMember. Every field changes
// the plan and its hash.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "core/plan/config.hpp"

namespace mfsdp {

/// The member that holds a field.
using FieldMember = std::variant<
    std::int64_t PlanConfig::*, bool PlanConfig::*, Rational PlanConfig::*,
    std::vector<std::string> PlanConfig::*, Mesh PlanConfig::*, RecomputePolicy PlanConfig::*,
    Strategy PlanConfig::*, std::optional<Strategy> PlanConfig::*, DType PlanConfig::*,
    AllocatorPolicy PlanConfig::*, Optimizer PlanConfig::*, LayoutRule PlanConfig::*,
    BaseDType PlanConfig::*, StateDtype PlanConfig::*, CollectivePlacement PlanConfig::*,
    Transport PlanConfig::*, Fp8Recipe PlanConfig::*, Fp8Accumulate PlanConfig::*,
    Fp8Amax PlanConfig::*, ContextExchange PlanConfig::*, PipelineSchedule PlanConfig::*,
    std::vector<std::int64_t> PlanConfig::*>;

/// The group of flags in which --help shows a field.
enum class FieldTopic { parallelism, memory, numbers };

/// Columns are only appended to the CSV: `first` fields come before memory and times, `second`
/// after them, then `later` and `newest`, and `last` after all others. Results that were stored
/// before a field of the last three existed get its default, or the value that result_config.cpp
/// gives.
enum class FieldAge { first, second, later, newest, last };

/// The unit of an integer, and its smallest and largest value.
struct CountRange {
  std::string_view of = {};
  std::int64_t least = 0;
  std::int64_t most = 0;
  bool in_thousands = false;  ///< the flag takes "8k" for 8192
};

struct ConfigField {
  std::string_view name;  ///< in the JSON of plans and results, and in CSV
  FieldMember member;
  FieldTopic topic;
  std::string_view flag;
  std::string_view flag_value = {};  ///< name of the flag's value in --help; empty for a switch
  std::string_view help;
  /// Added in brackets by --help; empty: the default, if the flag takes one value.
  std::string_view in_brackets = {};
  CountRange range = {};    ///< of integers
  bool takes_list = false;  ///< mfsdp-sim takes several values, with a run for each
  FieldAge age = FieldAge::newest;
};

/// The largest values of fields.
namespace config_limits {
inline constexpr std::int64_t ranks = std::int64_t{1} << 20;
inline constexpr std::int64_t sequences = std::int64_t{1} << 20;
inline constexpr std::int64_t tokens = std::int64_t{1} << 24;
inline constexpr std::int64_t slots = 64;
inline constexpr std::int64_t blocks = std::int64_t{1} << 16;
inline constexpr std::int64_t amax_history = 1 << 16;
inline constexpr std::int64_t lora_rank = 1 << 16;
}  // namespace config_limits

/// In the order of results and, within a topic, of --help, which lists switches last. Add new
/// fields at the end.
inline constexpr std::array kConfigFields{
    ConfigField{.name = "strategy",
                .member = &PlanConfig::strategy,
                .topic = FieldTopic::parallelism,
                .flag = "--strategy",
                .flag_value = "S",
                .help = "no_shard, optim, optim_grads, optim_grads_params",
                .in_brackets = "zero0-zero3, fsdp",
                .takes_list = true,
                .age = FieldAge::first},
    // --outer-dp is the number of groups; --gpus determines the size of a group.
    ConfigField{.name = "mesh",
                .member = &PlanConfig::mesh,
                .topic = FieldTopic::parallelism,
                .flag = "--outer-dp",
                .flag_value = "N",
                .help = "groups of ranks that replicate",
                .range = {.of = "a number of groups", .least = 1, .most = config_limits::ranks},
                .takes_list = true,
                .age = FieldAge::first},
    ConfigField{.name = "outer_strategy",
                .member = &PlanConfig::outer_strategy,
                .topic = FieldTopic::parallelism,
                .flag = "--outer-strategy",
                .flag_value = "S",
                .help = "no_shard (HSDP) or optim (HFSDP) over the groups",
                .takes_list = true,
                .age = FieldAge::first},
    ConfigField{
        .name = "seq_len",
        .member = &PlanConfig::seq_len,
        .topic = FieldTopic::parallelism,
        .flag = "--seq-len",
        .flag_value = "N",
        .help = "tokens in a sequence, 8k is 8192",
        .in_brackets = "default: 8k, or the model's maximum",
        .range = {.of = "tokens", .least = 1, .most = config_limits::tokens, .in_thousands = true},
        .takes_list = true,
        .age = FieldAge::first},
    ConfigField{.name = "micro_batch",
                .member = &PlanConfig::micro_batch,
                .topic = FieldTopic::parallelism,
                .flag = "--micro-batch",
                .flag_value = "N",
                .help = "sequences per GPU and microbatch",
                .range = {.of = "sequences", .least = 1, .most = config_limits::sequences},
                .takes_list = true,
                .age = FieldAge::first},
    // The flag is the number of sequences on all ranks; the number of microbatches follows from it.
    ConfigField{
        .name = "microbatches",
        .member = &PlanConfig::microbatches,
        .topic = FieldTopic::parallelism,
        .flag = "--global-batch",
        .flag_value = "N",
        .help = "sequences per step on all GPUs; 4M: tokens",
        .in_brackets = "default: 1 microbatch per GPU",
        .range = {.of = "microbatches per rank", .least = 1, .most = config_limits::sequences},
        .takes_list = true,
        .age = FieldAge::first},
    ConfigField{.name = "recompute",
                .member = &PlanConfig::recompute,
                .topic = FieldTopic::memory,
                .flag = "--recompute",
                .flag_value = "P",
                .help = "none, selective (norms and SwiGLU, no attention), full, full:K",
                .takes_list = true,
                .age = FieldAge::first},
    ConfigField{.name = "param_dtype",
                .member = &PlanConfig::param_dtype,
                .topic = FieldTopic::numbers,
                .flag = "--param-dtype",
                .flag_value = "D",
                .help = "compute weights",
                .age = FieldAge::first},
    ConfigField{.name = "main_dtype",
                .member = &PlanConfig::main_dtype,
                .topic = FieldTopic::numbers,
                .flag = "--main-dtype",
                .flag_value = "D",
                .help = "main weights",
                .age = FieldAge::first},
    ConfigField{.name = "grad_dtype",
                .member = &PlanConfig::grad_dtype,
                .topic = FieldTopic::numbers,
                .flag = "--grad-dtype",
                .flag_value = "D",
                .help = "main gradients",
                .age = FieldAge::first},
    ConfigField{.name = "reduce_dtype",
                .member = &PlanConfig::reduce_dtype,
                .topic = FieldTopic::numbers,
                .flag = "--reduce-dtype",
                .flag_value = "D",
                .help = "dtype of gradient reductions",
                .takes_list = true,
                .age = FieldAge::first},
    ConfigField{.name = "prefetch",
                .member = &PlanConfig::prefetch,
                .topic = FieldTopic::memory,
                .flag = "--prefetch",
                .flag_value = "N",
                .help = "units to prefetch",
                .range = {.of = "units", .least = 0, .most = config_limits::slots},
                .takes_list = true,
                .age = FieldAge::first},
    ConfigField{.name = "grad_slots",
                .member = &PlanConfig::grad_slots,
                .topic = FieldTopic::memory,
                .flag = "--grad-slots",
                .flag_value = "N",
                .help = "full gradients in memory at once (tied weights add one)",
                .range = {.of = "gradient slots", .least = 1, .most = config_limits::slots},
                .age = FieldAge::first},
    ConfigField{.name = "allocator",
                .member = &PlanConfig::allocator,
                .topic = FieldTopic::memory,
                .flag = "--allocator",
                .flag_value = "A",
                .help = "temporary, double_buffer, trace_pool, best_fit",
                .age = FieldAge::first},
    ConfigField{.name = "optimizer",
                .member = &PlanConfig::optimizer,
                .topic = FieldTopic::numbers,
                .flag = "--optimizer",
                .flag_value = "O",
                .help = "adamw, lion, sgd or muon",
                .age = FieldAge::first},
    ConfigField{.name = "clip",
                .member = &PlanConfig::clip,
                .topic = FieldTopic::numbers,
                .flag = "--clip",
                .flag_value = "X",
                .help = "limit of the gradient's norm, 0 for none",
                .in_brackets = "1.0",
                .age = FieldAge::second},
    ConfigField{.name = "deterministic",
                .member = &PlanConfig::deterministic,
                .topic = FieldTopic::numbers,
                .flag = "--deterministic",
                .help = "deterministic kernels",
                .age = FieldAge::second},
    ConfigField{.name = "exact_sums",
                .member = &PlanConfig::exact_sums,
                .topic = FieldTopic::numbers,
                .flag = "--exact-sums",
                .help = "order-independent gradient sums (for tests)",
                .age = FieldAge::second},
    ConfigField{.name = "frozen",
                .member = &PlanConfig::frozen,
                .topic = FieldTopic::numbers,
                .flag = "--freeze",
                .flag_value = "TEXT,...",
                .help = "do not train parameters whose name contains TEXT",
                .age = FieldAge::second},
    ConfigField{
        .name = "logits_chunk",
        .member = &PlanConfig::logits_chunk,
        .topic = FieldTopic::memory,
        .flag = "--logits-chunk",
        .flag_value = "N",
        .help = "tokens whose logits are live at once",
        .range = {.of = "tokens", .least = 1, .most = config_limits::tokens, .in_thousands = true},
        .age = FieldAge::second},
    ConfigField{.name = "layout",
                .member = &PlanConfig::layout,
                .topic = FieldTopic::memory,
                .flag = "--layout",
                .flag_value = "L",
                .help = "packed, or megatron_fsdp with its padding",
                .takes_list = true,
                .age = FieldAge::later},
    ConfigField{.name = "state_dtype",
                .member = &PlanConfig::state_dtype,
                .topic = FieldTopic::numbers,
                .flag = "--state-dtype",
                .flag_value = "D",
                .help = "optimizer's states: full (fp32), bf16, or blockwise8",
                .takes_list = true},
    ConfigField{.name = "lr_scale",
                .member = &PlanConfig::lr_scale,
                .topic = FieldTopic::numbers,
                .flag = "--lr-scale",
                .flag_value = "TEXT=X,...",
                .help = "X times the learning rate where a parameter's name contains TEXT"},
    ConfigField{.name = "no_decay",
                .member = &PlanConfig::no_decay,
                .topic = FieldTopic::numbers,
                .flag = "--no-decay",
                .flag_value = "TEXT,...",
                .help = "no weight decay where a parameter's name contains TEXT"},
    ConfigField{.name = "document_mask",
                .member = &PlanConfig::document_mask,
                .topic = FieldTopic::numbers,
                .flag = "--document-mask",
                .help = "attend only within each document of a sequence"},
    // The flag also takes "dynamic" and "none" (core/cli/config_flags.cpp).
    ConfigField{.name = "loss_scale",
                .member = &PlanConfig::loss_scale,
                .topic = FieldTopic::numbers,
                .flag = "--loss-scale",
                .flag_value = "X",
                .help = "with fp16: dynamic, none, or a number",
                .in_brackets = "dynamic: 65536 at first"},
    ConfigField{.name = "loss_scale_window",
                .member = &PlanConfig::loss_scale_window,
                .topic = FieldTopic::numbers,
                .flag = "--loss-scale-window",
                .flag_value = "N",
                .help = "finite steps until the scale doubles, 0 never",
                .in_brackets = "2000 if dynamic",
                .range = {.of = "steps", .least = 0, .most = config_limits::tokens}},
    ConfigField{.name = "placement",
                .member = &PlanConfig::placement,
                .topic = FieldTopic::memory,
                .flag = "--placement",
                .flag_value = "P",
                .help = "collectives: earliest, attention, after_attention, gathers",
                .takes_list = true},
    ConfigField{.name = "gather",
                .member = &PlanConfig::gather,
                .topic = FieldTopic::memory,
                .flag = "--gather",
                .flag_value = "T",
                .help = "weights by nccl, symmetric or copy_engine",
                .takes_list = true},
    ConfigField{.name = "reduce",
                .member = &PlanConfig::reduce,
                .topic = FieldTopic::memory,
                .flag = "--reduce",
                .flag_value = "T",
                .help = "gradients by nccl, symmetric or copy_engine",
                .takes_list = true},
    ConfigField{.name = "keep_gathered",
                .member = &PlanConfig::keep_gathered,
                .topic = FieldTopic::memory,
                .flag = "--keep-gathered",
                .flag_value = "N",
                .help = "last blocks that stay gathered until backward",
                .range = {.of = "blocks", .least = 0, .most = config_limits::blocks},
                .takes_list = true},
    ConfigField{.name = "lora_rank",
                .member = &PlanConfig::lora_rank,
                .topic = FieldTopic::numbers,
                .flag = "--lora-rank",
                .flag_value = "N",
                .help = "train LoRA adapters of this rank only",
                .in_brackets = "none",
                .range = {.of = "a rank", .least = 0, .most = config_limits::lora_rank},
                .takes_list = true},
    ConfigField{.name = "lora_alpha",
                .member = &PlanConfig::lora_alpha,
                .topic = FieldTopic::numbers,
                .flag = "--lora-alpha",
                .flag_value = "X",
                .help = "adapters' output is multiplied by X / rank",
                .in_brackets = "8"},
    ConfigField{.name = "lora_targets",
                .member = &PlanConfig::lora_targets,
                .topic = FieldTopic::numbers,
                .flag = "--lora-targets",
                .flag_value = "NAME,...",
                .help = "layers with adapters: q_proj, ..., or all-linear",
                .in_brackets = "default: q_proj,v_proj"},
    // The mesh has the experts' grid: with_expert_grid().
    ConfigField{.name = "expert_parallel",
                .member = &PlanConfig::expert_parallel,
                .topic = FieldTopic::parallelism,
                .flag = "--ep",
                .flag_value = "N",
                .help = "ranks that divide the experts of a block",
                .in_brackets = "default: none, each has all",
                .range = {.of = "a number of ranks", .least = 0, .most = config_limits::ranks},
                .takes_list = true},
    ConfigField{.name = "capacity_factor",
                .member = &PlanConfig::capacity_factor,
                .topic = FieldTopic::parallelism,
                .flag = "--capacity-factor",
                .flag_value = "X",
                .help = "with --ep: capacity, X times a rank's equal share of rows",
                .in_brackets = "default: all rows",
                .takes_list = true},
    ConfigField{.name = "expert_strategy",
                .member = &PlanConfig::expert_strategy,
                .topic = FieldTopic::parallelism,
                .flag = "--expert-strategy",
                .flag_value = "S",
                .help = "with --ep: strategy of experts",
                .in_brackets = "default: as --strategy",
                .takes_list = true},
    ConfigField{.name = "base_dtype",
                .member = &PlanConfig::base_dtype,
                .topic = FieldTopic::numbers,
                .flag = "--base-dtype",
                .flag_value = "D",
                .help = "base under adapters: compute, or nf4 (QLoRA, not run)",
                .takes_list = true,
                .age = FieldAge::last},
    ConfigField{.name = "fp8",
                .member = &PlanConfig::fp8,
                .topic = FieldTopic::numbers,
                .flag = "--fp8",
                .flag_value = "R",
                .help = "GEMMs of blocks in FP8: off, current, delayed, blockwise, mxfp8, nvfp4",
                .takes_list = true,
                .age = FieldAge::last},
    ConfigField{.name = "fp8_keep_bf16",
                .member = &PlanConfig::fp8_keep_bf16,
                .topic = FieldTopic::numbers,
                .flag = "--fp8-keep-bf16",
                .flag_value = "N",
                .help = "with --fp8: first and last blocks in bf16",
                .range = {.of = "blocks", .least = 0, .most = config_limits::blocks},
                .takes_list = true,
                .age = FieldAge::last},
    ConfigField{.name = "fp8_accumulate",
                .member = &PlanConfig::fp8_accumulate,
                .topic = FieldTopic::numbers,
                .flag = "--fp8-accumulate",
                .flag_value = "A",
                .help = "sums of FP8: fast_forward, split or fast",
                .takes_list = true,
                .age = FieldAge::last},
    ConfigField{.name = "fp8_history",
                .member = &PlanConfig::fp8_history,
                .topic = FieldTopic::numbers,
                .flag = "--fp8-history",
                .flag_value = "N",
                .help = "with --fp8 delayed: steps of the history",
                .in_brackets = "0: 1024",
                .range = {.of = "steps", .least = 0, .most = config_limits::amax_history},
                .takes_list = true,
                .age = FieldAge::last},
    ConfigField{.name = "fp8_amax",
                .member = &PlanConfig::fp8_amax,
                .topic = FieldTopic::numbers,
                .flag = "--fp8-amax",
                .flag_value = "A",
                .help = "with --fp8 delayed: max or most_recent of the history",
                .takes_list = true,
                .age = FieldAge::last},
    ConfigField{.name = "fp8_gather",
                .member = &PlanConfig::fp8_gather,
                .topic = FieldTopic::numbers,
                .flag = "--fp8-gather",
                .help = "with --fp8: cast weights once a step, gather casts",
                .age = FieldAge::last},
    ConfigField{.name = "cp_comm",
                .member = &PlanConfig::cp_comm,
                .topic = FieldTopic::parallelism,
                .flag = "--cp-comm",
                .flag_value = "C",
                .help = "with --cp: a2a (Ulysses), all_gather (of keys), p2p (a ring)",
                .takes_list = true,
                .age = FieldAge::last},
    ConfigField{.name = "schedule",
                .member = &PlanConfig::schedule,
                .topic = FieldTopic::parallelism,
                .flag = "--schedule",
                .flag_value = "S",
                .help = "with --pp: 1f1b, gpipe, of mcore interleaved",
                .takes_list = true,
                .age = FieldAge::last},
    ConfigField{.name = "virtual_stages",
                .member = &PlanConfig::virtual_stages,
                .topic = FieldTopic::parallelism,
                .flag = "--vpp",
                .flag_value = "N",
                .help = "chunks of each stage with --schedule interleaved",
                .in_brackets = "0: one",
                .range = {.of = "chunks", .least = 0, .most = config_limits::slots},
                .takes_list = true,
                .age = FieldAge::last},
    ConfigField{.name = "microbatch_group",
                .member = &PlanConfig::microbatch_group,
                .topic = FieldTopic::parallelism,
                .flag = "--microbatch-group",
                .flag_value = "N",
                .help = "with --vpp: microbatches before the next chunk's turn",
                .in_brackets = "0: --pp",
                .range = {.of = "microbatches", .least = 0, .most = config_limits::sequences},
                .takes_list = true,
                .age = FieldAge::last},
    ConfigField{.name = "layers_of_stages",
                .member = &PlanConfig::layers_of_stages,
                .topic = FieldTopic::parallelism,
                .flag = "--layers-of-stages",
                .flag_value = "N,...",
                .help = "with --pp: blocks of each stage",
                .in_brackets = "equal numbers",
                .age = FieldAge::last},
};

/// Calls visit(field, value) for each field, in order; `value` is the member of `config`.
void for_each_field(auto& config, auto&& visit) {
  for (const ConfigField& field : kConfigFields)
    std::visit([&](const auto member) { visit(field, config.*member); }, field.member);
}

// A value in the spelling of its flag, which is also its text in CSV.
[[nodiscard]] std::string flag_text(std::int64_t value);
[[nodiscard]] std::string flag_text(bool value);
[[nodiscard]] std::string flag_text(const Rational& value);
[[nodiscard]] std::string flag_text(const std::vector<std::string>& values);
[[nodiscard]] std::string flag_text(const std::vector<std::int64_t>& values);
[[nodiscard]] std::string flag_text(const RecomputePolicy& policy);
/// Empty if experts have the common strategy, so that there is no flag.
[[nodiscard]] std::string flag_text(const std::optional<Strategy>& strategy);
[[nodiscard]] std::string flag_text(const Mesh& mesh);  ///< the groups; --gpus has the ranks
template <class Enum>
  requires std::is_enum_v<Enum>
[[nodiscard]] std::string flag_text(Enum value) {
  return std::string(to_string(value));
}

/// "none", "selective", "full" or "full:K" with K blocks, at least 1; none for any other text.
[[nodiscard]] std::optional<RecomputePolicy> parse_recompute(std::string_view text);

}  // namespace mfsdp
