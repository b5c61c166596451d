// Gradients of Megatron-FSDP v1 between backward and the main gradients. Each gradient of a unit is
// copied into one buffer as soon as it exists; with the last one the buffer is reduced in place.
// With ZeRO-1 that buffer is a part of the unsharded main gradients. In HSDP the rank's shard is
// summed along the outer axis.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "sim/engines/megatron_units.hpp"

namespace mfsdp {

class MegatronGradients {
 public:
  /// `capacity`: elements that buffers with a reduction in flight may have before the next one is
  /// reduced. With `pools`, blocks share two buffers, which are kept.
  MegatronGradients(StepBuilder& step, const PlanConfig& config, const FlatUnits& units,
                    std::int64_t capacity, bool pools);

  static constexpr std::size_t kRoot = 0;
  [[nodiscard]] static constexpr std::size_t of_block(std::size_t layer) { return layer + 1; }

  /// Sets the unit whose gradients follow.
  void begin(std::size_t unit) { filled_ = unit; }
  /// Copies one gradient, and frees it.
  void take(Tensor gradient);
  /// The compute stream waits for all reductions.
  void finish() { drain(-1); }

 private:
  struct Bucket {
    std::optional<Tensor> buffer{};
    std::size_t ready = 0;  ///< gradients that are there
  };
  struct Reduction {
    std::size_t unit = 0;
    Mark done;
  };

  [[nodiscard]] const FlatUnit& unit_of(std::size_t unit) const {
    return unit == kRoot ? units_.root : units_.blocks[unit - 1];
  }
  [[nodiscard]] bool pooled(std::size_t unit) const { return pools_ && unit != kRoot; }
  Tensor buffer_of(std::size_t unit);
  void reduce(std::size_t unit);
  void drain(std::int64_t elements);
  void free_oldest();
  void leave_slots(std::size_t filled);

  StepBuilder& step_;
  const FlatUnits& units_;
  DType type_;
  std::int64_t wire_;           ///< bytes of an element in reductions
  std::int64_t gradient_type_;  ///< bytes of an element of the main gradients
  std::int64_t capacity_;
  bool pools_;
  bool in_main_;  ///< gradients are copied directly into the main ones
  bool outer_;
  std::vector<Bucket> buckets_;
  std::size_t filled_ = kRoot;
  std::deque<Reduction> queue_;
  std::vector<Tensor> slots_;  ///< of the pool
};

}  // namespace mfsdp
