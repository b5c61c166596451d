// Maps the tensors of a model's Hugging Face checkpoint to elements of our parameters.
//
// Our fused parameters are the checkpoint's tensors concatenated by rows (qkv: query, key, value;
// gate_up: gate, up). Heads have the same order, and RoPE rotates the same halves. Therefore
// elements keep their order and their values.
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

/// A tensor of a checkpoint.
struct HfTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< dims, outermost first
  std::string parameter;            ///< our parameter that holds it
  Interval elements;                ///< all of the tensor's elements, in the parameter
  /// It is the parameter's transpose, [inputs, outputs], or that of each expert, [experts, inputs,
  /// outputs]. Its elements are still counted in the parameter's order.
  bool transposed = false;
};

/// Some elements of one tensor.
struct HfPart {
  std::size_t tensor = 0;  ///< index into HfTensors::all
  Interval elements;       ///< of the tensor, from its first one
};

/// PEFT's name of an adapter's parameter: PEFT wraps models twice.
[[nodiscard]] std::string peft_name(const std::string& parameter);

class HfTensors {
 public:
  /// The tensors of the model itself, without adapters. `is_whole`: whether the checkpoint stores a
  /// fused parameter as one tensor of the same name, as Phi-3 does, or stores all experts,
  /// [experts, rows, inputs], without ".weight"; null: no parameter. Errors: the program's
  /// parameters differ from those of its model's shape, or are missing.
  [[nodiscard]] static Result<HfTensors> of(
      const Program& program, const std::function<bool(const std::string& name)>& is_whole = {});

  /// The tensors of an adapter's file with PEFT's names: "base_model.model.NAME". Errors: likewise.
  [[nodiscard]] static Result<HfTensors> of_adapters(const Program& program);

  /// In the order of the model's forward pass. With tied embeddings there is no lm_head.
  [[nodiscard]] const std::vector<HfTensor>& all() const { return tensors_; }

  /// The parts of tensors that hold a parameter's elements, in order; empty for a parameter that
  /// these tensors do not have.
  [[nodiscard]] std::vector<HfPart> parts(const PlacedParameter& parameter,
                                          const Interval& elements) const;

 private:
  std::vector<HfTensor> tensors_;
  std::map<std::string, std::vector<std::size_t>> by_parameter_;  ///< in the order of elements
};

}  // namespace mfsdp
