#include "gpu_backend/checkpoint/disk.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <system_error>

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kPartial = ".partial";  ///< ends the name of an incomplete save

std::string reason(int error_number) { return std::generic_category().message(error_number); }

tl::unexpected<Error> cannot(const std::string& what, const fs::path& path, int error_number) {
  return fail(path.string(), fmt::format("cannot {}: {}", what, reason(error_number)),
              Fault::environment);
}

/// The step of a complete save's folder.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  name.remove_prefix(kStepPrefix.size());
  std::int64_t step = 0;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), step);
  if (read.ec != std::errc() || read.ptr != name.data() + name.size() || step < 0)
    return std::nullopt;
  return step;
}

/// Names in a folder; empty if it cannot be read.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::ranges::sort(names);
  return names;
}

bool is_save(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kManifestName, ignored);
}

/// The steps of the saves in a folder, ascending.
std::vector<std::int64_t> saved_steps(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder))
    if (const auto step = step_of(name);
        step && name == step_folder_name(*step) && is_save(folder / name))
      steps.push_back(*step);
  std::ranges::sort(steps);
  return steps;
}

}  // namespace

std::string step_folder_name(std::int64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

fs::path partial_folder(const fs::path& folder, std::int64_t step) {
  return folder / (step_folder_name(step) + std::string(kPartial));
}

// ---- files -------------------------------------------------------------------------------------

Result<NewFile> NewFile::create(const fs::path& path, const SaveProbe& probe) {
  MFSDP_TRY(probe());
  MFSDP_LET(file, DurableFile::create(path, path.string()));
  return NewFile(std::move(file), probe);
}

Result<void> NewFile::write(std::int64_t offset, std::span<const std::byte> bytes) {
  MFSDP_TRY((*probe_)());
  return file_.write(offset, bytes);
}

Result<void> NewFile::close() {
  MFSDP_TRY((*probe_)());
  return file_.close();
}

Result<void> read_bytes(const fs::path& path, std::int64_t offset, std::span<std::byte> bytes) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return fail(path.string(), "cannot be opened: " + reason(errno));
  const std::int64_t end = offset + std::ssize(bytes);
  while (!bytes.empty()) {
    const ssize_t count = ::pread(file.number(), bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return cannot("be read", path, errno);
    if (count == 0)
      return fail(path.string(),
                  fmt::format("expected {} bytes at least, it ends after {}", end, offset));
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
  return {};
}

// ---- folders -----------------------------------------------------------------------------------

Result<void> make_save_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return cannot("be made a folder for saves", path, error.value());
  if (::access(path.c_str(), W_OK | X_OK) != 0) return cannot("be written", path, errno);
  return {};
}

Result<SaveFolder> SaveFolder::open(const fs::path& path, const SaveProbe& probe) {
  SaveFolder folder(path, probe);
  MFSDP_TRY(probe());
  MFSDP_TRY(make_save_folder(path));
  std::error_code error;
  const fs::path latest = path / kLatestName;
  const fs::file_status status = fs::symlink_status(latest, error);
  if (fs::exists(status) && !fs::is_symlink(status))
    return fail(
        latest.string(),
        "expected a link to the newest save, as saves that are copied keep it (cp -a, rsync "
        "-a): remove it where its step is there, or rename it to step-NNNNNNNN");
  MFSDP_TRY(folder.remove_leftovers());
  return folder;
}

/// Killed saves leave names that end in .partial. Only these are removed.
Result<void> SaveFolder::remove_leftovers() const {
  for (const std::string& name : names_in(path_))
    if (name.ends_with(kPartial) && is_name_of_save(name)) MFSDP_TRY(remove(path_ / name));
  return {};
}

Result<void> SaveFolder::remove(const fs::path& folder) const {
  MFSDP_TRY((*probe_)());
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) return cannot("be removed", folder, error.value());
  return {};
}

Result<void> SaveFolder::sync(const fs::path& folder) const {
  MFSDP_TRY((*probe_)());
  return sync_folder(folder);
}

Result<void> SaveFolder::begin(std::int64_t step) const {
  const fs::path folder = partial_folder(path_, step);
  MFSDP_TRY((*probe_)());
  std::error_code error;
  fs::create_directory(folder, error);
  if (error) return cannot("be made", folder, error.value());
  return {};
}

