#include "core/plan/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <numeric>
#include <string_view>

#include "core/model/lora.hpp"
#include "core/model/model_shape.hpp"
#include "core/plan/config_fields.hpp"
#include "core/plan/context_parallel.hpp"
#include "core/plan/exact_sums.hpp"
#include "core/plan/fp8.hpp"
#include "core/plan/loss_scale.hpp"
#include "core/plan/nf4.hpp"
#include "core/plan/tensor_parallel.hpp"
#include "core/plan/transport.hpp"

namespace mfsdp {
namespace {

/// Each chunk of logits has its own ops; more chunks would make plans too large.
constexpr std::int64_t kMostChunks = 16'384;
/// Patterns of one flag such as --freeze, times layers: each pattern is searched in every
/// parameter's name.
constexpr std::int64_t kMostPatternLayers = 1'000'000;

/// Of --capacity-factor, so that multiplications stay far below 63 bits.
constexpr std::int64_t kMostDenominator = 1'000'000;

bool contains(std::string_view name, std::string_view pattern) {
  return name.find(pattern) != std::string_view::npos;
}

bool contains_any(std::string_view name, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns,
                             [&](const std::string& pattern) { return contains(name, pattern); });
}

/// TEXT of TEXT=X; names of parameters contain no '='.
std::string pattern_of(const std::string& scale) { return scale.substr(0, scale.find('=')); }

/// X of TEXT=X.
Result<Rational> factor_of(const std::string& scale) {
  constexpr std::string_view flag = "--lr-scale";
  constexpr std::int64_t most = 1'000;
  const std::size_t equals = scale.find('=');
  const auto factor = equals == std::string::npos
                          ? parse_rational("", flag)
                          : parse_rational(std::string_view(scale).substr(equals + 1), flag);
  if (factor && factor->num >= 0 && factor->num / factor->den < most) return *factor;
  return fail(std::string(flag),
              fmt::format("expected part of a parameter's name, '=' and a number from 0 to below "
                          "{}, got '{}'",
                          most, scale));
}

Result<void> check_count(std::string_view flag, std::string_view what, std::int64_t value,
                         const CountRange& range) {
  if (value >= range.least && value <= range.most) return {};
  return fail(std::string(flag), fmt::format("expected {} from {} to {}, got {}", what, range.least,
                                             range.most, value));
}

Result<void> check_axes(const ConfigField& field, const Mesh& mesh) {
  MFSDP_TRY(check_count(field.flag, field.range.of, mesh.size(Axis::dp_outer), field.range));
  return check_count("--gpus", "GPUs that share the shards", mesh.size(Axis::dp_shard),
                     field.range);
}

/// Refuses an axis whose ranks would compute parts of an expert's matrix, which is not supported.
/// Plans over tp can be written by hand; check_groups() requires that they cut weights along it.
Result<void> check_meanings(const Mesh& mesh) {
  for (std::size_t i = 0; i < mesh.experts.size(); ++i)
    if (const Axis axis = mesh.experts[i].axis; axis == Axis::etp)
      return fail(
          fmt::format("mesh.experts[{}].axis", i),
          fmt::format("{} is not planned, predicted or run by any tool so far: expected axes "
                      "of pp, expt_dp_outer, expt_dp and ep",
                      to_string(axis)));
  return {};
}

Result<void> check_counts(const PlanConfig& config) {
  for (const ConfigField& field : kConfigFields) {
    if (std::holds_alternative<Mesh PlanConfig::*>(field.member))
      MFSDP_TRY(check_axes(field, config.mesh));
    if (const auto* member = std::get_if<std::int64_t PlanConfig::*>(&field.member))
      MFSDP_TRY(check_count(field.flag, field.range.of, config.*(*member), field.range));
  }
  return {};
}

Result<void> check_sizes(const PlanConfig& config) {
  if (const std::int64_t gpus = config.mesh.world_size(); gpus > config_limits::ranks)
    return fail("--gpus",
                fmt::format("expected at most {} GPUs, got {}", config_limits::ranks, gpus));
  if (config.seq_len > config.model.max_seq_len)
    return fail("--seq-len",
                fmt::format("expected at most the model's maximum of {} tokens, got {}",
                            config.model.max_seq_len, config.seq_len));
  try {
    (void)config.global_tokens();
  } catch (const OverflowError&) {
    return fail("--global-batch",
                fmt::format("expected fewer than 2^63 tokens in a step, got {} x {} x {} tokens on "
                            "each of {} GPUs",
                            config.seq_len, config.micro_batch, config.microbatches,
                            config.mesh.world_size()));
  }
  return {};
}

Result<void> check_chunks(const PlanConfig& config) {
  const std::int64_t tokens = config.tokens_per_microbatch();
  if (ceil_div(tokens, config.logits_chunk) <= kMostChunks) return {};
  return fail("--logits-chunk",
              fmt::format("{} cuts the {} tokens of a microbatch ({} x {} of --micro-batch and "
                          "--seq-len) into more "
                          "than {} parts; use at least {}, or a smaller --micro-batch",
                          config.logits_chunk, tokens, config.micro_batch, config.seq_len,
                          kMostChunks, ceil_div(tokens, kMostChunks)));
}

Result<void> check_recompute(const PlanConfig& config) {
  const RecomputePolicy& policy = config.recompute;
  if (policy.full_blocks != 0 && policy.kind != Recompute::full)
    return fail("--recompute", fmt::format("expected a number of blocks only with full, got {}",
                                           flag_text(policy)));
  if (policy.full_blocks < 0 || policy.full_blocks > config.model.layers)
    return fail("--recompute",
                fmt::format("expected full:K with K from 1 to the model's {} blocks, got full:{}",
                            config.model.layers, policy.full_blocks));
  return {};
}

Result<void> check_kept(const PlanConfig& config) {
  if (config.keep_gathered <= config.model.layers) return {};
  return fail("--keep-gathered", fmt::format("expected at most the model's {} blocks, got {}",
                                             config.model.layers, config.keep_gathered));
}

/// Registered memory is addressed at equal offsets on all ranks.
Result<void> check_transports(const PlanConfig& config) {
  const bool gathers_registered = traits_of(config.gather).uses_windows;
  const bool reduces_registered = traits_of(config.reduce).uses_windows;
  if (orthogonalises(config.optimizer) && (gathers_registered || reduces_registered))
    return fail(gathers_registered ? "--gather" : "--reduce",
                fmt::format("expected nccl with --optimizer {}: directions use the same "
                            "communicators and are not in registered memory",
                            to_string(config.optimizer)));
  const std::string strategy(to_string(config.strategy));
  if (gathers_registered && config.strategy != Strategy::optim_grads_params)
    return fail("--gather",
                fmt::format("expected nccl with --strategy {}: it gathers in place, each rank from "
                            "an offset of its own, got {}",
                            strategy, to_string(config.gather)));
  if (!reduces_registered) return {};
  if (config.strategy != Strategy::optim_grads && config.strategy != Strategy::optim_grads_params)
    return fail("--reduce",
                fmt::format("expected nccl with --strategy {}: it reduces in place, each rank at "
                            "an offset of its own, got {}",
                            strategy, to_string(config.reduce)));
  if (!traits_of(config.reduce).adds_fp64 && config.reduce_dtype == DType::fp64)
    return fail("--reduce",
                fmt::format("expected nccl or copy_engine with --reduce-dtype fp64: {} kernels add "
                            "fp32, bf16 and fp16, got {}",
                            to_string(config.reduce), to_string(config.reduce)));
  return {};
}

Result<void> check_dtype(std::string_view flag, DType dtype, std::initializer_list<DType> allowed,
                         std::string_view expected) {
  if (std::ranges::find(allowed, dtype) != allowed.end()) return {};
  return fail(std::string(flag), fmt::format("expected {}, got {}", expected, to_string(dtype)));
}

Result<void> check_dtypes(const PlanConfig& config) {
  using enum DType;
  MFSDP_TRY(check_dtype("--param-dtype", config.param_dtype, {bf16, fp16, fp32, fp64},
                        "bf16, fp16, fp32 or fp64"));
  if (config.param_dtype == fp64) {  // a reference run uses fp64 throughout
    constexpr std::string_view expected = "fp64 as --param-dtype";
    MFSDP_TRY(check_dtype("--main-dtype", config.main_dtype, {fp64}, expected));
    MFSDP_TRY(check_dtype("--grad-dtype", config.grad_dtype, {fp64}, expected));
    return check_dtype("--reduce-dtype", config.reduce_dtype, {fp64}, expected);
  }
  MFSDP_TRY(check_dtype("--main-dtype", config.main_dtype, {fp32, config.param_dtype},
                        config.param_dtype == fp32 ? "fp32"
                                                   : fmt::format("fp32 or {} as --param-dtype",
                                                                 to_string(config.param_dtype))));
  MFSDP_TRY(check_dtype("--grad-dtype", config.grad_dtype, {fp32, bf16}, "fp32 or bf16"));
  return check_dtype("--reduce-dtype", config.reduce_dtype, {bf16, fp16, fp32},
                     "bf16, fp16 or fp32");
}

bool reduces_each_microbatch(Strategy strategy) {
  return strategy == Strategy::optim_grads || strategy == Strategy::optim_grads_params;
}

Result<void> check_strategy(const PlanConfig& config) {
  if (config.outer_strategy != Strategy::no_shard && config.outer_strategy != Strategy::optim)
    return fail("--outer-strategy", fmt::format("expected no_shard (HSDP) or optim (HFSDP), got {}",
                                                to_string(config.outer_strategy)));
  if (config.outer_strategy == Strategy::optim && config.strategy != Strategy::optim_grads_params)
    return fail("--outer-strategy",
                fmt::format("expected no_shard with --strategy {}: optim shards the outer axis on "
                            "top of weights and gradients that --strategy optim_grads_params "
                            "shards inside",
                            to_string(config.strategy)));
  if (config.model.tied_embeddings && reduces_each_microbatch(config.strategy) &&
      config.grad_slots < 2)
    return fail("--grad-slots",
                fmt::format("expected at least 2 with tied embeddings and --strategy {}: their "
                            "gradient keeps one slot from the head's backward to the embedding's, "
                            "got {}",
                            to_string(config.strategy), config.grad_slots));
  return {};
}

/// A rank's part of an expert-parallel parameter begins at a block of its state.
Result<void> check_blocks_of_experts(const PlanConfig& config) {
  const ModelShape& model = config.model;
  const std::int64_t rows = checked_mul(config.experts_per_rank(), model.hidden);
  const auto check = [&](std::string_view what, std::int64_t elements) -> Result<void> {
    if (elements % kStateBlock == 0) return {};
    return fail("--state-dtype",
                fmt::format("expected full with --ep {}: the {} elements of {} of a rank's "
                            "experts are not whole blocks of {}",
                            config.expert_parallel, elements, what, kStateBlock));
  };
  MFSDP_TRY(check("a matrix", checked_mul(rows, model.expert_intermediate)));
  if (!model.traits().biases) return {};
  MFSDP_TRY(check("the biases", rows));
  return check("the biases", product_of(2, config.experts_per_rank(), model.expert_intermediate));
}

/// The strategy of expert-parallel groups, over expt_dp.
Result<void> check_expert_strategy(const PlanConfig& config) {
  const Strategy strategy = config.strategy_of_experts();
  if (config.outer_strategy == Strategy::optim && strategy != Strategy::optim_grads_params)
    return fail("--expert-strategy",
                fmt::format("expected optim_grads_params with --outer-strategy optim, got {}: "
                            "expt_dp_outer is sharded on top of weights and gradients that are "
                            "sharded over expt_dp",
                            to_string(strategy)));
  const bool reduces_alike =
      reduces_each_microbatch(strategy) == reduces_each_microbatch(config.strategy);
  if (!reduces_alike && config.reduce_dtype != config.grad_dtype)
    return fail("--reduce-dtype",
                fmt::format("expected {} as --grad-dtype with --strategy {} and --expert-strategy "
                            "{}, of which one reduces gradients each microbatch and the other once "
                            "a step, got {}",
                            to_string(config.grad_dtype), to_string(config.strategy),
                            to_string(strategy), to_string(config.reduce_dtype)));
  return {};
}

/// Expert parallelism: equal numbers of experts, on neighbouring ranks.
Result<void> check_experts(const PlanConfig& config) {
  const std::int64_t ep = config.expert_parallel;
  if (with_expert_grid(config.mesh, 0).experts != config.mesh.experts && ep <= 1)
    return fail("--ep", "expected a number of ranks: the mesh has a grid for experts");
  if (ep == 1) return fail("--ep", "expected 0 or at least 2 in a configuration, got 1");
  const Rational& room = config.capacity_factor;
  if (!config.is_expert_parallel() && room.num != 0)
    return fail("--capacity-factor",
                "expected --ep too: without it no rows are exchanged between ranks");
  if (!config.is_expert_parallel() && config.expert_strategy)
    return fail("--expert-strategy",
                "expected --ep too: without it experts are sharded with their block");
  if (!config.is_expert_parallel()) return {};
  if (room.num != 0 && (room.den < 1 || room.den > kMostDenominator || room.num < room.den ||
                        room.num > ep * room.den))
    return fail("--capacity-factor",
                fmt::format("expected a number from 1 to {} (--ep), with at most 6 digits after "
                            "the point, got {}",
                            ep, flag_text(room)));
  MFSDP_TRY(check_expert_strategy(config));
  const ModelShape& model = config.model;
  if (model.experts == 0)
    return fail("--ep", fmt::format("expected none: the model has no experts, got {}", ep));
  if (model.experts % ep != 0)
    return fail("--ep", fmt::format("expected a number that divides the model's {} experts, got {}",
                                    model.experts, ep));
  if (const std::int64_t ranks = config.mesh.world_size(); ranks % ep != 0)
    return fail("--ep", fmt::format("{} must divide {}, the ranks of --gpus", ep, ranks));
  if (const std::int64_t ranks = ranks_on({Axis::dp_shard, Axis::cp, Axis::tp}, config.mesh);
      ranks % ep != 0)
    return fail("--ep", fmt::format("{} must divide {}, the ranks in each of the {} groups of "
                                    "--outer-dp",
                                    ep, ranks, config.mesh.size(Axis::dp_outer)));
  if (config.mesh != with_expert_grid(config.mesh, ep))
    return fail("mesh.experts",
                fmt::format("expected expt_dp_outer x expt_dp x ep with --ep {}", ep));
  if (config.state_dtype == StateDtype::blockwise8) MFSDP_TRY(check_blocks_of_experts(config));
  for (const auto& [flag, transport] :
       {std::pair{"--gather", config.gather}, std::pair{"--reduce", config.reduce}})
    if (traits_of(transport).uses_windows)
      return fail(flag,
                  fmt::format("expected nccl with --ep: experts are gathered and reduced over "
                              "other ranks than those that share registered memory, got {}",
                              to_string(transport)));
  if (checked_mul(config.rows_per_peer(), ep) > std::numeric_limits<std::int32_t>::max())
    return fail("--ep", fmt::format("expected fewer than 2^31 rows: {} ranks may each send {}", ep,
                                    config.rows_per_peer()));
  return {};
}

/// Adapters: their targets are layers of the model, each once and in order. All settings or none.
Result<void> check_lora(const PlanConfig& config) {
  if (!config.has_lora()) {
    if (config.lora_alpha.num != 0)
      return fail("--lora-alpha", "expected --lora-rank too: without it there are no adapters");
    if (!config.lora_targets.empty())
      return fail("--lora-targets", "expected --lora-rank too: without it there are no adapters");
    return {};
  }
  const std::vector<LoraTarget> all = lora_targets(config.model);
  if (all.empty())
    return fail("--lora-rank", fmt::format("expected none: adapters are not modelled for {} "
                                           "(docs/reference/limits.md)",
                                           to_string(config.model.family)));
  if (config.lora_alpha.num <= 0 || config.lora_alpha.den <= 0 ||
      config.lora_alpha.num / config.lora_alpha.den > config_limits::lora_rank)
    return fail("--lora-alpha",
                fmt::format("expected a number above 0 and up to {}, got {}",
                            config_limits::lora_rank, flag_text(config.lora_alpha)));
  if (!make_rational(config.lora_alpha.num, config.lora_alpha.den) ||
      config.lora_alpha.den > INT64_MAX / config.lora_rank)
    return fail("--lora-alpha", "expected a number with fewer digits");
  std::vector<std::string_view> names;
  for (const LoraTarget& target : all) names.push_back(target.name);
  auto next = names.begin();
  for (const std::string& asked : config.lora_targets) {
    const auto found = std::ranges::find(names, asked);
    if (found == names.end())
      return fail("--lora-targets", fmt::format("expected all-linear, or some of {}; got '{}'",
                                                fmt::join(names, ", "), asked));
    if (found < next)
      return fail("--lora-targets", fmt::format("expected each once, in the order {}; got '{}'",
                                                fmt::join(names, ", "), asked));
    next = found + 1;
  }
  if (config.lora_targets.empty())
    return fail("--lora-targets",
                fmt::format("expected some of {}, got none", fmt::join(names, ", ")));
  return {};
}

/// A base of 4 bits lies under adapters, and all of it is frozen.
Result<void> check_base(const PlanConfig& config) {
  if (config.base_dtype == BaseDType::compute) return {};
  const auto expected = [&](std::string_view what, std::string_view why = "") {
    return fail("--base-dtype",
                fmt::format("expected {} with {}{}", what, to_string(config.base_dtype), why));
  };
  if (!config.has_lora()) return expected("--lora-rank", ": a base of 4 bits is frozen");
  if (config.model.experts > 0) return expected("a model without experts");
  if (size_of(config.param_dtype) != 2) return expected("--param-dtype bf16 or fp16");
  if (config.layout != LayoutRule::packed) return expected("--layout packed");
  if (config.gather != Transport::nccl) return expected("--gather nccl");
  if (config.exact_sums) return expected("no --exact-sums");
  return {};
}

/// The number must be a possible value of the flag, so that a saved configuration can be read.
Result<void> check_clip(const Rational& clip) {
  const auto wrong = [&](std::string_view expected) {
    return fail("--clip",
                fmt::format("expected a number of at least 0 (0 switches clipping off){}, "
                            "got {}/{}",
                            expected, clip.num, clip.den));
  };
  if (clip.den <= 0 || clip.num < 0) return wrong("");
  const auto said = parse_rational(flag_text(clip), "--clip");
  if (!said || *said != clip) return wrong(" with at most 18 digits");
  return {};
}

/// A pattern must match whole parameters. With query, key and value fused into one matrix, "v_proj"
/// would match all three only by accident, and "q_proj" none.
Result<void> check_pattern(const std::string& flag, const Model& model,
                           const std::string& pattern) {
  if (pattern.empty()) return fail(flag, "expected part of a parameter's name, got nothing");
  bool found = false;
  for (const Parameter& parameter : model.parameters) {
    found = found || contains(parameter.name, pattern);
    const auto hits = std::ranges::count_if(
        parameter.parts, [&](const ParameterPart& part) { return contains(part.name, pattern); });
    if (hits > 0 && hits < std::ssize(parameter.parts))
      return fail(flag, fmt::format("expected whole parameters, but '{}' names only a part "
                                    "of the fused '{}'",
                                    pattern, parameter.name));
  }
  if (!found)
    return fail(flag,
                fmt::format("expected part of a parameter's name, but '{}' matches none (the first "
                            "is '{}')",
                            pattern, model.parameters.front().name));
  return {};
}

Result<void> check_patterns(const std::string& flag, const PlanConfig& config, const Model& model,
                            const std::vector<std::string>& patterns) {
  const std::int64_t most = kMostPatternLayers / config.model.layers;
  if (std::ssize(patterns) > most)
    return fail(flag, fmt::format("expected at most {} texts for a model of {} layers, got {}",
                                  most, config.model.layers, patterns.size()));
  for (const std::string& pattern : patterns) MFSDP_TRY(check_pattern(flag, model, pattern));
  return {};
}

/// Each parameter has at most one factor.
Result<void> check_rates(const PlanConfig& config, const Model& model) {
  std::vector<std::string> patterns;
  for (const std::string& scale : config.lr_scale) {
    MFSDP_TRY(factor_of(scale));
    patterns.push_back(pattern_of(scale));
  }
  MFSDP_TRY(check_patterns("--lr-scale", config, model, patterns));
  for (const Parameter& parameter : model.parameters) {
    const std::string* first = nullptr;
    for (const std::string& pattern : patterns) {
      if (!contains(parameter.name, pattern)) continue;
      if (first != nullptr)
        return fail("--lr-scale", fmt::format("expected one factor for '{}', but '{}' and '{}' "
                                              "are both part of its name",
                                              parameter.name, *first, pattern));
      first = &pattern;
    }
  }
  return {};
}

Result<void> check_states(const PlanConfig& config) {
  const std::string kept(to_string(config.state_dtype));
  if (config.state_dtype == StateDtype::full) return {};
  if (spec_of(config.optimizer).states.empty())
    return fail("--state-dtype", fmt::format("expected full with --optimizer {}, which keeps no "
                                             "states, got {}",
                                             to_string(config.optimizer), kept));
  if (config.param_dtype == DType::fp64)
    return fail("--state-dtype",
                "expected full with --param-dtype fp64, which is fp64 throughout, got " + kept);
  if (config.state_dtype == StateDtype::blockwise8 && config.layout != LayoutRule::packed)
    return fail("--state-dtype",
                fmt::format("expected --layout packed with blockwise8: {} cuts parameters where no "
                            "block of {} elements ends",
                            to_string(config.layout), kStateBlock));
  return {};
}

Result<void> check_names(const PlanConfig& config) {
  if (config.frozen.empty() && config.lr_scale.empty() && config.no_decay.empty()) return {};
  Model model = make_model(config);
  // With adapters nothing else trains, so only their names are searched.
  if (config.has_lora())
    std::erase_if(model.parameters,
                  [](const Parameter& parameter) { return !is_lora(parameter.name); });
  MFSDP_TRY(check_rates(config, model));
  MFSDP_TRY(check_patterns("--no-decay", config, model, config.no_decay));
  MFSDP_TRY(check_patterns("--freeze", config, model, config.frozen));
  const bool trains = std::ranges::any_of(model.parameters, [&](const Parameter& parameter) {
    return !config.is_frozen(parameter.name);
  });
  if (!trains)
    return fail("--freeze", "expected at least one parameter to stay trainable, got none");
  return {};
}

}  // namespace

