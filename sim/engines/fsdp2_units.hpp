// The units of a model under torch.distributed.fsdp.fully_shard: their gathers, reductions and
// optimizer, with the reason for each cost.
//
//   gather     the shards are cast into one flat input, copied into its place of the output, and
//              gathered, all on the stream of gathers; then each parameter is allocated on the
//              compute stream and copied out of the output. Weights in bf16 need no cast
//   forward    a unit's gather is issued when the host reaches the unit, while the GPU computes
//              the previous one; the gathered output is kept until the next one is copied out
//   backward   the next unit's gather is issued before a unit's backward
//   reduction  gradients are copied into one flat input (compute stream), after the previous
//              reduction has ended; the reduction's output becomes the gradients' shards, in the
//              type of the weights between steps
//   ZeRO-2     reshard_after_forward=False: parameters gathered in forward stay until backward has
//              used them, so that each microbatch gathers once
//   HSDP       the reduction's output is summed along the outer axis, in place, on a stream of its
//              own, in every microbatch; it is kept until backward ends
//   experts    with expert parallelism a block has two groups of parameters: experts are sharded over
//              the ranks that have the same ones, and all else over all ranks. Each is gathered and
//              reduced for itself. Gathers of the next unit are then issued after those of this one
//              (torchtitan's set_modules_to_forward_prefetch)
//   FP8        torchao's float8 gather: a weight's shard is multiplied by its scale, clamped and cast,
//              operator by operator; the unit is gathered as bytes. The scale is that of the whole
//              weight: an all-reduce of one number for each weight and gather or, precomputed, one
//              of all weights after the optimizer
//   without reduction   set_requires_gradient_sync(False) in all microbatches but the last: whole
//              gradients stay on every rank, in the type of reductions. Those of the first
//              microbatch are cast after their unit was resharded, later ones are added
//
// Each parameter is sharded by rows: ceil(rows / ranks) on every rank.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/engines/adamw.hpp"
#include "sim/engines/fsdp2_options.hpp"
#include "sim/engines/llama_weights.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

/// A place in the model. A `block` is without its parts if these are units of their own.
enum class UnitPlace { embedding, block, attention, mlp, head };

class Fsdp2Units {
 public:
  Fsdp2Units(StepBuilder& step, const PlanConfig& config, const Fsdp2Options& options);

  /// Allocates all weights between steps, in the order of the model's modules, which is that of the
  /// optimizer. `blocks`: of each layer. `root`: embedding, final norm and, if it is untied, head.
  void make(const std::vector<std::vector<Weight>>& blocks, const std::vector<Weight>& root);

  /// Before a microbatch.
  void begin(Turn turn);
  /// Gathers read the weights that the optimizer has written.
  void begin_forward();
  /// At the beginning of a module's forward. `layer`: of places inside a block.
  void pre_forward(UnitPlace place, std::size_t layer = 0);
  void post_forward(UnitPlace place, std::size_t layer = 0);
  /// At the end of the whole model's forward: the last gathered output is freed.
  void end_forward();
  void begin_backward();
  /// When the gradient of a module's output is there.
  void pre_backward(UnitPlace place, std::size_t layer = 0);
  /// When the gradient of a module's input is there, with those of its weights in their order.
  void post_backward(UnitPlace place, std::size_t layer, const std::vector<Tensor>& gradients);
  /// Reduces what has not been reduced, and waits for all reductions.
  void end_backward();
  void optimizer();

  /// Whether autograd adds gradients to those of earlier microbatches when it makes them.
  [[nodiscard]] bool adds_in_place() const;
  /// Adds such a gradient, and frees it.
  void add_in_place(Tensor gradient);

  [[nodiscard]] UnitId root() const { return root_; }
  [[nodiscard]] UnitId block(std::size_t layer) const { return blocks_[layer]; }

