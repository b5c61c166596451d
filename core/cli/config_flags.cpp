#include "core/cli/config_flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <variant>

#include "core/base/amount.hpp"
#include "core/base/text.hpp"
#include "core/cli/strategy_names.hpp"
#include "core/plan/loss_scale.hpp"

namespace mfsdp {
namespace {

using Apply = decltype(Flag::apply);

// Readers of one value. Errors name `flag`.

Result<std::int64_t> read_count(const std::string& text, const std::string& flag,
                                const CountRange& range) {
  const Range limits{.lowest = range.least, .highest = range.most};
  const auto in_words = range.in_thousands ? parse_amount(text, kLengthWords) : std::nullopt;
  return parse_integer(in_words ? fmt::format("{}", *in_words) : text, flag, limits);
}

/// Weights and gradients cannot have DType's integer types.
constexpr std::array kRealTypes{DType::bf16, DType::fp16, DType::fp32, DType::fp64};

Result<DType> read_dtype(const std::string& text, const std::string& flag) {
  const auto dtype = parse_in_any_case<DType>(text);
  if (dtype && std::ranges::find(kRealTypes, *dtype) != kRealTypes.end()) return *dtype;
  return fail(flag, in_quotes(text) + " is not one of bf16, fp16, fp32 or fp64");
}

Result<RecomputePolicy> read_recompute(const std::string& text, const std::string& flag) {
  const std::string in_small = lower_case(text);
  if (const auto policy = parse_recompute(in_small)) return *policy;
  if (in_small.starts_with("full:"))
    return fail(flag,
                in_quotes(text) + ": the K of full:K must be a whole number of blocks, 1 or more");
  return fail(flag, in_quotes(text) + " is not one of none, selective, full or full:K");
}

/// A number of at least 0. `expected`: the permitted values, for the error.
Result<Rational> read_from_zero(const std::string& text, const std::string& flag,
                                std::string_view expected) {
  const auto value = parse_rational(text, flag);
  if (value && value->num >= 0) return *value;
  return fail(flag,
              fmt::format("{} is not {} (written without an exponent)", in_quotes(text), expected));
}

Result<Rational> read_limit(const std::string& text, const std::string& flag) {
  return read_from_zero(text, flag, "a number of 0 (no clipping) or more with at most 18 digits");
}

Result<Rational> read_room(const std::string& text, const std::string& flag) {
  return read_from_zero(text, flag,
                        "a number of 0 (room for all rows), or 1 and more, with at most 6 digits "
                        "after the point");
}

/// 0 would mean that there is none.
Result<Rational> read_positive(const std::string& text, const std::string& flag) {
  const auto value = parse_rational(text, flag);
  if (value && value->num > 0) return *value;
  return fail(flag, in_quotes(text) + " is not a number above 0 with at most 18 digits");
}

/// Recipes by the words of other tools.
Result<Fp8Recipe> read_fp8(const std::string& text, const std::string& flag) {
  const std::string word = lower_case(text);
  if (word == "tensorwise" || word == "hybrid") return Fp8Recipe::current;
  if (word == "mxfp8_e4m3") return Fp8Recipe::mxfp8;
  if (word == "rowwise")
    return fail(flag, fmt::format("{} is not modelled: expected current, delayed (a scale for each "
                                  "tensor), blockwise, mxfp8 or nvfp4 (for each block)",
                                  in_quotes(text)));
  return parse_choice<Fp8Recipe>(text, flag);
}

/// Numbers with commas between them.
Result<std::vector<std::int64_t>> read_counts(const std::string& text, const std::string& flag) {
  std::vector<std::int64_t> counts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    MFSDP_LET(count, read_count(text.substr(begin, end - begin), flag,
                                {.of = "numbers with commas between them",
                                 .least = 1,
                                 .most = config_limits::blocks}));
    counts.push_back(count);
    begin = end + 1;
  }
  return counts;
}

/// Exchanges by the words of other tools.
Result<ContextExchange> read_exchange(const std::string& text, const std::string& flag) {
  const std::string word = lower_case(text);
  if (word == "ring") return ContextExchange::p2p;
  if (word == "allgather") return ContextExchange::all_gather;
  if (word == "ulysses") return ContextExchange::a2a;
  if (word == "a2a+p2p")
    return fail(flag,
                fmt::format("{} is not modelled: expected a2a (Ulysses), all_gather, or p2p with "
                            "--engine mcore",
                            in_quotes(text)));
  return parse_choice<ContextExchange>(text, flag);
}

bool is_dynamic(const std::string& text) { return lower_case(text) == "dynamic"; }

/// 0: no loss scale. "dynamic": the first value of a scale that changes.
Result<Rational> read_loss_scale(const std::string& text, const std::string& flag) {
  if (lower_case(text) == "none") return Rational{};
  if (is_dynamic(text)) return Rational{.num = loss_scale::first};
  return read_from_zero(text, flag,
                        "dynamic, none, or a number of 0 (none) or more with at most 18 digits");
}

/// Sequences ("512"), or tokens if a unit for thousands or millions follows the number ("4M").
Result<void> set_global_batch(const std::string& text, CommonOptions& options) {
  constexpr Range kSequences{.lowest = 1,
                             .highest = config_limits::ranks * config_limits::sequences};
  options.global_batch.reset();
  options.batch_tokens = parse_amount(text, kLengthWords);
  if (options.batch_tokens) return {};
  MFSDP_SET(options.global_batch, parse_integer(text, "--global-batch", kSequences));
  return {};
}

Result<std::vector<std::string>> read_names(const std::string& text, const std::string& flag) {
  std::vector<std::string> names;
  for (const std::string& given : split(text, ',')) {
    if (given.empty())
      return fail(flag, in_quotes(text) + " is not a comma list of parts of parameter names");
    MFSDP_LET(part, parse_text(given, flag));
    names.push_back(part);
  }
  return names;
}

/// The error for an unknown strategy. If the word names an engine, the error points to --engine.
tl::unexpected<Error> no_strategy(std::string flag, const std::string& text,
                                  std::string_view expected) {
  const std::string meant = engine_meant(text);
  return fail(std::move(flag),
              meant.empty() ? fmt::format("{} is not one of {}", in_quotes(text), expected)
                            : fmt::format("{} names no strategy: {}", in_quotes(text), meant));
}

Result<void> set_strategy(const std::string& text, CommonOptions& options) {
  const auto named = parse_strategy(text);
  if (!named)
    return no_strategy("--strategy", text,
                       name_list<Strategy>() +
                           ", nor 0 to 3, zero0 to zero3, ddp, fsdp, "
                           "full_shard, shard_grad_op, hsdp or hfsdp");
  options.config.strategy = named->strategy;
  options.outer_asked = named->outer;
  if (named->outer == Strategy::optim) options.config.outer_strategy = Strategy::optim;
  return {};
}

Result<void> set_outer_strategy(const std::string& text, Strategy& target) {
  const auto named = parse_strategy(text);
  const Strategy asked = !named ? Strategy::optim_grads : named->outer.value_or(named->strategy);
  if (asked != Strategy::no_shard && asked != Strategy::optim)
    return no_strategy("--outer-strategy", text, "no_shard (HSDP) or optim (HFSDP)");
  target = asked;
  return {};
}

Result<std::optional<Strategy>> read_expert_strategy(const std::string& text,
                                                     std::string_view flag) {
  const auto named = parse_strategy(text);
  if (!named || named->outer)
    return no_strategy(std::string(flag), text,
                       name_list<Strategy>() +
                           ", nor 0 to 3, zero0 to zero3, ddp, fsdp, full_shard or shard_grad_op");
  return named->strategy;
}

std::vector<std::string> in_words(const auto& values) {
  std::vector<std::string> words;
  for (const auto& value : values) words.emplace_back(to_string(value));
  return words;
}

/// The permitted values of a flag, by the type of its field.
struct ValuesOf {
  const ConfigField& field;

