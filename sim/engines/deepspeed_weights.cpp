// The rules of DeepSpeedZeroOptimizer_Stage3 (deepspeed/runtime/zero/stage3.py, 0.19.6) in bf16, with
// reduce_scatter, its default:
//
//   weights    each parameter is sharded: ceil(elements / ranks) in bf16 on every rank, in one buffer.
//              Parameters of at most stage3_param_persistence_threshold elements are also whole on
//              every rank, and gathered after the optimizer. fp32 copies and FusedAdam's moments are
//              one tensor for each sub-group of sub_group_size elements of the rank's shards
//   gather     by module (deepspeed_coordinator.hpp). One parameter is gathered where it is used;
//              several are gathered into one buffer and copied out when the first of them is used
//   bucket     reduce_bucket_size elements in bf16, kept. A gradient is copied into it when it is made;
//              one that is larger stays where it is
//   reduction  when the next gradient does not fit: the gradients are joined, rank by rank, divided and
//              reduce-scattered. Shards are copied into, or added to, one buffer, which is kept
//   overlap_comm   gathers and reductions have streams of their own; without it their memory is the
//              compute stream's, which waits for reductions
//   host       waits for the gather, and the reduction, of three before; and for the GPU at the end of
//              each microbatch (its throughput timer)
//   optimizer  norms in fp64 copies; sub-group by sub-group: gradients become flat, then fp32
//
// The first two steps, in which DeepSpeed records the order of modules and prefetches nothing, are
// left out.
#include "sim/engines/deepspeed_weights.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/engines/block.hpp"
#include "sim/engines/deepspeed_coordinator.hpp"
#include "sim/engines/deepspeed_parts.hpp"
#include "sim/engines/llama_ends.hpp"
#include "sim/engines/parameter_order.hpp"

namespace mfsdp {
namespace {

using enum StreamRole;

struct ShardedParameter {
  ParameterPlace place;
  Weight weight;
  std::int64_t shard = 0;  ///< elements, padded
  std::optional<Tensor> whole{};
  std::optional<Tensor> gradient{};

  [[nodiscard]] std::int64_t elements() const { return weight.elements(); }
};

/// Parameters that one collective gathers.
struct Gather {
  std::vector<std::size_t> parameters;
  std::optional<Tensor> joined{};  ///< of several parameters, until the last of them is used
  bool is_copied = false;
  std::size_t used = 0;
  Mark done{};
};

/// A module of the trace: a kernel of forward, or the kernels of its backward.
struct ModuleCall {
  std::size_t unit = 0;
  std::string_view name;
};

class DeepSpeedWeights {
 public:
  DeepSpeedWeights(const PlanConfig& config, const Meta& meta, const EngineOptions& options)
      : config_(config),
        ranks_(config.mesh.size(Axis::dp_shard)),
        bucket_size_(number(options, "reduce_bucket_size")),
        sub_group_size_(number(options, "sub_group_size")),
        threshold_(number(options, "stage3_param_persistence_threshold")),
        overlaps_(options.is_on(EngineKind::deepspeed_zero3, "overlap_comm")),
        contiguous_(options.is_on(EngineKind::deepspeed_zero3, "contiguous_gradients")),
        step_(config, meta),
        units_(add_units()),
        parameters_(sharded_parameters()),
        coordinator_(coordinated(), trace(),
                     {.prefetch_bucket = number(options, "stage3_prefetch_bucket_size"),
                      .live_parameters = number(options, "stage3_max_live_parameters"),
                      .reuse_distance = number(options, "stage3_max_reuse_distance")}),
        block_(eager_block(step_, config_, {.made = [this](Tensor tensor) { made(tensor); }})),
        ends_(step_, config_, eager_functions(step_, config_),
              [this](Tensor tensor) { made(tensor); }) {
    for (const ParameterPlace place : ready_order(config_.model)) ready_.push_back(index_of(place));
    if (overlaps_) step_.add_spare_stream("gathers");
  }

  EnginePlan run() {
    set_up();
    step_.around_kernels(
        [this](const Kernel& kernel, bool is_before) { around(kernel, is_before); });
    step_.write_segments([this](Turn turn) { microbatch(turn); }, [this] { optimizer(); });
    for (const ShardedParameter& parameter : parameters_)
      step_.add_padding(parameter.shard * ranks_ - parameter.elements());
    return step_.finish();
  }

 private:
  [[nodiscard]] static std::int64_t number(const EngineOptions& options, OptionWord word) {
    return options.number(EngineKind::deepspeed_zero3, word);
  }

  // ---- Parameters and the order of modules -------------------------------------------------

