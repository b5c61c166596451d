// Low-rank adapters (LoRA, Hu et al. 2021, arXiv:2106.09685). A matrix W [n, k] of a block is
// frozen, and two small matrices are trained:
//
//   y = x W^T + scale (x A^T) B^T      A [rank, k], B [n, rank], scale = alpha / rank
//
// Targets are the linear layers of Hugging Face's modules, under PEFT's names. Where our W has the
// rows of several of them (query, key and value; gate and up), each has its own adapters, which act
// on its rows of W, that is its columns of y.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model.hpp"

namespace mfsdp {

/// A linear layer of a block that can have adapters.
struct LoraTarget {
  std::string_view name;                      ///< "q_proj", as in PEFT's target_modules
  std::string_view module;                    ///< with its parent: "self_attn.q_proj"
  ParameterRole matrix = ParameterRole::qkv;  ///< our parameter that has its rows
  ParameterRole a = ParameterRole::q_lora_a;  ///< [rank, inputs]
  ParameterRole b = ParameterRole::q_lora_b;  ///< [outputs, rank]
  std::int64_t begin = 0;                     ///< its first row of the matrix
  std::int64_t outputs = 0;                   ///< its rows of the matrix
  std::int64_t inputs = 0;                    ///< columns of the matrix
};

/// All linear layers of a block, in the order of the forward pass: PEFT's "all-linear", which
/// leaves out the head. Empty for families without modelled adapters.
[[nodiscard]] std::vector<LoraTarget> lora_targets(const ModelShape& shape);
/// The layers with these names, in the order of the names. Unknown names are left out.
[[nodiscard]] std::vector<LoraTarget> lora_targets(const ModelShape& shape,
                                                   const std::vector<std::string>& names);

/// PEFT's default targets: query and value, or the layer that contains them.
[[nodiscard]] std::vector<std::string> default_lora_targets(const ModelShape& shape);

/// Adds adapters of that rank to these layers of every block, last in their unit: A, then B, layer
/// by layer.
void add_lora(Model& model, std::int64_t rank, const std::vector<std::string>& targets);

/// Whether a parameter belongs to an adapter.
[[nodiscard]] bool is_lora(std::string_view parameter_name);
[[nodiscard]] bool is_lora(ParameterRole role);

}  // namespace mfsdp
