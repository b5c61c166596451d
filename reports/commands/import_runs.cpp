#include <fmt/format.h>

#include <utility>

#include "core/base/text.hpp"
#include "core/plan/config_fields.hpp"
#include "reports/commands/commands.hpp"
#include "reports/commands/list_runs.hpp"
#include "reports/import/import.hpp"
#include "reports/store/copy_runs.hpp"

namespace mfsdp {
namespace {

struct ImportOptions : ReportOptions {
  ImportSettings settings = {};
};

std::vector<FlagGroup> import_flags(ImportOptions& o) {
  const auto text = [](const char* name, const char* help, std::optional<std::string>& target) {
    return bound_flag(name, "TEXT", help, target, parse_text);
  };
  return {{.title = "Facts that the file may lack",
           .flags = {choice_flag("--format", "F",
                                 "result, store, tensorboard, torchtitan, megatron, "
                                 "memory-snapshot, kineto, steps, trainer-state (auto)",
                                 o.settings.format),
                     text("--engine", "what has run: fsdp2, megatron-fsdp, ...", o.settings.engine),
                     text("--model", "the model's name", o.settings.model),
                     text("--name", "the run's name (default: the file's)", o.settings.name),
                     text("--gpu", "kind of GPU", o.settings.gpu),
                     integer_flag("--gpus", "GPUs in all", o.settings.gpus,
                                  {.lowest = 1, .highest = config_limits::ranks})}},
          store_flags(o)};
}

HelpText import_help() {
  return {.tool = "mfsdp-report import",
          .purpose = "Puts what other trainers, tools and stores have left into the store.",
          .examples = {{"mfsdp-report import train.log --model llama3_8b", "torchtitan, Megatron"},
                       {"mfsdp-report import runs/tb --engine fsdp2", "TensorBoard events"},
                       {"mfsdp-report import trainer_state.json", "Hugging Face's Trainer"},
                       {"mfsdp-report import snapshot.pickle trace.json.gz", "of PyTorch"},
                       {"mfsdp-report import other.sqlite results.jsonl", "of mfsdp"}}};
}

/// Foreign runs are made by this program.
RunResult signed_by(RunResult run, const Session& session) {
  if (!run.tool.empty()) return run;
  run.tool = session.tool;
  run.version = version();
  run.commit = build_commit();
  return run;
}

/// "FILE: states no loss, step time; left out: epoch, lr-$group": what an import of it lacks, and
/// what the file has beside; empty where neither is so.
std::string gaps_of(const std::string& file, const RunResult& run) {
  const auto names = [&](std::string_view fact) {
    const Fact* found = find_fact(run.facts, "import", fact);
    return found == nullptr ? std::string() : fact_text(found->value);
  };
  const std::string missing = names(kMissingFigures);
  const std::string left_out = names(kLeftOutFigures);
  if (missing.empty() && left_out.empty()) return {};
  std::string text = printable(file) + ": ";
  if (!missing.empty()) text += "states no " + missing;
  if (!left_out.empty()) text += (missing.empty() ? "left out: " : "; left out: ") + left_out;
  return text;
}

Result<ExitCode> import_runs(const ImportOptions& options, const Session& session) {
  std::vector<RunResult> runs;
  for (const std::string& word : options.words) {
    MFSDP_LET(found, import_file(word, options.settings));
    for (RunResult& run : found) {
      if (const std::string gaps = gaps_of(word, run); !gaps.empty())
        report_note(session.err, gaps, session.tool);
      runs.push_back(signed_by(std::move(run), session));
    }
  }
  MFSDP_LET(copied, fill_store(options.db, [&](Store& store) { return save_new(store, runs); }));
  MFSDP_LET(store, open_store(options));
  if (!copied.there_before.empty())
    report_note(
        session.err,
        fmt::format("{} of {} runs are stored already, such as {}", copied.there_before.size(),
                    runs.size(), printable(copied.there_before.front())),
        session.tool);
  std::vector<StoredRun> stored;
  for (const std::int64_t row : copied.rows) {
    RunQuery query;
    query.row = row;
    MFSDP_LET(found, store.list(query));
    stored.insert(stored.end(), found.begin(), found.end());
  }
  session.out << render_list(stored, options.output, session.style);
  return ExitCode::good;
}

}  // namespace

Command import_command() {
  return make_command<ImportOptions>(
      {.name = "import",
       .summary = "put logs, traces, results and stores into the "
                  "store",
       .words = {.name = "FILE", .least = 1, .values = {.paths = PathKind::file}},
       .help = import_help,
       .flags = import_flags,
       .act = import_runs});
}

}  // namespace mfsdp