  std::vector<UnitId> add_units() {
    std::vector<UnitId> units{step_.add_unit("root", UnitKind::embedding_and_head)};
    for (std::int64_t layer = 0; layer < config_.model.layers; ++layer)
      units.push_back(step_.add_unit("layers." + std::to_string(layer), UnitKind::block));
    return units;
  }

  [[nodiscard]] std::vector<ShardedParameter> sharded_parameters() const {
    std::vector<ShardedParameter> parameters;
    for (const ParameterPlace place : module_order(config_.model)) {
      const Weight weight = weight_at(config_.model, place);
      parameters.push_back(
          {.place = place, .weight = weight, .shard = (weight.elements() + ranks_ - 1) / ranks_});
    }
    return parameters;
  }

  [[nodiscard]] bool is_persistent(const ShardedParameter& parameter) const {
    return parameter.elements() <= threshold_;
  }

  [[nodiscard]] std::vector<DeepSpeedCoordinator::Parameter> coordinated() const {
    std::vector<DeepSpeedCoordinator::Parameter> all;
    for (const ShardedParameter& parameter : parameters_)
      all.push_back({.elements = parameter.elements(), .is_persistent = is_persistent(parameter)});
    return all;
  }

  [[nodiscard]] std::size_t index_of(ParameterPlace place) const {
    std::size_t index = 0;
    while (parameters_[index].place != place) ++index;
    return index;
  }

  /// The parameters of a module; a GEMM's bias is one of its parameters.
  [[nodiscard]] DeepSpeedCoordinator::Call parameters_of(const ModuleCall& module) const {
    DeepSpeedCoordinator::Call call;
    const bool is_tied_head = module.name == "head" && config_.model.tied_embeddings;
    const std::string own(is_tied_head ? "embedding" : module.name);
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (parameters_[i].place.unit == module.unit &&
          (parameters_[i].weight.name == own || parameters_[i].weight.name == own + "_bias"))
        call.push_back(i);
    return call;
  }

  [[nodiscard]] std::vector<DeepSpeedCoordinator::Call> trace() const {
    constexpr std::array<std::string_view, 6> kForward{"norm1", "qkv",     "out",
                                                       "norm2", "gate_up", "down"};
    constexpr std::size_t kRecomputed = 5;  // all but the last GEMM
    std::vector<DeepSpeedCoordinator::Call> calls;
    const auto add = [&](std::size_t unit, std::string_view name) {
      calls.push_back(parameters_of({.unit = unit, .name = name}));
    };
    const auto add_container = [&] { calls.emplace_back(); };
    add_container();  // the model itself
    add(0, "embedding");
    for (std::size_t unit = 1; unit < units_.size(); ++unit) {
      add_container();
      for (const std::string_view name : kForward) add(unit, name);
    }
    add(0, "norm");
    add(0, "head");
    add_container();
    add(0, "head");
    add(0, "norm");
    for (std::size_t unit = units_.size(); unit-- > 1;) {
      add_container();
      if (config_.recompute.kind == Recompute::full)
        for (std::size_t i = 0; i < kRecomputed; ++i) add(unit, kForward.at(i));
      for (std::size_t i = kForward.size(); i-- > 0;) add(unit, kForward.at(i));
    }
    add(0, "embedding");
    return calls;
  }

  // ---- Before the first step ---------------------------------------------------------------

  void at_root(Phase phase) { step_.at(units_.front(), phase); }

  void set_up() {
    std::vector<Tensor> shards;
    std::int64_t own = 0;
    std::int64_t persistent = 0;
    for (const ShardedParameter& parameter : parameters_) {
      step_.at(units_[parameter.place.unit], Phase::input);
      shards.push_back(step_.once(parameter.weight.name + "_initial", parameter.shard * kHalf,
                                  Category::model_weight));
      own += parameter.shard;
      if (is_persistent(parameter)) persistent += parameter.elements();
    }
    at_root(Phase::input);
    for (const Tensor shard : shards) step_.free_once(shard);
    step_.empty_cache();  // the shards move to one buffer by way of the host
    step_.keep("weights", own * kHalf, Category::model_weight);
    add_sub_groups();
    std::int64_t largest = 0;
    for (const std::int64_t elements : sub_groups_) {
      const Tensor converted = step_.once("converted", elements * kFull, Category::main_weight);
      step_.keep("main_weights", elements * kFull, Category::main_weight);
      step_.free_once(converted);
      largest = std::max(largest, elements);
    }
    step_.free_once(step_.once("zero_gradients", largest * kFull, Category::main_grad));
    if (contiguous_) step_.keep("reduce_bucket", bucket_size_ * kHalf, Category::unsharded_grad);
    step_.keep("gradient_shards", own * kHalf, Category::main_grad);
    // Hooks are registered on gathered parameters, one by one.
    for (const ShardedParameter& parameter : parameters_)
      step_.free_once(step_.once(parameter.weight.name + "_for_hook",
                                 parameter.shard * ranks_ * kHalf, Category::unsharded_weight));
    if (persistent > 0)
      step_.keep("persistent_weights", persistent * kHalf, Category::unsharded_weight);
    ends_.keep_inputs();
  }

