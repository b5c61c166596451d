#include "gpu_backend/convert/data_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace mfsdp {
namespace {

std::string system_reason(int number) { return std::generic_category().message(number); }

constexpr std::size_t kMostOpen = 256;  ///< files

/// The dims from which on `part` is all of a box: their elements follow each other in it.
std::size_t first_whole_dim(const TensorBox& part, const TensorBox& box) {
  std::size_t dim = part.sizes.size();
  while (dim > 0 && part.sizes[dim - 1] == box.sizes[dim - 1]) --dim;
  return dim;
}

}  // namespace

Result<DataFile> DataFile::open(const std::filesystem::path& path) {
  FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor) return fail(path.string(), "cannot be opened: " + system_reason(errno));
  struct stat status{};
  if (::fstat(descriptor.number(), &status) != 0)
    return fail(path.string(), "cannot be read: " + system_reason(errno), Fault::environment);
  if (!S_ISREG(status.st_mode)) return fail(path.string(), "expected a file");
  return DataFile(std::move(descriptor), path.string(), static_cast<std::uint64_t>(status.st_size));
}

Result<void> DataFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  if (offset > size_ || bytes.size() > size_ - offset)
    return fail(shown_, fmt::format("expected {} bytes from byte {} on, the file has {}",
                                    bytes.size(), offset, size_));
  while (!bytes.empty()) {
    const ssize_t got =
        ::pread(descriptor_.number(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(shown_, "cannot be read: " + system_reason(errno), Fault::environment);
    if (got == 0) return fail(shown_, "became shorter while it was read");
    offset += static_cast<std::uint64_t>(got);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

ByteSource DataFile::source() const {
  return {.where = shown_,
          .size = size_,
          .read = [this](std::uint64_t offset, std::span<std::byte> bytes) {
            return read(offset, bytes);
          }};
}

Result<void> TensorReader::read(std::size_t file, std::uint64_t offset,
                                std::span<std::byte> bytes) {
  std::optional<DataFile>& one = open_.at(file);
  if (!one) {
    if (count_ == kMostOpen) {
      std::ranges::fill(open_, std::nullopt);
      count_ = 0;
    }
    MFSDP_LET(opened, DataFile::open(checkpoint_.files[file].path));
    one.emplace(std::move(opened));
    ++count_;
  }
  return one->read(offset, bytes);
}

Result<void> TensorReader::read(const CheckpointTensor& tensor, std::int64_t begin,
                                std::span<std::byte> bytes) {
  const std::int64_t size = bytes_of(*tensor.type);
  const std::int64_t end = begin + std::ssize(bytes) / size;
  const TensorBox whole{.offsets = std::vector<std::int64_t>(tensor.shape.size()),
                        .sizes = tensor.shape};
  for (const TensorBox& wanted : boxes_of_interval(tensor.shape, begin, end))
    for (const StoredBox& stored : tensor.boxes) {
      const auto part = common_box(wanted, stored.box);
      if (!part) continue;
      MFSDP_TRY(visit_runs(
          *part, wanted, stored.box,
          [&](const std::vector<std::int64_t>& at, std::int64_t elements) -> Result<void> {
            const std::int64_t to = place_in(whole, at) - begin;
            const std::int64_t from = place_in(stored.box, at);
            return read(stored.file, stored.offset + static_cast<std::uint64_t>(from * size),
                        bytes.subspan(static_cast<std::size_t>(to * size),
                                      static_cast<std::size_t>(elements * size)));
          }));
    }
  return {};
}

std::vector<TensorBox> boxes_of_interval(const std::vector<std::int64_t>& shape, std::int64_t begin,
                                         std::int64_t end) {
  std::vector<TensorBox> boxes;
  // Elements of one index of each dim.
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  while (begin < end) {
    // The outermost dim at which whole indices begin here and fit.
    std::size_t dim = 0;
    while (dim < shape.size() && (begin % strides[dim] != 0 || begin + strides[dim] > end)) ++dim;
    TensorBox box{.offsets = {}, .sizes = std::vector<std::int64_t>(shape.size(), 1)};
    std::int64_t rest = begin;
    for (const std::int64_t stride : strides) {
      box.offsets.push_back(rest / stride);
      rest %= stride;
    }
    if (dim < shape.size()) {
      for (std::size_t i = dim + 1; i < shape.size(); ++i) box.sizes[i] = shape[i];
      box.sizes[dim] = std::min((end - begin) / strides[dim], shape[dim] - box.offsets[dim]);
    }
    begin += box.elements();
    boxes.push_back(std::move(box));
  }
  return boxes;
}

std::optional<TensorBox> common_box(const TensorBox& a, const TensorBox& b) {
  TensorBox common;
  for (std::size_t i = 0; i < a.sizes.size(); ++i) {
    const std::int64_t begin = std::max(a.offsets[i], b.offsets[i]);
    const std::int64_t end = std::min(a.offsets[i] + a.sizes[i], b.offsets[i] + b.sizes[i]);
    if (begin >= end) return std::nullopt;
    common.offsets.push_back(begin);
    common.sizes.push_back(end - begin);
  }
  return common;
}

std::int64_t place_in(const TensorBox& whole, const std::vector<std::int64_t>& at) {
  std::int64_t place = 0;
  for (std::size_t i = 0; i < at.size(); ++i)
    place = place * whole.sizes[i] + at[i] - whole.offsets[i];
  return place;
}

Result<void> visit_runs(const TensorBox& part, const TensorBox& first, const TensorBox& second,
                        const std::function<Result<void>(const std::vector<std::int64_t>& at,
                                                         std::int64_t elements)>& visit) {
  const std::size_t whole = std::max(first_whole_dim(part, first), first_whole_dim(part, second));
  const std::size_t run_dim = whole == 0 ? 0 : whole - 1;
  std::int64_t elements = 1;
  for (std::size_t i = run_dim; i < part.sizes.size(); ++i) elements *= part.sizes[i];
  std::vector<std::int64_t> at = part.offsets;
  for (;;) {
    MFSDP_TRY(visit(at, elements));
    std::size_t dim = run_dim;
    while (dim > 0 && ++at[dim - 1] == part.offsets[dim - 1] + part.sizes[dim - 1]) {
      at[dim - 1] = part.offsets[dim - 1];
      --dim;
    }
    if (dim == 0) return {};
  }
}

}  // namespace mfsdp
