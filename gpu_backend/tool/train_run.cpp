#include "gpu_backend/tool/train_run.hpp"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/base/text.hpp"
#include "core/cli/output.hpp"
#include "core/cli/path_check.hpp"
#include "gpu_backend/tool/cpu_run.hpp"
#include "gpu_backend/tool/cuda_run.hpp"
#include "gpu_backend/tool/measured_run.hpp"
#include "gpu_backend/tool/planned_run.hpp"
#include "gpu_backend/tool/rank_machine.hpp"
#include "gpu_backend/tool/run_inputs.hpp"
#include "gpu_backend/tool/run_place.hpp"
#include "gpu_backend/tool/run_record.hpp"
#include "gpu_backend/tool/run_texts.hpp"
#include "gpu_backend/tool/saves.hpp"
#include "gpu_backend/tool/step_tables.hpp"
#include "reports/tool/plan_file.hpp"
#include "reports/trace/chrome_trace.hpp"

namespace mfsdp {
namespace {

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

/// A run whose machine is ready, in the process of rank 0.
struct ReadyRun {
  const ExecOptions& options;
  const Session& session;
  const PlannedRun& planned;
  const RunInputs& inputs;
  RankMachine& machine;
  Saves& saves;
  bool on_gpus;  ///< their times are compared with those predicted for --gpu
  /// Of --gpu in bf16, out of what was predicted for it; nobody states a CPU's.
  std::optional<double> peak_tflops;
};

/// Everything behind the last step that is said on stdout.
std::string end_of(const ReadyRun& ready, const RunResult& run, std::chrono::nanoseconds took,
                   const std::string& store_note) {
  const RunResult& predicted = ready.planned.predicted;
  if (ready.options.common.output != OutputFormat::text)
    return render_runs({&run, 1}, ready.options.common.output, style_of(describe_stdout()),
                       store_note);
  std::string text = "\n" + run_summary(run, took) + "\n";
  if (!run.steps.empty())
    text += memory_table(predicted, run, *ready.planned.program, ready.machine.measured());
  if (ready.on_gpus) text += "\n" + render_step_tables(predicted, run);
  return text + ready.machine.facts().process + export_note(ready.inputs) + "\n" + store_note +
         "\n";
}

Result<ExitCode> train_and_tell(const ReadyRun& ready, RunResult run, const TrainInputs& inputs) {
  const auto& [options, session, planned, from, machine, saves, on_gpus, peak] = ready;
  run.resumed = saves.origin();
  const auto begin = std::chrono::steady_clock::now();
  RunRecord record(
      options, session, run, [&machine = machine] { return machine.allocated(); }, peak);
  MFSDP_TRY(record.begin());
  if (options.common.output == OutputFormat::text)
    session.out << run_title(run, machine.facts(), from, saves, options) << std::flush;

  const auto trained = machine.train(inputs, &record, from.export_or_null());
  if (!trained && saves.saver) saves.saver->tidy();
  complete(run, machine, peak);
  const bool cut = machine.stopped();
  run.status = !trained ? RunStatus::failed : cut ? RunStatus::interrupted : RunStatus::complete;
  const auto stored = record.finish(run);
  for (const std::string& note : machine.notes()) report_warning(session.err, note, session.tool);
  if (!trained) {
    if (!stored) report_warning(session.err, stored.error().message(), session.tool);
    return tl::unexpected<Error>(trained.error());
  }
  MFSDP_TRY(stored);
  if (options.common.trace) MFSDP_TRY(write_chrome_trace(run, *options.common.trace));
  if (!run.steps.empty() && !used_as_planned(planned.predicted, run))
    report_warning(session.err, "memory was not used as the plan says", session.tool);
  session.out << end_of(ready, run, std::chrono::steady_clock::now() - begin, record.store_note());
  if (!cut) return ExitCode::good;
  session.err << fmt::format("{}: interrupted after step {} of {}\n", session.tool,
                             run.steps.empty() ? saves.start().step : run.steps.back().step,
                             options.steps);
  return ExitCode::interrupted;
}

}  // namespace

Result<ExitCode> train_run(const ExecOptions& asked, const CommandLine& command,
                           const Session& session) {
  MFSDP_LET(place, find_run_place(asked, command.environment));
  ExecOptions options = asked;
  fit_world_size(place, options);
  const CommonOptions& common = options.common;
  MFSDP_TRY(check_paths(common, session.scenarios,
                        {.read = {{"--data", options.data}, {"--eval-data", options.eval_data}},
                         .written = {{"--logits", options.logits}}}));
  MFSDP_TRY(check_folder(common.trace, "--trace"));
  MFSDP_TRY(check_folder(options.logits, "--logits"));
  MFSDP_LET(planned, plan_run(options, session));
  const Program& program = *planned.program;
  MFSDP_TRY(check_world_size(place, program.config.mesh.world_size()));
  MFSDP_LET(inputs, open_run_inputs(options, program));
  if (place.starts_ranks()) return run_ranks(place, command, session);

  const auto stop = [&] { return session.interrupted.load(); };
  MFSDP_LET(machine,
            make_machine(place, program, options, inputs.settings, planned.predicted, stop));
  const bool leads = machine->has_rank_0();
  RunResult run = head_of(planned.predicted, machine->facts());
  sign(run, common, session);
  MFSDP_LET(saves,
            open_saves(options, session, run, inputs.settings, *inputs.data, program, leads));
  if (saves.start().step >= options.steps && !inputs.exported && !saves.moves())
    return leads ? nothing_left(options, session, *saves.resumed) : ExitCode::good;
  TrainInputs train_inputs = inputs.train_inputs();
  saves.attach_to(train_inputs);
  if (!leads) return train_silently(*machine, train_inputs, inputs.export_or_null());
  MFSDP_TRY(write_plan(common, program));
  const TimeSummary& time = planned.predicted.time;
  return train_and_tell(
      {.options = options,
       .session = session,
       .planned = planned,
       .inputs = inputs,
       .machine = *machine,
       .saves = saves,
       .on_gpus = place.launch.has_value(),
       .peak_tflops = place.launch && time.mfu > 0 ? std::optional(time.tflops_per_gpu / time.mfu)
                                                   : std::nullopt},
      std::move(run), train_inputs);
}

}  // namespace mfsdp
