#include "core/base/durable_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace mfsdp {

tl::unexpected<Error> cannot_write(const std::string& shown, int error_number) {
  return fail(shown, "cannot be written: " + std::generic_category().message(error_number),
              Fault::environment);
}

Result<DurableFile> DurableFile::open(const std::filesystem::path& path, std::string shown,
                                      int flags) {
  FileDescriptor descriptor(::open(path.c_str(), flags | O_WRONLY | O_CLOEXEC, 0666));
  if (!descriptor) return cannot_write(shown, errno);
  return DurableFile(std::move(descriptor), std::move(shown));
}

Result<DurableFile> DurableFile::create(const std::filesystem::path& path, std::string shown) {
  return open(path, std::move(shown), O_CREAT | O_EXCL);
}

Result<DurableFile> DurableFile::open(const std::filesystem::path& path, std::string shown) {
  return open(path, std::move(shown), 0);
}

Result<void> DurableFile::reserve(std::int64_t size) {
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(descriptor_.number(), 0, size);
  if (error != 0) return cannot_write(shown_, error);
  return {};
}

Result<void> DurableFile::write(std::int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_.number(), bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return cannot_write(shown_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
  return {};
}

Result<void> DurableFile::close() {
  if (::fsync(descriptor_.number()) != 0) return cannot_write(shown_, errno);
  if (::close(descriptor_.release()) != 0) return cannot_write(shown_, errno);
  return {};
}

Result<void> sync_folder(const std::filesystem::path& folder) {
  const FileDescriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor || ::fsync(descriptor.number()) != 0) return cannot_write(folder.string(), errno);
  return {};
}

}  // namespace mfsdp
