// Elements of stored tensors as numbers.
#pragma once

#include <cstdint>
#include <span>

#include "core/formats/safetensors.hpp"

namespace mfsdp {

/// Reads elements [begin, begin + out.size()) of a tensor with a floating dtype, exactly.
void read_elements(const SafeTensor& tensor, std::int64_t begin, std::span<double> out);

/// The same for the transpose of a tensor [inputs, outputs]: elements are counted as in [outputs,
/// inputs].
void read_transposed_elements(const SafeTensor& tensor, std::int64_t begin, std::span<double> out);

}  // namespace mfsdp
