#include "gpu_backend/tool/train_run.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/output.hpp"
#include "core/cli/path_check.hpp"
#include "core/cli/table.hpp"
#include "gpu_backend/tool/cpu_run.hpp"
#include "gpu_backend/tool/cuda_run.hpp"
#include "gpu_backend/tool/planned_run.hpp"
#include "gpu_backend/tool/rank_machine.hpp"
#include "gpu_backend/tool/run_place.hpp"
#include "gpu_backend/tool/run_record.hpp"
#include "gpu_backend/tool/saves.hpp"
#include "gpu_backend/tool/step_tables.hpp"
#include "gpu_backend/weights/hf_export.hpp"
#include "gpu_backend/weights/hf_weights.hpp"
#include "reports/tool/plan_file.hpp"
#include "reports/trace/chrome_trace.hpp"
#include "sim/predict/predict.hpp"

namespace mfsdp {
namespace {

struct Data {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> eval;
};

Result<std::unique_ptr<Dataset>> open(const std::string& path, const ExecOptions& options,
                                      const DatasetSettings& settings) {
  if (path == kSynthetic)
    return synthetic_dataset(static_cast<std::uint64_t>(options.seed), settings);
  return open_dataset(path, settings);
}

Result<Data> open_data(const ExecOptions& options, const PlanConfig& config) {
  const DatasetSettings settings{.vocab = config.model.vocab, .seq_len = config.seq_len};
  Data data;
  MFSDP_LET(train, open(*options.data, options, settings));
  data.train = std::move(train);
  if (options.eval_data) {
    MFSDP_LET(eval, open(*options.eval_data, options, settings));
    data.eval = std::move(eval);
  }
  return data;
}

/// Where weights come from and go to; nothing where no flag says.
struct Weights {
  std::optional<HfWeights> initial;
  std::optional<HfExport> exported;
};

Result<Weights> open_weights(const ExecOptions& options, const Program& program) {
  Weights weights;
  if (options.init_from) {
    MFSDP_LET(initial, HfWeights::open(*options.init_from, program));
    weights.initial.emplace(std::move(initial));
  }
  if (options.export_to) {
    MFSDP_LET(exported, HfExport::prepare(program, *options.export_to));
    weights.exported.emplace(std::move(exported));
  }
  return weights;
}

template <class T>
const T* pointer_to(const std::optional<T>& value) {
  return value ? &*value : nullptr;
}

TrainSettings settings_of(const ExecOptions& options, const PlanConfig& config) {
  return {.steps = options.steps,
          .learning_rate = {.peak = options.learning_rate,
                            .minimum = options.lowest_rate(),
                            .warmup = options.warmup_steps()},
          .optimizer = {.beta1 = options.beta1,
                        .beta2 = options.beta2,
                        .epsilon = options.epsilon,
                        .weight_decay = options.weight_decay},
          .seed = static_cast<std::uint64_t>(options.seed),
          .eval_every = options.eval_every,
          .eval_samples = checked_mul(options.eval_batches, config.global_batch()),
          .log_param_norms = options.log_param_norms ? options.log_every : 0,
          .check_nan = options.check_nan};
}

/// The run as it begins: the plan's facts, and nothing measured yet.
RunResult head_of(const RunResult& predicted, const MachineFacts& facts) {
  RunResult run = predicted;
  run.cluster = facts.cluster;
  run.source = "measured";
  run.status = RunStatus::running;
  run.calibration = run.cost_model_version = "";
  run.trust = {};
  run.time = {};
  run.memory = {};
  run.exposed_units.clear();
  run.timeline.clear();
  run.memory_timeline.clear();
  run.ranks.reset();
  return run;
}

std::string title(const RunResult& run, const MachineFacts& facts, const Data& data,
                  const Saves& saves, const ExecOptions& options) {
  const PlanConfig& config = run.config;
  std::string text = fmt::format(
      "{}, {} parameters, on {}, {}\n"
      "sequence {}, micro-batch {}, microbatches {}: {} tokens a step\n"
      "data: {}\n",
      run.model_name, format_parameters(run.parameters), facts.ranks, to_string(config.strategy),
      config.seq_len, config.micro_batch, config.microbatches,
      format_count(config.tokens_per_step() * config.mesh.world_size()), data.train->describe());
  if (data.eval) text += "evaluation: " + data.eval->describe() + "\n";
  if (options.init_from) text += "weights: from " + printable(*options.init_from) + "\n";
  text += fmt::format("loss of guessing: ln(vocabulary) {:.4f}",
                      std::log(static_cast<double>(config.model.vocab)));
  if (const auto entropy = data.train->unigram_entropy())
    text += fmt::format(", unigram entropy {:.4f}", *entropy);
  text += fmt::format("\nplan {}\n", run.plan_hash);
  if (saves.resumed)
    text += fmt::format("resumed after step {} from {}\n", saves.start().step,
                        printable(saves.resumed->folder().string()));
  return text + "\n";
}

/// Of --gpu in bf16, out of what was predicted for it; nobody states a CPU's.
std::optional<double> peak_tflops(const RunPlace& place, const RunResult& predicted) {
  if (!place.launch || !(predicted.time.mfu > 0)) return std::nullopt;
  return predicted.time.tflops_per_gpu / predicted.time.mfu;
}

/// What the run came to. Pools are of one rank.
void complete(RunResult& run, const RankMachine& machine, std::optional<double> peak) {
  const RanRun& ran = machine.measured();
  const MachineFacts facts = machine.facts();
  MemorySummary& memory = run.memory;
  memory.categories = ran.memory.categories;
  memory.categories.at(static_cast<std::size_t>(Category::runtime)) = ran.runtime.value_or(Bytes());
  memory.peak = sum_of(memory.categories);
  memory.allocated = machine.allocated() + ran.runtime.value_or(Bytes());
  memory.runtime_source = facts.runtime_source;
  memory.capacity = facts.capacity;
  memory.headroom = memory.capacity - Bytes(checked_mul(memory.allocated.value, facts.sharing));
  memory.fits = memory.headroom >= Bytes(0);
  run.time = ran.step.time;
  run.timeline = ran.step.timeline;
  run.launches = ran.launches;
  const Rates rates = rates_of(run.config, run.time.step);
  run.time.tokens_per_second_per_gpu = rates.tokens_per_second;
  run.time.tflops_per_gpu = rates.tflops;
  run.time.mfu = peak ? rates.tflops / *peak : std::numeric_limits<double>::quiet_NaN();
}

/// Predicted against measured, category by category and pool by pool.
std::string memory_table(const RunResult& predicted, const RunResult& run, const Program& program,
                         const RanRun& ran) {
  Table table{.columns = {{"memory of a rank"},
                          {"predicted", Align::right},
                          {"measured", Align::right},
                          {"difference", Align::right}},
              .rows = {}};
  const auto add = [&](std::string name, Bytes before, Bytes after) {
    table.rows.push_back({std::move(name), format_count(before.value), format_count(after.value),
                          format_count((after - before).value)});
  };
  for (std::size_t i = 0; i < run.memory.categories.size(); ++i)
    if ((static_cast<Category>(i) != Category::runtime || ran.runtime) &&
        (predicted.memory.categories.at(i) != Bytes(0) || run.memory.categories.at(i) != Bytes(0)))
      add(std::string(to_string(static_cast<Category>(i))), predicted.memory.categories.at(i),
          run.memory.categories.at(i));
  for (std::size_t i = 0; i < std::min(ran.memory.pools.size(), program.pools.size()); ++i)
    add("pool " + program.pools[i].name, program.pools[i].height, ran.memory.pools[i]);
  return render_table(table);
}

CategoryBytes without_runtime(CategoryBytes categories) {
  categories.at(static_cast<std::size_t>(Category::runtime)) = Bytes(0);
  return categories;
}

std::string export_note(const std::optional<HfExport>& exported) {
  if (!exported) return "";
  return fmt::format("exported: {}, {}\n", printable(exported->folder().string()),
                     format_bytes(Bytes(exported->layout().bytes())));
}

std::string summary(const RunResult& run, std::chrono::nanoseconds took) {
  if (run.steps.empty()) return "no step was done\n";
  // The first step also makes what later ones find ready.
  Nanos sum;
  for (std::size_t i = 1; i < run.steps.size(); ++i) sum += run.steps[i].duration;
  const double tokens =
      static_cast<double>(run.config.tokens_per_step()) * static_cast<double>(run.steps.size() - 1);
  std::string text =
      fmt::format("{} steps in {}: loss {:.4f}, at last {:.4f}", run.steps.size(),
                  format_duration(Nanos(took.count())), run.steps.front().loss.value_or(NAN),
                  run.steps.back().loss.value_or(NAN));
  if (sum > Nanos(0))
    text += fmt::format("; {} tokens/s per rank after the first",
                        format_rate(tokens / (static_cast<double>(sum.value) / 1e9)));
  return text + "\n";
}

/// What is written at the end should not fail for a folder that was never there.
Result<void> check_folder(const std::optional<std::string>& file, std::string_view flag) {
  if (!file) return {};
  const std::filesystem::path folder = std::filesystem::path(*file).parent_path();
  std::error_code ignored;
  if (folder.empty() || std::filesystem::is_directory(folder, ignored)) return {};
  return fail(std::string(flag), printable(folder.string()) + " is no folder", Fault::environment);
}

/// The run that was saved is complete: a script may call again and again.
ExitCode nothing_left(const ExecOptions& options, const Session& session, const SavedState& saved) {
  session.err << fmt::format("{}: {} is after step {}: of --steps {} nothing is left to train\n",
                             session.tool, printable(saved.folder().string()),
                             saved.manifest().position.step, options.steps);
  return ExitCode::good;
}

}  // namespace

Result<ExitCode> dry_run(const ExecOptions& options, const Session& session) {
  MFSDP_TRY(check_paths(options.common, session.scenarios));
  MFSDP_LET(planned, plan_run(options, session));
  MFSDP_TRY(write_plan(options.common, *planned.program));
  if (options.common.trace) MFSDP_TRY(write_chrome_trace(planned.predicted, *options.common.trace));
  sign(planned.predicted, options.common, session);
  session.out << render_runs({&planned.predicted, 1}, options.common.output,
                             style_of(describe_stdout()), "not stored (--dry-run)");
  return ExitCode::good;
}

namespace {

Result<std::unique_ptr<RankMachine>> make_machine(const RunPlace& place, const Program& program,
                                                  const ExecOptions& options,
                                                  const TrainSettings& settings,
                                                  const RunResult& predicted,
                                                  const std::function<bool()>& stop) {
  if (place.launch)
    return make_cuda_run({.program = program,
                          .options = options,
                          .settings = settings,
                          .predicted = predicted,
                          .launch = *place.launch,
                          .stop = stop});
  return CpuRun::create(program, options, settings, stop);
}

/// A rank that another process speaks for.
Result<ExitCode> train_silently(RankMachine& machine, const TrainInputs& inputs,
                                const HfExport* exported) {
  if (auto trained = machine.train(inputs, nullptr, exported); !trained) {
    if (machine.told_elsewhere()) return ExitCode::environment;
    return tl::unexpected<Error>(std::move(trained.error()));
  }
  return machine.stopped() ? ExitCode::interrupted : ExitCode::good;
}

}  // namespace

Result<ExitCode> train_run(const ExecOptions& asked, const CommandLine& command,
                           const Session& session) {
  MFSDP_LET(place, find_run_place(asked, command.environment));
  ExecOptions options = asked;
  fit_world_size(place, options);
  const CommonOptions& common = options.common;
  MFSDP_TRY(check_paths(
      common, session.scenarios,
      {.read = {{"--data", options.data}, {"--eval-data", options.eval_data}}, .written = {}}));
  MFSDP_TRY(check_folder(common.trace, "--trace"));
  MFSDP_LET(planned, plan_run(options, session));
  const Program& program = *planned.program;
  MFSDP_TRY(check_world_size(place, program.config.mesh.world_size()));
  MFSDP_LET(data, open_data(options, program.config));
  MFSDP_LET(weights, open_weights(options, program));
  const TrainSettings settings = settings_of(options, program.config);
  if (place.starts_ranks()) return run_ranks(place, command, session);
  const auto stop = [&] { return session.interrupted.load(); };
  MFSDP_LET(machine, make_machine(place, program, options, settings, planned.predicted, stop));
  const MachineFacts facts = machine->facts();
  RunResult run = head_of(planned.predicted, facts);
  sign(run, common, session);
  MFSDP_LET(saves, open_saves(options, session, run, settings, *data.train, program,
                              machine->has_rank_0()));
  const std::int64_t done = saves.start().step;
  if (done >= options.steps && !options.export_to)
    return machine->has_rank_0() ? nothing_left(options, session, *saves.resumed) : ExitCode::good;
  TrainInputs inputs{.settings = settings,
                     .data = data.train.get(),
                     .eval_data = data.eval.get(),
                     .weights = pointer_to(weights.initial)};
  saves.attach_to(inputs);
  const HfExport* exported = pointer_to(weights.exported);
  if (!machine->has_rank_0()) return train_silently(*machine, inputs, exported);
  MFSDP_TRY(write_plan(common, program));

  const std::optional<double> peak = peak_tflops(place, planned.predicted);
  run.resumed = saves.origin();
  const auto begin = std::chrono::steady_clock::now();
  RunRecord record(options, session, run, [&] { return machine->allocated(); }, peak);
  MFSDP_TRY(record.begin());
  if (common.output == OutputFormat::text)
    session.out << title(run, facts, data, saves, options) << std::flush;

  const auto trained = machine->train(inputs, &record, exported);
  if (!trained && saves.saver) saves.saver->tidy();
  complete(run, *machine, peak);
  const bool cut = machine->stopped();
  run.status = !trained ? RunStatus::failed : cut ? RunStatus::interrupted : RunStatus::complete;
  const auto stored = record.finish(run);
  for (const std::string& note : machine->notes()) report_warning(session.err, note, session.tool);
  if (!trained) {
    if (!stored) report_warning(session.err, stored.error().message(), session.tool);
    return tl::unexpected<Error>(trained.error());
  }
  MFSDP_TRY(stored);
  if (common.trace) MFSDP_TRY(write_chrome_trace(run, *common.trace));

  if (without_runtime(run.memory.categories) !=
      without_runtime(planned.predicted.memory.categories))
    report_warning(session.err, "memory was not used as the plan says", session.tool);
  if (common.output == OutputFormat::text)
    session.out << "\n"
                << summary(run, std::chrono::steady_clock::now() - begin) << "\n"
                << memory_table(planned.predicted, run, program, machine->measured())
                << (place.launch ? "\n" + render_step_tables(planned.predicted, run) : "")
                << machine->facts().process << export_note(weights.exported) << "\n"
                << record.store_note() << "\n";
  else
    session.out << render_runs({&run, 1}, common.output, style_of(describe_stdout()),
                               record.store_note());
  if (!cut) return ExitCode::good;
  session.err << fmt::format("{}: interrupted after step {} of {}\n", session.tool,
                             record.steps().empty() ? done : record.steps().back().step,
                             options.steps);
  return ExitCode::interrupted;
}

}  // namespace mfsdp
