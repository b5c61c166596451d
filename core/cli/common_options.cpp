#include "core/cli/common_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace mfsdp {
namespace {

// Far above any machine or model, and low enough that products of a few stay below 2^63. What the
// plan allows is narrower in places (core/plan/config.hpp).
constexpr Range gpu_counts{.lowest = 1, .highest = 1'048'576};
constexpr Range token_counts{.lowest = 1, .highest = 16'777'216};
constexpr Range sequence_counts{.lowest = 1, .highest = 1'048'576};
constexpr Range batch_counts{.lowest = 1, .highest = 1'099'511'627'776};
constexpr Range slot_counts{.lowest = 1, .highest = 64};

Flag shaping(Flag flag) {
  flag.shapes_plan = true;
  return flag;
}

/// --gpus and --world-size set one number; given both, they must agree.
std::pair<Flag, Flag> world_flags(std::int64_t& gpus) {
  struct First {
    std::string name;
    std::int64_t value = 0;
  };
  const auto first = std::make_shared<std::optional<First>>();
  const auto make = [&](std::string name, std::string help) {
    const auto apply = [name, first, &gpus](const std::string& text) -> Result<void> {
      MFSDP_LET(value, parse_integer(text, name, gpu_counts));
      if (*first && (*first)->value != value)
        return fail(name, fmt::format("{} contradicts {} {}; they mean the same", value,
                                      (*first)->name, (*first)->value));
      *first = First{.name = name, .value = value};
      gpus = value;
      return {};
    };
    return shaping({.name = name, .value = "N", .help = std::move(help), .apply = apply});
  };
  return {make("--gpus", "GPUs in all (8)"), make("--world-size", "the same as --gpus")};
}

/// A strategy by name or by ZeRO stage, up to `last`.
Flag strategy_flag(std::string name, std::string help, Strategy& target, Strategy last) {
  const auto apply = [name, &target, last](const std::string& text) -> Result<void> {
    const bool digit = text.size() == 1 && text[0] >= '0' && text[0] <= '3';
    const auto strategy =
        digit ? std::optional(static_cast<Strategy>(text[0] - '0')) : parse<Strategy>(text);
    if (!strategy || *strategy > last)
      return fail(name, in_quotes(text) + " is not one of " +
                            (last == Strategy::optim ? "no_shard (HSDP) or optim (HFSDP)"
                                                     : name_list<Strategy>() + ", or 0 to 3"));
    target = *strategy;
    return {};
  };
  return shaping({.name = name, .value = "S", .help = std::move(help), .apply = apply});
}

/// A floating-point dtype; the integers of DType are not for weights and gradients.
Flag dtype_flag(std::string name, std::string help, DType& target) {
  const auto apply = [name, &target](const std::string& text) -> Result<void> {
    const auto dtype = parse<DType>(text);
    if (!dtype || (dtype != DType::bf16 && dtype != DType::fp16 && dtype != DType::fp32 &&
                   dtype != DType::fp64))
      return fail(name, in_quotes(text) + " is not one of bf16, fp16, fp32 or fp64");
    target = *dtype;
    return {};
  };
  return shaping({.name = name, .value = "D", .help = std::move(help), .apply = apply});
}

Result<void> set_recompute(const std::string& text, RecomputePolicy& target) {
  if (text.starts_with("full:")) {
    const auto blocks = parse_integer(text.substr(5), "--recompute", {.lowest = 1});
    if (!blocks)
      return fail(
          "--recompute",
          in_quotes(text) + ": the K of full:K must be a whole number of blocks, 1 or more");
    target = {.kind = Recompute::full, .full_blocks = *blocks};
    return {};
  }
  const auto kind = parse<Recompute>(text);
  if (!kind)
    return fail("--recompute", in_quotes(text) + " is not one of none, selective, full or full:K");
  target = {.kind = *kind};
  return {};
}

Result<void> set_clip(const std::string& text, Rational& target) {
  const auto value = parse_rational(text, "--clip");
  if (!value || value->num < 0)
    return fail("--clip", in_quotes(text) +
                              " is not a number of 0 (no clipping) or more with at most 18 digits "
                              "(written without an exponent)");
  target = *value;
  return {};
}

Result<void> add_frozen(const std::string& text, std::vector<std::string>& target) {
  for (const std::string& given : split(text, ',')) {
    if (given.empty())
      return fail("--freeze", in_quotes(text) + " is not a comma list of parts of parameter names");
    MFSDP_LET(part, parse_text(given, "--freeze"));
    target.push_back(part);
  }
  return {};
}

Flag cluster_flag(std::optional<std::string>& target) {
  Flag flag = path_flag(
      "--cluster", "cluster of the catalogue (--list-clusters), or a TOML file; instead of --gpu",
      target);
  flag.value = "NAME|FILE";
  return flag;
}

FlagGroup model_group(CommonOptions& o) {
  auto [gpus, world_size] = world_flags(o.gpus);
  return {.title = "Model and machine",
          .flags = {
              shaping(text_flag("--model", "NAME|PATH",
                                "built-in name, config.json, or its directory", o.model)),
              gpus, world_size,
              text_flag("--gpu", "NAME|FILE", "GPU of the catalogue, or a TOML file (h100)", o.gpu),
              integer_flag("--gpus-per-node", "GPUs in one node (8)", o.gpus_per_node, gpu_counts),
              cluster_flag(o.cluster)}};
}

FlagGroup parallelism_group(CommonOptions& o) {
  return {
      .title = "Parallelism and batch",
      .flags = {
          strategy_flag("--strategy",
                        "no_shard, optim, optim_grads, optim_grads_params; or 0-3 "
                        "(optim_grads_params)",
                        o.strategy, Strategy::optim_grads_params),
          shaping(integer_flag("--outer-dp", "groups of ranks that replicate (1)", o.outer_dp,
                               gpu_counts)),
          strategy_flag("--outer-strategy",
                        "no_shard (HSDP) or optim (HFSDP) over the groups (no_shard)",
                        o.outer_strategy, Strategy::optim),
          shaping(integer_flag("--seq-len", "tokens in a sequence (8192, or the model's maximum)",
                               o.seq_len, token_counts)),
          shaping(integer_flag("--micro-batch", "sequences per GPU and microbatch (1)",
                               o.micro_batch, sequence_counts)),
          shaping(integer_flag("--global-batch", "sequences per step (one microbatch per GPU)",
                               o.global_batch, batch_counts))}};
}

FlagGroup memory_group(CommonOptions& o) {
  const auto recompute = [&o](const std::string& text) { return set_recompute(text, o.recompute); };
  return {
      .title = "Memory and schedule",
      .flags = {
          shaping({.name = "--recompute",
                   .value = "P",
                   .help = "none, selective, full, or full:K for the first K blocks (selective)",
                   .apply = recompute}),
          shaping(integer_flag("--prefetch", "units gathered ahead (1)", o.prefetch,
                               {.lowest = 0, .highest = 64})),
          shaping(
              integer_flag("--grad-slots", "live full gradients (2)", o.grad_slots, slot_counts)),
          shaping(choice_flag("--allocator", "A",
                              "temporary, double_buffer, trace_pool, best_fit (best_fit)",
                              o.allocator)),
          shaping(integer_flag("--logits-chunk", "tokens whose logits exist at a time (1024)",
                               o.logits_chunk, token_counts))}};
}

FlagGroup numerics_group(CommonOptions& o) {
  const auto clip = [&o](const std::string& text) { return set_clip(text, o.clip); };
  const auto freeze = [&o](const std::string& text) { return add_frozen(text, o.freeze); };
  return {
      .title = "Numbers and optimizer",
      .flags = {dtype_flag("--param-dtype", "compute weights (bf16)", o.param_dtype),
                dtype_flag("--main-dtype", "main weights (fp32)", o.main_dtype),
                dtype_flag("--grad-dtype", "main gradients (fp32)", o.grad_dtype),
                dtype_flag("--reduce-dtype", "gradients on the wire (fp32)", o.reduce_dtype),
                shaping(choice_flag("--optimizer", "O", "adamw or sgd (adamw)", o.optimizer)),
                shaping({.name = "--clip",
                         .value = "X",
                         .help = "limit of the gradient's norm, 0 for none (1.0)",
                         .apply = clip}),
                shaping({.name = "--freeze",
                         .value = "TEXT,...",
                         .help = "do not train parameters whose name contains TEXT",
                         .apply = freeze,
                         .repeatable = true}),
                shaping(switch_flag("--deterministic", "deterministic kernels", o.deterministic)),
                shaping(switch_flag("--exact-sums", "order-independent gradient sums (for tests)",
                                    o.exact_sums))}};
}

FlagGroup result_group(CommonOptions& o) {
  return {
      .title = "Plan and results",
      .flags = {
          path_flag("--plan", "take this plan instead of building one", o.plan),
          path_flag("--plan-out", "write the plan as JSON", o.plan_out),
          choice_flag("--output", "F", "text, json, jsonl, csv, md (text)", o.output),
          path_flag("--db", "store of results (mfsdp.sqlite)", o.db),
          switch_flag("--no-save", "store nothing", o.no_save),
          text_flag("--name", "TEXT", "name of the run in the store", o.name),
          path_flag("--trace", "write a Chrome trace for Perfetto; FILE.gz is compressed", o.trace),
          path_flag("--memory-trace", "write live bytes by category over time", o.memory_trace),
          switch_flag("--help", "show this text", o.help),
          switch_flag("--version", "show version and build", o.version)}};
}

}  // namespace

std::vector<FlagGroup> common_flags(CommonOptions& options) {
  return {model_group(options), parallelism_group(options), memory_group(options),
          numerics_group(options), result_group(options)};
}

Result<void> check_common(const CommonOptions& options, const std::vector<FlagGroup>& groups,
                          const std::vector<std::string>& given) {
  if (options.plan)
    for (const FlagGroup& group : groups)
      for (const Flag& flag : group.flags)
        if (flag.shapes_plan && contains(given, flag.name))
          return fail(flag.name, "contradicts --plan, whose file decides it");
  if (options.no_save && options.db) return fail("--no-save", "contradicts --db");
  if (options.cluster && contains(given, "--gpu"))
    return fail("--cluster", "contradicts --gpu; the cluster's file names its GPU");
  return {};
}

}  // namespace mfsdp
