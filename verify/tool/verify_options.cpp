#include "verify/tool/verify_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace mfsdp {
namespace {

/// A flag whose values are collected.
Flag list_flag(const std::string& name, std::string help, std::vector<std::string>& target) {
  const auto apply = [name, &target](const std::string& text) -> Result<void> {
    MFSDP_LET(path, parse_path(text, name));
    target.push_back(path);
    return {};
  };
  return {.name = name,
          .value = "FILE...",
          .help = std::move(help),
          .apply = apply,
          .repeatable = true,
          .takes_several = true,
          .values = {.paths = PathKind::file}};
}

Result<void> add_variable(const std::string& text, std::vector<EnvironmentVariable>& target) {
  const std::size_t sign = text.find('=');
  if (sign == std::string::npos || sign == 0)
    return fail("--env", in_quotes(text) + " is not NAME=VALUE, such as NCCL_ALGO=Ring");
  target.push_back({.name = text.substr(0, sign), .value = text.substr(sign + 1)});
  return {};
}

FlagGroup plan_group(VerifyOptions& o) {
  return {
      .title = "More checks of the plan",
      .flags = {switch_flag("--expand", "check each rank of the mesh too", o.expand),
                path_flag("--certificate", "write a certificate for --check", o.certificate),
                path_flag("--check", "re-check a certificate, without the prover's code", o.check),
                switch_flag("--mutate", "put faults into the plan; which are found?", o.mutate),
                switch_flag("--mutate-fields",
                            "change each field; accepted changes must not matter", o.mutate_fields),
                switch_flag("--mutate-pairs", "the same with pairs of edits that may cancel out",
                            o.mutate_pairs),
                integer_flag("--per-field", "changes of each field or pattern, at most (32)",
                             o.per_field, {.lowest = 1}),
                integer_flag("--mutants", "judge N of them, chosen at random (all)", o.mutants,
                             {.lowest = 1}),
                integer_flag("--mutant", "apply only change number N", o.mutant, {.lowest = 0}),
                path_flag("--mutant-out", "write the plan with that change", o.mutant_out),
                integer_flag("--seed", "seed of the random choice (0)", o.seed, {.lowest = 0})}};
}

FlagGroup subject_group(VerifyOptions& o) {
  const auto run = [&o](const std::string& text) -> Result<void> {
    MFSDP_SET(o.run, parse_run_name(text));
    return {};
  };
  Flag bugs = folder_flag("--bugs", "a corpus of bugs: shipped, or a folder of yours", o.bugs);
  bugs.values.names = {std::string(kShippedBugs)};
  const auto variable = [&o](const std::string& text) { return add_variable(text, o.environment); };
  return {
      .title = "Other subjects",
      .flags = {list_flag("--kineto", "traces of PyTorch's profiler (.json, .json.gz), a rank each",
                          o.kineto),
                list_flag("--flight-recorder",
                          "dumps of PyTorch's flight recorder (pickle, JSON), or folders of them",
                          o.flight_recorder),
                list_flag("--nccl-inspector", "logs of NCCL's inspector, or folders of them",
                          o.nccl_inspector),
                list_flag("--config",
                          "configurations of Megatron-LM, Megatron-Bridge or verl: JSON or flags",
                          o.config),
                {.name = "--run",
                 .value = "DB:RUN",
                 .help = "a run of mfsdp-exec: id, name or latest; add --plan if it ran a file",
                 .apply = run},
                bugs,
                {.name = "--env",
                 .value = "NAME=VALUE",
                 .help = "a variable that the run is to have",
                 .apply = variable,
                 .repeatable = true},
                switch_flag("--list-rules", "every rule with its id", o.list_rules)}};
}

/// The flags that shape no plan and store nothing: those that a verifier has.
bool is_kept(const Flag& flag) {
  constexpr std::array<std::string_view, 6> dropped{"--db",    "--no-save",      "--name",
                                                    "--trace", "--memory-trace", "--output"};
  return std::ranges::find(dropped, flag.name) == dropped.end();
}

Result<void> check_subject(const VerifyOptions& o) {
  // A run's plan may be given: it is no subject of its own.
  const bool plan = !o.common.model.empty() || (o.common.plan && !o.run);
  const int subjects = static_cast<int>(plan) + static_cast<int>(!o.kineto.empty()) +
                       static_cast<int>(!o.flight_recorder.empty()) +
                       static_cast<int>(!o.nccl_inspector.empty()) +
                       static_cast<int>(!o.config.empty()) + static_cast<int>(o.list_rules) +
                       static_cast<int>(o.run.has_value()) + static_cast<int>(o.bugs.has_value());
  if (subjects == 0)
    return fail("--model",
                "is missing: name a model, a --plan, a --kineto trace, a --flight-recorder dump, a "
                "--nccl-inspector log, a --config, a --run or --bugs");
  if (subjects > 1)
    return fail(
        "",
        "give only one of --model or --plan, --kineto, --flight-recorder, --nccl-inspector, "
        "--config, --run, --bugs and --list-rules");
  if (!plan)
    for (const char* flag :
         {"--expand", "--certificate", "--check", "--mutate", "--mutate-fields", "--mutate-pairs"})
      if (contains(o.given, flag)) return fail(flag, "is about a plan: name a --model or a --plan");
  const int actions = static_cast<int>(o.mutate) + static_cast<int>(o.mutate_fields) +
                      static_cast<int>(o.mutate_pairs) + static_cast<int>(o.check.has_value()) +
                      static_cast<int>(o.expand || o.certificate);
  if (actions > 1)
    return fail("",
                "give only one of --mutate, --mutate-fields, --mutate-pairs, --check, and --expand "
                "or --certificate (or these two)");
  for (const char* flag : {"--mutants", "--seed"})
    if (contains(o.given, flag) && !o.mutate && !o.runs_mutants())
      return fail(flag, "needs --mutate, --mutate-fields or --mutate-pairs");
  for (const char* flag : {"--per-field", "--mutant", "--mutant-out"})
    if (contains(o.given, flag) && !o.runs_mutants())
      return fail(flag, "needs --mutate-fields or --mutate-pairs");
  if (o.mutant.has_value() != o.mutant_out.has_value())
    return fail(o.mutant ? "--mutant" : "--mutant-out", "--mutant and --mutant-out go together");
  if ((o.mutate || o.runs_mutants() || o.check || o.bugs) && o.output == FindingsFormat::sarif)
    return fail("--output", "sarif is for findings in a plan");
  if (!o.kineto.empty() && o.output == FindingsFormat::sarif)
    return fail("--output", "sarif is for findings; a trace's report is text, json or md");
  if (o.list_rules && o.output != FindingsFormat::text && o.output != FindingsFormat::md)
    return fail("--list-rules", "contradicts --output " + std::string(to_string(o.output)) +
                                    "; lists are text or md");
  return {};
}

}  // namespace

