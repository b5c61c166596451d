// Checks of a model shape, for config.json files and for plans.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/error.hpp"
#include "core/model/model.hpp"

namespace mfsdp {

/// Largest values of a shape's fields. Within them no multiplication in a shape's accessors exceeds
/// 63 bits; larger values are mistakes.
struct ShapeLimits {
  static constexpr std::int64_t dim = (std::int64_t{1} << 31) - 1;
  /// A plan takes some 1.5 ms and 160 KB per layer; models have a few hundred layers at most.
  static constexpr std::int64_t layers = 4096;
  static constexpr std::int64_t heads = std::int64_t{1} << 20;  ///< also of head_dim
  static constexpr std::int64_t experts = 1 << 16;
  /// Exclusive. JSON readers that use doubles keep counts below 2^53 exact.
  static constexpr std::int64_t parameters = std::int64_t{1} << 53;
};

/// Elements of all matrices of one block, dense or with experts. Throws OverflowError.
[[nodiscard]] std::int64_t block_matrix_elements(const ModelShape& shape, bool has_experts = false);

/// Elements of all parameters of one block: matrices, norms and biases. Throws OverflowError.
[[nodiscard]] std::int64_t block_elements(const ModelShape& shape, bool has_experts = false);

/// Elements of the experts that a token does not choose, over all blocks; the others are active.
/// Throws OverflowError.
[[nodiscard]] std::int64_t unchosen_elements(const ModelShape& shape);

/// Checks a shape: every field in range, heads a multiple of key-value heads, head_dim even, RoPE
/// scaling meaningful, fewer than 2^53 parameters. Errors name `where` and the field by its Hugging
/// Face name: "config.json: num_key_value_heads: expected ...".
[[nodiscard]] Result<void> check_shape(const ModelShape& shape, const std::string& where);

}  // namespace mfsdp
