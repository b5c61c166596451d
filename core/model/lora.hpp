// Low-rank adapters (LoRA, Hu et al. 2021, arXiv:2106.09685). Beside a matrix W [n, k] of a block,
// which stays as it is, two small ones are trained:
//
//   y = x W^T + scale (x A^T) B^T      A [rank, k], B [n, rank], scale = alpha / rank
//
// Targets are the linear layers of Hugging Face's modules, by the names that PEFT knows them by.
// Where our W is several of them one below the other (query, key and value; gate and up), each has
// adapters of its own, which act on its rows of W: its columns of y.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model.hpp"

namespace mfsdp {

/// A linear layer of a block that adapters may stand beside.
struct LoraTarget {
  std::string_view name;                      ///< "q_proj", as PEFT's target_modules say it
  std::string_view module;                    ///< with its parent: "self_attn.q_proj"
  ParameterRole matrix = ParameterRole::qkv;  ///< of our parameter that has its rows
  ParameterRole a = ParameterRole::q_lora_a;  ///< [rank, inputs]
  ParameterRole b = ParameterRole::q_lora_b;  ///< [outputs, rank]
  std::int64_t begin = 0;                     ///< its first row of the matrix
  std::int64_t outputs = 0;                   ///< its rows of the matrix
  std::int64_t inputs = 0;                    ///< columns of the matrix
};

/// All linear layers of a block, in the order of the forward pass: PEFT's "all-linear", which
/// leaves out the head. None of families that no adapters are modelled for.
[[nodiscard]] std::vector<LoraTarget> lora_targets(const ModelShape& shape);
/// Those of these names, in that order. Unknown names are left out.
[[nodiscard]] std::vector<LoraTarget> lora_targets(const ModelShape& shape,
                                                   const std::vector<std::string>& names);

/// What PEFT adapts where nobody says what: query and value, or what holds them.
[[nodiscard]] std::vector<std::string> default_lora_targets(const ModelShape& shape);

/// Adds adapters of that rank beside these layers of every block, last in their unit: A, then B, of
/// one layer after the other.
void add_lora(Model& model, std::int64_t rank, const std::vector<std::string>& targets);

/// Whether a parameter of that name is an adapter's.
[[nodiscard]] bool is_lora(std::string_view parameter_name);
[[nodiscard]] bool is_lora(ParameterRole role);

}  // namespace mfsdp
