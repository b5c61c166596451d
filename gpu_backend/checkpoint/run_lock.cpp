#include "gpu_backend/checkpoint/run_lock.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "core/base/text.hpp"
#include "core/base/unix_time.hpp"
#include "gpu_backend/checkpoint/disk.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::chrono::milliseconds kBetweenTries{20};
constexpr std::size_t kMostOwnerLine = 4096;  ///< bytes

std::string system_says(int error) { return std::generic_category().message(error); }

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

/// Information for processes that find the lock taken. Write errors, such as a full disk, are
/// ignored: the lock does not depend on it.
void write_owner(const FileDescriptor& file, const std::string& run) {
  const std::string line = Json{{"host", host_name()},
                                {"process", ::getpid()},
                                {"since_unix_ns", unix_now_ns()},
                                {"run", run}}
                               .dump(-1, ' ', false, Json::error_handler_t::replace) +
                           "\n";
  if (::ftruncate(file.number(), 0) != 0) return;
  if (::pwrite(file.number(), line.data(), line.size(), 0) == std::ssize(line))
    ::fsync(file.number());  // on NFS other hosts read it from the server
}

/// "run llama_tiny, process 77 on host node3, since 2026-11-29 09:15:00 UTC", with the fields that
/// are known.
std::string owner_of(const FileDescriptor& file) {
  std::string text(kMostOwnerLine, '\0');
  const ssize_t count = ::pread(file.number(), text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  const Json owner = Json::parse(text, nullptr, false);
  const auto has = [&](const char* key, auto is_right) {
    return owner.is_object() && owner.contains(key) && (owner[key].*is_right)();
  };
  if (!has("host", &Json::is_string) || !has("process", &Json::is_number_integer) ||
      !has("since_unix_ns", &Json::is_number_integer) || !has("run", &Json::is_string))
    return "another run";
  const auto since =
      static_cast<std::time_t>(owner["since_unix_ns"].get<std::int64_t>() / 1'000'000'000);
  return fmt::format("run {}, process {} on host {}, since {:%Y-%m-%d %H:%M:%S} UTC",
                     printable(owner["run"].get<std::string>()),
                     owner["process"].get<std::int64_t>(),
                     printable(owner["host"].get<std::string>()), fmt::gmtime(since));
}

bool has_no_locks(int error) {
  return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK || error == EINVAL;
}

}  // namespace

Result<RunLock> RunLock::take(const fs::path& folder, const std::string& run,
                              std::chrono::milliseconds patience) {
  MFSDP_TRY(make_save_folder(folder));
  const fs::path path = folder / kLockName;
  // Opened for writing: NFS gives exclusive locks only for such files.
  RunLock lock(
      FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666)));
  if (!lock.file_)
    return fail(path.string(), "cannot be written: " + system_says(errno), Fault::environment);
  const auto until = std::chrono::steady_clock::now() + patience;
  while (::flock(lock.file_.number(), LOCK_EX | LOCK_NB) != 0) {
    if (has_no_locks(errno)) {
      lock.missing_ = system_says(errno);
      return lock;
    }
    if (errno != EWOULDBLOCK && errno != EINTR)
      return fail(path.string(), "cannot be locked: " + system_says(errno), Fault::environment);
    if (std::chrono::steady_clock::now() >= until)
      return fail(
          folder.string(),
          fmt::format("another run saves here: {}; wait until it has ended, or name another "
                      "folder",
                      owner_of(lock.file_)),
          Fault::environment);
    std::this_thread::sleep_for(kBetweenTries);
  }
  write_owner(lock.file_, run);
  return lock;
}

}  // namespace mfsdp