Result<void> SaveFolder::finish(std::int64_t step) const {
  const fs::path partial = partial_folder(path_, step);
  const fs::path whole = path_ / step_folder_name(step);
  MFSDP_TRY(sync(partial));
  std::error_code ignored;
  const bool again = fs::exists(whole, ignored);
  MFSDP_TRY((*probe_)());
  // If there is a save of this step, both exchange names at once, so that the step always has a
  // save.
  if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, whole.c_str(),
                  again ? RENAME_EXCHANGE : 0U) != 0)
    return cannot("be put in place", whole, errno);
  MFSDP_TRY(sync(path_));
  MFSDP_TRY(point_latest_at(step_folder_name(step)));
  return again ? remove(partial) : Result<void>();
}

Result<void> SaveFolder::point_latest_at(const std::string& name) const {
  const fs::path latest = path_ / kLatestName;
  const fs::path partial = path_ / (std::string(kLatestName) + std::string(kPartial));
  MFSDP_TRY((*probe_)());
  if (::symlink(name.c_str(), partial.c_str()) != 0) return cannot("be written", latest, errno);
  MFSDP_TRY((*probe_)());
  if (::rename(partial.c_str(), latest.c_str()) != 0) return cannot("be written", latest, errno);
  return sync(path_);
}

Result<void> SaveFolder::prune(std::int64_t step, std::int64_t kept) const {
  std::vector<std::int64_t> others;
  for (const std::string& name : names_in(path_))
    if (const auto saved = step_of(name);
        saved && *saved != step && name == step_folder_name(*saved))
      others.push_back(*saved);
  std::ranges::sort(others, {}, [step](std::int64_t s) { return std::pair(s < step, s); });
  const std::int64_t surplus = std::ssize(others) + 1 - kept;
  for (std::int64_t i = 0; i < surplus; ++i) {
    const std::int64_t old = others[static_cast<std::size_t>(i)];
    const fs::path doomed = partial_folder(path_, old);
    MFSDP_TRY((*probe_)());
    if (::rename((path_ / step_folder_name(old)).c_str(), doomed.c_str()) != 0)
      return cannot("be removed", path_ / step_folder_name(old), errno);
    MFSDP_TRY(remove(doomed));
  }
  return {};
}

Result<fs::path> find_save(const fs::path& path) {
  std::error_code ignored;
  if (is_save(path)) return path;
  // A link to an incomplete save is returned too, and its reader reports the error: the save before
  // it must not be taken for the newest.
  if (const fs::path name = fs::read_symlink(path / kLatestName, ignored); !ignored)
    return path / name;
  if (is_save(path / kLatestName)) return path / kLatestName;  // copied without its link
  const std::vector<std::int64_t> steps = saved_steps(path);
  if (!steps.empty()) return path / step_folder_name(steps.back());
  if (!fs::is_directory(path, ignored))
    return fail(path.string(), "is no folder: expected one with saves of a run");
  return fail(path.string(), fmt::format("expected a save of a run, found neither {} nor {}",
                                         kLatestName, kManifestName));
}

bool is_name_of_save(std::string_view name) {
  if (name.ends_with(kPartial)) name.remove_suffix(kPartial.size());
  return name == kLatestName || step_of(name).has_value();
}

bool holds_saves(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_symlink(folder / kLatestName, ignored) || !saved_steps(folder).empty();
}

std::vector<fs::path> saves_before(const fs::path& save) {
  std::error_code ignored;
  const fs::path plain = save.has_filename() ? save : save.parent_path();
  const fs::path own = step_of(plain.filename().string()) ? plain : fs::canonical(plain, ignored);
  const auto step = step_of(own.filename().string());
  std::vector<fs::path> before;
  if (!step) return before;
  const fs::path beside = own.has_parent_path() ? own.parent_path() : fs::path(".");
  for (const std::int64_t other : saved_steps(beside))
    if (other < *step) before.push_back(own.parent_path() / step_folder_name(other));
  std::ranges::reverse(before);
  return before;
}

}  // namespace mfsdp