Sharded sharded_by(Strategy strategy, std::int64_t axis_size) {
  if (axis_size <= 1) return {};
  return Sharded{.parameter = strategy >= Strategy::optim_grads_params,
                 .gradient = strategy >= Strategy::optim_grads,
                 .state = strategy >= Strategy::optim};
}

bool PlanConfig::is_frozen(const std::string& parameter_name) const {
  return contains_any(parameter_name, frozen) || never_trains(parameter_name) ||
         (has_lora() && !is_lora(parameter_name));
}

bool PlanConfig::is_quantised(UnitKind unit, const Parameter& parameter) const {
  return base_dtype != BaseDType::compute && unit == UnitKind::block && is_frozen(parameter.name) &&
         is_linear_of_block(model, parameter.role);
}

Rational PlanConfig::lora_scale() const {
  const std::int64_t whole = std::gcd(lora_alpha.num, lora_rank);
  return {lora_alpha.num / whole, checked_mul(lora_alpha.den, lora_rank / whole)};
}

Model make_model(const PlanConfig& config) {
  Model model = make_model(config.model, config.param_dtype);
  if (config.has_lora()) add_lora(model, config.lora_rank, config.lora_targets);
  return model;
}

bool PlanConfig::decays(const std::string& parameter_name, bool by_shape) const {
  return by_shape && !contains_any(parameter_name, no_decay);
}