  /// A sub-group ends with the parameter that fills it.
  void add_sub_groups() {
    std::int64_t open = 0;
    for (const ShardedParameter& parameter : parameters_) {
      open += parameter.shard;
      if (open >= sub_group_size_) sub_groups_.push_back(std::exchange(open, 0));
    }
    if (open > 0) sub_groups_.push_back(open);
  }

  // ---- Gathers -----------------------------------------------------------------------------

  /// The stream on which gathers are issued, copied out and allocated. NCCL has one of its own.
  [[nodiscard]] StreamRole gathering() const { return overlaps_ ? outer : compute; }

  /// The hooks of the module that a kernel belongs to.
  void around(const Kernel& kernel, bool is_before) {
    using enum KernelKind;
    const auto gemm_kind = kernel.find_attribute("kind");
    const auto is_gemm = [&](GemmKind kind) {
      return kernel.kind == gemm && gemm_kind != nullptr &&
             gemm_kind->value == Rational{number_of(kind), 1};
    };
    const bool forward = is_gemm(GemmKind::forward) || kernel.kind == rms_norm_forward ||
                         kernel.kind == embedding_forward;
    const bool begins = forward || is_gemm(GemmKind::weight_gradient) ||
                        kernel.kind == rms_norm_backward || kernel.kind == embedding_backward;
    const bool ends = forward || is_gemm(GemmKind::input_gradient) ||
                      kernel.kind == norm_weight_grad || kernel.kind == embedding_backward;
    if (is_before && begins) fetch();
    if (!is_before && ends) release(current_);
  }

  void fetch() {
    step_.host_work(kDeepSpeedFetch);
    step_.launch_by(Launcher::hook);
    current_ = coordinator_.call(coordinator_.calls());
    const DeepSpeedCoordinator::Fetched fetched = coordinator_.fetch();
    gather(fetched.now);
    for (const std::size_t parameter : current_) use(parameter);
    if (overlaps_) step_.wait(compute, step_.record(gathering()));
    gather(fetched.ahead);
    step_.launch_by(Launcher::operators);
  }

  void gather(const std::vector<std::size_t>& parameters) {
    if (parameters.empty()) return;
    step_.host_work(kDeepSpeedGather);
    std::int64_t own = 0;
    for (const std::size_t i : parameters) own += parameters_[i].shard;
    const Tensor whole =
        step_.allocate("gathered", own * ranks_ * kHalf, Category::unsharded_weight, gathering());
    Gather made;
    made.parameters = parameters;
    if (parameters.size() == 1) {
      parameters_[parameters.front()].whole = whole;
      made.is_copied = true;
    } else {
      made.joined = whole;
      step_.memory_bound(KernelKind::cast, "join_shards", 2 * own * kHalf, gathering());
    }
    step_.wait(all_gather, step_.record(gathering()));
    step_.collective(CollectiveKind::all_gather, "all_gather", own, DType::bf16);
    made.done = step_.record(all_gather);
    for (const std::size_t i : parameters) in_flight_[i] = gathers_.size();
    gathers_.push_back(std::move(made));
  }

  /// Waits for the gather of a parameter, if it was not used since.
  void use(std::size_t parameter) {
    const auto found = in_flight_.find(parameter);
    if (found == in_flight_.end()) return;
    Gather& of = gathers_[found->second];
    in_flight_.erase(found);
    step_.host_work(kDeepSpeedUse);
    wait_for_earlier(gathered_);
    step_.wait(gathering(), of.done);
    if (!std::exchange(of.is_copied, true))
      for (const std::size_t i : of.parameters) {
        const std::int64_t bytes = parameters_[i].elements() * kHalf;
        parameters_[i].whole = step_.allocate(parameters_[i].weight.name + "_gathered", bytes,
                                              Category::unsharded_weight, gathering());
        step_.memory_bound(KernelKind::cast, parameters_[i].weight.name + "_copy_out", 2 * bytes,
                           gathering());
      }
    gathered_.push_back(step_.record(gathering()));
    if (++of.used == of.parameters.size() && of.joined) step_.free(*of.joined);
  }

