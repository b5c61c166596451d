#include "reports/session/run_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <system_error>

#include "core/base/text.hpp"
#include "core/base/unix_time.hpp"
#include "core/cli/exit_code.hpp"
#include "core/cli/help.hpp"
#include "core/cli/progress.hpp"

namespace mfsdp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// How long training may stand still for other writers of the store; what cannot be stored waits.
constexpr milliseconds kShortPatience{500};
/// The same at the end of the run, when nothing waits for it but the user.
constexpr milliseconds kEndPatience{10'000};
constexpr seconds kFirstPause{5};
constexpr seconds kLongestPause{300};

/// How long results that are ready wait for other writers.
milliseconds usual_patience() { return StoreOptions().patience; }

/// 128 random bits as hexadecimal digits.
std::string random_id() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", device());
  return id;
}

/// "step 4", "steps 4 to 9"; empty where there is none.
std::string step_range(const std::vector<StepResult>& steps) {
  if (steps.empty()) return "";
  if (steps.size() == 1) return fmt::format("step {}", steps.front().step);
  return fmt::format("steps {} to {}", steps.front().step, steps.back().step);
}

}  // namespace

void sign(RunHead& run, const CommonOptions& options, const Session& session) {
  run.tool = session.tool;
  run.version = version();
  run.commit = build_commit();
  run.facts.push_back({"software", "compiler", std::string(build_compiler())});
  run.facts.push_back({"software", "gpu_libraries", std::string(build_gpu_libraries())});
  run.run_id = random_id();
  run.name = options.name;
  run.created_unix_ns = unix_now_ns();
}

Result<void> RunStore::open(milliseconds patience) {
  if (store_) return {};
  MFSDP_LET(store, Store::open(options_.store_path(), {.patience = patience}));
  store_.emplace(std::move(store));
  return {};
}

/// A file that exists and must not change, even if the user did not ask to store in it.
bool RunStore::is_foreign(const Error& error) const {
  std::error_code ignored;
  return error.fault == Fault::input &&
         std::filesystem::is_regular_file(options_.store_path(), ignored);
}

void RunStore::warn(const std::string& text) {
  wipe_progress(session_.err);
  report_warning(session_.err, text, session_.tool);
}

Result<void> RunStore::save(std::span<const RunResult> runs) {
  if (runs.empty() || options_.no_save || given_up_) return {};
  const auto saved = [&]() -> Result<void> {
    MFSDP_TRY(open(usual_patience()));
    MFSDP_TRY(store_->save_all(runs));
    return {};
  }();
  if (saved) {
    saved_runs_ += runs.size();
    return {};
  }
  const Error& error = saved.error();
  // A store that breaks once runs are in it ends no sweep.
  if (saved_runs_ == 0 && (is_foreign(error) || (options_.db && error.fault == Fault::input)))
    return tl::unexpected<Error>(error);
  given_up_ = true;
  if (options_.db)
    outcome_ = tl::unexpected<Error>(error);
  else
    warn(fmt::format("{} not stored: {}", runs.size() > 1 ? "runs are" : "the run is",
                     error.message()));
  return {};
}

Result<void> RunStore::begin(const MeasuredRun& run) {
  if (options_.no_save) return {};
  const auto path = check_store_path(options_.store_path());
  if (!path && options_.db) return tl::unexpected<Error>(path.error());
  head_ = run;
  run_id_ = run.run_id;
  const auto written = write_waiting(kShortPatience);
  if (written) return {};
  const Error& error = written.error();
  if (is_foreign(error) || (options_.db && error.fault == Fault::input))
    return tl::unexpected<Error>(error);
  if (path) {
    postpone(error, "the run is");
  } else {
    warn("the run is not stored: " + error.message());
    given_up_ = true;
  }
  return {};
}

void RunStore::append(const RunProgress& progress) {
  if (options_.no_save || given_up_) return;
  waiting_.steps.insert(waiting_.steps.end(), progress.steps.begin(), progress.steps.end());
  waiting_.evaluations.insert(waiting_.evaluations.end(), progress.evaluations.begin(),
                              progress.evaluations.end());
  if (pause_ > seconds(0) && Clock::now() < next_try_) return;
  if (const auto written = write_waiting(kShortPatience); written)
    pause_ = seconds(0);
  else
    postpone(written.error(), "steps are");
}

/// The head, where it is not stored, and what has waited.
Result<void> RunStore::write_waiting(milliseconds patience) {
  MFSDP_TRY(open(patience));
  if (!row_) {
    MFSDP_SET(row_, store_->save(*head_));
    head_.reset();
  }
  if (waiting_.steps.empty() && waiting_.evaluations.empty()) return {};
  MFSDP_LET(there, store_->append(*row_, run_id_, waiting_));
  waiting_ = {};
  if (!there) give_up_removed();
  return {};
}

void RunStore::give_up_removed() {
  removed_ = given_up_ = true;
  warn(
      fmt::format("{}: run {} was removed while it went on, as by mfsdp-report gc; nothing more of "
                  "it is stored",
                  printable(options_.store_path()), printable(run_id_.substr(0, 8))));
}

/// A connection that has failed is not used again.
void RunStore::postpone(const Error& error, std::string_view what) {
  store_.reset();
  if (!std::exchange(warned_, true))
    warn(fmt::format("{}; {} not stored for now, training goes on", error.message(), what));
  pause_ = pause_ > seconds(0) ? std::min(2 * pause_, kLongestPause) : kFirstPause;
  next_try_ = Clock::now() + pause_;
}

/// Where there is no room for all of it, without the times of ops, which are most of it.
Result<void> RunStore::write_end(const MeasuredRun& run) {
  MFSDP_TRY(write_waiting(kEndPatience));
  if (removed_) return {};
  const auto whole = store_->finish(*row_, run);
  if (whole) {
    end_waits_ = false;
    if (!*whole) give_up_removed();
    return {};
  }
  MeasuredRun small = run;
  small.timeline.clear();
  small.launches.clear();
  end_waits_ = !store_->finish(*row_, small);
  timeline_waits_ = !end_waits_;
  return tl::unexpected<Error>(whole.error());
}

void RunStore::finish(const MeasuredRun& run) {
  if (options_.no_save || given_up_) return;
  end_waits_ = true;
  store_.reset();  // to be opened with more patience
  if (const auto written = write_end(run); !written)
    warn(fmt::format("{}; not stored: {}", written.error().message(), missing()));
}

/// The data of the run that is only in memory.
std::string RunStore::missing() const {
  if (!row_) return "the run";
  std::string text = step_range(waiting_.steps);
  const auto add = [&](std::string_view more) {
    if (!text.empty()) text += " and ";
    text += more;
  };
  if (end_waits_) add("the run's end");
  if (timeline_waits_) add("the times of its ops");
  return text;
}

std::string RunStore::note() const {
  if (options_.no_save) return "not stored (--no-save)";
  if (removed_)
    return "not stored: removed from " + printable(options_.store_path()) + " meanwhile";
  const std::string stored = "stored in " + printable(options_.store_path());
  if (given_up_ && saved_runs_ > 0)
    return fmt::format("{}: the first {} runs", stored, saved_runs_);
  const bool begun = row_ || !head_;
  if (given_up_ || !begun) return "not stored";
  const std::string without = missing();
  return row_ && !without.empty() ? stored + ", without " + without : stored;
}

}  // namespace mfsdp
