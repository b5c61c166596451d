#include "sim/tool/run_store.hpp"

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

void sign(RunResult& run, const CommonOptions& options) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  run.tool = kTool;
  run.version = version();
  run.run_id = random_id();
  run.name = options.name;
  run.created_unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

Result<void> RunStore::try_save(std::span<const RunResult> runs) {
  if (!store_) {
    MFSDP_LET(store, Store::open(options_.store_path()));
    store_.emplace(std::move(store));
  }
  MFSDP_TRY(store_->save_all(runs));
  return {};
}

Result<void> RunStore::save(std::span<const RunResult> runs) {
  if (options_.no_save || given_up_ || runs.empty()) return {};
  const auto saved = try_save(runs);
  if (saved) return {};
  std::error_code ignored;
  const bool foreign = saved.error().fault == Fault::input &&
                       std::filesystem::is_regular_file(options_.store_path(), ignored);
  if (options_.db || foreign) return tl::unexpected<Error>(saved.error());
  const char* what = runs.size() == 1 ? "the run is" : "runs are";
  wipe_progress(session_.err);
  report_warning(session_.err, fmt::format("{} not stored: {}", what, saved.error().message()),
                 kTool);
  given_up_ = true;
  return {};
}

std::string RunStore::note() const {
  if (options_.no_save) return "not stored (--no-save)";
  return given_up_ ? "not stored" : "stored in " + options_.store_path();
}

}  // namespace mfsdp
