// Which tensors a Hugging Face checkpoint of a model has, and which of our elements each one holds.
//
// Our fused parameters are the checkpoint's tensors one below the other (qkv: query, key, value
// rows; gate_up: gate, up rows), heads in the same order, and RoPE turns the same halves: elements
// keep their order and their values.
//
//   qkv_proj  | q_proj ........ | k_proj .. | v_proj .. |       elements of the parameter
//   a rank's own          |<------------------>|                  any interval of them
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/shard/flat_layout.hpp"

namespace mfsdp {

/// A tensor as checkpoints have it.
struct HfTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< dims, outermost first
  std::string parameter;            ///< ours, that holds it
  Interval elements;                ///< of the parameter: all of the tensor's
  /// It is the parameter's transpose, [inputs, outputs], or of each expert, [experts, inputs,
  /// outputs]; its elements are counted in the parameter's order all the same.
  bool transposed = false;
};

/// Some elements of one tensor.
struct HfPart {
  std::size_t tensor = 0;  ///< index into HfTensors::all
  Interval elements;       ///< of the tensor, from its first one
};

/// An adapter's parameter as PEFT's files have it: models are wrapped twice there.
[[nodiscard]] std::string peft_name(const std::string& parameter);

class HfTensors {
 public:
  /// Of the model itself, without adapters. `is_whole`: whether the checkpoint has a fused
  /// parameter as one tensor of its own name, as Phi-3's have, or of all experts, [experts, rows,
  /// inputs], without ".weight"; null: none. Errors: parameters of
  /// the program that its model's shape does not have so, or lacks.
  [[nodiscard]] static Result<HfTensors> of(
      const Program& program, const std::function<bool(const std::string& name)>& is_whole = {});

  /// Those of an adapter's file, as PEFT names them: "base_model.model.NAME". Errors: likewise.
  [[nodiscard]] static Result<HfTensors> of_adapters(const Program& program);

  /// In the order of the model's forward pass. With tied embeddings there is no lm_head.
  [[nodiscard]] const std::vector<HfTensor>& all() const { return tensors_; }

  /// What tensors hold of a parameter's elements, in their order; nothing of a parameter that these
  /// tensors have not.
  [[nodiscard]] std::vector<HfPart> parts(const PlacedParameter& parameter,
                                          const Interval& elements) const;

 private:
  std::vector<HfTensor> tensors_;
  std::map<std::string, std::vector<std::size_t>> by_parameter_;  ///< in the order of elements
};

}  // namespace mfsdp
