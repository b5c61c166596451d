// Emits the ops of one microbatch, and tracks the state between microbatches. Ranks that have all
// blocks run a microbatch as a whole. A stage of a pipeline runs it in two passes, forward and
// backward; tensors that cross the stage's ends are received and sent there (stage_ends.cpp).
#pragma once

#include <array>
#include <deque>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/plan/pipeline_order.hpp"
#include "core/recipe/recipe.hpp"
#include "core/schedule/emitter.hpp"
#include "core/schedule/state.hpp"

namespace mfsdp::schedule {

/// A microbatch's place in its step. Both are set when a step has one microbatch.
struct Position {
  bool first = false;
  bool last = false;
};

/// Emits the microbatches of a plan. `train` runs backward and reduces gradients; otherwise the
/// plan is `eval`: forward and loss. On a stage it emits those of one chunk.
class MicrobatchSchedule {
 public:
  MicrobatchSchedule(Emitter& emitter, const State& state, const FamilyRecipe& family, bool train,
                     std::size_t chunk = 0);

  /// Emits one segment's ops and declares the buffers that are live at its ends.
  void emit(const std::string& segment, std::int64_t repeat, Position position);

  /// Emits a pass of the stage. Its place in the step matters to backward alone.
  void emit_pass(PipelinePart part, Position position);
  /// Emits the pass that takes the tokens of a microbatch, for all chunks of the stage.
  void emit_input();
  /// Emits the passes before and after it, which receive its inputs and send what it makes.
  void emit_receives(PipelinePart part);
  void emit_sends(PipelinePart part);

  /// Tensors that cross the ends of a stage, by their keys in the order in which they are sent, and
  /// by part: forward gets tensors of the chunk before, backward those of the next one.
  struct Ends {
    std::array<std::vector<std::string>, 2> received{};
    std::array<std::vector<std::string>, 2> sent{};
    std::int64_t in_flight = 1;  ///< microbatches between their forward and their backward
    /// Likewise, until late weight gradients: from forward, and from the rest of backward.
    std::int64_t until_weights = 1;
    std::int64_t gradients_until_weights = 1;
    /// Likewise, between a receive and the end of its part, and between the receive of forward's
    /// inputs and the backward that reads them.
    std::array<std::int64_t, 2> received_before{1, 1};
    std::int64_t inputs_in_flight = 1;
    std::int64_t microbatches = 1;  ///< of a step
    bool releases_tokens = false;   ///< no other chunk of the stage reads a microbatch's later
  };
  /// Whether its kernels read ids, labels or positions.
  [[nodiscard]] bool reads_tokens() const;
  /// Tensors that this part reads before any kernel of the stage writes them.
  [[nodiscard]] std::vector<std::string> needed(PipelinePart part) const;
  /// These tensors in the order in which the stage can send them.
  [[nodiscard]] std::vector<std::string> in_sending_order(PipelinePart part,
                                                          std::vector<std::string> keys) const;
  /// Must come before anything is emitted.
  void set_ends(Ends ends) { ends_ = std::move(ends); }

  /// The state at the end of a microbatch; a repeated segment must end as it began.
  struct Carry {
    std::vector<std::optional<BufferId>> weights;  ///< gathered buffer of each unit
    std::vector<std::optional<BufferId>> casts;    ///< likewise, of casts to FP8
    std::set<std::size_t> not_waited_for;  ///< units whose gather compute has not waited for
    std::deque<std::size_t> reducing;      ///< units whose gradient slot may still be in use

    friend bool operator==(const Carry&, const Carry&) = default;
  };
  [[nodiscard]] const Carry& carry() const { return carry_; }

  /// Bytes that a training microbatch certainly has live at once (microbatch_memory.cpp); no op
  /// need be emitted.
  [[nodiscard]] Bytes most_live_activations();
  [[nodiscard]] Bytes most_gathered_weights() const;
  [[nodiscard]] Bytes most_full_gradients() const;
  /// The same of activations, by the parts of a stage's microbatch.
  struct PartsLive {
    Bytes forward;   ///< at most during forward
    Bytes saved;     ///< between forward and backward
    Bytes backward;  ///< at most during backward
  };
  [[nodiscard]] PartsLive live_of_parts();

  /// Units whose weights a microbatch certainly gathers, once for each gather: not those that the
  /// microbatch before has gathered for it.
  [[nodiscard]] std::vector<std::size_t> least_gathers() const;

  /// An op of the compute stream. Equal ones of several blocks have one recipe.
  struct SerialOp {
    const RecipeOp* recipe = nullptr;
    std::size_t owner = 0;  ///< embedding, blocks, head
    bool forward = false;
  };
  /// The ops of a training microbatch that no other op hides, in order.
  [[nodiscard]] std::vector<SerialOp> serial_ops() const;
  /// The kernel or collective of such an op in the first microbatch: its operands have sizes, and
  /// no buffers.
  [[nodiscard]] OpBody body_of(const RecipeOp& recipe) const;

