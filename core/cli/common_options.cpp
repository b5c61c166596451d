#include "core/cli/common_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "core/base/amount.hpp"
#include "core/cli/strategy_names.hpp"

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
  // What each of the two said last: the same flag again is another combination of a list.
  const auto said = std::make_shared<std::map<std::string, std::int64_t>>();
  const auto make = [&](const std::string& name, std::string help) {
    const auto apply = [name, said, &gpus](const std::string& text) -> Result<void> {
      MFSDP_LET(value, parse_integer(text, name, gpu_counts));
      for (const auto& [other, count] : *said)
        if (other != name && count != value)
          return fail(name,
                      fmt::format("{} contradicts {} {}; they mean the same", value, other, count));
      (*said)[name] = value;
      gpus = value;
      return {};
    };
    return shaping({.name = name, .value = "N", .help = std::move(help), .apply = apply});
  };
  return {make("--gpus", "GPUs in all (8)"), make("--world-size", "the same as --gpus")};
}

Result<void> set_strategy(const std::string& text, CommonOptions& o) {
  const auto named = parse_strategy(text);
  if (!named)
    return fail("--strategy", in_quotes(text) + " is not one of " + name_list<Strategy>() +
                                  ", nor 0 to 3, zero0 to zero3, ddp, fsdp, full_shard, "
                                  "shard_grad_op, hsdp or hfsdp");
  o.strategy = named->strategy;
  o.outer_asked = named->outer;
  if (named->outer == Strategy::optim) o.outer_strategy = Strategy::optim;
  return {};
}

Result<void> set_outer_strategy(const std::string& text, Strategy& target) {
  const auto named = parse_strategy(text);
  const Strategy asked = !named ? Strategy::optim_grads : named->outer.value_or(named->strategy);
  if (asked != Strategy::no_shard && asked != Strategy::optim)
    return fail("--outer-strategy",
                in_quotes(text) + " is not one of no_shard (HSDP) or optim (HFSDP)");
  target = asked;
  return {};
}

/// --strategy hsdp and hfsdp say that there are groups, and not how many.
Result<void> check_groups(const CommonOptions& o, const std::vector<std::string>& given) {
  if (!o.outer_asked) return {};
  const bool further = o.outer_asked == Strategy::optim;
  if (o.outer_dp == 1)
    return fail("--strategy",
                fmt::format("{} needs --outer-dp, the number of groups that {}: the number of "
                            "nodes, where each node is a group",
                            further ? "hfsdp" : "hsdp", further ? "shard further" : "replicate"));
  if (contains(given, "--outer-strategy") && o.outer_strategy != *o.outer_asked)
    return fail("--outer-strategy",
                fmt::format("{} contradicts --strategy {}", to_string(o.outer_strategy),
                            further ? "hfsdp" : "hsdp"));
  return {};
}

/// A number of tokens, in thousands (1,024) too: "8k", as lengths of sequences are named.
template <class Target>
Flag length_flag(std::string name, std::string help, Target& target) {
  return bound_flag(name, "N", std::move(help), target,
                    [](const std::string& text, const std::string& flag) -> Result<std::int64_t> {
                      const auto words = parse_amount(text, kLengthWords);
                      if (words)
                        return parse_integer(fmt::format("{}", *words), flag, token_counts);
                      return parse_integer(text, flag, token_counts);
                    });
}

/// A floating-point dtype; the integers of DType are not for weights and gradients.
Flag dtype_flag(const std::string& name, std::string help, DType& target) {
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
  const auto strategy = [&o](const std::string& text) { return set_strategy(text, o); };
  const auto outer = [&o](const std::string& text) {
    return set_outer_strategy(text, o.outer_strategy);
  };
  return {
      .title = "Parallelism and batch",
      .flags = {
          shaping({.name = "--strategy",
                   .value = "S",
                   .help = "no_shard, optim, optim_grads, optim_grads_params (zero0-zero3, fsdp)",
                   .apply = strategy}),
          shaping(integer_flag("--outer-dp", "groups of ranks that replicate (1)", o.outer_dp,
                               gpu_counts)),
          shaping({.name = "--outer-strategy",
                   .value = "S",
                   .help = "no_shard (HSDP) or optim (HFSDP) over the groups (no_shard)",
                   .apply = outer}),
          shaping(length_flag("--seq-len",
                              "tokens in a sequence, 8k is 8192 (8k, or the model's maximum)",
                              o.seq_len)),
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
          shaping(
              {.name = "--recompute",
               .value = "P",
               .help = "none, selective (norms and SwiGLU, no attention), full, full:K (selective)",
               .apply = recompute}),
          shaping(integer_flag("--prefetch", "units gathered ahead (1)", o.prefetch,
                               {.lowest = 0, .highest = 64})),
          shaping(
              integer_flag("--grad-slots", "live full gradients (2)", o.grad_slots, slot_counts)),
          shaping(choice_flag("--layout", "L",
                              "of shards: packed, or megatron_fsdp with its padding (packed)",
                              o.layout)),
          shaping(choice_flag("--allocator", "A",
                              "temporary, double_buffer, trace_pool, best_fit (best_fit)",
                              o.allocator)),
          shaping(length_flag("--logits-chunk", "tokens whose logits exist at a time (1024)",
                              o.logits_chunk))}};
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

bool is_among(const std::vector<std::string>& arguments, const std::string& flag) {
  return std::ranges::any_of(arguments, [&](const std::string& argument) {
    return argument == flag || argument.starts_with(flag + "=");
  });
}

/// Not within longer words: "--gpus" stays in "--gpus-per-node", and in quotes, where it is a
/// value.
void replace_words(std::string& text, std::string_view word, std::string_view other) {
  const auto continues = [](char c) {
    return c == '-' || c == '_' || c == '\'' || (c >= 'a' && c <= 'z');
  };
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    const std::size_t end = at + word.size();
    const bool whole =
        (at == 0 || !continues(text[at - 1])) && (end == text.size() || !continues(text[end]));
    if (whole) text.replace(at, word.size(), other);
    at += whole ? other.size() : word.size();
  }
}

}  // namespace

Error in_given_flags(Error error, const std::vector<std::string>& arguments) {
  const std::string gpus = "--gpus";
  const std::string world_size = "--world-size";
  const bool by_gpus = is_among(arguments, gpus);
  if (by_gpus == is_among(arguments, world_size)) return error;
  for (std::string* text : {&error.where, &error.what})
    replace_words(*text, by_gpus ? world_size : gpus, by_gpus ? gpus : world_size);
  return error;
}

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
  MFSDP_TRY(check_groups(options, given));
  if (options.no_save && options.db) return fail("--no-save", "contradicts --db");
  if (options.cluster && contains(given, "--gpu"))
    return fail("--cluster", "contradicts --gpu; the cluster's file names its GPU");
  return {};
}

}  // namespace mfsdp
