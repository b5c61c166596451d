#include "gpu_backend/train/data/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/base/file_descriptor.hpp"
#include "core/base/file_kind.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace mfsdp {
namespace {

std::string reason() { return std::generic_category().message(errno); }

/// Of what is no regular file.
std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe: what is read in any order has to be a file";
  return "a device";
}

/// Of all of a file up to 1 MiB, else of sixteen pieces, the first and the last among them: cheap
/// for a thousand large files, and reading them anew is what a change of date costs.
std::uint64_t digest_of(std::span<const std::byte> bytes) {
  constexpr std::size_t kWhole = std::size_t{1} << 20;
  constexpr std::size_t kPieces = 16;
  constexpr std::size_t kPiece = std::size_t{16} << 10;
  if (bytes.size() <= kWhole) return XXH3_64bits(bytes.data(), bytes.size());
  std::uint64_t digest = 0;
  for (std::size_t i = 0; i < kPieces; ++i) {
    const std::size_t at = (bytes.size() - kPiece) / (kPieces - 1) * i;
    const std::size_t begin = i + 1 == kPieces ? bytes.size() - kPiece : at;
    digest = XXH3_64bits_withSeed(bytes.data() + begin, kPiece, digest);
  }
  return digest;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path, std::string_view expected) {
  MappedFile file;
  file.name_ = path.string();
  // Without O_NONBLOCK a pipe without a writer would wait for ever.
  const FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor) return fail(file.name_, "cannot be opened: " + reason());
  struct stat status{};
  if (::fstat(descriptor.number(), &status) != 0)
    return fail(file.name_, "cannot be read: " + reason(), Fault::environment);
  if (!S_ISREG(status.st_mode))
    return fail(file.name_, fmt::format("expected {}, got {}", expected, kind_of(status.st_mode)));
  if (status.st_size == 0)
    return fail(file.name_, fmt::format("expected {}, got an empty file", expected));
  const auto size = static_cast<std::size_t>(status.st_size);
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor.number(), 0);
  if (start == MAP_FAILED)
    return fail(file.name_, "cannot be mapped into memory: " + reason(), Fault::environment);
  file.bytes_ = {static_cast<const std::byte*>(start), size};
  if (auto pointer = git_lfs_pointer({static_cast<const char*>(start), size}))
    return fail(file.name_, std::move(*pointer));
  file.device_ = status.st_dev;
  file.inode_ = status.st_ino;
  file.modified_ = status.st_mtim;
  file.digest_ = digest_of(file.bytes_);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : name_(std::move(other.name_)),
      bytes_(std::exchange(other.bytes_, {})),
      device_(other.device_),
      inode_(other.inode_),
      modified_(other.modified_),
      digest_(other.digest_) {}

MappedFile::~MappedFile() {
  // munmap takes what mmap gave, which no one wrote to.
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<void> MappedFile::check_unchanged() const {
  // By name: a descriptor kept for each of a thousand shards would meet the limit on open files.
  struct stat now{};
  if (::stat(name_.c_str(), &now) != 0) return {};
  if (now.st_dev != device_ || now.st_ino != inode_) return {};
  if (static_cast<std::size_t>(now.st_size) != bytes_.size())
    return fail(name_, fmt::format("changed while it was read: it had {} bytes, now {}",
                                   bytes_.size(), now.st_size));
  const bool same_date =
      now.st_mtim.tv_sec == modified_.tv_sec && now.st_mtim.tv_nsec == modified_.tv_nsec;
  if (same_date || digest_of(bytes_) == digest_) return {};
  return fail(name_, "changed while it was read: other bytes of the same number");
}

}  // namespace mfsdp