 private:
  /// One pass over a unit: its ops in order.
  struct Use {
    std::size_t unit = 0;
    bool weights = true;
    std::size_t begin = 0;  ///< of steps_
    std::size_t end = 0;
  };
  /// An op, and the tensors whose lifetimes begin and end with it.
  struct Step {
    const RecipeOp* op = nullptr;
    std::size_t owner = 0;
    std::size_t unit = 0;
    std::vector<BufferId> tensors;  ///< by operand; meaningless for operands that are not tensors
    std::vector<BufferId> acquires;
    std::vector<BufferId> releases;
    // Collectives that kernels hide (exchanges.cpp). A run is a list of consecutive ones. Its
    // tensors begin with its first step, and tensors that only it reads end at the join.
    bool beside = false;
    std::size_t run = 0;                ///< its first step
    std::size_t joined_at = 0;          ///< the join: the step that waits for its end
    std::optional<std::size_t> ends{};  ///< at a join: the first step of the run
    std::vector<BufferId> released{};   ///< at a join: released before anything is acquired
  };
  /// The ops of a unit that write its gradient, as indices of steps_.
  struct GradientSpan {
    std::optional<std::size_t> first;
    std::size_t last = 0;
  };

  /// A tensor that is received or sent.
  struct Crossing {
    BufferId buffer{};
    std::size_t step = 0;  ///< received: the first step that reads it; sent: the step after which
    bool releases =
        true;  ///< sent: it ends when it has been sent; else backward reads it once more
    bool sent_on = false;  ///< received: it is sent, too, which ends it
  };

  void make_recipes(const FamilyRecipe& family);
  void make_communicators();
  void make_uses();
  void find_exchanges();
  [[nodiscard]] std::optional<std::size_t> join_of(std::size_t begin, std::size_t end,
                                                   std::size_t use_end) const;
  [[nodiscard]] std::string exchange_event(const char* when, std::size_t run) const;
  /// The name of a tensor's buffer.
  [[nodiscard]] std::string key_of(const Step& step, const RecipeOperand& operand) const;
  [[nodiscard]] std::vector<const RecipeOp*> late_gradients() const;
  void add_use(std::size_t owner, const std::vector<const RecipeOp*>& ops, bool weights);
  /// Computes the tables of activations, once; weights and gradients do not need them.
  void make_tensors();
  // The ends of a stage (stage_ends.cpp).
  [[nodiscard]] PipelinePart part_of(std::size_t step) const {
    if (step < backward_begin_) return PipelinePart::forward;
    return step < weights_begin_ ? PipelinePart::backward : PipelinePart::weight_gradients;
  }
  /// Ops of a backward part of which each computes a weight gradient that may come after all others.
  [[nodiscard]] std::vector<char> can_be_late(
      const std::vector<std::pair<std::size_t, const RecipeOp*>>& ops) const;
  void make_backward_uses(std::size_t lowest, std::size_t highest);
  /// The step after which the tensor is sent: the last one that touches it, or, where backward
  /// reads it once more, the last one of forward that writes it.
  [[nodiscard]] std::size_t sending_step(PipelinePart part, const std::string& key) const;
  [[nodiscard]] bool is_received(const std::string& key) const;
  void make_ends(const std::unordered_map<std::string, BufferId>& tensors,
                 const std::unordered_map<BufferId, std::size_t>& last_use);
  void rotate_kept(const std::unordered_map<BufferId, std::size_t>& last_use);
  [[nodiscard]] const Crossing* crossing(const std::vector<Crossing>& among, BufferId id) const;
  void send(const Crossing& tensor, PipelinePart part);
  void acquire(Phase phase, BufferId id);
  void release(Phase phase, BufferId id);
  [[nodiscard]] std::size_t lowest_trainable_owner() const;
  [[nodiscard]] std::size_t unit_of(std::size_t owner) const;
  [[nodiscard]] const UnitRecipe& recipe_of(std::size_t owner) const;
  [[nodiscard]] bool is_frozen(std::size_t unit, ParameterRole role) const;
  [[nodiscard]] bool trains(std::size_t unit) const;

