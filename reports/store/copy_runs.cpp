#include "reports/store/copy_runs.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

Result<std::optional<StoredRun>> run_named(Store& store, const std::string& run_id) {
  RunQuery query;
  query.id_prefix = run_id;
  MFSDP_LET(runs, store.list(query));
  const auto found = std::ranges::find(runs, run_id, &StoredRun::run_id);
  return found != runs.end() ? std::optional(*found) : std::nullopt;
}

/// Updates a stored run that was still running. False if the stored run is up to date.
Result<bool> go_on(Store& store, const StoredRun& there, const RunResult& run) {
  const Measured* measured = run.measured();
  if (measured == nullptr || there.status != to_string(RunStatus::running)) return false;
  MFSDP_LET(stored, store.load(there.id, {.timeline = false, .steps = true, .launches = false}));
  const Measured* before = stored.measured();
  if (before == nullptr || before->steps.size() > measured->steps.size() ||
      before->evaluations.size() > measured->evaluations.size())
    return false;
  const auto behind = [](const auto& all, std::size_t count) {
    return std::vector(all.begin() + static_cast<std::ptrdiff_t>(count), all.end());
  };
  const RunProgress progress{
      .steps = behind(measured->steps, before->steps.size()),
      .evaluations = behind(measured->evaluations, before->evaluations.size())};
  if (run.status == RunStatus::running && progress.steps.empty()) return false;
  MFSDP_LET(appended, store.append(there.id, run.run_id, progress));
  if (!appended) return false;
  return store.finish(there.id, run);
}

using Filling = std::function<Result<Copied>(Store&)>;

Result<Copied> open_and_fill(const fs::path& path, const Filling& fill) {
  MFSDP_LET(store, Store::open(path));
  return fill(store);
}

Result<Copied> fill_and_settle(Store& store, const Filling& fill) {
  MFSDP_LET(copied, fill(store));
  MFSDP_TRY(store.settle());
  return copied;
}

void remove_store(const fs::path& path) {
  std::error_code ignored;
  for (const std::string_view ending : kStoreFileEndings)
    fs::remove(path.string() + std::string(ending), ignored);
}

fs::path beside(const fs::path& path, std::string_view process) {
  return fmt::format("{}.new.{}", path.string(), process);
}

bool is_gone(std::string_view process) {
  pid_t id = 0;
  const auto [end, error] = std::from_chars(process.data(), process.data() + process.size(), id);
  return error == std::errc() && end == process.data() + process.size() && id > 0 &&
         ::kill(id, 0) != 0 && errno == ESRCH;
}

/// Long enough for a process of another machine, which is not known here, to write something.
constexpr std::chrono::hours kStillWritten{1};

bool is_old(const fs::path& file) {
  std::error_code error;
  const auto time = fs::last_write_time(file, error);
  return !error && fs::file_time_type::clock::now() - time > kStillWritten;
}

/// Removes files of processes that were killed while they made a store there.
void remove_left_behind(const fs::path& path) {
  const std::string start = beside(path, "").filename().string();
  std::vector<fs::path> left;
  std::error_code ignored;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  for (fs::directory_iterator at(folder, ignored), end; at != end && !ignored;
       at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(start) && is_gone(std::string_view(name).substr(start.size())) &&
        is_old(at->path()))
      left.push_back(at->path());
  }
  for (const fs::path& store : left) remove_store(store);
}

/// Renames where nothing is in the place, in one go.
bool put_in_place(const fs::path& from, const fs::path& to) {
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0;
}

}  // namespace

Result<Copied> fill_store(const fs::path& path, const Filling& fill) {
  std::error_code ignored;
  const bool is_new = fs::symlink_status(path, ignored).type() == fs::file_type::not_found;
  if (!is_new || !check_store_path(path)) return open_and_fill(path, fill);
  remove_left_behind(path);
  const fs::path made = beside(path, std::to_string(::getpid()));
  remove_store(made);
  auto copied = open_and_fill(made, [&](Store& store) { return fill_and_settle(store, fill); });
  if (copied && put_in_place(made, path)) return copied;
  remove_store(made);
  if (copied) return open_and_fill(path, fill);  // another process was first
  Error& error = copied.error();
  if (error.where == made.string()) error.where = path.string();
  return copied;
}

Result<Copied> save_new(Store& store, std::span<const RunResult> runs) {
  Copied copied;
  std::vector<RunResult> fresh;
  std::set<std::string> seen;
  for (const RunResult& run : runs) {
    MFSDP_LET(there, run_named(store, run.run_id));
    if (!there && seen.insert(run.run_id).second) {
      fresh.push_back(run);
      continue;
    }
    MFSDP_LET(went_on, there ? go_on(store, *there, run) : Result<bool>(false));
    if (went_on)
      copied.rows.push_back(there->id);
    else
      copied.there_before.push_back(run.run_id);
  }
  MFSDP_LET(rows, store.save_all(fresh));
  copied.rows.insert(copied.rows.end(), rows.begin(), rows.end());
  return copied;
}

Result<Copied> copy_runs(Store& from, std::span<const StoredRun> runs, Store& to) {
  constexpr std::size_t kAtOnce = 32;
  Copied copied;
  for (std::size_t begin = 0; begin < runs.size(); begin += kAtOnce) {
    std::vector<RunResult> some;
    for (const StoredRun& run : runs.subspan(begin, std::min(kAtOnce, runs.size() - begin))) {
      MFSDP_LET(loaded, from.load(run.id));
      some.push_back(std::move(loaded));
    }
    MFSDP_LET(part, save_new(to, some));
    copied.rows.insert(copied.rows.end(), part.rows.begin(), part.rows.end());
    copied.there_before.insert(copied.there_before.end(), part.there_before.begin(),
                               part.there_before.end());
  }
  for (const StoredRun& run : runs)
    for (const std::string& mark : run.marks) {
      RunQuery query;
      query.id_prefix = run.run_id;
      MFSDP_LET(found, to.list(query));
      if (!found.empty()) MFSDP_TRY(to.mark(found.front().id, mark));
    }
  return copied;
}

}  // namespace mfsdp
