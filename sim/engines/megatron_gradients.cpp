#include "sim/engines/megatron_gradients.hpp"

#include <string>

namespace mfsdp {
namespace {

using enum StreamRole;

constexpr std::size_t kSlots = 2;  // of the pool

}  // namespace

MegatronGradients::MegatronGradients(StepBuilder& step, const PlanConfig& config,
                                     const FlatUnits& units, std::int64_t capacity, bool pools)
    : step_(step),
      units_(units),
      type_(config.reduce_dtype),
      wire_(size_of(config.reduce_dtype)),
      gradient_type_(size_of(config.grad_dtype)),
      capacity_(capacity),
      pools_(pools),
      in_main_(config.strategy == Strategy::optim),
      outer_(config.mesh.size(Axis::dp_outer) > 1),
      buckets_(units.blocks.size() + 1) {}

void MegatronGradients::take(Tensor gradient) {
  Bucket& bucket = buckets_[filled_];
  leave_slots(filled_);
  if (!bucket.buffer && !in_main_) bucket.buffer = buffer_of(filled_);
  const std::int64_t bytes = step_.bytes_of(gradient);
  step_.memory_bound(KernelKind::cast, "copy_gradient", bytes + bytes / kHalf * wire_);
  step_.free(gradient);
  if (++bucket.ready == unit_of(filled_).weights.size()) reduce(filled_);
}

Tensor MegatronGradients::buffer_of(std::size_t unit) {
  const std::int64_t bytes = unit_of(unit).whole() * wire_;
  if (!pooled(unit)) return step_.allocate("gradients", bytes, Category::unsharded_grad);
  if (slots_.size() < kSlots)
    slots_.push_back(step_.keep("gradient_buffer", bytes, Category::unsharded_grad));
  return slots_.front();  // which of the two it is has no effect here
}

void MegatronGradients::reduce(std::size_t unit) {
  const FlatUnit& of = unit_of(unit);
  const Phase before = step_.phase();
  step_.set_phase(Phase::reduce);
  step_.host_work(kMegatronReduceHook);
  drain(capacity_);
  leave_slots(unit);
  step_.wait(reduce_scatter, step_.record(compute));
  // NCCL itself scales fp32.
  if (wire_ == kHalf)
    step_.memory_bound(KernelKind::accumulate, "scale_gradients", 2 * of.whole() * wire_,
                       reduce_scatter);
  step_.collective(CollectiveKind::reduce_scatter, "reduce_scatter", of.shard(), type_);
  step_.memory_bound(KernelKind::accumulate, "add_gradients",
                     of.shard() * (wire_ + 2 * gradient_type_), reduce_scatter);
  Mark done = step_.record(reduce_scatter);
  if (outer_) {
    step_.wait(StreamRole::outer, done);
    step_.reduce_outer("outer_reduce", of.shard(), type_, StreamRole::outer);
    done = step_.record(StreamRole::outer);
  }
  queue_.push_back({.unit = unit, .done = done});
  step_.set_phase(before);
}

/// Waits until the remaining reductions have at most `elements` elements.
void MegatronGradients::drain(std::int64_t elements) {
  std::int64_t held = 0;
  for (const Reduction& reduction : queue_) held += unit_of(reduction.unit).whole();
  while (!queue_.empty() && held > elements) {
    held -= unit_of(queue_.front().unit).whole();
    step_.wait(compute, queue_.front().done);
    free_oldest();
  }
}

void MegatronGradients::free_oldest() {
  const std::size_t freed = queue_.front().unit;
  if (!pooled(freed) && !in_main_) step_.free(*buckets_[freed].buffer);
  buckets_[freed] = {};
  queue_.pop_front();
}

/// At most two blocks have gradients in flight, including the one that is being filled. The wait is
/// only for the stream of reductions.
void MegatronGradients::leave_slots(std::size_t filled) {
  if (!pools_) return;
  const std::size_t others = filled == kRoot ? kSlots : kSlots - 1;
  while (queue_.size() > others) free_oldest();
}

}  // namespace mfsdp