  void emit_uses(std::size_t begin, std::size_t end, Position position, bool next_follows);
  void emit_use(std::size_t use, Position position);
  void emit_step(const Step& step, Position position);
  /// Emits the ops before a step: the join of exchanges, acquires, the start of exchanges.
  void begin_step(std::size_t number);
  void end_step(std::size_t number);
  [[nodiscard]] Kernel made_kernel(const Step& step, const RecipeKernel& recipe,
                                   Position position) const;
  [[nodiscard]] Collective made_collective(const Step& step, const RecipeCollective& recipe) const;
  /// The step's operand with that index.
  [[nodiscard]] Operand resolve(const Step& step, std::size_t number, bool adds) const;
  [[nodiscard]] Region weight_region(std::size_t unit, ParameterRole role) const;
  // Casts of weights to FP8, once a step (fp8_weights.cpp).
  void cast_weights();
  void gather_casts_once(const UnitState& unit);
  /// Before the unit's first use in a step: compute waits for casts that no use gathers.
  void await_casts(std::size_t unit);
  [[nodiscard]] Region cast_region(std::size_t unit, ParameterRole role) const;
  [[nodiscard]] BufferId gathered_casts(std::size_t unit, BufferId weights) const;
  [[nodiscard]] Region gradient_region(std::size_t unit, ParameterRole role) const;

  void change_residents(std::size_t weight_use, Position position);
  void gather(std::size_t unit, std::size_t weight_use, Position position);
  /// `stored`: of quantised weights, as they are sent.
  void gather_along(const AxisTraffic& on, const UnitState& unit, BufferId buffer,
                    std::optional<BufferId> stored);
  /// The transient buffer of a unit's gathered quantised weights, beside that of its weights.
  [[nodiscard]] std::optional<BufferId> stored_buffer(std::size_t unit, BufferId buffer) const;
  /// Makes quantised weights into those of the compute dtype, after their gather.
  void dequantise(const UnitState& unit, BufferId buffer, std::optional<BufferId> stored);
  void await_weights(std::size_t unit, Position position);
  [[nodiscard]] BufferId gathered_buffer(std::size_t unit, std::size_t weight_use) const;

  void begin_gradient(std::size_t unit, Position position);
  void zero_padding(const UnitState& unit, const GroupState& group);
  void reduce(std::size_t unit, Position position);
  void reduce_to_shard(const UnitState& unit, const GroupState& group, Position position);
  void exchange_and_sum(const UnitState& unit, const GroupState& group, Position position);
  void reduce_whole(const UnitState& unit, const GroupState& group);
  void finish_gradients(const UnitState& unit, const std::vector<const GroupState*>& groups);
  void reduce_over_groups(const UnitState& unit, const GroupState& group);
  void norm_partial(const UnitState& unit, const GroupState& group, StreamRole stream);
  /// Whether a unit's gradient begins before another's and ends after that has begun.
  [[nodiscard]] bool is_filled_during(std::size_t unit, std::size_t other) const;
  [[nodiscard]] bool is_tied(std::size_t unit) const;
  [[nodiscard]] BufferId gradient_slot(const GroupState& group) const;
  /// The output of weight-gradient kernels: the slot, or the main gradient itself.
  [[nodiscard]] BufferId gradient_buffer(const GroupState& group) const;
  /// The name of the unit, with a suffix for its second group with gradients.
  [[nodiscard]] std::string group_name(const UnitState& unit, const GroupState& group) const;

  [[nodiscard]] std::string event(const std::string& name) const;
  /// The name of a tensor's buffer, which a stage has of each chunk.
  [[nodiscard]] std::string buffer_name(const std::string& key, Source source) const;
  /// The resident units of every use of a microbatch (residency.hpp).
  [[nodiscard]] std::vector<std::vector<std::size_t>> residents(bool next_follows) const;

  Emitter& e_;
  const State& state_;
  const PlanConfig& config_;
  bool train_;
  UnitSpan span_;      // the units of the chunk
  std::size_t chunk_;  // of the stage

  std::vector<UnitRecipe> recipes_;        // embedding, first block, block kinds, head
  std::vector<std::size_t> block_recipe_;  // of each block, index into recipes_
  std::vector<Use> uses_;
  std::vector<Step> steps_;
  std::size_t forward_uses_ = 0;    // of a stage: those of its forward, which come first
  std::size_t backward_begin_ = 0;  // likewise, the first step of its backward
  std::size_t backward_uses_ = 0;   // all up to late weight gradients
  std::size_t weights_begin_ = std::numeric_limits<std::size_t>::max();  // the first step of these
  Ends ends_;
  std::vector<Crossing> received_;  // in the order in which they are received
  std::vector<Crossing> sent_;      // likewise
  bool tensors_made_ = false;
  std::vector<std::size_t> weight_uses_;  // units, in the order of uses that need weights
  std::vector<std::vector<std::size_t>> resident_;
  std::vector<GradientSpan> gradients_;  // per unit
  Carry carry_;
  Phase phase_ = Phase::forward;                // of the use that is being emitted
  bool gradient_begun_ = false;                 // a unit of this microbatch has begun its gradient
  std::set<std::size_t> fresh_waited_;          // units whose update was waited for in this step
  std::set<std::size_t> casts_not_waited_for_;  // units whose gathered casts compute has still to
                                                // wait for
};

}  // namespace mfsdp::schedule
