// Attention of ranks that share sequences, as Transformer Engine computes it (cp_comm_type). A rank
// has head and tail of each sequence: chunks r and 2n-1-r of 2n, so that all compute as many pairs.
// `K`: a rank's own keys and values.
//
//   p2p         a ring: n steps, each on the keys that came from the neighbour, beside which the next
//               ones travel. Step 0 is causal on own tokens; every other one computes as many pairs.
//               Outputs of all steps are merged by their log-sum-exps. Kept: queries, the last keys
//               that came, output and sums. Backward: keys travel again, with the sums of their
//               gradients after them: K, n-2 times 2K, K
//   all_gather  keys and values of all ranks, put in order; attention of each half with the keys before
//               it. Kept: own queries, keys and values. Backward gathers again; gradients of all keys
//               are reduced to own ones
//   a2a         heads are exchanged for tokens before and after attention of whole sequences; each
//               tensor is permuted before and put in order after. Kept: what was exchanged, and
//               attention's output before it is exchanged back
//
// For the last rank, whose steps have the largest outputs. A step of as many pairs as a causal square
// has costs as much. A send in a ring costs as the same bytes in a gather among all n.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "sim/engines/llama_sizes.hpp"
#include "sim/engines/mcore_parallel.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

class McoreContext {
 public:
  /// `config`, `sizes`: of one rank's heads and tokens.
  McoreContext(StepBuilder& step, const PlanConfig& config, const McoreParallel& parallel,
               const LlamaSizes& sizes)
      : step_(step), config_(config), parallel_(parallel), sizes_(sizes) {}

  [[nodiscard]] bool shares() const { return parallel_.cp > 1; }

  struct Heads {
    Tensor query, key, value;
  };
  struct Saved {
    Tensor output;                 ///< attention's, of own tokens and all heads
    std::vector<Tensor> also{};    ///< other tensors of backward
    std::vector<Tensor> inputs{};  ///< that stay for backward, of those that forward got
  };

  /// `own` stays allocated. Without `keep` all that is kept but the output is freed.
  [[nodiscard]] Saved forward(const Heads& own, bool keep);
  /// Those of `own` that are not kept.
  void free_inputs(const Heads& own, bool keep);

  /// Gradients, the last two perhaps in larger tensors. Frees what was saved and `output`, the
  /// output's gradient.
  [[nodiscard]] Heads backward(const Saved& saved, Tensor output);

 private:
  [[nodiscard]] std::int64_t ranks() const { return parallel_.cp; }
  [[nodiscard]] std::int64_t own_tokens() const { return config_.seq_len / parallel_.cp; }
  /// Bytes of own keys and values.
  [[nodiscard]] std::int64_t pair() const { return 2 * sizes_.key; }

  Tensor allocate(std::string_view name, std::int64_t bytes) {
    return step_.allocate(name, bytes, Category::activation);
  }
  void copy(std::string_view name, std::int64_t bytes,
            AccessPattern pattern = AccessPattern::strided) {
    step_.memory_bound(KernelKind::cast, name, {2 * bytes, pattern});
  }
  void add(std::string_view name, std::int64_t bytes) {
    step_.memory_bound(KernelKind::accumulate, name, 3 * bytes);
  }
  void free_all(const std::vector<Tensor>& tensors);

  /// A pass of attention over as many pairs as `squares` causal ones of own tokens have.
  void pass(KernelKind kind, std::int64_t squares);
  /// To the neighbour, beside what compute does next.
  [[nodiscard]] Mark send(std::string_view name, std::int64_t bytes);
  [[nodiscard]] Tensor gathered(std::string_view name);

  [[nodiscard]] Saved ring(const Heads& own, bool keep);
  [[nodiscard]] Heads ring_backward(const Saved& saved, Tensor output);
  [[nodiscard]] Saved with_all_keys(const Heads& own, bool keep);
  [[nodiscard]] Heads with_all_keys_backward(const Saved& saved, Tensor output);
  [[nodiscard]] Saved by_heads(const Heads& own, bool keep);
  [[nodiscard]] Heads by_heads_backward(const Saved& saved, Tensor output);

  struct Moved {
    std::string_view name;
    std::int64_t bytes = 0;
  };
  /// Exchanges several tensors of own tokens and all heads for one of all tokens and own heads, or
  /// back.
  [[nodiscard]] std::vector<Tensor> exchanged(const std::vector<Moved>& tensors);

  StepBuilder& step_;
  const PlanConfig& config_;
  McoreParallel parallel_;
  LlamaSizes sizes_;
};

}  // namespace mfsdp
