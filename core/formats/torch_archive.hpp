// Archives of torch.save: a pickle of objects, and the bytes of each storage as a record.
//
//   archive/data.pkl | archive/byteorder | archive/data/0 | archive/data/1 | ... | archive/version
//
// A tensor in the pickle is a call of torch._utils._rebuild_tensor_v2 with the persistent id
// ('storage', torch.BFloat16Storage, '0', 'cpu', elements), offset, size, stride.
// torch/serialization.py, torch/_utils.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/formats/byte_source.hpp"
#include "core/formats/element_type.hpp"
#include "core/formats/read_pickle.hpp"
#include "core/formats/stored_zip.hpp"

namespace mfsdp {

/// A tensor of an archive. Its elements are row-major and without gaps.
struct TorchTensor {
  std::string name;  ///< keys and indices from the root, joined by dots; empty: it is the root
  const ElementType* type = nullptr;
  std::vector<std::int64_t> shape;
  FileRange bytes;  ///< in the source
};

struct TorchArchive {
  PickleDocument document;
  std::vector<TorchTensor> tensors;  ///< in the order of the pickle
  /// Names of all other values, with what they are: "checkpoint_version", "3.0".
  std::vector<std::pair<std::string, std::string>> values;
};

/// Whether the pickles of items and of Megatron's common state need this name.
[[nodiscard]] bool is_name_of_torch_archive(std::string_view name);

/// Reads an archive without its tensors' bytes. Errors: those of the archive and its pickle; a
/// tensor whose storage is missing or too small; strides that are not row-major; big-endian bytes.
[[nodiscard]] Result<TorchArchive> read_torch_archive(const ByteSource& source,
                                                      const FileRange& archive);

/// The bytes of an archive around those of its one tensor, as DCP stores a chunk.
[[nodiscard]] ZipFrame frame_torch_tensor(const ElementType& type,
                                          const std::vector<std::int64_t>& shape);

/// The values of a tuple, list or torch.Size; none if it holds anything but integers from 0.
[[nodiscard]] std::optional<std::vector<std::int64_t>> integers_of(const PickleValue& value);

}  // namespace mfsdp
