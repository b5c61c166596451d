#include "core/base/input_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace mfsdp {
namespace {

std::string system_says(int error) { return std::generic_category().message(error); }

}  // namespace

Result<InputFile> InputFile::open(const std::filesystem::path& path, std::string_view expected,
                                  const PipePatience& patience) {
  const std::string where = path.string();
  // Without O_NONBLOCK the system would wait until something opens a pipe to write.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return fail(where, "cannot be opened: " + system_says(errno));
  struct stat status{};
  if (::fstat(file.number(), &status) != 0)
    return fail(where, "cannot be read: " + system_says(errno), Fault::environment);
  if (S_ISDIR(status.st_mode))
    return fail(where, fmt::format("expected {}, got a directory", expected));
  if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode))
    return fail(where, fmt::format("expected {}, got a device", expected));
  InputFile input(std::move(file), where, patience);
  input.is_pipe_ = S_ISFIFO(status.st_mode);
  return input;
}

Result<std::size_t> InputFile::read(std::span<char> bytes) {
  using std::chrono::milliseconds;
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    const ssize_t count = ::read(file_.number(), bytes.data(), bytes.size());
    const int error = count < 0 ? errno : 0;
    if (error == EINTR) continue;
    if (count < 0 && error != EAGAIN)
      return fail(where_, "cannot be read: " + system_says(error), Fault::environment);
    if (count != 0) had_writer_ = true;
    if (count > 0) return static_cast<std::size_t>(count);
    if (count == 0 && (!is_pipe_ || had_writer_)) return std::size_t{0};
    // A pipe without a writer yet, or whose writer has sent nothing.
    const milliseconds patience = had_writer_ ? patience_.bytes : patience_.writer;
    const auto waited =
        std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
    if (waited >= patience) {
      const std::string_view what = had_writer_ ? "is a pipe from which nothing came for"
                                                : "is a pipe that nothing has opened to write for";
      return fail(where_,
                  fmt::format("{} {} s", what, std::chrono::duration<double>(patience).count()));
    }
    pollfd waiting{.fd = file_.number(), .events = POLLIN, .revents = 0};
    static_cast<void>(::poll(&waiting, 1, static_cast<int>((patience - waited).count())));
    if ((waiting.revents & POLLHUP) != 0) had_writer_ = true;
  }
}

}  // namespace mfsdp