  FlagValues operator()(Strategy PlanConfig::* /*member*/) const {
    if (field.name != "outer_strategy") return {.names = names_of<Strategy>()};
    return {.names = in_words(std::array{Strategy::no_shard, Strategy::optim})};
  }
  FlagValues operator()(std::optional<Strategy> PlanConfig::* /*member*/) const {
    return {.names = names_of<Strategy>()};
  }
  FlagValues operator()(DType PlanConfig::* /*member*/) const {
    return {.names = in_words(kRealTypes)};
  }
  FlagValues operator()(RecomputePolicy PlanConfig::* /*member*/) const {
    return {.names = names_of<Recompute>()};
  }
  template <class Member>
  FlagValues operator()(Member PlanConfig::* /*member*/) const {
    if constexpr (std::is_enum_v<Member>)
      return {.names = names_of<Member>()};
    else
      return {};
  }
};

/// The function that applies a flag's value, by the type of its field.
struct ApplyOf {
  const ConfigField& field;
  CommonOptions& options;

  /// Defaults depend on the model, the mesh and other flags, so make_plan_config sets them.
  Apply operator()(std::int64_t& target) const {
    if (field.name == "seq_len") return counting(options.seq_len, field.range);
    if (field.name == "microbatches")
      return [&o = options](const std::string& text) { return set_global_batch(text, o); };
    if (field.name == "loss_scale_window") return counting(options.loss_scale_window, field.range);
    return counting(target, field.range);
  }
  /// The number of groups. The ranks of a group follow from --gpus.
  Apply operator()(Mesh& /*target*/) const { return counting(options.outer_dp, field.range); }
  Apply operator()(Strategy& target) const {
    if (field.name == "outer_strategy")
      return [&target](const std::string& text) { return set_outer_strategy(text, target); };
    return [&o = options](const std::string& text) { return set_strategy(text, o); };
  }
  Apply operator()(std::optional<Strategy>& target) const {
    return storing(target, read_expert_strategy);
  }
  Apply operator()(bool& target) const {
    return [&target](const std::string& /*text*/) -> Result<void> {
      target = true;
      return {};
    };
  }
  Apply operator()(std::vector<std::string>& target) const {
    return [flag = std::string(field.flag), &target](const std::string& text) -> Result<void> {
      MFSDP_LET(names, read_names(text, flag));
      target.insert(target.end(), names.begin(), names.end());
      return {};
    };
  }
  Apply operator()(std::vector<std::int64_t>& target) const { return storing(target, read_counts); }
  Apply operator()(DType& target) const { return storing(target, read_dtype); }
  /// The scale's default depends on the dtype of weights, so make_plan_config sets it.
  Apply operator()(Rational& target) const {
    if (field.name == "lora_alpha") return storing(target, read_positive);
    if (field.name == "capacity_factor") return storing(target, read_room);
    if (field.name != "loss_scale") return storing(target, read_limit);
    return [&o = options](const std::string& text) -> Result<void> {
      MFSDP_SET(o.loss_scale, read_loss_scale(text, "--loss-scale"));
      o.dynamic_loss_scale = is_dynamic(text);
      return {};
    };
  }
  Apply operator()(RecomputePolicy& target) const { return storing(target, read_recompute); }
  Apply operator()(Fp8Recipe& target) const { return storing(target, read_fp8); }
  Apply operator()(ContextExchange& target) const { return storing(target, read_exchange); }
  template <class Enum>
    requires std::is_enum_v<Enum>
  Apply operator()(Enum& target) const {
    return storing(target, parse_choice<Enum>);
  }

