#include "core/cli/common_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "core/cli/config_flags.hpp"

namespace mfsdp {
namespace {

constexpr Range gpu_counts{.lowest = 1, .highest = config_limits::ranks};

Flag shaping(Flag flag) {
  flag.shapes_plan = true;
  return flag;
}

/// --gpus and --world-size set one number. If both are given, they must agree.
std::pair<Flag, Flag> world_flags(std::int64_t& gpus) {
  // The last value of each flag: a repeated flag is another combination of a list.
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

/// --strategy hsdp and hfsdp need groups, and the name does not give their number.
Result<void> check_groups(const CommonOptions& o, const std::vector<std::string>& given) {
  if (!o.outer_asked) return {};
  const bool further = o.outer_asked == Strategy::optim;
  if (o.outer_dp == 1)
    return fail("--strategy",
                fmt::format("{} needs --outer-dp, the number of groups that {}: the number of "
                            "nodes, where each node is a group",
                            further ? "hfsdp" : "hsdp", further ? "shard further" : "replicate"));
  if (contains(given, "--outer-strategy") && o.config.outer_strategy != *o.outer_asked)
    return fail("--outer-strategy",
                fmt::format("{} contradicts --strategy {}", to_string(o.config.outer_strategy),
                            further ? "hfsdp" : "hsdp"));
  return {};
}

/// Allows a name from the scenarios' folder `catalogue`, or a path.
Flag with_catalogue(Flag flag, std::string catalogue) {
  flag.values = {.paths = PathKind::file, .catalogue = std::move(catalogue)};
  return flag;
}

Flag cluster_flag(std::optional<std::string>& target) {
  Flag flag = path_flag(
      "--cluster", "cluster of the catalogue (--list-clusters), or a TOML file; instead of --gpu",
      target);
  flag.value = "NAME|FILE";
  return with_catalogue(std::move(flag), "clusters");
}

FlagGroup model_group(CommonOptions& o) {
  auto [gpus, world_size] = world_flags(o.gpus);
  return {
      .title = "Model and machine",
      .flags = {with_catalogue(
                    shaping(text_flag("--model", "NAME|PATH",
                                      "built-in name, config.json, or its directory", o.model)),
                    "models"),
                gpus, world_size,
                with_catalogue(text_flag("--gpu", "NAME|FILE",
                                         "GPU of the catalogue, or a TOML file (h100)", o.gpu),
                               "gpus"),
                integer_flag("--gpus-per-node", "GPUs in one node (8, or the GPU's usual number)",
                             o.gpus_per_node, gpu_counts),
                cluster_flag(o.cluster)}};
}

}  // namespace

Flag help_format_flag(std::optional<HelpFormat>& target) {
  return choice_flag("--help-format", "F",
                     "the same as man, json, or as completion for bash, zsh or fish", target);
}

namespace {

FlagGroup result_group(CommonOptions& o) {
  return {
      .title = "Plan and results",
      .flags = {
          path_flag("--options",
                    "TOML of flags, as --tune-out writes it; the command line's own come first",
                    o.options_file),
          path_flag("--plan", "take this plan instead of building one", o.plan),
          path_flag("--plan-out", "write the plan as JSON", o.plan_out),
          choice_flag("--output", "F", "text, json, jsonl, csv, md (text)", o.output),
          path_flag("--db", "store of results (mfsdp.sqlite)", o.db),
          switch_flag("--no-save", "store nothing", o.no_save),
          text_flag("--name", "TEXT", "name of the run in the store", o.name),
          path_flag("--trace", "write a Chrome trace (.json, .gz) or a picture (.svg)", o.trace),
          path_flag("--memory-trace", "write live bytes by category over time", o.memory_trace),
          switch_flag("--help", "show this text", o.help), help_format_flag(o.help_format),
          switch_flag("--version", "show version and build", o.version)}};
}

bool is_among(const std::vector<std::string>& arguments, const std::string& flag) {
  return std::ranges::any_of(arguments, [&](const std::string& argument) {
    return argument == flag || argument.starts_with(flag + "=");
  });
}

/// Whole words only: "--gpus" stays in "--gpus-per-node". Quoted text is a value and stays too.
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

namespace {

/// Adapters have no dropout. The flag is accepted if its value is 0, as in settings of other tools.
Flag lora_dropout_flag() {
  return {.name = "--lora-dropout",
          .value = "X",
          .help = "0 alone: dropout is not modelled",
          .apply = [](const std::string& text) -> Result<void> {
            const auto value = parse_rational(text, "--lora-dropout");
            if (value && value->num == 0) return {};
            return fail(
                "--lora-dropout",
                in_quotes(text) + " is not 0: dropout is not modelled (docs/reference/limits.md)");
          },
          .shapes_plan = true};
}

}  // namespace

Error in_given_flags(Error error, const std::vector<std::string>& arguments) {
  const std::string gpus = "--gpus";
  const std::string world_size = "--world-size";
  const bool by_gpus = is_among(arguments, gpus);
  if (by_gpus == is_among(arguments, world_size)) return error;
  for (std::string* text : {&error.where, &error.what})
    replace_words(*text, by_gpus ? world_size : gpus, by_gpus ? gpus : world_size);
  for (Error& other : error.also) other = in_given_flags(std::move(other), arguments);
  return error;
}

std::vector<FlagGroup> plan_flags(CommonOptions& options) {
  const auto group = [&](const char* title, FieldTopic topic) {
    return FlagGroup{.title = title, .flags = config_flags(topic, options)};
  };
  FlagGroup numbers = group("Numbers and optimizer", FieldTopic::numbers);
  numbers.flags.push_back(lora_dropout_flag());
  return {model_group(options), group("Parallelism and batch", FieldTopic::parallelism),
          group("Memory and schedule", FieldTopic::memory), std::move(numbers)};
}

std::vector<FlagGroup> common_flags(CommonOptions& options) {
  std::vector<FlagGroup> groups = plan_flags(options);
  groups.push_back(result_group(options));
  return groups;
}

Result<void> check_common(const CommonOptions& options, const std::vector<FlagGroup>& groups,
                          const std::vector<std::string>& given) {
  if (options.plan)
    for (const FlagGroup& group : groups)
      for (const Flag& flag : group.flags)
        if (flag.shapes_plan && contains(given, flag.name))
          return fail(flag.name, "contradicts --plan, whose file decides it");
  MFSDP_TRY(check_groups(options, given));
  if (contains(given, "--cp-comm") && !contains(given, "--cp"))
    return fail("--cp-comm", "needs --cp, the number of ranks that share each sequence");
  if (options.no_save && options.db) return fail("--no-save", "contradicts --db");
  if (options.cluster && contains(given, "--gpu"))
    return fail("--cluster", "contradicts --gpu; the cluster's file names its GPU");
  return {};
}

}  // namespace mfsdp
