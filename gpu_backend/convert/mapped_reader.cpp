#include "gpu_backend/convert/mapped_reader.hpp"

#include <algorithm>

#include "gpu_backend/convert/element_values.hpp"

namespace mfsdp {

Result<void> MappedReader::read(const MappedTensor& tensor, std::int64_t begin,
                                std::span<std::byte> bytes) {
  const std::int64_t size = bytes_of(*tensor.type);
  const std::int64_t end = begin + std::ssize(bytes) / size;
  std::ranges::fill(bytes, std::byte{0});
  // Copies are in the order of their beginnings and do not overlap.
  auto copy = std::ranges::partition_point(
      tensor.copies, [&](const ElementCopy& one) { return one.begin + one.count <= begin; });
  for (; copy != tensor.copies.end() && copy->begin < end; ++copy) {
    const std::int64_t from = std::max(begin, copy->begin);
    const std::int64_t count = std::min(end, copy->begin + copy->count) - from;
    const std::int64_t source_begin = copy->source_begin + from - copy->begin;
    const std::span<std::byte> out = bytes.subspan(static_cast<std::size_t>((from - begin) * size),
                                                   static_cast<std::size_t>(count * size));
    if (copy->source->type == tensor.type) {
      MFSDP_TRY(reader_.read(*copy->source, source_begin, out));
      continue;
    }
    piece_.assign(static_cast<std::size_t>(count * bytes_of(*copy->source->type)), std::byte{0});
    MFSDP_TRY(reader_.read(*copy->source, source_begin, piece_));
    cast_elements(*copy->source->type, piece_, *tensor.type, out);
  }
  return {};
}

std::vector<MappedTensor> unchanged_tensors(const std::vector<NamedTensor>& named) {
  std::vector<MappedTensor> all;
  for (const NamedTensor& one : named)
    all.push_back({.name = one.parameter,
                   .state = one.state,
                   .type = one.tensor->type,
                   .shape = one.tensor->shape,
                   .copies = {{.source = one.tensor, .count = one.tensor->elements()}}});
  return all;
}

}  // namespace mfsdp
