// Operators of PyTorch on a tape: the kernels and allocations of their forward and backward.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/family.hpp"
#include "sim/engines/eager_tape.hpp"
#include "sim/engines/llama_sizes.hpp"
#include "sim/engines/tensor_rows.hpp"

namespace mfsdp {

/// How a module's code computes an RMS norm of bf16 rows.
enum class NormCode {
  fused,          ///< F.rms_norm
  cast_first,     ///< weight * wide.to(bf16), as transformers' Llama
  cast_last,      ///< (weight * wide).to(bf16), as its OLMo 2
  zero_centered,  ///< (wide * (1 + weight)).to(bf16), as its Gemma
};

/// How a module's code rotates heads.
enum class RopeCode {
  halves,   ///< x * cosine + rotate_half(x) * sine in bf16, as transformers
  complex,  ///< pairs as complex numbers in fp32, as torchtitan's Llama
  wide,     ///< as the first, in fp32, as torchtitan's Qwen3
};

/// The mask of a layer's attention.
struct LayerMask {
  std::int64_t window = 0;      ///< of a layer whose mask is a tensor; 0: causal, without a mask
  std::int64_t mask_bytes = 0;  ///< of that mask in bf16
};

class EagerOps {
 public:
  using Value = EagerTape::Value;
  using Ref = EagerTape::Ref;
  using Sink = EagerTape::Sink;

  EagerOps(EagerTape& tape, const PlanConfig& config)
      : tape_(tape), config_(config), sizes_(llama_sizes(config)), rows_(tape.step(), config) {}

  /// x [tokens, inputs] times a weight [outputs, inputs], optionally plus a bias. Sinks receive the
  /// gradients of weight and bias.
  [[nodiscard]] Value linear(std::string_view name, Value x, std::int64_t outputs,
                             std::int64_t inputs, Sink weight, const Sink& bias = {},
                             Category category = Category::activation);
  /// A part of a fused projection's columns, by the bytes of each part. `contiguous` gradients are
  /// joined by one kernel.
  [[nodiscard]] std::vector<Value> split(std::string_view name, Value x,
                                         const std::vector<std::int64_t>& parts);
  /// The same, each part copied; backward joins their gradients by one kernel.
  [[nodiscard]] std::vector<Value> split_and_copy(std::string_view name, const Value& x,
                                                  const std::vector<std::int64_t>& parts);
  /// The same without copies: torch.split.
  [[nodiscard]] std::vector<Value> views(std::string_view name, const Value& x,
                                         const std::vector<std::int64_t>& parts);
  /// The norm of rows of `width` columns.
  [[nodiscard]] Value norm(std::string_view name, Value x, std::int64_t width, NormCode code,
                           Sink weight);
  /// F.layer_norm of rows as wide as a hidden state. Sinks receive the gradients of weight and bias.
  [[nodiscard]] Value layer_norm(std::string_view name, const Value& x, Sink weight, Sink bias);
  [[nodiscard]] Value rotate(std::string_view name, Value x, RopeCode code);
  /// Heads of keys or values, copied for each query head that shares them.
  [[nodiscard]] Value repeat(std::string_view name, Value x);
  /// Scaled dot-product attention.
  [[nodiscard]] Value attention(Value query, Value key, Value value, const LayerMask& shape);
  /// Attention of query, key and value that are views of one tensor's rows, as many heads of each.
  [[nodiscard]] Value attention_of_rows(const Value& rows);
  /// GELU of an MLP without a gate.
  [[nodiscard]] Value gelu(std::string_view name, Value x);
  [[nodiscard]] Value activate(std::string_view name, Value x, Activation activation);
  [[nodiscard]] Value multiply(std::string_view name, Value a, Value b);
  [[nodiscard]] Value add(std::string_view name, const Value& a, const Value& b);
  /// x times a number.
  [[nodiscard]] Value scale(std::string_view name, Value x);
  // Among ranks that share weights; else the value itself.
  /// All rows of own ones.
  [[nodiscard]] Value gather_rows(std::string_view name, Value x);
  /// Own rows of the sum of all ranks' terms.
  [[nodiscard]] Value reduce_rows(std::string_view name, Value x);

 private:
  [[nodiscard]] Ref make(std::string_view name, std::int64_t bytes,
                         Category category = Category::activation) {
    return tape_.make(name, bytes, category);
  }
  void kernel(KernelKind kind, std::string_view name, const Traffic& traffic) {
    tape_.kernel(kind, name, traffic);
  }
  [[nodiscard]] Value fused_norm(const std::string& name, const Value& x, std::int64_t width,
                                 Sink weight);
  [[nodiscard]] Value written_norm(const std::string& name, const Value& x, std::int64_t width,
                                   NormCode code, Sink weight);
  [[nodiscard]] Ref wide_norm_backward(const std::string& name, std::int64_t bytes,
                                       std::int64_t rows, Ref gradient, EagerTape::Refs saved);
  [[nodiscard]] Value activated(std::string_view name, const Value& x, KernelKind forward,
                                KernelKind backward);
  [[nodiscard]] EagerTape::PartsBackward joined_backward(const std::string& name,
                                                         std::int64_t bytes);
  [[nodiscard]] Value rotate_halves(const std::string& name, const Value& x);
  [[nodiscard]] Value rotate_wide(const std::string& name, const Value& x);
  [[nodiscard]] Ref half_into_zeros(const std::string& name, std::int64_t bytes);
  [[nodiscard]] Value rotate_complex(const std::string& name, const Value& x);

  EagerTape& tape_;
  const PlanConfig& config_;
  LlamaSizes sizes_;
  TensorRows rows_;
};

}  // namespace mfsdp