 private:
  /// Parameters that are gathered together.
  struct Shards {
    UnitId unit;
    std::vector<Weight> weights;
    bool reshards = true;          ///< after forward
    std::int64_t shard = 0;        ///< elements of this rank, padded
    std::int64_t whole = 0;        ///< of all ranks
    std::int64_t shard_bytes = 0;  ///< as it is gathered
    bool has_fp8 = false;          ///< weights that are gathered in FP8, among others in bf16
    // While the gather's output is live.
    std::optional<Tensor> output{};
    std::vector<Tensor> gathered{};
    std::optional<Mark> gather{};
    std::optional<Mark> reduced{};
    std::optional<Tensor> gradient{};
    std::optional<Tensor> summed{};     ///< along the outer axis, until backward ends
    std::vector<Tensor> gradients{};    ///< of this microbatch, until all are there
    std::vector<Tensor> accumulated{};  ///< of earlier microbatches, not reduced
    bool is_done = false;               ///< with this microbatch's backward
    std::int64_t ranks = 1;             ///< that have a shard each
    RankGroup among = RankGroup::all;
    std::unique_ptr<Shards> experts{};  ///< the same module's, where they are sharded otherwise
  };

  [[nodiscard]] std::int64_t ranks_of(const Weight& weight) const {
    return weight.dealt ? expert_ranks_ : ranks_;
  }
  [[nodiscard]] std::int64_t padded_rows(const Weight& weight) const;
  [[nodiscard]] std::int64_t shard_of(const Weight& weight) const;
  void keep_weight(UnitId unit, const Weight& weight);
  [[nodiscard]] std::vector<Tensor> cast_shards(const Shards& of);
  void find_largest_of_shards();
  [[nodiscard]] Shards shards_of(UnitId unit, std::vector<Weight> weights, bool reshards);
  void group(UnitId unit, std::vector<Weight> weights, bool reshards);
  void group_blocks(const std::vector<std::vector<Weight>>& blocks);

  [[nodiscard]] std::optional<std::size_t> group_of(UnitPlace place, std::size_t layer) const;
  [[nodiscard]] bool begins_group(UnitPlace place, std::size_t layer) const;
  [[nodiscard]] bool ends_group(UnitPlace place, std::size_t layer) const;

  /// A group, then its experts.
  template <class Function>
  static void each(Shards& of, Function&& function) {
    function(of);
    if (of.experts) function(*of.experts);
  }
  void prefetch(Shards& of);
  void use(Shards& of);
  void foreach_scratch(std::string_view name, std::int64_t blocks, std::size_t tensors);
  void unshard(Shards& of);
  void cast_alone(Shards& of);
  void wait_for_unshard(Shards& of);
  void copy_out(Shards& of);
  void free_last_output();
  void reshard(Shards& of);

  void finish(Shards& of);
  void accumulate(Shards& of);
  void keep_unreduced(Shards& of);
  void reduce(Shards& of, const std::vector<Tensor>& gradients);
  StreamRole sum_along_outer(const Shards& of);
  void leave(Shards& of);

  StepBuilder& step_;
  const PlanConfig& config_;
  Fsdp2Options options_;
  std::int64_t ranks_;         ///< that share a copy of the weights
  std::int64_t expert_ranks_;  ///< that have the same experts
  std::int64_t outer_;         ///< copies
  std::int64_t main_;          ///< bytes of a weight between steps
  std::int64_t held_;          ///< bytes of a gradient that is not reduced
  bool keeps_gathered_;        ///< from forward to backward
  bool prefetches_forward_;
  UnitId root_;
  std::vector<UnitId> blocks_;
  std::vector<Shards> groups_;               ///< in the order in which forward ends them
  std::vector<std::size_t> first_of_block_;  ///< the group of a block, or its first part's
  std::vector<OwnedWeight> owned_;           ///< in the order of the optimizer
  std::vector<std::vector<bool>> dealt_;     ///< which weights of a block are experts' own
  Turn turn_;
  Phase phase_ = Phase::forward;
  std::optional<Tensor> last_output_;  ///< of a gather in forward
  std::optional<Mark> copied_out_;
  std::optional<Tensor> last_reduce_input_;
  std::optional<Mark> last_reduction_;
};

}  // namespace mfsdp
