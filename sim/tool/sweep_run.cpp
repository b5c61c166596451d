#include "sim/tool/sweep_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "core/cli/path_check.hpp"
#include "core/cli/progress.hpp"
#include "reports/render/output.hpp"
#include "sim/search/parallel.hpp"
#include "sim/tool/asker.hpp"
#include "sim/tool/room.hpp"
#include "sim/tool/sweep_table.hpp"
#include "sim/tool/training.hpp"

namespace mfsdp {
namespace {

/// Runs that are stored in one transaction.
constexpr std::size_t kBatch = 100;

std::vector<RunResult> runs_of(const std::vector<SweepRow>& rows) {
  std::vector<RunResult> runs;
  for (const SweepRow& row : rows)
    if (row.run) runs.emplace_back(*row.run);
  return runs;
}

/// The row with what its question comes to.
SweepRow predicted(const SweepRow& asked, Predict what) {
  SweepRow row = asked;
  const Question& question = *asked.question;
  if (what == Predict::what_fits) row.impossible = lack_of_room(question);
  if (row.impossible) {
    row.question.reset();
    return row;
  }
  if (what == Predict::what_fits && cannot_fit(question)) {
    row.too_large = true;
    return row;
  }
  const auto ready = built(question);
  if (!ready) {
    row.impossible = ready.error();
    return row;
  }
  if (what == Predict::what_fits && !fits(*ready)) {
    row.memory = footprint_of(*ready);
    row.too_large = true;
    return row;
  }
  auto prediction = answer(*ready);
  if (!prediction) {
    row.impossible = prediction.error();
    return row;
  }
  row.run = std::move(prediction->run);
  row.run->timeline.clear();
  row.run->memory_timeline.clear();
  return row;
}

/// Of an interrupted sweep.
std::int64_t not_predicted(const std::vector<SweepRow>& rows) {
  return std::ranges::count_if(rows, [](const SweepRow& r) { return !r.run && !r.impossible; });
}

/// What the rows cannot say in formats that hold runs alone.
void report_interrupted(const std::vector<SweepRow>& rows, const Session& session) {
  session.err << fmt::format("{}: interrupted; {} of {} combinations are not predicted\n",
                             session.tool, not_predicted(rows), rows.size());
}

/// Likewise.
void report_impossible(const std::vector<SweepRow>& rows, const Session& session) {
  const auto first =
      std::ranges::find_if(rows, [](const SweepRow& r) { return r.impossible.has_value(); });
  if (first == rows.end()) return;
  const auto count =
      std::ranges::count_if(rows, [](const SweepRow& r) { return r.impossible.has_value(); });
  session.err << fmt::format(
      "{}: note: {} of {} combinations are not possible, the first because "
      "{}\n",
      session.tool, count, rows.size(), first->impossible->message());
}

}  // namespace

Result<std::vector<SweepRow>> sweep_rows(const Sweep& sweep, const Session& session) {
  Asker asker(session);
  MFSDP_LET(swept, SweptOptions::parse(sweep));
  std::vector<SweepRow> rows;
  for (std::size_t i = 0; i < sweep.arguments.size(); ++i) {
    SweepRow row;
    row.values = sweep.values(i);
    if (session.interrupted) {  // a row all the same: what was not predicted is counted
      rows.push_back(std::move(row));
      continue;
    }
    MFSDP_LET(options, swept.combination(i));
    auto question = asker.question(options);
    if (question)
      row.question = *std::move(question);
    else if (question.error().fault == Fault::environment || question.error().where == "--price")
      return tl::unexpected<Error>(question.error());
    else
      row.impossible = question.error();
    rows.push_back(std::move(row));
  }
  if (!rows.empty() &&
      std::ranges::all_of(rows, [](const SweepRow& row) { return row.impossible.has_value(); }))
    return tl::unexpected<Error>(*rows.front().impossible);
  return rows;
}

std::vector<std::size_t> asked(const std::vector<SweepRow>& rows) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].question) places.push_back(i);
  return places;
}

Result<bool> predict_rows(std::vector<SweepRow>& rows, const std::vector<std::size_t>& places,
                          Predict what, const SimOptions& options, const Session& session,
                          RunStore& store) {
  Progress progress(session.err, "configurations", std::ssize(places));
  std::vector<RunResult> batch;
  std::optional<Error> fault;
  std::int64_t done = 0;
  std::vector<bool> here(places.size(), false);
  std::size_t next = 0;
  // In the order of the rows, whichever is predicted first.
  const auto take_next = [&] {
    SweepRow& row = rows[places[next++]];
    if (!row.run) return;
    sign(*row.run, options.common, session);
    batch.emplace_back(*row.run);
  };
  run_in_parallel(
      places.size(), std::thread::hardware_concurrency(),
      [&](std::size_t i) { return predicted(rows[places[i]], what); },
      [&](std::size_t i, SweepRow&& row) {
        progress.at(++done);
        rows[places[i]] = std::move(row);
        here[i] = true;
        while (next < here.size() && here[next]) take_next();
        if (batch.size() >= kBatch) {
          if (const auto saved = store.save(batch); !saved) fault = saved.error();
          batch.clear();
        }
        return !fault && !session.interrupted;
      });
  if (fault) return tl::unexpected<Error>(*fault);
  while (next < here.size()) take_next();  // of an interrupted sweep: what came behind a gap
  MFSDP_TRY(store.save(batch));
  return !session.interrupted;
}

Result<ExitCode> run_sweep(const Sweep& sweep, const SimOptions& options, const Session& session) {
  MFSDP_TRY(check_several(options, "a comma list of " + sweep.axes.front().flag));
  MFSDP_TRY(check_paths(options.common, session.scenarios));
  MFSDP_LET(rows, sweep_rows(sweep, session));
  RunStore store(options.common, session);
  MFSDP_LET(whole, predict_rows(rows, asked(rows), Predict::everything, options, session, store));
  for (SweepRow& row : rows)
    if (row.run) estimate_training(*row.run, options);

  const OutputFormat format = options.common.output;
  if (format == OutputFormat::text || format == OutputFormat::md) {
    session.out << sweep_table(sweep, rows, format, session.style, store.note());
  } else {
    report_impossible(rows, session);
    if (!whole) report_interrupted(rows, session);
    session.out << render_sweep(runs_of(rows), not_predicted(rows), format, session.style,
                                store.note());
  }
  MFSDP_TRY(store.outcome());
  if (!whole) return ExitCode::interrupted;
  const bool all_fit = std::ranges::all_of(rows, [&](const SweepRow& row) {
    return row.impossible || passes_fit(*row.run, options.allow_within_error);
  });
  return options.require_fit && !all_fit ? ExitCode::negative : ExitCode::good;
}

}  // namespace mfsdp
