// The types of tensors' elements, by the names that safetensors and PyTorch give them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

struct ElementType {
  std::string_view safetensors;   ///< "BF16"
  std::string_view torch = {};    ///< "bfloat16"; empty: PyTorch has none of one element
  std::string_view storage = {};  ///< "BFloat16Storage"; empty: UntypedStorage
  std::int64_t bits = 0;          ///< of an element; some need several to fill a byte
  std::optional<DType> ours = std::nullopt;
};

/// Elements that fill whole bytes.
[[nodiscard]] constexpr std::int64_t bytes_of(const ElementType& type) { return type.bits / 8; }

// Each finds the type of a name, or null.
[[nodiscard]] const ElementType* type_of_safetensors(std::string_view name);
[[nodiscard]] const ElementType* type_of_torch(std::string_view name);
[[nodiscard]] const ElementType* type_of_storage(std::string_view name);

[[nodiscard]] const ElementType& element_type(DType floating);

}  // namespace mfsdp
