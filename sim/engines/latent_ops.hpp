// Latent attention in the code of torchtitan's DeepSeek-V3, on a tape
// (torchtitan/models/deepseek_v3/model.py at b5bcd76).
//
//   queries    from the row or from a latent vector; a part of each head is rotated as complex numbers
//              in fp32, and both parts are joined in a new tensor
//   keys       the latent vector of keys and values is a view, copied for its norm; from it come the
//              other part of each key, and values as views. Keys are joined with the rotated part, which
//              all heads share
//   backward   keeps both joined tensors, the rows with the values, attention's output
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "sim/engines/eager_ops.hpp"

namespace mfsdp {

class LatentOps {
 public:
  using Value = EagerTape::Value;
  using Ref = EagerTape::Ref;
  /// The receiver of the gradient of a weight, by its name in titan_block_weights().
  using Sinks = std::function<EagerTape::Sink(const std::string& name)>;

  LatentOps(EagerTape& tape, EagerOps& ops, const PlanConfig& config);

  /// From the norm's output to the result that is added to the residual.
  [[nodiscard]] Value run(const Value& x, const Sinks& sinks);

 private:
  [[nodiscard]] std::int64_t bf16(std::int64_t columns) const {
    return checked_mul(checked_mul(tokens_, columns), kHalf);
  }
  [[nodiscard]] Ref make(std::string_view name, std::int64_t bytes) {
    return tape_.make(name, bytes, Category::activation);
  }
  [[nodiscard]] Value query(const Value& x, const Sinks& sinks);
  [[nodiscard]] Value joined(std::string_view name, const Value& still, const Value& rotated);
  [[nodiscard]] Value mix(const Value& query, const Value& key, const Value& value);

  EagerTape& tape_;
  EagerOps& ops_;
  const ModelShape& model_;
  std::int64_t tokens_;
  // Columns.
  std::int64_t rotated_;  ///< of a head's query or key
  std::int64_t heads_;    ///< of all queries, or keys
  std::int64_t values_;   ///< of all values
};

}  // namespace mfsdp
