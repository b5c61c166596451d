#include "core/formats/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "core/base/file_kind.hpp"
#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "core/base/text.hpp"
#include "core/formats/element_type.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kHeaderLengthBytes = sizeof(std::uint64_t);
constexpr std::string_view kMetadata = "__metadata__";

/// One tensor's entry of the header, with its place for errors.
class Entry {
 public:
  Entry(const std::string& name, const Json& value, const std::string& where)
      : value_(value), where_(fmt::format("{}, tensor {}", where, shown_name(name))) {
    tensor_.name = name;
  }

  /// `data`: the data of all tensors.
  [[nodiscard]] Result<SafeTensor> read(std::span<const std::byte> data) {
    if (!value_.is_object()) return wrong("", "an object", value_);
    MFSDP_LET(bits, read_dtype());
    MFSDP_LET(elements, read_shape());
    MFSDP_LET(bytes, byte_count(elements, bits));
    MFSDP_TRY(read_data(data, bytes));
    return std::move(tensor_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> wrong(std::string_view field, std::string_view expected,
                                            const Json& got) const {
    return fail(field.empty() ? where_ : fmt::format("{}, {}", where_, field),
                fmt::format("expected {}, got {}", expected,
                            got.is_null() ? "nothing" : json_excerpt(got)));
  }

  [[nodiscard]] const Json& field(const char* name) const {
    static const Json nothing;
    const auto at = value_.find(name);
    return at == value_.end() ? nothing : *at;
  }

  [[nodiscard]] Result<std::int64_t> read_dtype() {
    const Json& name = field("dtype");
    const ElementType* dtype =
        name.is_string() ? type_of_safetensors(name.get_ref<const std::string&>()) : nullptr;
    if (dtype == nullptr) return wrong("dtype", "a dtype such as \"BF16\"", name);
    tensor_.dtype = dtype->safetensors;
    return dtype->bits;
  }

  /// A list of integers from 0; none for anything else.
  [[nodiscard]] static std::optional<std::vector<std::int64_t>> counts(const Json& list) {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!list.is_array()) return std::nullopt;
    std::vector<std::int64_t> all;
    for (const Json& one : list) {
      if (!one.is_number_unsigned() || one.get<std::uint64_t>() > kMost) return std::nullopt;
      all.push_back(one.get<std::int64_t>());
    }
    return all;
  }

  [[nodiscard]] Result<std::int64_t> read_shape() {
    auto shape = counts(field("shape"));
    if (!shape) return wrong("shape", "a list of integers from 0", field("shape"));
    tensor_.shape = std::move(*shape);
    try {
      return product_of(tensor_.shape);
    } catch (const OverflowError&) {
      return wrong("shape", "fewer than 2^63 elements", field("shape"));
    }
  }

  [[nodiscard]] Result<std::int64_t> byte_count(std::int64_t elements, std::int64_t bits) const {
    const Int128 all = Int128{elements} * bits;
    if (all % 8 != 0) return wrong("shape", "whole bytes of " + tensor_.dtype, field("shape"));
    if (all / 8 > std::numeric_limits<std::int64_t>::max())
      return wrong("shape", "fewer than 2^63 bytes", field("shape"));
    return static_cast<std::int64_t>(all / 8);
  }

  [[nodiscard]] Result<void> read_data(std::span<const std::byte> data, std::int64_t bytes) {
    const Json& place = field("data_offsets");
    const auto offsets = counts(place);
    if (!offsets || offsets->size() != 2 || offsets->at(0) > offsets->at(1) ||
        offsets->at(1) > std::ssize(data))
      return wrong("data_offsets",
                   fmt::format("begin and end inside the data of {} bytes", data.size()), place);
    const std::int64_t size = offsets->at(1) - offsets->at(0);
    if (size != bytes)
      return wrong("data_offsets",
                   fmt::format("{} bytes, as {} of shape {} has", bytes, tensor_.dtype,
                               shown_shape(tensor_.shape)),
                   place);
    tensor_.data =
        data.subspan(static_cast<std::size_t>(offsets->at(0)), static_cast<std::size_t>(bytes));
    return {};
  }

  const Json& value_;
  std::string where_;
  SafeTensor tensor_;
};

/// The header's text; `where` for errors.
Result<std::string_view> header_text(std::span<const std::byte> file, const std::string& where) {
  if (file.size() < kHeaderLengthBytes)
    return fail(where, fmt::format("expected safetensors, got a file of {} bytes", file.size()));
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kHeaderLengthBytes);
  if (length > kLargestSafetensorsHeader)
    return fail(where, fmt::format("expected a safetensors header of at most {} bytes, its length "
                                   "is {}",
                                   kLargestSafetensorsHeader, length));
  if (length > file.size() - kHeaderLengthBytes)
    return fail(where, fmt::format("expected a safetensors header of {} bytes, the file ends "
                                   "{} bytes after its length",
                                   length, file.size() - kHeaderLengthBytes));
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kHeaderLengthBytes,
                              static_cast<std::size_t>(length));
  if (!text.starts_with('{'))
    return fail(where, "expected a safetensors header, which begins with {");
  return text;
}