  /// Three gathers are in flight at most, and three reductions.
  void wait_for_earlier(std::deque<Mark>& marks) {
    constexpr std::size_t kInFlight = 2;  // beside the one that is waited for
    if (marks.size() <= kInFlight) return;
    step_.host_wait(marks.front());
    marks.pop_front();
  }

  void release(const DeepSpeedCoordinator::Call& call) {
    step_.host_work(kDeepSpeedRelease);
    for (const std::size_t i : coordinator_.release(call)) {
      step_.host_work(kDeepSpeedFree);
      step_.free_after(*std::exchange(parameters_[i].whole, std::nullopt), compute);
    }
  }

  // ---- A microbatch ------------------------------------------------------------------------

  void microbatch(Turn turn) {
    turn_ = turn;
    coordinator_.reset();
    gathers_.clear();
    gathered_.clear();
    reduced_.clear();
    at_root(Phase::forward);
    step_.wait(gathering(), step_.record(compute));  // gathers read what the optimizer has written
    fetch();                                         // of the model itself
    std::vector<Tensor> states{ends_.embed()};
    for (std::size_t layer = 0; layer + 1 < units_.size(); ++layer) {
      step_.at(units_[layer + 1], Phase::forward);
      fetch();  // of the block itself
      states.push_back(block_->forward(layer, states.back()));
      release({});
    }
    at_root(Phase::forward);
    ends_.forward();
    release({});
    backward(states);
  }

  void backward(const std::vector<Tensor>& states) {
    next_ready_ = 0;
    skips_head_ = config_.model.tied_embeddings;
    at_root(Phase::backward);
    fetch();
    ends_.begin_backward();
    const LlamaEnds::Gradients head = ends_.backward(states.back());
    Tensor gradient = head.state;
    for (std::size_t layer = units_.size() - 1; layer-- > 0;) {
      step_.at(units_[layer + 1], Phase::backward);
      fetch();
      gradient = block_->backward(layer, states[layer], gradient).input;
      release({});
    }
    at_root(Phase::backward);
    const std::vector<Tensor> gradients = ends_.embedding_backward(gradient, head);
    if (config_.model.tied_embeddings) made(gradients.front());
    ends_.finish();
    reduce_bucket();
    step_.host_wait(step_.record(reduce_scatter));
    step_.wait(compute, step_.record(reduce_scatter));
    if (!turn_.last) step_.host_wait(step_.record(compute));
  }

  // ---- Gradients ---------------------------------------------------------------------------

  [[nodiscard]] StreamRole reducing() const { return overlaps_ ? reduce_scatter : compute; }

  /// The hook of the next parameter. A tied head's gradient is a part of the embedding's.
  void made(Tensor gradient) {
    if (std::exchange(skips_head_, false)) return;
    const std::size_t index = ready_[next_ready_++];
    ShardedParameter& parameter = parameters_[index];
    const std::int64_t elements = parameter.elements();
    step_.host_work(kDeepSpeedGradient);
    if (filled_ + elements > bucket_size_ && filled_ > 0) reduce_bucket();
    if (overlaps_) step_.wait(reduce_scatter, step_.record(compute));
    if (contiguous_ && elements <= bucket_size_) {
      step_.memory_bound(KernelKind::cast, parameter.weight.name + "_to_bucket",
                         2 * elements * kHalf, reducing());
      step_.free_after(gradient, reducing());
    } else {
      parameter.gradient = gradient;
    }
    bucket_.push_back(index);
    filled_ += elements;
  }

  void reduce_bucket() {
    if (bucket_.empty()) return;
    const Phase before = step_.phase();
    step_.set_phase(Phase::reduce);
    step_.host_work(kReduceHook);
    wait_for_earlier(reduced_);
    std::int64_t own = 0;
    for (const std::size_t i : bucket_) own += parameters_[i].shard;
    std::optional<Tensor> joined;
    const bool is_in_place = bucket_.size() == 1 && filled_ % ranks_ == 0;
    if (!is_in_place) {
      joined = step_.allocate("joined_gradients", own * ranks_ * kHalf, Category::unsharded_grad,
                              reducing());
      step_.memory_bound(KernelKind::cast, "join_gradients",
                         {2 * own * ranks_ * kHalf, AccessPattern::strided}, reducing());
    }
    step_.memory_bound(KernelKind::accumulate, "divide", 2 * own * ranks_ * kHalf, reducing());
    if (!overlaps_) step_.wait(reduce_scatter, step_.record(compute));
    step_.collective(CollectiveKind::reduce_scatter, "reduce_scatter", own, DType::bf16);
    if (!overlaps_) step_.wait(compute, step_.record(reduce_scatter));
    const std::int64_t operands = turn_.first ? 2 : 3;
    for (const std::size_t i : bucket_) {
      step_.memory_bound(turn_.first ? KernelKind::cast : KernelKind::accumulate,
                         parameters_[i].weight.name + "_shard",
                         operands * parameters_[i].shard * kHalf, reducing());
      if (parameters_[i].gradient)
        step_.free_after(*std::exchange(parameters_[i].gradient, std::nullopt), reducing());
    }
    if (joined) step_.free(*joined);
    reduced_.push_back(step_.record(reducing()));
    bucket_.clear();
    filled_ = 0;
    step_.set_phase(before);
  }

