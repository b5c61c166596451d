#include "gpu_backend/weights/sized_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace mfsdp {
namespace {

constexpr int kClosed = -1;

}  // namespace

tl::unexpected<Error> cannot_write(const std::string& shown, int error_number) {
  return fail(shown, "cannot be written: " + std::generic_category().message(error_number),
              Fault::environment);
}

Result<SizedFile> SizedFile::open(const std::filesystem::path& path, std::string shown, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_WRONLY | O_CLOEXEC, 0666);
  if (descriptor < 0) return cannot_write(shown, errno);
  return SizedFile(descriptor, std::move(shown));
}

Result<SizedFile> SizedFile::create(const std::filesystem::path& path, std::string shown,
                                    std::int64_t size) {
  MFSDP_LET(file, open(path, std::move(shown), O_CREAT | O_EXCL));
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(file.descriptor_, 0, size);
  if (error != 0) return cannot_write(file.shown_, error);
  return std::move(file);
}

Result<SizedFile> SizedFile::open(const std::filesystem::path& path, std::string shown) {
  return open(path, std::move(shown), 0);
}

SizedFile::SizedFile(SizedFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, kClosed)), shown_(std::move(other.shown_)) {}

SizedFile& SizedFile::operator=(SizedFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(shown_, other.shown_);
  return *this;
}

SizedFile::~SizedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> SizedFile::write(std::int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return cannot_write(shown_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
  return {};
}

Result<void> SizedFile::close() {
  if (::fsync(descriptor_) != 0) return cannot_write(shown_, errno);
  if (::close(std::exchange(descriptor_, kClosed)) != 0) return cannot_write(shown_, errno);
  return {};
}

Result<void> sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return cannot_write(folder.string(), errno);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error != 0) return cannot_write(folder.string(), error);
  return {};
}

}  // namespace mfsdp
