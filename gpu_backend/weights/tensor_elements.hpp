// Elements of stored tensors as numbers.
#pragma once

#include <cstdint>
#include <span>

#include "core/formats/safetensors.hpp"

namespace mfsdp {

/// Elements [begin, begin + out.size()) of a tensor whose dtype is floating, exactly.
void read_elements(const SafeTensor& tensor, std::int64_t begin, std::span<double> out);

/// The same of the transpose of a tensor [inputs, outputs]: elements are counted as in [outputs,
/// inputs].
void read_transposed_elements(const SafeTensor& tensor, std::int64_t begin, std::span<double> out);

}  // namespace mfsdp