  // ---- Optimizer ---------------------------------------------------------------------------

  void optimizer() {
    at_root(Phase::optimizer);
    step_.launch_by(Launcher::hook);
    step_.host_work(static_cast<HostLaunches>(parameters_.size()) * kDeepSpeedOptimizerParameter);
    for (const ShardedParameter& parameter : parameters_) {
      const Tensor wide =
          step_.allocate("gradient_fp64", parameter.shard * kNormElement, Category::workspace);
      step_.memory_bound(
          KernelKind::cast, "gradient_fp64",
          Traffic::at_share(parameter.shard * (kHalf + kNormElement), kShareOfWideCasts));
      step_.memory_bound(KernelKind::norm_partial, "gradient_norm", parameter.shard * kNormElement);
      step_.free(wide);
    }
    for (const std::int64_t elements : sub_groups_) update(elements);
    gather_persistent();
    step_.launch_by(Launcher::operators);
  }

  /// One by one, after the host has waited for the update.
  void gather_persistent() {
    step_.host_wait(step_.record(compute));
    step_.wait(all_gather, step_.record(compute));
    for (const ShardedParameter& parameter : parameters_)
      if (is_persistent(parameter))
        step_.collective(CollectiveKind::all_gather, "gather_persistent", parameter.shard,
                         DType::bf16);
    step_.wait(compute, step_.record(all_gather));
  }

  void update(std::int64_t elements) {
    const Tensor flat = step_.allocate("flat_gradients", elements * kHalf, Category::main_grad);
    step_.memory_bound(KernelKind::cast, "flatten", 2 * elements * kHalf);
    const Tensor wide = step_.allocate("gradients_fp32", elements * kFull, Category::main_grad);
    step_.memory_bound(KernelKind::cast, "widen", elements * (kHalf + kFull));
    step_.free(flat);
    step_.memory_bound(KernelKind::accumulate, "unscale", 2 * elements * kFull);
    for (const char* moment : {"exp_avg", "exp_avg_sq"})
      step_.keep(moment, elements * kFull, Category::optimizer_state);
    constexpr std::int64_t kUpdate = 7 * kFull;  // reads all four, writes all but the gradient
    step_.memory_bound(KernelKind::update, "adam",
                       Traffic::at_share(elements * kUpdate, kShareOfUpdate));
    step_.memory_bound(KernelKind::cast, "to_weights", elements * (kFull + kHalf));
    step_.free(wide);
  }

  PlanConfig config_;
  std::int64_t ranks_;
  std::int64_t bucket_size_;     ///< elements
  std::int64_t sub_group_size_;  ///< elements of this rank
  std::int64_t threshold_;       ///< elements of the largest persistent parameter
  bool overlaps_;
  bool contiguous_;
  StepBuilder step_;
  std::vector<UnitId> units_;                 ///< root and blocks
  std::vector<ShardedParameter> parameters_;  ///< in the order of modules
  DeepSpeedCoordinator coordinator_;
  std::unique_ptr<LlamaBlock> block_;
  LlamaEnds ends_;
  std::vector<std::int64_t> sub_groups_{};  ///< elements of this rank
  std::vector<std::size_t> ready_{};        ///< parameters as backward makes gradients
  std::size_t next_ready_ = 0;
  bool skips_head_ = false;
  Turn turn_{};
  std::vector<Gather> gathers_{};                   ///< of this microbatch
  std::map<std::size_t, std::size_t> in_flight_{};  ///< gather by parameter
  DeepSpeedCoordinator::Call current_{};            ///< of the module that runs
  std::deque<Mark> gathered_{};                     ///< gathers that the host has not waited for
  std::deque<Mark> reduced_{};                      ///< likewise reductions
  std::vector<std::size_t> bucket_{};
  std::int64_t filled_ = 0;
};

}  // namespace

EnginePlan deepspeed_weights_plan(const PlanConfig& config, const Meta& meta,
                                  const EngineOptions& options) {
  return DeepSpeedWeights(config, meta, options).run();
}

}  // namespace mfsdp
