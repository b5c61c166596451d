// A layer's experts in the code of torchtitan, on a tape (torchtitan/models/common/moe.py and
// token_dispatcher.py at b5bcd76): a router in fp32, rows sorted by expert, torch._grouped_mm, and
// sums of each token's rows.
//
//   dispatch   rows are copied in the order of experts. With expert parallelism the ranks exchange the
//              counts, for which the host waits, then the rows; these are sorted by expert again
//   experts    three grouped GEMMs and PyTorch's own SiLU and multiplication
//   shared     an MLP of all tokens, whose result is added
//   combine    sorted back and exchanged; then times the router's weights, in fp32, and added to zeros
//   backward   keeps the router's input in fp32, rows before the first GEMMs, the results of both, of
//              SiLU and of the multiplication, and rows after the last GEMM in fp32. Rows that were
//              copied by index are added into zeros
//
// Experts are in balance, as with torchtitan's debug.moe_force_load_balance.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/engines/eager_ops.hpp"
#include "sim/engines/llama_weights.hpp"
#include "sim/engines/mcore_experts.hpp"

namespace mfsdp {

class ExpertOps {
 public:
  using Value = EagerTape::Value;
  using Ref = EagerTape::Ref;
  using Sink = EagerTape::Sink;

  /// The receiver of the gradient of a weight, by its name in titan_block_weights().
  using Sinks = std::function<Sink(const std::string& name)>;

  ExpertOps(EagerTape& tape, EagerOps& ops, const PlanConfig& config)
      : tape_(tape), ops_(ops), model_(config.model), sizes_(expert_sizes(config)) {}

  /// From the norm's output to the result that is added to the residual.
  [[nodiscard]] Value run(const Value& x, const Sinks& sinks);

 private:
  struct Dispatched {
    Value rows;
    Value weights;    ///< of rows, from the router
    Ref tokens;       ///< of rows
    Ref permutation;  ///< of received rows, with expert parallelism
  };

  [[nodiscard]] bool exchanges() const { return sizes_.peers > 1; }
  [[nodiscard]] std::int64_t cells() const { return sizes_.tokens * sizes_.experts; }

  [[nodiscard]] Ref make(std::string_view name, std::int64_t bytes,
                         Category category = Category::activation) {
    return tape_.make(name, bytes, category);
  }
  void kernel(KernelKind kind, std::string_view name, const Traffic& traffic) {
    tape_.kernel(kind, name, traffic);
  }
  /// Each token's weights of its experts, in fp32. `experts`: their numbers.
  [[nodiscard]] Value route(const Value& x, Sink router, Ref& experts);
  [[nodiscard]] Value probabilities(const Value& wide, Sink router);
  [[nodiscard]] Dispatched dispatch(const Value& x, const Value& weights);
  [[nodiscard]] Value multiply(const Value& rows, const Sinks& sinks);
  [[nodiscard]] Value shared(const Value& x, const Sinks& sinks);
  [[nodiscard]] Value combine(const Value& made, const Dispatched& dispatched);
  [[nodiscard]] Value by_rank(const Value& rows, const Ref& permutation);
  void wait_for_counts();

  /// x in another type.
  [[nodiscard]] Value cast(std::string_view name, const Value& x, std::int64_t bytes);
  /// Elements of x by index, `moved` bytes; backward adds them into zeros.
  [[nodiscard]] Value pick(std::string_view name, const Value& x, std::int64_t moved,
                           const Ref& index);
  [[nodiscard]] Value exchanged(std::string_view name, const Value& rows);
  [[nodiscard]] Value grouped(std::string_view name, const Value& x, std::int64_t outputs,
                              std::int64_t inputs, Sink weight);
  [[nodiscard]] Value weighted(const Value& wide, const Value& weights);
  [[nodiscard]] Value added_up(const Value& rows, const Ref& tokens);

  EagerTape& tape_;
  EagerOps& ops_;
  const ModelShape& model_;
  ExpertSizes sizes_;
};

/// A block's parameters in the order of torchtitan's Qwen3 or DeepSeek-V3. Experts are sharded by
/// number, or by their rows if there are more ranks than experts.
[[nodiscard]] std::vector<Weight> titan_block_weights(const PlanConfig& config, std::int64_t layer);

}  // namespace mfsdp
