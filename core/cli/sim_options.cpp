#include "core/cli/sim_options.hpp"

namespace mfsdp {

std::vector<FlagGroup> sim_flags(SimOptions& options) {
  std::vector<FlagGroup> groups = common_flags(options.common);
  const auto explain = [&options](const std::string& text) -> Result<void> {
    MFSDP_LET(choice, parse_choice<Explain>(text, "--explain"));
    options.explain = choice;
    return {};
  };
  groups.push_back(
      {.title = "Questions",
       .flags = {
           switch_flag("--list-models", "built-in models", options.list_models),
           switch_flag("--list-gpus", "GPUs of the catalogue", options.list_gpus),
           switch_flag("--require-fit", "exit status 1 if it does not fit", options.require_fit),
           {.name = "--explain",
            .value = "WHAT",
            .help = "memory, layout or critical-path: a longer answer after the text",
            .apply = explain},
           path_flag("--budget", "exit status 1 if a limit of this TOML file is exceeded",
                     options.budget),
           path_flag("--budget-out", "write the run's values as a budget", options.budget_out)}});
  return groups;
}

Result<SimOptions> parse_sim_options(const std::vector<std::string>& args) {
  SimOptions options;
  const std::vector<FlagGroup> groups = sim_flags(options);
  MFSDP_LET(given, parse_flags(groups, args));
  const CommonOptions& common = options.common;
  if (common.help || common.version) return options;
  MFSDP_TRY(check_common(common, groups, given));
  if (options.list_models && options.list_gpus)
    return fail("--list-models", "contradicts --list-gpus; ask for one list at a time");
  if (options.explain && common.output != OutputFormat::text)
    return fail("--explain", "contradicts --output " + std::string(to_string(common.output)) +
                                 "; explanations are text");
  const bool asks_for_a_list = options.list_models || options.list_gpus;
  if (asks_for_a_list && common.output != OutputFormat::text && common.output != OutputFormat::md)
    return fail(
        options.list_models ? "--list-models" : "--list-gpus",
        "contradicts --output " + std::string(to_string(common.output)) + "; lists are text or md");
  if (!asks_for_a_list && common.model.empty() && !common.plan)
    return fail("--model", "is missing: name a model (--list-models), a config.json or a --plan");
  return options;
}

HelpText sim_help() {
  return {
      .tool = "mfsdp-sim",
      .purpose = "Predicts memory, step time and overlap of fully sharded training.",
      .examples = {
          {"mfsdp-sim --model llama3_8b --gpus 64", "Llama-3-8B on 64 H100"},
          {"mfsdp-sim --model ./my-model --gpu h200 --recompute full", "a config.json of yours"},
          {"mfsdp-sim --model qwen3_32b --gpus 512 --outer-dp 64", "HSDP: 64 groups of 8"},
          {"mfsdp-sim --model llama3_8b --require-fit --output json", "for scripts"},
          {"mfsdp-sim --model llama3_8b --budget limits.toml",
           "for CI: fails where a plan got worse"},
          {"mfsdp-sim --model llama3_8b --trace step.json.gz", "open it in ui.perfetto.dev"}}};
}

}  // namespace mfsdp
