// The rules of torch.nn.parallel.DistributedDataParallel, find_unused_parameters=False:
//
//   weights    fp32 and whole on every rank, and so are gradients and AdamW's states. The constructor
//              broadcasts the weights in flat copies of 250 MiB, two at a time
//   buckets    flat copies of the gradients, kept. The constructor makes one bucket of all parameters.
//              Before the second forward it is replaced by buckets in the order in which gradients
//              became ready: the first of 1 MiB, the others of bucket_cap_mb. ProcessGroupNCCL holds
//              the memory of an asynchronous collective until the next collective, so the first
//              bucket lives until the second backward reduces (measured, PyTorch 2.11)
//   hook       of a parameter, after its gradient was added: the gradient, divided by the ranks, is
//              copied into its bucket. A full bucket is all-reduced in fp32, in their order
//   end        backward waits for all reductions; then each gradient is copied out of its bucket
//   gradient_as_bucket_view
//              the gradient becomes a view of the bucket at the hook, and is never copied back
//   no_sync    microbatches before the last only add gradients
#include "sim/engines/ddp.hpp"

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/engines/adamw.hpp"
#include "sim/engines/autocast_model.hpp"
#include "sim/engines/ddp_buckets.hpp"

namespace mfsdp {
namespace {

using enum StreamRole;

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
constexpr std::int64_t kFirstBucket = kMebibyte;
constexpr std::int64_t kBroadcastBucket = 250 * kMebibyte;
constexpr std::size_t kBroadcastsInFlight = 2;

struct DdpParameter {
  Weight weight;
  std::optional<Tensor> gradient{};
  std::size_t bucket = 0;

  [[nodiscard]] std::int64_t bytes() const { return weight.elements() * kFull; }
};

struct DdpBucket {
  std::vector<ParameterPlace> parameters;
  std::int64_t bytes = 0;
  std::size_t ready = 0;
  std::optional<Mark> reduced{};
};

/// When the constructor's bucket is replaced.
enum class Replaced { no, in_first_step, in_second_step };

class Ddp {
 public:
  Ddp(const PlanConfig& config, const Meta& meta, const EngineOptions& options)
      : config_(config),
        cap_(checked_mul(options.number(EngineKind::ddp, "bucket_cap_mb"), kMebibyte)),
        is_default_cap_(!options.has("bucket_cap_mb")),
        views_(options.is_on(EngineKind::ddp, "gradient_as_bucket_view")),
        no_sync_(options.is_on(EngineKind::ddp, "no_sync")),
        step_(config, meta),
        units_(add_units()),
        model_(step_, config_, units_,
               [this](ParameterPlace place, Tensor gradient) { made(place, gradient); }),
        order_(module_order(config_.model)) {}

  EnginePlan run() {
    set_up();
    step_.write_segments([this](Turn turn) { microbatch(turn); }, [this] { optimizer(); },
                         no_sync_);
    return step_.finish();
  }

 private:
  // ---- Before the first step ---------------------------------------------------------------

  std::vector<UnitId> add_units() {
    std::vector<UnitId> units{step_.add_unit("root", UnitKind::embedding_and_head)};
    for (std::int64_t layer = 0; layer < config_.model.layers; ++layer)
      units.push_back(step_.add_unit("layers." + std::to_string(layer), UnitKind::block));
    return units;
  }

  void set_up() {
    for (const ParameterPlace place : order_) {
      const Weight weight = weight_at(config_.model, place);
      step_.at(units_[place.unit], Phase::input);
      parameters_[place] = {.weight = weight};
      step_.keep(weight.name + "_weight", weight.elements() * kFull, Category::main_weight);
      elements_ += weight.elements();
    }
    step_.at(units_[0], Phase::input);
    broadcast_weights();
    first_bucket_ = step_.once("bucket_of_all", elements_ * kFull, Category::main_grad);
    make_buckets();
    model_.keep_inputs();
  }

  /// A bucket of one weight is sent from the weight itself.
  void broadcast_weights() {
    std::vector<std::int64_t> bytes;
    for (const ParameterPlace place : order_) bytes.push_back(parameters_.at(place).bytes());
    std::deque<std::optional<Tensor>> in_flight;
    const auto end_first = [&] {
      if (in_flight.front()) step_.free_once(*in_flight.front());
      in_flight.pop_front();
    };
    for (const std::vector<std::size_t>& sent :
         ddp_buckets(bytes, kBroadcastBucket, kBroadcastBucket)) {
      if (in_flight.size() == kBroadcastsInFlight) end_first();
      std::int64_t size = 0;
      for (const std::size_t i : sent) size += bytes[i];
      in_flight.emplace_back();
      if (sent.size() > 1)
        in_flight.back() = step_.once("broadcast", size, Category::unsharded_weight);
    }
    while (!in_flight.empty()) end_first();
  }

