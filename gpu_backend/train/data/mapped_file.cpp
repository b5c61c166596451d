#include "gpu_backend/train/data/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace mfsdp {
namespace {

/// Closes a descriptor at the end of a scope.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path, std::string_view expected) {
  MappedFile file;
  file.name_ = path.string();
  // Without O_NONBLOCK a pipe without a writer would wait for ever.
  const Descriptor descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (descriptor.number < 0) return fail(file.name_, "cannot be opened: " + reason());
  struct stat status{};
  if (::fstat(descriptor.number, &status) != 0)
    return fail(file.name_, "cannot be read: " + reason(), Fault::environment);
  if (!S_ISREG(status.st_mode))
    return fail(file.name_, fmt::format("expected {}, got {}", expected,
                                        S_ISDIR(status.st_mode) ? "a directory" : "no file"));
  if (status.st_size == 0)
    return fail(file.name_, fmt::format("expected {}, got an empty file", expected));
  const auto size = static_cast<std::size_t>(status.st_size);
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor.number, 0);
  if (start == MAP_FAILED)
    return fail(file.name_, "cannot be mapped into memory: " + reason(), Fault::environment);
  file.bytes_ = {static_cast<const std::byte*>(start), size};
  file.device_ = status.st_dev;
  file.inode_ = status.st_ino;
  file.modified_ = status.st_mtim;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : name_(std::move(other.name_)),
      bytes_(std::exchange(other.bytes_, {})),
      device_(other.device_),
      inode_(other.inode_),
      modified_(other.modified_) {}

MappedFile::~MappedFile() {
  // munmap takes what mmap gave, which no one wrote to.
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<void> MappedFile::check_unchanged() const {
  // By name: a descriptor kept for each of a thousand shards would meet the limit on open files.
  struct stat now{};
  if (::stat(name_.c_str(), &now) != 0) return {};
  if (now.st_dev != device_ || now.st_ino != inode_) return {};
  const bool same = static_cast<std::size_t>(now.st_size) == bytes_.size() &&
                    now.st_mtim.tv_sec == modified_.tv_sec &&
                    now.st_mtim.tv_nsec == modified_.tv_nsec;
  if (same) return {};
  return fail(name_, fmt::format("changed while it was read: it had {} bytes, now {}",
                                 bytes_.size(), now.st_size));
}

}  // namespace mfsdp
