// Tensors of one model under the names and in the pieces of each framework.
//
// Each framework's tensors are made of Hugging Face's, as runs of elements in row-major order:
//
//   Megatron's fused matrix of one group   | q rows ... | k rows | v rows |   from q_proj, k_proj, v_proj
//   all layers of one parameter            | layer 0 | layer 1 | ...          from model.layers.0, 1, ...
//
// One list describes both directions. Sources: docs of each framework's converter, named in
// model_names.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/model.hpp"
#include "gpu_backend/convert/checkpoint.hpp"
#include "gpu_backend/convert/tensor_names.hpp"

namespace mfsdp {

/// megatron_fsdp: a tensor for each layer, gate and up apart. megatron: layers stacked, gate and up
/// in one.
enum class NameStyle { hf, torchtitan, megatron_fsdp, megatron };

constexpr auto value_names(NameStyle) {
  return name_array("hf", "torchtitan", "megatron_fsdp", "megatron");
}

/// A run of elements of one of Hugging Face's tensors in a tensor of a framework.
struct StyledPiece {
  std::string hf;
  std::int64_t hf_begin = 0;
  std::int64_t begin = 0;  ///< in the framework's tensor
  std::int64_t count = 0;
};

struct StyledTensor {
  std::vector<std::int64_t> shape;
  std::vector<StyledPiece> pieces;  ///< in the order of `begin`
  bool pads_rows = false;           ///< may have more rows, zeros: the vocabulary
};

/// Hugging Face's tensors of a model, by name, with their shapes. A tied head is none.
[[nodiscard]] std::map<std::string, std::vector<std::int64_t>> hf_shapes_of(const Model& model);

/// The tensors of a framework, by name. Errors name a parameter that the framework's names do not
/// cover.
[[nodiscard]] Result<std::map<std::string, StyledTensor>> styled_tensors(const Model& model,
                                                                         NameStyle style);

/// A run of elements that a tensor takes from a checkpoint.
struct ElementCopy {
  const CheckpointTensor* source = nullptr;
  std::int64_t source_begin = 0;
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// A tensor that is made from parts of a checkpoint's tensors. Elements without a copy are zero.
struct MappedTensor {
  std::string name;
  std::string state = {};  ///< "exp_avg"; empty: a weight
  const ElementType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::vector<ElementCopy> copies;  ///< in the order of `begin`
};

/// The style whose names most of the weights have.
[[nodiscard]] NameStyle style_of(const std::vector<NamedTensor>& named, const Model& model);

/// The weights and moments of a checkpoint as Hugging Face's tensors. A weight of no model's
/// parameter keeps its name. Errors: a tensor whose shape contradicts its style's; those of
/// styled_tensors().
[[nodiscard]] Result<std::vector<MappedTensor>> to_hf_names(const std::vector<NamedTensor>& named,
                                                            const Model& model);

/// Hugging Face's tensors, weights and moments, as a framework's. Errors: a tensor that is missing
/// or that the model does not have.
[[nodiscard]] Result<std::vector<MappedTensor>> to_style(const std::vector<MappedTensor>& hf,
                                                         const Model& model, NameStyle style);

}  // namespace mfsdp
