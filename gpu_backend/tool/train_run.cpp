#include "gpu_backend/tool/train_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/text.hpp"
#include "core/cli/common_options.hpp"
#include "core/cli/path_check.hpp"
#include "core/cli/wrap.hpp"
#include "core/plan/fp8.hpp"
#include "core/plan/job.hpp"
#include "core/request/plan_file.hpp"
#include "gpu_backend/tool/cpu_run.hpp"
#include "gpu_backend/tool/measured_run.hpp"
#include "gpu_backend/tool/predicted_run.hpp"
#include "gpu_backend/tool/rank_machine.hpp"
#include "gpu_backend/tool/run_facts.hpp"
#include "gpu_backend/tool/run_inputs.hpp"
#include "gpu_backend/tool/run_place.hpp"
#include "gpu_backend/tool/run_record.hpp"
#include "gpu_backend/tool/run_texts.hpp"
#include "gpu_backend/tool/saves.hpp"
#include "gpu_backend/tool/step_tables.hpp"
#include "reports/render/output.hpp"
#include "reports/trace/step_picture.hpp"

namespace mfsdp {
namespace {

/// The saved run is complete. This is no failure: a script may start the same command again.
ExitCode nothing_left(const ExecOptions& options, const Session& session, const SavedState& saved) {
  session.err << fmt::format("{}: {} is after step {}: of --steps {} nothing is left to train\n",
                             session.tool, printable(saved.folder().string()),
                             saved.manifest().position.step, options.steps);
  return ExitCode::good;
}

/// Input files in addition to those of the common flags.
std::vector<FlagFile> files_read(const ExecOptions& options) {
  std::vector<FlagFile> files{{"--eval-data", options.eval_data}};
  for (const DataFlag& data : options.data.data) files.push_back({"--data", data.path});
  if (options.data.tokenizer != kByteTokens)
    files.push_back({"--tokenizer", options.data.tokenizer});
  files.insert(files.end(), {{"--init-from", options.init_from},
                             {"--init-adapters", options.init_adapters},
                             {"--resume", options.resume}});
  return files;
}

/// A fault after the last step would never happen.
Result<void> check_fault_step(const ExecOptions& options) {
  if (!options.fault || options.fault->step <= options.steps) return {};
  return fail("--fault", fmt::format("there is no step {}: expected 1 to {} (--steps)",
                                     options.fault->step, options.steps));
}

/// Notes about exports that were killed; only the first process of a run finds any.
void tell_leftovers(const RunInputs& inputs, const Session& session) {
  for (const HfExport& exported : inputs.exported) {
    const ExportLeftovers& found = exported.leftovers();
    for (const auto& folder : found.removed)
      session.err << fmt::format("{}: note: removed {}, which a killed export has left\n",
                                 session.tool, printable(folder.string()));
    for (const auto& folder : found.left)
      session.err << fmt::format(
          "{}: note: {} may be left of a killed export; nothing removes it\n", session.tool,
          printable(folder.string()));
  }
}

}  // namespace

Result<ExitCode> dry_run(const ExecOptions& options, const Session& session) {
  MFSDP_TRY(check_paths(options.common, session.scenarios));
  MFSDP_LET(planned, plan_run(options, session));
  MFSDP_LET(predicted, predict_run(planned, options, session));
  MFSDP_TRY(write_plan(options.common, *planned.job));
  if (options.common.trace) MFSDP_TRY(write_trace(predicted, *options.common.trace));
  sign(predicted, options.common, session);
  const RunResult result(std::move(predicted));
  session.out << render_runs({&result, 1}, options.common.output, session.style,
                             "not stored (--dry-run)");
  return ExitCode::good;
}

namespace {

Result<std::unique_ptr<RankMachine>> make_machine(const RunPlace& place, const ExecOptions& options,
                                                  const Job& job, const PredictedRun& predicted,
                                                  const RunInputs& inputs,
                                                  const std::function<bool()>& stop,
                                                  const std::function<void(const Error&)>& tell,
                                                  MakeCudaRun make_cuda_run) {
  if (!place.launch) return CpuRun::create(job, options, inputs.settings, stop);
  return make_cuda_run({.job = job,
                        .options = options,
                        .settings = inputs.settings,
                        .predicted = predicted,
                        .launch = *place.launch,
                        .stop = stop,
                        .tell = tell});
}

/// A rank whose results another process prints.
Result<ExitCode> train_silently(RankMachine& machine, const TrainInputs& inputs,
                                std::span<const HfExport> exported) {
  if (auto trained = machine.train(inputs, nullptr, exported); !trained) {
    if (machine.told_elsewhere()) return ExitCode::environment;
    return tl::unexpected<Error>(std::move(trained.error()));
  }
  return machine.stopped() ? ExitCode::interrupted : ExitCode::good;
}

/// A run that is ready to start, in the process of the reporting rank.
struct ReadyRun {
  const ExecOptions& options;
  const Session& session;
  const Job& job;
  const PredictedRun& predicted;
  const RunInputs& inputs;
  RankMachine& machine;
  Saves& saves;
  bool on_gpus = false;  ///< whether its times are compared with those predicted for --gpu
  /// Of --gpu in bf16, from its prediction; unknown for a CPU.
  std::optional<double> peak_tflops;
  std::atomic<bool>& unread;  ///< standard output cannot be written, which ends the run
};

/// The GPU's peak, from its prediction.
std::optional<double> peak_of(const TimeSummary& time) {
  return time.mfu > 0 ? std::optional(time.tflops_per_gpu / time.mfu) : std::nullopt;
}

/// In the syntax of --fault.
std::string in_words(const FaultFlag& fault) {
  return fmt::format("{}:{}:{}:{}", to_string(fault.kind), fault.rank, fault.op, fault.step);
}

/// Whether no step had a finite gradient: the weights are unchanged or not finite.
bool learned_nothing(const MeasuredRun& run, const Session& session) {
  const bool nothing =
      !run.steps.empty() && std::ranges::none_of(run.steps, [](const StepResult& step) {
        return std::isfinite(step.grad_norm.value_or(0));
      });
  if (nothing)
    session.err << fmt::format(
        "{}: no step of {} had a finite gradient, nothing was learned; --check-nan names where "
        "that begins\n",
        session.tool, run.steps.size());
  return nothing;
}

/// The text on stdout after the last step.
std::string end_of(const ReadyRun& ready, const MeasuredRun& run, std::chrono::nanoseconds took,
                   const std::string& store_note) {
  const PredictedRun& predicted = ready.predicted;
  const TextStyle& style = ready.session.style;
  if (ready.options.common.output != OutputFormat::text) {
    const RunResult result(run);
    return render_runs({&result, 1}, ready.options.common.output, style, store_note);
  }
  std::string text = "\n" + run_summary(run, took) + "\n";
  if (!run.steps.empty())
    text += memory_table(predicted, run,
                         program_of(ready.job.programs, fullest_rank(ready.job.programs)),
                         ready.machine.measured(), style);
  if (ready.on_gpus) text += "\n" + render_step_tables(predicted, run, style);
  text += ready.machine.facts().process + export_note(ready.inputs) + "\n" + store_note + "\n";
  return wrap_text(text, style);
}

Result<ExitCode> train_and_tell(const ReadyRun& ready, MeasuredRun run, const TrainInputs& inputs) {
  const auto& [options, session, job, predicted, from, machine, saves, on_gpus, peak, unread] =
      ready;
  run.resumed = saves.origin();
  if (run.resumed)
    run.facts.push_back(
        {.topic = "recipe", .name = std::string(kResumedTokens), .value = saves.start().tokens});
  const auto begin = std::chrono::steady_clock::now();
  RunRecord record(
      options, session, run, [&allocator = machine] { return allocator.allocated(); }, peak,
      unread);
  MFSDP_TRY(record.begin());
  if (options.common.output == OutputFormat::text)
    session.out << wrap_text(run_title(run, machine.facts(), from, saves, options), session.style)
                << std::flush;

  const auto trained = machine.train(inputs, &record, from.exported);
  if (!trained && saves.saver) saves.saver->tidy();
  complete(run, machine, predicted);
  const bool cut = machine.stopped();
  run.status = !trained ? RunStatus::failed : cut ? RunStatus::interrupted : RunStatus::complete;
  record.finish(run);
  for (const std::string& note : machine.notes()) report_warning(session.err, note, session.tool);
  if (!trained) return tl::unexpected<Error>(trained.error());
  if (unread) return fail("standard output", "cannot be written", Fault::environment);
  if (options.common.trace)
    MFSDP_TRY(write_trace(run, *options.common.trace, nullptr, job.programs));
  const double most = run.config.has_fp8() ? kFp8Speed : 1;  // MFU is of the peak in bf16
  if (run.time.mfu > most)
    report_warning(
        session.err,
        fmt::format("measured {:.0f} TFLOP/s are above the peak of --gpu {}: another GPU "
                    "has run, and MFU means nothing",
                    run.time.tflops_per_gpu, options.common.gpu),
        session.tool);
  if (!run.steps.empty() && !used_as_planned(predicted, run))
    report_warning(session.err, "memory was not used as planned", session.tool);
  session.out << end_of(ready, run, std::chrono::steady_clock::now() - begin, record.store_note());
  if (options.fault)
    report_warning(session.err,
                   fmt::format("--fault {}: the run ended without it", in_words(*options.fault)),
                   session.tool);
  if (!cut) return learned_nothing(run, session) ? ExitCode::negative : ExitCode::good;
  session.err << fmt::format("{}: interrupted after step {} of {}\n", session.tool,
                             run.steps.empty() ? saves.start().step : run.steps.back().step,
                             options.steps);
  return ExitCode::interrupted;
}

}  // namespace

Result<ExitCode> train_run(const ExecOptions& asked, const CommandLine& command,
                           const Session& session, MakeCudaRun make_cuda_run,
                           EndProcess end_process) {
  MFSDP_LET(place, find_run_place(asked, command.environment, make_cuda_run != nullptr));
  ExecOptions options = asked;
  fit_world_size(place, options);
  const CommonOptions& common = options.common;
  MFSDP_TRY(check_paths(common, session.scenarios,
                        {.read = files_read(options), .written = {{"--logits", options.logits}}}));
  MFSDP_TRY(check_save_folder(options));
  // If the folder exists, it is locked first, so that a second job ends at once. Otherwise it is
  // locked after all input is checked, so that no folder is created for nothing.
  std::optional<RunLock> lock;
  std::error_code ignored;
  if (place.is_first() && options.save && std::filesystem::is_directory(*options.save, ignored))
    MFSDP_TRY(lock_save_folder(options, session, lock));
  MFSDP_LET(planned, plan_run(options, session));
  const Job& job = *planned.job;
  // The program with the loss, whose configuration and groups are those of all classes.
  const Program& program = program_of(job.programs, reporting_rank(job.programs));
  // Also if this process only starts ranks, so that a wrong --gpu is reported once.
  MFSDP_LET(predicted, predict_run(planned, options, session));
  MFSDP_TRY(check_world_size(place, program.config.mesh.world_size()));
  MFSDP_LET(inputs, open_run_inputs(options, program));
  options.steps = inputs.settings.steps;  // computed from --epochs
  MFSDP_TRY(check_fault_step(options));
  tell_leftovers(inputs, session);
  if (place.is_first()) MFSDP_TRY(lock_save_folder(options, session, lock));
  if (place.starts_ranks()) return run_ranks(place, options, command, session);

  std::atomic<bool> unread{false};
  const auto stop = [&] { return session.interrupted || unread; };
  std::once_flag told;
  const auto tell = [&](const Error& error) {
    std::call_once(told, [&] {
      static_cast<void>(
          report_error(session.err, in_given_flags(error, command.arguments), session.tool));
    });
    return exit_code_of(error);
  };
  auto made = make_machine(place, options, job, predicted, inputs, stop, tell, make_cuda_run);
  if (!made) return tell(made.error());
  const std::unique_ptr<RankMachine> machine = std::move(*made);
  const bool leads = machine->reports();
  if (leads)
    for (const std::string& warning : inputs.warnings)
      report_warning(session.err, warning, session.tool);
  MeasuredRun run = head_of(predicted, machine->facts());
  MFSDP_LET(recipe, recipe_facts(options, inputs, run));
  run.facts.insert(run.facts.end(), recipe.begin(), recipe.end());
  sign(run, common, session);
  MFSDP_LET(saves,
            open_saves(options, session, run, inputs.settings, *inputs.data, program, leads));
  const bool has_use = !inputs.exported.empty() || saves.moves() || inputs.eval_data != nullptr;
  if (saves.start().step >= options.steps && !has_use)
    return leads ? nothing_left(options, session, *saves.resumed) : ExitCode::good;
  TrainInputs train_inputs = inputs.train_inputs();
  saves.attach_to(train_inputs);
  const auto train = [&]() -> Result<ExitCode> {
    if (!leads) return train_silently(*machine, train_inputs, inputs.exported);
    MFSDP_TRY(write_plan(common, job));
    return train_and_tell({.options = options,
                           .session = session,
                           .job = job,
                           .predicted = predicted,
                           .inputs = inputs,
                           .machine = *machine,
                           .saves = saves,
                           .on_gpus = place.launch.has_value(),
                           .peak_tflops = place.launch ? peak_of(predicted.time) : std::nullopt,
                           .unread = unread},
                          std::move(run), train_inputs);
  };
  auto ended = train();
  if (ended && *ended != ExitCode::environment) return ended;
  const ExitCode code = ended ? *ended : tell(ended.error());
  if (machine->abandon()) {
    session.out << std::flush;
    end_process(code);
  }
  return code;
}

}  // namespace mfsdp
