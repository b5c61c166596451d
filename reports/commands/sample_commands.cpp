#include "reports/commands/sample_commands.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/cli/format.hpp"
#include "core/cli/progress.hpp"
#include "reports/commands/shell_command.hpp"
#include "reports/record/parse_result.hpp"

namespace mfsdp {
namespace {

/// A run of which nothing is known but how long the command took.
RunResult timed_run(Nanos wall) {
  MeasuredRun run;
  run.tool = "command";
  run.engine = "command";
  run.absent = FigureSet::all();
  run.absent.remove(ResultFigure::median_step_ns);
  run.time.median_step = wall;
  return RunResult(std::move(run));
}

bool holds_json(const std::string& output) {
  return output.find("mfsdp.result/") != std::string::npos;
}

Result<RunResult> sample_of(const std::string& command, const ShellOutcome& outcome, bool timed) {
  const std::string where = in_quotes(command);
  if (outcome.status != 0)
    return fail(where,
                fmt::format("ended with exit status {}; nothing is compared", outcome.status));
  if (timed) return timed_run(outcome.wall);
  MFSDP_LET(runs, parse_results(outcome.output, where));
  if (runs.size() != 1)
    return fail(where, fmt::format("left {} results, expected one", runs.size()));
  return std::move(runs.front());
}

}  // namespace

Result<CommandSamples> sample_commands(const SampledCommands& commands, const Session& session) {
  CommandSamples samples;
  const std::int64_t sides = commands.against ? 2 : 1;
  Progress progress(session.err, "samples", sides * commands.samples);
  std::int64_t done = 0;
  for (std::int64_t round = 0; round < commands.samples; ++round)
    for (std::int64_t turn = 0; turn < sides; ++turn) {
      const bool is_run = sides == 1 || (round % 2 == 0) == (turn == 0);
      const std::string& command = is_run ? commands.run : *commands.against;
      MFSDP_LET(outcome, run_shell(command, session.interrupted));
      if (outcome.stopped || session.interrupted) {
        samples.interrupted = true;
        return samples;
      }
      if (done == 0) samples.timed = !holds_json(outcome.output);
      MFSDP_LET(sample, sample_of(command, outcome, samples.timed));
      (is_run ? samples.runs : samples.against).push_back(std::move(sample));
      progress.at(++done);
    }
  return samples;
}

}  // namespace mfsdp