Result<RunName> parse_run_name(const std::string& text) {
  // A run's name can contain a colon itself (reports/store/find_runs.hpp).
  std::size_t colon = text.rfind(':');
  for (const std::string_view kind : {"row", "id", "name"}) {
    const std::string_view before = std::string_view(text).substr(0, std::min(colon, text.size()));
    if (before == kind) return RunName{.store = CommonOptions{}.store_path(), .run = text};
    if (colon != std::string::npos && before.ends_with(fmt::format(":{}", kind)))
      colon = before.size() - kind.size() - 1;
  }
  const bool names_a_store = text.ends_with(".sqlite") || text.find('/') != std::string::npos;
  if (colon == std::string::npos && !text.empty() && !names_a_store)
    return RunName{.store = CommonOptions{}.store_path(), .run = text};
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size())
    return fail("--run", in_quotes(text) +
                             " is not DB:RUN: expected a store and a run's id, the beginning of "
                             "one, its name or latest, such as mfsdp.sqlite:latest");
  return RunName{.store = text.substr(0, colon), .run = text.substr(colon + 1)};
}

std::vector<FlagGroup> verify_flags(VerifyOptions& options) {
  std::vector<FlagGroup> groups = common_flags(options.common);
  for (FlagGroup& group : groups)
    std::erase_if(group.flags, [](const Flag& flag) { return !is_kept(flag); });
  std::vector<Flag>& results = groups.back().flags;
  results.insert(results.begin() + 3,
                 choice_flag("--output", "F", "text, json, md, sarif (text)", options.output));
  groups.push_back(plan_group(options));
  groups.push_back(subject_group(options));
  return groups;
}

Result<VerifyOptions> parse_verify_options(const std::vector<std::string>& args) {
  VerifyOptions options;
  const std::vector<FlagGroup> groups = verify_flags(options);
  MFSDP_LET(given, parse_flags(groups, args));
  options.given = given;
  options.common.notes = notes_on(groups, given);
  if (options.common.asks_about_tool()) return options;
  MFSDP_TRY(check_common(options.common, groups, given));
  MFSDP_TRY(check_subject(options));
  return options;
}

HelpText verify_help() {
  return {
      .tool = "mfsdp-verify",
      .purpose = "Proves a plan right over every interleaving, or shows the bug.",
      .examples = {{"mfsdp-verify --model llama3_8b --gpus 64", "is the plan right?"},
                   {"mfsdp-verify --plan plan.json --output sarif", "SARIF for a code host"},
                   {"mfsdp-verify --plan plan.json --certificate proof.json",
                    "leave a certificate"},
                   {"mfsdp-verify --plan plan.json --check proof.json", "re-check it"},
                   {"mfsdp-verify --run mfsdp.sqlite:latest", "a run against its plan"},
                   {"mfsdp-verify --kineto rank0.json.gz rank1.json.gz", "what a profile shows"},
                   {"mfsdp-verify --flight-recorder dumps/", "which rank is missing?"},
                   {"mfsdp-verify --config train.sh --env NCCL_ALGO=Tree", "known mistakes"}},
      .negative = "the plan, configuration or run is wrong",
      .description =
          "The plan of one training step is built from the flags or read from a file, and proved: "
          "order, memory, gradients and weights, values, and the collectives of all ranks. Each "
          "finding names its rule and shows the ops that lead to it.\n"
          "Recorded runs are compared with their plans. Other subjects are traces of PyTorch's "
          "profiler, dumps of its flight recorder, logs of NCCL's inspector, configurations of "
          "other trainers and collections of bugs.",
      .files = files_of_tools(false)};
}

}  // namespace mfsdp