  void make_buckets() {
    const std::vector<ParameterPlace> order = ready_order(config_.model);
    std::vector<std::int64_t> bytes;
    for (const ParameterPlace place : order) bytes.push_back(parameters_.at(place).bytes());
    for (const auto& positions : ddp_buckets(bytes, is_default_cap_ ? kFirstBucket : cap_, cap_)) {
      DdpBucket& bucket = buckets_.emplace_back();
      for (const std::size_t i : positions) {
        bucket.parameters.push_back(order[i]);
        bucket.bytes += bytes[i];
        parameters_.at(order[i]).bucket = buckets_.size() - 1;
      }
    }
  }

  /// By the buckets of all later backwards.
  void replace_first_bucket(bool in_second_step) {
    replaced_ = in_second_step ? Replaced::in_second_step : Replaced::in_first_step;
    step_.at(units_[0], Phase::input);
    step_.keep_in_second_step(in_second_step);
    for (const DdpBucket& bucket : buckets_)
      step_.keep("bucket", bucket.bytes, Category::main_grad);
    step_.keep_in_second_step(false);
  }

  /// The next collective has released what the one before held.
  void free_first_bucket() {
    if (replaced_ == Replaced::no || !first_bucket_) return;
    step_.keep_in_second_step(replaced_ == Replaced::in_second_step);
    step_.free_once(*std::exchange(first_bucket_, std::nullopt));
    step_.keep_in_second_step(false);
  }

  // ---- A microbatch ------------------------------------------------------------------------

  void microbatch(Turn turn) {
    turn_ = turn;
    // The buckets are replaced before the first forward after a reduction.
    const bool in_first_step = config_.microbatches > 1 && !no_sync_;
    if (replaced_ == Replaced::no && turn.first != in_first_step)
      replace_first_bucket(!in_first_step);
    model_.forward();
    model_.backward();
    if (syncs()) finish_reductions();
  }

  [[nodiscard]] bool syncs() const { return turn_.last || !no_sync_; }

  /// A weight's gradient is there: it is added to those of earlier microbatches, and its hook runs.
  void made(ParameterPlace place, Tensor gradient) {
    DdpParameter& parameter = parameters_.at(place);
    const std::string& name = parameter.weight.name;
    if (turn_.first) {
      parameter.gradient = gradient;
    } else {
      step_.memory_bound(KernelKind::accumulate, name + "_accumulate", 3 * parameter.bytes());
      step_.free(gradient);
    }
    if (!syncs()) return;
    step_.launch_by(Launcher::hook);
    step_.memory_bound(KernelKind::cast, name + "_to_bucket", 2 * parameter.bytes());
    if (views_ && parameter.gradient) step_.free(*std::exchange(parameter.gradient, std::nullopt));
    reduce_full(parameter.bucket);
    step_.launch_by(Launcher::operators);
  }

  void reduce_full(std::size_t filled) {
    DdpBucket& of = buckets_[filled];
    if (++of.ready < of.parameters.size()) return;
    const Phase before = step_.phase();
    step_.set_phase(Phase::reduce);
    step_.wait(reduce_scatter, step_.record(compute));
    step_.collective(CollectiveKind::all_reduce, "all_reduce", of.bytes / kFull, DType::fp32);
    of.reduced = step_.record(reduce_scatter);
    free_first_bucket();
    step_.set_phase(before);
  }

  void finish_reductions() {
    step_.at(units_[0], Phase::reduce);
    step_.launch_by(Launcher::hook);
    for (DdpBucket& bucket : buckets_) {
      step_.wait(compute, *std::exchange(bucket.reduced, std::nullopt));
      bucket.ready = 0;
      if (views_) continue;
      for (const ParameterPlace place : bucket.parameters) {
        const DdpParameter& parameter = parameters_.at(place);
        step_.memory_bound(KernelKind::cast, parameter.weight.name + "_from_bucket",
                           2 * parameter.bytes());
      }
    }
    step_.launch_by(Launcher::operators);
  }

  // ---- Optimizer ---------------------------------------------------------------------------

  void optimizer() {
    for (const ParameterPlace place : order_) {
      const Weight& weight = parameters_.at(place).weight;
      keep_adamw_state(step_, {units_[place.unit], weight.name, weight.elements()});
    }
    step_.at(units_[0], Phase::optimizer);
    update_weights(step_, config_, elements_, order_.size());
    for (const ParameterPlace place : order_)
      if (const auto& gradient = parameters_.at(place).gradient) step_.free(*gradient);
  }

  PlanConfig config_;
  std::int64_t cap_;  ///< bytes of a bucket
  bool is_default_cap_;
  bool views_;
  bool no_sync_;
  StepBuilder step_;
  std::vector<UnitId> units_;  ///< root and blocks
  AutocastModel model_;
  std::vector<ParameterPlace> order_;  ///< of modules
  std::map<ParameterPlace, DdpParameter> parameters_{};
  std::int64_t elements_ = 0;
  std::optional<Tensor> first_bucket_{};  ///< the constructor's, while it lives
  Replaced replaced_ = Replaced::no;
  std::vector<DdpBucket> buckets_{};
  Turn turn_{};
};

}  // namespace

EnginePlan ddp_plan(const PlanConfig& config, const Meta& meta, const EngineOptions& options) {
  return Ddp(config, meta, options).run();
}

}  // namespace mfsdp