std::optional<Rational> PlanConfig::rate_of(const std::string& parameter_name) const {
  for (const std::string& scale : lr_scale)
    if (contains(parameter_name, pattern_of(scale))) return factor_of(scale).value();
  return std::nullopt;
}

Result<void> validate(const PlanConfig& config, MeshRules rules) {
  MFSDP_TRY(check_shape(config.model, "--model"));
  MFSDP_TRY(check_counts(config));
  MFSDP_TRY(check_mesh(config.mesh));
  MFSDP_TRY(check_meanings(config.mesh));
  MFSDP_TRY(check_sizes(config));
  if (rules == MeshRules::planner) {
    MFSDP_TRY(check_context_parallel(config));
    MFSDP_TRY(check_tensor_parallel(config));
  }
  MFSDP_TRY(check_chunks(config));
  MFSDP_TRY(check_recompute(config));
  MFSDP_TRY(check_kept(config));
  MFSDP_TRY(check_dtypes(config));
  MFSDP_TRY(check_transports(config));
  MFSDP_TRY(check_strategy(config));
  MFSDP_TRY(check_experts(config));
  MFSDP_TRY(check_exact_sums(config));
  MFSDP_TRY(check_loss_scale(config));
  MFSDP_TRY(check_clip(config.clip));
  MFSDP_TRY(check_states(config));
  MFSDP_TRY(check_lora(config));
  MFSDP_TRY(check_base(config));
  MFSDP_TRY(check_fp8(config));
  return check_names(config);
}

}  // namespace mfsdp
