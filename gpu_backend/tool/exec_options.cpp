#include "gpu_backend/tool/exec_options.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/cli/path_check.hpp"

namespace mfsdp {
namespace {

constexpr Range kSteps{.lowest = 1, .highest = 1'000'000'000};
constexpr Range kSeconds{.lowest = 1, .highest = 86'400};
constexpr RealRange kRates{.lowest = 0, .highest = 1e3};
constexpr RealRange kFractions{.lowest = 0, .highest = 1, .with_highest = false};
constexpr RealRange kSmall{.lowest = 0, .highest = 1, .with_lowest = false};

/// KIND:RANK:OP or KIND:RANK:OP:STEP; names of ops contain no colons.
Result<void> set_fault(const std::string& text, std::optional<FaultFlag>& target) {
  const std::string expected = in_quotes(text) +
                               " is not KIND:RANK:OP or KIND:RANK:OP:STEP with KIND one of " +
                               name_list<FaultKind>() + ", such as stop:1:layers.0.qkv:3";
  const std::vector<std::string> parts = split(text, ':');
  if (parts.size() < 3 || parts.size() > 4 || parts[2].empty()) return fail("--fault", expected);
  const auto kind = parse<FaultKind>(parts[0]);
  const auto rank = parse_integer(parts[1], "--fault", kRankRange);
  const auto step =
      parts.size() == 4 ? parse_integer(parts[3], "--fault", kSteps) : Result<std::int64_t>(1);
  if (!kind || !rank || !step) return fail("--fault", expected);
  target = FaultFlag{.kind = *kind, .rank = *rank, .op = parts[2], .step = *step};
  return {};
}

FlagGroup backend_group(ExecOptions& o) {
  return {.title = "Backend",
          .flags = {choice_flag("--backend", "B", "auto, cuda or cpu (auto)", o.backend),
                    switch_flag("--dry-run", "print the plan's prediction for --gpu, run nothing",
                                o.dry_run),
                    integer_flag("--deadline", "seconds without progress that end a run",
                                 o.deadline, kSeconds)}};
}

FlagGroup ranks_group(ExecOptions& o) {
  constexpr Range kLocal{.lowest = 1, .highest = 1024};
  constexpr Range kNodes{.lowest = 1, .highest = kRankRange.highest};
  return {
      .title = "Ranks on GPUs, one process each",
      .flags = {
          integer_flag("--nproc", "ranks to start on this host (default: one per visible GPU)",
                       o.ranks_per_node, kLocal),
          integer_flag("--nnodes", "hosts with as many ranks each (1)", o.nodes, kNodes),
          integer_flag("--node-rank", "of this host, from 0", o.node_rank, kRankRange),
          bound_flag("--master", "ADDR:PORT", "where rank 0 listens", o.master, parse_path),
          switch_flag("--insecure-rendezvous", "several hosts without MFSDP_SECRET",
                      o.insecure_rendezvous),
          choice_flag("--attention", "K",
                      "bf16 attention: warpgroups where they take it, or cudnn (warpgroups)",
                      o.attention),
          choice_flag("--gemm-search", "S",
                      "time GEMM algorithms at start: auto, on, off or long (auto)", o.gemm_search),
          folder_flag("--gemm-cache", "folder of timed algorithms (~/.cache/mfsdp)",
                      o.gemm_cache)}};
}

FlagGroup training_group(ExecOptions& o) {
  return {
      .title = "Training",
      .flags = {
          integer_flag("--steps", "steps to train (10)", o.steps, kSteps),
          real_flag("--lr", "highest learning rate (3e-4)", o.learning_rate, kRates),
          choice_flag("--lr-schedule", "S", "cosine, linear, constant or wsd (cosine)", o.schedule),
          real_flag("--min-lr", "learning rate at the end of the decay (default: --lr / 10)",
                    o.min_learning_rate, kRates),
          integer_flag("--warmup", "steps up to the highest rate (default: --steps / 10)", o.warmup,
                       {.lowest = 0, .highest = kSteps.highest}),
          integer_flag("--decay-steps", "steps in which wsd decays (default: --steps / 10)",
                       o.decay, {.lowest = 0, .highest = kSteps.highest}),
          real_flag("--weight-decay", "decoupled weight decay, of matrices only (0.1)",
                    o.weight_decay, kRates),
          real_flag("--beta1", "AdamW's decay of the mean, Lion's share of it (0.9)", o.beta1,
                    kFractions),
          real_flag("--beta2", "decay of AdamW's mean square (0.95), of Lion's mean (0.99)",
                    o.beta2, kFractions),
          real_flag("--adam-epsilon", "AdamW's epsilon (1e-8)", o.epsilon, kSmall),
          real_flag("--momentum", "Muon's, of matrices (0.95)", o.momentum, kFractions),
          integer_flag("--seed", "of weights and of the order of samples (1)", o.seed, kSeeds)}};
}

FlagGroup weights_group(ExecOptions& o) {
  return {.title = "Weights",
          .flags = {
              folder_flag("--init-from", "begin with the weights of this Hugging Face model",
                          o.init_from),
              folder_flag("--export",
                          "write the weights at the end, for transformers to load; adapters merged",
                          o.export_to),
              folder_flag("--init-adapters", "begin with the adapters that PEFT has saved there",
                          o.init_adapters),
              folder_flag("--export-adapters", "write the adapters at the end, for PEFT to load",
                          o.export_adapters)}};
}

FlagGroup watching_group(ExecOptions& o) {
  return {
      .title = "Evaluation and log",
      .flags = {
          integer_flag("--eval-every", "steps between evaluations (default: only after the last)",
                       o.eval_every, kSteps),
          path_or_name_flag("--eval-data", "FILE|DIR",
                            "data to evaluate on, as --data; also after the last step", o.eval_data,
                            {"synthetic"}),
          integer_flag("--eval-batches", "global batches of an evaluation (8)", o.eval_batches,
                       kSteps),
          path_flag("--logits", "safetensors of the first evaluation's first microbatch", o.logits),
          integer_flag("--log-every", "steps between lines (1)", o.log_every, kSteps),
          switch_flag("--log-param-norms", "norms of each parameter with each line",
                      o.log_param_norms),
          switch_flag("--check-nan", "end at the first weight, loss or gradient that is not finite",
                      o.check_nan)}};
}

FlagGroup saves_group(ExecOptions& o) {
  Flag resume = folder_flag(
      "--resume", "a save, or the newest below; auto: the newest of --save if there, else begin",
      o.resume);
  resume.value = "DIR|auto";
  resume.values.names = {"auto"};
  return {
      .title = "Saves",
      .flags = {
          folder_flag("--save", "save to step-NNNNNNNN below, at the end and at Ctrl-C", o.save),
          integer_flag("--save-every", "steps between saves; needs --save", o.save_every, kSteps),
          integer_flag("--keep-saves", "newest saves that stay (all)", o.keep_saves, kSteps),
          resume}};
}

FlagGroup testing_group(ExecOptions& o) {
  const auto fault = [&o](const std::string& text) { return set_fault(text, o.fault); };
  Flag delay_op = bound_flag("--delay-op", "OP|each",
                             "a delay before that op, or in each step before another (GPUs)",
                             o.delay_op, parse_path);
  delay_op.values.names = {"each"};
  return {.title = "Tests of the machine",
          .flags = {integer_flag("--chaos", "seed of random delays before ops", o.chaos, kSeeds),
                    switch_flag("--poison", "NaN in all memory that nothing has written", o.poison),
                    delay_op,
                    {.name = "--fault",
                     .value = "F",
                     .help = "KIND:RANK:OP[:STEP], a rank fails, stops, miscounts or is killed",
                     .apply = fault}}};
}

/// Contradictions in the learning rate schedule.
Result<void> check_schedule(const ExecOptions& o) {
  if (o.min_learning_rate && o.schedule == RateSchedule::constant)
    return fail("--min-lr", "contradicts --lr-schedule constant");
  if (o.decay && o.schedule != RateSchedule::wsd)
    return fail("--decay-steps", "needs --lr-schedule wsd");
  if (o.data.epochs) {
    if (contains(o.given, "--steps"))
      return fail("--epochs", "contradicts --steps: name one of them");
    return {};  // the number of steps depends on the data
  }
  if (o.warmup && *o.warmup > o.steps)
    return fail("--warmup", fmt::format("{} steps are more than --steps {}", *o.warmup, o.steps));
  if (o.decay && *o.decay + o.warmup_steps() > o.steps)
    return fail("--decay-steps", fmt::format("{} steps and {} of warm-up are more than --steps {}",
                                             *o.decay, o.warmup_steps(), o.steps));
  return {};
}

Result<void> check_training(const ExecOptions& o) {
  MFSDP_TRY(check_schedule(o));
  if (o.min_learning_rate && *o.min_learning_rate > o.learning_rate)
    return fail("--min-lr",
                fmt::format("{} is above --lr {}", *o.min_learning_rate, o.learning_rate));
  if (o.eval_every > 0 && !o.eval_data)
    return fail("--eval-every", "needs --eval-data, the data to evaluate on");
  if (!o.eval_data && contains(o.given, "--eval-batches"))
    return fail("--eval-batches", "needs --eval-data, the data to evaluate on");
  if (o.logits && !o.eval_data)
    return fail("--logits", "needs --eval-data, the data to evaluate on");
  if (o.logits && o.poison)
    return fail("--logits", "contradicts --poison: nothing is left when an evaluation has run");
  const Optimizer optimizer = o.common.config.optimizer;
  const OptimizerSpec spec = spec_of(optimizer);
  for (const auto& [flag, is_used] : {std::pair{"--beta1", spec.takes_betas},
                                      {"--beta2", spec.takes_betas},
                                      {"--adam-epsilon", spec.takes_epsilon},
                                      {"--momentum", orthogonalises(optimizer)}})
    if (!is_used && contains(o.given, flag))
      return fail(flag, fmt::format("contradicts --optimizer {}", to_string(optimizer)));
  for (const char* flag : {"--save-every", "--keep-saves"})
    if (contains(o.given, flag) && !o.save)
      return fail(flag, "needs --save: a folder for the saves");
  const auto folder = [](const std::string& name) {
    return (std::filesystem::path(name) / "").lexically_normal();
  };
  for (const auto& [flag, other, name] : {std::tuple{"--export", "--save", o.save},
                                          {"--export-adapters", "--save", o.save},
                                          {"--export-adapters", "--export", o.export_to}}) {
    const auto& target = std::string_view(flag) == "--export" ? o.export_to : o.export_adapters;
    if (!target || !name) continue;
    if (folder(*target) == folder(*name))
      return fail(flag, fmt::format("is the folder of {}: expected one of its own", other));
    if (lies_in(folder(*target), folder(*name)) || lies_in(folder(*name), folder(*target)))
      return fail(
          flag, fmt::format("lies in the folder of {} or holds it: expected folders apart", other));
  }
  for (const auto& [flag, name] : {std::pair{"--trace", o.common.trace},
                                   {"--plan-out", o.common.plan_out},
                                   {"--memory-trace", o.common.memory_trace},
                                   {"--logits", o.logits}})
    if (name && o.save && folder(*name) == folder(*o.save))
      return fail(flag, "is the folder of --save: expected a file");
  if (!o.common.plan && !o.common.config.has_lora())
    for (const char* flag : {"--init-adapters", "--export-adapters"})
      if (contains(o.given, flag)) return fail(flag, "needs --lora-rank: without there are none");
  if (o.resumes_if_it_can() && !o.save)
    return fail("--resume",
                "auto needs --save: the folder to go on from (a folder that is called "
                "auto is ./auto)");
  if (o.init_from && o.resume && !o.resumes_if_it_can())
    return fail("--init-from", "contradicts --resume: a save has its own weights");
  if (o.init_adapters && o.resume && !o.resumes_if_it_can())
    return fail("--init-adapters", "contradicts --resume: a save has its own weights");
  if (o.data.document_end && !o.common.plan && !o.common.config.document_mask)
    return fail("--document-end", "needs --document-mask");
  if (!o.dry_run && o.data.data.empty())
    return fail("--data", "is missing: name a file or a folder to train on, or synthetic");
  return {};
}

Result<void> check_backend(const ExecOptions& o) {
  if (o.common.memory_trace)
    return fail("--memory-trace", "is a prediction over time: use mfsdp-sim");
  if (o.backend != BackendChoice::cpu) return {};
  for (const char* flag : kGpuFlags)
    if (contains(o.given, flag)) return fail(flag, "contradicts --backend cpu");
  return {};
}

}  // namespace

std::vector<FlagGroup> exec_flags(ExecOptions& options) {
  std::vector<FlagGroup> groups = common_flags(options.common);
  groups.push_back(backend_group(options));
  groups.push_back(ranks_group(options));
  groups.push_back(data_flags(options.data));
  groups.push_back(training_group(options));
  groups.push_back(weights_group(options));
  groups.push_back(watching_group(options));
  groups.push_back(saves_group(options));
  groups.push_back(testing_group(options));
  return groups;
}

Result<ExecOptions> parse_exec_options(const std::vector<std::string>& args) {
  // The common name of this flag in other programs is too different for a suggestion.
  if (contains(args, "--resume-if-present"))
    return fail("--resume-if-present", "is --resume auto here, with --save DIR");
  ExecOptions options;
  const std::vector<FlagGroup> groups = exec_flags(options);
  MFSDP_LET(given, parse_flags(groups, args));
  options.given = given;
  options.common.notes = notes_on(groups, given);
  const CommonOptions& common = options.common;
  if (common.asks_about_tool()) return options;
  MFSDP_TRY(check_common(common, groups, given));
  if (options.data.packs) options.common.config.document_mask = true;
  if (common.model.empty() && !common.plan)
    return fail("--model", "is missing: name a built-in model, a config.json or a --plan");
  MFSDP_TRY(check_training(options));
  MFSDP_TRY(check_backend(options));
  return options;
}

namespace {

std::vector<HelpTerm> files_of_exec() {
  std::vector<HelpTerm> files = files_of_tools(true);
  files.push_back({"~/.cache/mfsdp",
                   "GEMM algorithms that were timed on this machine's GPUs "
                   "(--gemm-cache)."});
  return files;
}

}  // namespace

HelpText exec_help() {
  return {
      .tool = "mfsdp-exec",
      .purpose = "Trains a model by running its plan, on GPUs or on the CPU.",
      .examples = {{"mfsdp-exec --model llama_tiny --data book.txt --world-size 4 --steps 200",
                    "train on text"},
                   {"mfsdp-exec --model llama3_8b --world-size 64 --dry-run",
                    "the plan, nothing runs"},
                   {"mfsdp-exec --model llama_nano --data synthetic --output jsonl",
                    "a line a step"},
                   {"mfsdp-exec --plan plan.json --data tokens/", "run a saved plan"},
                   {"mfsdp-exec --model llama_tiny --data book.txt --save a --resume auto",
                    "begin, or go on from a"}},
      .negative = "no step had a finite gradient",
      .description =
          "The plan that mfsdp-sim predicts and mfsdp-verify proves is run: on GPUs with CUDA and "
          "NCCL, a process each, or on the CPU, where every rank and every stream is a thread.\n"
          "Every step is a line and a row in the store. Ctrl-C and SIGTERM end a run after its "
          "step.",
      .files = files_of_exec()};
}

}  // namespace mfsdp
