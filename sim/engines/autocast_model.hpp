// A Llama with fp32 weights under torch.autocast(bfloat16), operator by operator. From the rules of
// autocast in PyTorch's sources, not from a recording:
//
//   weights    a GEMM casts its fp32 weight. The cast is kept in autocast's cache until forward ends,
//              and by autograd until the GEMM's backward
//   states     embeddings and norms have fp32 weights, so that hidden states and their gradients are
//              fp32; the input of a GEMM is cast, and its output is bf16
//   gradients  of a cast are cast back: weight gradients are made in bf16 and become fp32
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/engines/elementwise.hpp"
#include "sim/engines/parameter_order.hpp"

namespace mfsdp {

class AutocastModel {
 public:
  /// `made` receives each weight gradient in fp32, in the order in which autograd reaches the
  /// weights.
  using Made = std::function<void(ParameterPlace, Tensor)>;

  /// `units`: root and blocks. Heads have no norms.
  AutocastModel(StepBuilder& step, const PlanConfig& config, std::vector<UnitId> units, Made made);

  /// Allocates token ids and angles, before the first step.
  void keep_inputs();
  void forward();
  void backward();

 private:
  struct Saved {
    Tensor input{};  ///< fp32
    Tensor normed1{}, normed1_rstd{}, qkv{}, query{}, key{}, seed{}, offset{}, mixed{}, scores{};
    Tensor sum{};  ///< fp32
    Tensor normed2{}, normed2_rstd{}, gate_up{};
    Activated activated{};
  };
  struct Normed32 {
    Tensor rows;  ///< fp32
    Tensor statistic;
  };

  void at(std::size_t unit, Phase phase);
  [[nodiscard]] const std::vector<Weight>& weights_of(std::size_t unit) const;
  /// The position of a block's weight by its name.
  [[nodiscard]] ParameterPlace place(std::size_t unit, std::string_view name) const;

  // Parts of forward.
  Tensor cast_weight(ParameterPlace weight);
  void leave_autocast();
  Normed32 norm(std::string_view name);
  /// The bf16 input of a GEMM, and its result; frees the norm's fp32 rows.
  Tensor normed_gemm(ParameterPlace weight, std::string_view name, const Normed32& normed,
                     Tensor& rows);
  Tensor gemm(ParameterPlace weight, std::string_view name, std::int64_t bytes);
  Tensor add_residual(std::string_view name, Tensor branch);
  void mix(Saved& kept, bool keep);
  Saved run_block(std::size_t unit, Tensor input, bool keep);
  Tensor block_forward(std::size_t unit, Tensor input);

  // Parts of backward.
  void gradient_made(ParameterPlace weight, Tensor bf16);
  Tensor narrowed(std::string_view name);
  Tensor widened(std::string_view name, Tensor gradient);
  /// The weight gradient in bf16, then the input gradient.
  Tensor gemm_backward(ParameterPlace weight, std::string_view name, std::int64_t bytes,
                       Tensor& input_gradient);
  void norm_backward(ParameterPlace weight, Tensor gradient, Tensor input, Tensor statistic);
  Tensor attention_backward(const Saved& kept, Tensor mixed);
  Tensor block_backward(std::size_t unit, Tensor gradient);
  Tensor head_backward();
  void embedding_backward(Tensor gradient);

  StepBuilder& step_;
  const PlanConfig& config_;
  LlamaSizes sizes_;
  std::int64_t wide_;  ///< bytes of a hidden state in fp32
  std::vector<UnitId> units_;
  Made made_;
  std::unique_ptr<Elementwise> functions_;
  std::vector<Weight> root_weights_;
  std::vector<Weight> block_weights_;
  std::map<ParameterPlace, Tensor> casts_;  ///< that are live
  std::vector<Saved> saved_;                ///< by unit
  Normed32 last_norm_{};
  Tensor last_rows_{};
  Loss loss_{};
  Tensor seed_{};
  std::optional<Tensor> head_gradient_;  ///< of a tied head
};

}  // namespace mfsdp