 private:
  /// Stores the result of `read(text, flag)`.
  Apply storing(auto& target, auto read) const {
    return bound_flag(std::string(field.flag), "", "", target, read).apply;
  }
  Apply counting(auto& target, const CountRange& range) const {
    return storing(target, [range](const std::string& text, const std::string& flag) {
      return read_count(text, flag, range);
    });
  }
};

bool is_list(const ConfigField& field) {
  return std::holds_alternative<std::vector<std::string> PlanConfig::*>(field.member);
}

/// "help (default)"; switches and lists have the help alone.
std::string help_of(const ConfigField& field) {
  if (!field.in_brackets.empty()) return fmt::format("{} ({})", field.help, field.in_brackets);
  if (is_list(field) || field.flag_value.empty()) return std::string(field.help);
  const PlanConfig defaults;
  const std::string value =
      std::visit([&](const auto member) { return flag_text(defaults.*member); }, field.member);
  return fmt::format("{} ({})", field.help, value);
}

Flag flag_of(const ConfigField& field, CommonOptions& options) {
  return {.name = std::string(field.flag),
          .value = std::string(field.flag_value),
          .help = help_of(field),
          .apply = std::visit(
              [&](const auto member) { return ApplyOf{field, options}(options.config.*member); },
              field.member),
          .repeatable = is_list(field),
          .shapes_plan = true,
          .values = std::visit(ValuesOf{field}, field.member)};
}

}  // namespace

std::vector<Flag> config_flags(FieldTopic topic, CommonOptions& options) {
  std::vector<Flag> flags;
  for (const bool switches : {false, true})
    for (const ConfigField& field : kConfigFields)
      if (field.topic == topic && field.flag_value.empty() == switches)
        flags.push_back(flag_of(field, options));
  if (topic == FieldTopic::parallelism) {
    const auto ranks = [](const char* name, const char* help, std::int64_t& target) {
      Flag flag = integer_flag(name, help, target, {.lowest = 1, .highest = config_limits::ranks});
      flag.shapes_plan = true;
      return flag;
    };
    flags.insert(std::ranges::find(flags, "--cp-comm", &Flag::name),
                 ranks("--cp", "ranks that share each sequence, context parallelism (1)",
                       options.context_parallel));
    flags.push_back(ranks("--tp", "ranks that share each block's weights, tensor parallelism (1)",
                          options.tensor_parallel));
    flags.insert(std::ranges::find(flags, "--schedule", &Flag::name),
                 ranks("--pp", "stages of a pipeline, each with some blocks (1)",
                       options.pipeline_parallel));
  }
  return flags;
}

}  // namespace mfsdp
