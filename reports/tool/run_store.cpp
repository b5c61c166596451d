#include "reports/tool/run_store.hpp"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <system_error>

#include "core/cli/exit_code.hpp"
#include "core/cli/help.hpp"
#include "core/cli/progress.hpp"

namespace mfsdp {
namespace {

/// 128 random bits as hexadecimal digits.
std::string random_id() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", device());
  return id;
}

}  // namespace

void sign(RunResult& run, const CommonOptions& options, const Session& session) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  run.tool = session.tool;
  run.version = version();
  run.run_id = random_id();
  run.name = options.name;
  run.created_unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

Result<void> RunStore::attempt(std::string_view what,
                               const std::function<Result<void>(Store&)>& work) {
  if (options_.no_save || given_up_) return {};
  const auto saved = [&]() -> Result<void> {
    if (!store_) {
      MFSDP_LET(store, Store::open(options_.store_path()));
      store_.emplace(std::move(store));
    }
    return work(*store_);
  }();
  if (saved) return {};
  std::error_code ignored;
  const bool foreign = saved.error().fault == Fault::input &&
                       std::filesystem::is_regular_file(options_.store_path(), ignored);
  if (options_.db || foreign) return tl::unexpected<Error>(saved.error());
  wipe_progress(session_.err);
  report_warning(session_.err, fmt::format("{} not stored: {}", what, saved.error().message()),
                 session_.tool);
  given_up_ = true;
  return {};
}

Result<void> RunStore::save(std::span<const RunResult> runs) {
  if (runs.empty()) return {};
  return attempt(runs.size() > 1 ? "runs are" : "the run is", [&](Store& store) -> Result<void> {
    MFSDP_TRY(store.save_all(runs));
    return {};
  });
}

Result<void> RunStore::begin(const RunResult& run) {
  return attempt("the run is", [&](Store& store) -> Result<void> {
    MFSDP_LET(row, store.save(run));
    row_ = row;
    return {};
  });
}

Result<void> RunStore::append(const RunProgress& progress) {
  return attempt("the rest of the run is",
                 [&](Store& store) { return store.append(row_, progress); });
}

Result<void> RunStore::finish(const RunResult& run) {
  return attempt("the run's end is", [&](Store& store) { return store.finish(row_, run); });
}

std::string RunStore::note() const {
  if (options_.no_save) return "not stored (--no-save)";
  return given_up_ ? "not stored" : "stored in " + options_.store_path();
}

}  // namespace mfsdp
