#include "core/base/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace mfsdp {
namespace {

constexpr int kClosed = -1;
constexpr int kTemporaryNames = 100;  ///< that are tried, as killed processes leave such files

/// The descriptor that a path such as /dev/stdout or /dev/fd/3 names. Opening such a path again
/// would truncate a file to which the shell redirected the descriptor.
std::optional<int> own_descriptor(const std::string& path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view prefix : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(prefix)) continue;
    int number = 0;
    const char* end = path.data() + path.size();
    const auto read = std::from_chars(path.data() + prefix.size(), end, number);
    if (read.ec == std::errc() && read.ptr == end && number >= 0) return number;
  }
  return std::nullopt;
}

struct OpenFile {
  int descriptor = kClosed;
  std::string path;
};

/// Creates a temporary file with an unused name in the folder of `target`.
Result<OpenFile> create_beside(const std::string& target, mode_t mode, int& error_number) {
  for (int i = 0; i < kTemporaryNames; ++i) {
    std::string path = target + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(i);
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (descriptor >= 0) return OpenFile{.descriptor = descriptor, .path = std::move(path)};
    error_number = errno;
    if (error_number != EEXIST) break;
  }
  return fail(target, "no temporary file", Fault::environment);
}

/// Opens a named pipe to write as soon as it has a reader; a plain open() would block until then.
Result<int> open_pipe(const std::string& path) {
  constexpr int kTries = 100;
  constexpr std::chrono::milliseconds kBetweenTries{50};  // 5 s in all
  for (int i = 0; i < kTries; ++i) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor >= 0) {
      ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
      return descriptor;
    }
    if (errno != ENXIO)
      return fail(path, "cannot write: " + std::generic_category().message(errno),
                  Fault::environment);
    std::this_thread::sleep_for(kBetweenTries);
  }
  return fail(path, "is a pipe that nothing has opened to read for 5 s");
}

}  // namespace

tl::unexpected<Error> AtomicFile::failure(int error_number) const {
  return fail(shown_, "cannot write: " + std::generic_category().message(error_number),
              Fault::environment);
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
  AtomicFile file;
  file.shown_ = path.string();
  file.target_ = file.shown_;
  if (file.target_.empty()) return fail("output file", "expected a path, found an empty one");
  if (const auto descriptor = own_descriptor(file.target_)) {
    file.descriptor_ = ::fcntl(*descriptor, F_DUPFD_CLOEXEC, 0);
    if (file.descriptor_ < 0) return file.failure(errno);
    return file;
  }
  struct stat status{};
  const bool exists = ::stat(file.target_.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode))
    return fail(file.shown_, "is a directory, expected a file to write");
  if (exists && S_ISFIFO(status.st_mode)) {
    MFSDP_SET(file.descriptor_, open_pipe(file.target_));
    return file;
  }
  if (exists && !S_ISREG(status.st_mode)) {
    file.descriptor_ = ::open(file.target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.descriptor_ < 0) return file.failure(errno);
    return file;
  }
  // rename() needs rights on the folder only, but a read-only file must not be replaced.
  if (exists && ::access(file.target_.c_str(), W_OK) != 0) return file.failure(errno);
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored)) {
    const auto resolved = std::filesystem::weakly_canonical(path, ignored);
    if (!ignored) file.target_ = resolved.string();
  }
  int error_number = 0;
  auto beside = create_beside(file.target_, 0666, error_number);
  if (!beside) return file.failure(error_number);
  file.descriptor_ = beside->descriptor;
  file.temporary_ = std::move(beside->path);
  if (exists && ::fchmod(file.descriptor_, status.st_mode & 07777) != 0) return file.failure(errno);
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : shown_(std::move(other.shown_)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, kClosed)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<void> AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failure(errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> AtomicFile::commit() {
  // Pipes and devices cannot be synced; only for a temporary file is a failure an error.
  if (!temporary_.empty() && ::fsync(descriptor_) != 0) return failure(errno);
  if (::close(std::exchange(descriptor_, kClosed)) != 0) return failure(errno);
  if (temporary_.empty()) return {};
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return failure(errno);
  temporary_.clear();
  return {};
}

Result<void> check_can_be_written(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  const bool is_special = std::filesystem::exists(status) &&
                          !std::filesystem::is_regular_file(status) &&
                          !std::filesystem::is_directory(status);
  if (!is_special) {
    MFSDP_TRY(AtomicFile::create(path));
    return {};
  }
  if (own_descriptor(path.string()) || ::access(path.c_str(), W_OK) == 0) return {};
  return fail(path.string(), "cannot write: " + std::generic_category().message(errno),
              Fault::environment);
}

Result<void> write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  MFSDP_LET(file, AtomicFile::create(path));
  MFSDP_TRY(file.write(content));
  return file.commit();
}

}  // namespace mfsdp
