// The safetensors format: named tensors in one file, found by a JSON header.
//
//   | u64: bytes of the header | header, JSON, perhaps spaces | data of all tensors, without gaps |
//
//   {"__metadata__": {"format": "pt"},
//    "model.norm.weight": {"dtype": "BF16", "shape": [64], "data_offsets": [0, 128]}, ...}
//
// Numbers are little-endian. https://huggingface.co/docs/safetensors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// The format's own limit on a header, bytes.
inline constexpr std::size_t kLargestSafetensorsHeader = 100'000'000;

/// A tensor in a file.
struct SafeTensor {
  std::string name;
  std::string dtype;                ///< in the file's spelling: "BF16"
  std::vector<std::int64_t> shape;  ///< dims, outermost first
  std::span<const std::byte> data;  ///< row-major, at any alignment
};

struct SafetensorsFile {
  std::map<std::string, std::string> metadata;
  std::vector<SafeTensor> tensors;  ///< in the order of their data
};

/// Reads a whole file's bytes, which must outlive the result; data is not touched. Errors name
/// `where` and the tensor: a header longer than the file or the format's limit, wrong JSON,
/// repeated names, unknown dtypes; data outside the file, with overlaps, gaps, or a size that
/// contradicts dtype and shape.
[[nodiscard]] Result<SafetensorsFile> parse_safetensors(std::span<const std::byte> file,
                                                        const std::string& where);

/// The plan's dtype for "F32", "BF16", "F16" or "F64"; none for others.
[[nodiscard]] std::optional<DType> floating_dtype(std::string_view safetensors_name);

/// The format's name of a floating dtype.
[[nodiscard]] std::string_view safetensors_name(DType dtype);

/// A tensor of a file to be written.
struct TensorShape {
  std::string name;
  DType dtype = DType::fp32;  ///< floating
  std::vector<std::int64_t> shape;

  [[nodiscard]] std::int64_t bytes() const;
};

/// The beginning of a file with these tensors in this order, up to the first tensor's data. Padded
/// so that data begins at a multiple of 8 bytes.
[[nodiscard]] std::string safetensors_header(std::span<const TensorShape> tensors,
                                             const std::map<std::string, std::string>& metadata);

/// A tensor of any dtype of the format, for a header.
struct HeaderEntry {
  std::string name;
  std::string_view dtype;           ///< "I64"
  std::vector<std::int64_t> shape;  ///< dims, outermost first
  std::int64_t bytes = 0;
};
[[nodiscard]] std::string safetensors_header(std::span<const HeaderEntry> entries,
                                             const std::map<std::string, std::string>& metadata);

/// A tensor's name as errors show it.
[[nodiscard]] std::string shown_name(std::string_view name);

/// "[4096, 1024]".
[[nodiscard]] std::string shown_shape(std::span<const std::int64_t> shape);

}  // namespace mfsdp
