// The roles of a checkpoint's tensors: weights of parameters, states of the optimizer, or others.
//
//   torchtitan            layers.0.attention.wq.weight   optimizer.state.layers.0....weight.exp_avg
//   FSDP2 of PyTorch      model.<parameter>              optim.state.<parameter>.exp_avg
//   Megatron-FSDP         model.module.<parameter>       optimizer.state.module.<parameter>.exp_avg
//   Megatron-Core         <parameter>                    optimizer.state.exp_avg.<parameter>
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gpu_backend/convert/checkpoint.hpp"

namespace mfsdp {

struct NamedTensor {
  const CheckpointTensor* tensor = nullptr;
  std::string parameter;   ///< without the prefixes of writers
  std::string state = {};  ///< "exp_avg", "exp_avg_sq", "step"; empty: a weight
  bool is_other = false;   ///< neither: a counter, the state of a schedule

  [[nodiscard]] bool is_weight() const { return state.empty() && !is_other; }
};

/// In the order of the checkpoint's tensors, into which the result points.
[[nodiscard]] std::vector<NamedTensor> name_tensors(const Checkpoint& checkpoint);

}  // namespace mfsdp
