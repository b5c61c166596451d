#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/atomic_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/exit_code.hpp"
#include "core/cli/format.hpp"
#include "reports/commands/commands.hpp"
#include "reports/commands/export_field.hpp"
#include "reports/commands/output_guard.hpp"
#include "reports/record/result_json.hpp"
#include "reports/render/output.hpp"
#include "reports/store/copy_runs.hpp"
#include "reports/store/find_runs.hpp"

namespace mfsdp {
namespace {

struct ExportOptions : ReportOptions {
  ExportOptions() { output = OutputFormat::jsonl; }

  std::optional<std::string> to = {};
  std::optional<FieldFormat> format = {};
};

std::vector<FlagGroup> export_flags(ExportOptions& o) {
  FlagGroup store = store_flags(o);
  for (Flag& flag : store.flags)
    if (flag.name == "--output") flag.help = "text, json, jsonl, csv, md (jsonl)";
  return {filter_flags(o),
          {.title = "Where to",
           .flags = {path_flag("--to", "file; a store where it ends in .sqlite (standard output)",
                               o.to),
                     choice_flag("--format", "F",
                                 "for other tools: chrome (Perfetto), memory-snapshot "
                                 "(memory_viz), svg (a picture), tensorboard",
                                 o.format)}},
          store};
}

HelpText export_help() {
  return {.tool = "mfsdp-report export",
          .purpose =
              "Writes runs as lines of JSON, as a store of their own with all they have, or as "
              "files of other tools.",
          .examples = {{"mfsdp-report export @latest", "one line of JSON"},
                       {"mfsdp-report export --model llama3_8b --to llama.jsonl", "a file"},
                       {"mfsdp-report export 3fa9 @baseline --to two.sqlite", "a store"},
                       {"mfsdp-report export 3fa9 --format chrome --to step.json.gz",
                        "for ui.perfetto.dev"}}};
}

bool is_store_name(const std::filesystem::path& path) { return path.extension() == ".sqlite"; }

Result<void> check_to(const std::string& path, const std::string& db) {
  const OutputName to{.flag = "--to", .path = path};
  return check_outputs({&to, 1}, db);
}

/// The file's ending must not imply another format.
Result<void> check_choices(const ExportOptions& o) {
  const bool lines = o.output == OutputFormat::jsonl;
  if (o.format && !lines) return fail("--output", "contradicts --format: give one or the other");
  if (!o.to) return {};
  if (!o.format && !lines && is_store_name(*o.to))
    return fail("--output", "contradicts --to " + in_quotes(*o.to) + ", which is a store's name");
  std::error_code ignored;
  const bool names_file = o.format && !std::filesystem::is_directory(*o.to, ignored);
  return names_file ? check_field_name(*o.format, *o.to) : Result<void>();
}

Result<void> export_store(Store& store, const std::vector<StoredRun>& runs,
                          const ExportOptions& options, const Session& session) {
  MFSDP_LET(copied,
            fill_store(*options.to, [&](Store& target) { return copy_runs(store, runs, target); }));
  report_note(session.err,
              fmt::format("{} of {} runs are new in {}", copied.rows.size(), runs.size(),
                          printable(*options.to)),
              session.tool);
  return {};
}

/// One run to a file, or each to a file of its own in a folder.
Result<void> export_each(Store& store, const std::vector<StoredRun>& runs,
                         const ExportOptions& options) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(*options.to, ignored);
  if (runs.size() > 1 && !is_folder)
    return fail("--to", fmt::format("{} is no folder, which {} runs need", in_quotes(*options.to),
                                    runs.size()));
  KnownPlans plans;
  for (const StoredRun& each : runs) {
    MFSDP_LET(run, store.load(each.id));
    std::filesystem::path path = *options.to;
    if (is_folder) path /= field_file_name(*options.format, run);
    MFSDP_TRY(check_to(path.string(), options.db));
    MFSDP_TRY(export_field(*options.format, run, plans, path));
  }
  return {};
}

/// A folder with a slash is made, and goes again where nothing came to be in it.
Result<void> export_fields(Store& store, const std::vector<StoredRun>& runs,
                           const ExportOptions& options) {
  if (!options.to) return fail("--to", "expected the file, or a folder, for --format");
  std::error_code error;
  const bool is_new =
      options.to->ends_with('/') && std::filesystem::create_directory(*options.to, error);
  if (error)
    return fail(*options.to, "cannot make this folder: " + error.message(), Fault::environment);
  auto exported = export_each(store, runs, options);
  if (!exported && is_new) std::filesystem::remove(*options.to, error);  // only an empty one
  return exported;
}

Result<ExitCode> export_runs(const ExportOptions& options, const Session& session) {
  if (options.to) MFSDP_TRY(check_to(*options.to, options.db));
  MFSDP_TRY(check_choices(options));
  MFSDP_LET(store, open_store(options));
  MFSDP_LET(found, find_runs(store, options.words, options.filter));
  if (found.empty()) return fail(options.db, "holds no such run");
  if (options.format) {
    MFSDP_TRY(export_fields(store, found, options));
    return ExitCode::good;
  }
  if (options.to && is_store_name(*options.to)) {
    MFSDP_TRY(export_store(store, found, options, session));
    return ExitCode::good;
  }
  // A line each, so that runs need not all be in memory; other formats need them at once.
  const bool lines = options.output == OutputFormat::jsonl;
  std::string text;
  std::vector<RunResult> runs;
  ExitCode code = ExitCode::good;
  for (const StoredRun& each : found) {
    auto loaded = store.load(each.id, {.timeline = false, .steps = true, .launches = false});
    if (!loaded && found.size() == 1) return tl::unexpected<Error>(loaded.error());
    if (!loaded) {
      report_warning(
          session.err,
          fmt::format("run {} is left out: {}", short_name(each), loaded.error().message()),
          session.tool);
      code = exit_code_of(loaded.error());
      continue;
    }
    RunResult& run = *loaded;
    if (!lines)
      runs.push_back(std::move(run));
    else if (options.to)
      text += to_json_line(run) + "\n";
    else
      session.out << to_json_line(run) << "\n";
  }
  if (!lines) text = render_runs(runs, options.output, {}, "stored in " + printable(options.db));
  if (!options.to) {
    session.out << text;
    return code;
  }
  MFSDP_TRY(write_file_atomically(*options.to, text));
  return code;
}

}  // namespace

Command export_command() {
  return make_command<ExportOptions>(
      {.name = "export",
       .summary = "runs as lines of JSON, a store, or files of other tools",
       .words = {.name = "RUN"},
       .help = export_help,
       .flags = export_flags,
       .act = export_runs});
}

}  // namespace mfsdp