Result<std::map<std::string, std::string>> read_metadata(const Json& value,
                                                         const std::string& where) {
  const auto wrong = [&](const Json& got) {
    return fail(fmt::format("{}, {}", where, kMetadata),
                fmt::format("expected an object of strings, got {}", json_excerpt(got)));
  };
  if (!value.is_object()) return wrong(value);
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return wrong(text);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

/// Tensors in the order of their data: each begins where the last one ended.
Result<void> check_gapless(const std::vector<SafeTensor>& tensors, std::span<const std::byte> data,
                           const std::string& where) {
  const std::byte* expected = data.data();
  for (const SafeTensor& tensor : tensors) {
    if (tensor.data.data() != expected)
      return fail(fmt::format("{}, tensor {}, data_offsets", where, shown_name(tensor.name)),
                  fmt::format("expected data that begins at {}, where other tensors end, got {}",
                              expected - data.data(), tensor.data.data() - data.data()));
    expected += tensor.data.size();
  }
  const auto covered = expected - data.data();
  if (covered == std::ssize(data)) return {};
  return fail(where, fmt::format("expected {} bytes of data, as its tensors have, got {}", covered,
                                 data.size()));
}

}  // namespace

Result<SafetensorsFile> parse_safetensors(std::span<const std::byte> file,
                                          const std::string& where) {
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  if (auto other = expected_other_kind(bytes, FileKind::safetensors, "safetensors"))
    return fail(where, std::move(*other));
  MFSDP_LET(text, header_text(file, where));
  MFSDP_LET(header, parse_json(text, where + ", header"));
  const std::span<const std::byte> data = file.subspan(kHeaderLengthBytes + text.size());
  SafetensorsFile parsed;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) {
      MFSDP_SET(parsed.metadata, read_metadata(value, where));
      continue;
    }
    MFSDP_LET(tensor, Entry(name, value, where).read(data));
    parsed.tensors.push_back(std::move(tensor));
  }
  // Empty tensors come before the tensor that begins at the same byte.
  std::ranges::stable_sort(parsed.tensors, {}, [](const SafeTensor& tensor) {
    return std::tuple(tensor.data.data(), tensor.data.size());
  });
  MFSDP_TRY(check_gapless(parsed.tensors, data, where));
  return parsed;
}

std::optional<DType> floating_dtype(std::string_view safetensors_name) {
  const ElementType* dtype = type_of_safetensors(safetensors_name);
  return dtype == nullptr ? std::nullopt : dtype->ours;
}

std::string_view safetensors_name(DType dtype) { return element_type(dtype).safetensors; }

std::int64_t TensorShape::bytes() const { return bytes_of(product_of(shape), dtype).value; }

std::string safetensors_header(std::span<const TensorShape> tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::vector<HeaderEntry> entries;
  for (const TensorShape& tensor : tensors)
    entries.push_back({.name = tensor.name,
                       .dtype = safetensors_name(tensor.dtype),
                       .shape = tensor.shape,
                       .bytes = tensor.bytes()});
  return safetensors_header(entries, metadata);
}

std::string safetensors_header(std::span<const HeaderEntry> entries,
                               const std::map<std::string, std::string>& metadata) {
  std::string text = fmt::format("{{\"{}\":{}", kMetadata, Json(metadata).dump());
  std::int64_t begin = 0;
  for (const HeaderEntry& entry : entries) {
    const std::int64_t end = checked_add(begin, entry.bytes);
    text +=
        fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                    json_literal(entry.name), entry.dtype, fmt::join(entry.shape, ","), begin, end);
    begin = end;
  }
  text += '}';
  text.resize(static_cast<std::size_t>(round_up(std::ssize(text), kHeaderLengthBytes)), ' ');
  const std::uint64_t length = text.size();
  std::string whole(reinterpret_cast<const char*>(&length), kHeaderLengthBytes);
  return whole += text;
}

std::string shown_name(std::string_view name) {
  constexpr std::size_t kLongest = 100;
  return name.size() <= kLongest ? printable(name) : printable(name.substr(0, kLongest)) + "...";
}

std::string shown_shape(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace mfsdp
