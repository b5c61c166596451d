#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/formats/safetensors.hpp"
#include "gpu_backend/convert/writers.hpp"
#include "gpu_backend/weights/hf_folder.hpp"

namespace mfsdp {
namespace {

std::span<const std::byte> as_bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// One file with consecutive tensors.
Result<void> write_shard(const OutputFolder& folder, const std::string& name,
                         std::span<const OutputTensor> tensors, ElementStream& stream) {
  std::vector<HeaderEntry> entries;
  std::int64_t size = 0;
  for (const OutputTensor& tensor : tensors) {
    entries.push_back({.name = tensor.name,
                       .dtype = tensor.elements.type->safetensors,
                       .shape = tensor.elements.shape,
                       .bytes = tensor.bytes()});
    size += tensor.bytes();
  }
  const std::string header = safetensors_header(entries, {{"format", "pt"}, {"producer", "mfsdp"}});
  MFSDP_LET(file, DurableFile::create(folder.path / name, (folder.shown / name).string()));
  MFSDP_TRY(file.reserve(std::ssize(header) + size));
  MFSDP_TRY(file.write(0, as_bytes_of(header)));
  std::int64_t offset = std::ssize(header);
  for (const OutputTensor& tensor : tensors) {
    MFSDP_TRY(stream.write(tensor, 0, product_of(tensor.elements.shape), file, offset));
    offset += tensor.bytes();
  }
  return file.close();
}

/// The first tensor of each file, and the number of tensors at the end.
std::vector<std::size_t> shard_beginnings(const std::vector<OutputTensor>& tensors,
                                          std::int64_t shard_bytes) {
  std::vector<std::size_t> beginnings{0};
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (bytes > 0 && bytes + tensors[i].bytes() > shard_bytes) {
      beginnings.push_back(i);
      bytes = 0;
    }
    bytes += tensors[i].bytes();
  }
  beginnings.push_back(tensors.size());
  return beginnings;
}

}  // namespace

std::int64_t OutputTensor::bytes() const {
  return checked_mul(product_of(elements.shape), bytes_of(*elements.type));
}

Result<void> ElementStream::write(const OutputTensor& tensor, std::int64_t begin, std::int64_t end,
                                  DurableFile& file, std::int64_t offset) {
  if (tensor.constant)
    return file.write(offset, std::as_bytes(std::span(&*tensor.constant, std::size_t{1})));
  const std::int64_t size = bytes_of(*tensor.elements.type);
  const std::int64_t most = std::max<std::int64_t>(piece_ / size, 1);
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t count = std::min(most, end - at);
    bytes_.resize(static_cast<std::size_t>(count * size));
    MFSDP_TRY(reader_.read(tensor.elements, at, bytes_));
    MFSDP_TRY(file.write(offset, bytes_));
    at += count;
    offset += count * size;
    done_ += count * size;
    if (progress_) progress_(done_);
  }
  return {};
}

Result<std::string> ElementStream::archive_of(const OutputObject& object) {
  if (object.source == nullptr) return object.archive;
  std::string bytes(object.source->bytes.size, '\0');
  MFSDP_TRY(objects_.read(object.source->file, object.source->bytes.offset,
                          std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

Result<void> write_whole(const OutputFolder& folder, const std::string& name,
                         std::string_view content) {
  MFSDP_LET(file, DurableFile::create(folder.path / name, (folder.shown / name).string()));
  MFSDP_TRY(file.write(0, as_bytes_of(content)));
  return file.close();
}

Result<std::int64_t> write_hf(const OutputFolder& folder, const std::vector<OutputTensor>& tensors,
                              std::int64_t shard_bytes, ElementStream& stream) {
  const std::vector<std::size_t> beginnings = shard_beginnings(tensors, shard_bytes);
  const std::size_t files = beginnings.size() - 1;
  const std::span<const OutputTensor> all = tensors;
  if (files == 1) {
    MFSDP_TRY(write_shard(folder, std::string(kHfSingleFile), all, stream));
    return 1;
  }
  nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < files; ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files);
    const auto part = all.subspan(beginnings[i], beginnings[i + 1] - beginnings[i]);
    MFSDP_TRY(write_shard(folder, name, part, stream));
    for (const OutputTensor& tensor : part) {
      weight_map[tensor.name] = name;
      bytes += tensor.bytes();
    }
  }
  const nlohmann::ordered_json index{{"metadata", {{"total_size", bytes}}},
                                     {"weight_map", std::move(weight_map)}};
  MFSDP_TRY(write_whole(folder, std::string(kHfIndex), index.dump(2) + "\n"));
  return static_cast<std::int64_t>(files) + 1;
}

}  // namespace mfsdp
