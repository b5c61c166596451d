#include "gpu_backend/weights/temporary_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>

#include "gpu_backend/weights/hf_export_layout.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".tmp.";
constexpr std::string_view kReplaced = ".old";  ///< ends the name of a replaced earlier export

enum class Lock { held, taken, impossible };

struct LockedFolder {
  Lock lock = Lock::impossible;
  FileDescriptor descriptor;
};

/// `taken`: another process holds the lock, or the folder no longer exists.
LockedFolder lock_folder(const fs::path& folder) {
  FileDescriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor)
    return {.lock = errno == ENOENT ? Lock::taken : Lock::impossible, .descriptor = {}};
  if (::flock(descriptor.number(), LOCK_EX | LOCK_NB) != 0)
    return {.lock = errno == EWOULDBLOCK ? Lock::taken : Lock::impossible, .descriptor = {}};
  struct stat locked{};
  struct stat named{};
  const bool same = ::fstat(descriptor.number(), &locked) == 0 &&
                    ::stat(folder.c_str(), &named) == 0 && locked.st_ino == named.st_ino &&
                    locked.st_dev == named.st_dev;
  if (!same) return {.lock = Lock::taken, .descriptor = {}};
  return {.lock = Lock::held, .descriptor = std::move(descriptor)};
}

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// PROCESS.NUMBER, as in TemporaryFolder::name.
bool is_maker(std::string_view text) {
  const std::size_t dot = text.find('.');
  return dot != std::string_view::npos && is_number(text.substr(0, dot)) &&
         is_number(text.substr(dot + 1));
}

/// A user's folder may have such a name by chance, so its files are checked.
bool holds_export_files_alone(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (!at->is_regular_file(error) || !is_export_name(at->path().filename().string()))
      return false;
  return !error;
}

}  // namespace

Result<TemporaryFolder> TemporaryFolder::beside(const fs::path& target, const fs::path& shown) {
  constexpr std::int64_t kNames = 100;  // leftovers that cannot be removed, processes of other
                                        // hosts
  std::error_code error;
  for (std::int64_t number = 0; number < kNames; ++number) {
    fs::path path = name(target, ::getpid(), number);
    if (fs::create_directory(path, error)) {
      LockedFolder locked = lock_folder(path);
      // Between both calls it looked like a leftover, and another process may be removing it.
      if (locked.lock == Lock::taken) continue;
      return TemporaryFolder(std::move(path), number, std::move(locked.descriptor));
    }
    if (error) break;
  }
  return fail(shown.string(),
              "cannot be made: " + (error ? error.message() : "leftovers of 100 runs beside it"),
              Fault::environment);
}

fs::path TemporaryFolder::name(const fs::path& target, std::int64_t process, std::int64_t number) {
  return target.string() + fmt::format("{}{}.{}", kTemporary, process, number);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

ExportLeftovers remove_export_leftovers(const fs::path& target) {
  ExportLeftovers leftovers;
  const std::string prefix = target.filename().string() + std::string(kTemporary);
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(target.parent_path(), error), end; !error && at != end;
       at.increment(error)) {
    const std::string file = at->path().filename().string();
    if (!file.starts_with(prefix) || !at->is_directory(error)) continue;
    std::string_view maker = std::string_view(file).substr(prefix.size());
    if (maker.ends_with(kReplaced)) maker.remove_suffix(kReplaced.size());
    if (is_maker(maker)) found.push_back(at->path());
  }
  std::ranges::sort(found);
  for (const fs::path& folder : found) {
    const LockedFolder locked = lock_folder(folder);
    if (locked.lock == Lock::taken) continue;
    const bool is_last_copy = folder.string().ends_with(kReplaced) && !fs::exists(target, error);
    const bool is_ours =
        locked.lock == Lock::held && !is_last_copy && holds_export_files_alone(folder);
    if (is_ours) fs::remove_all(folder, error);
    (is_ours && !error ? leftovers.removed : leftovers.left).push_back(folder);
  }
  return leftovers;
}

}  // namespace mfsdp
