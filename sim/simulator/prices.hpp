// What the engine asks of a cost model: how long each op of a plan takes when it runs alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "core/plan/plan.hpp"
#include "sim/cost/kernel_class.hpp"

namespace mfsdp {

/// Shares and rates are fixed-point: this is 1.
inline constexpr std::int64_t kOne = std::int64_t{1} << 20;

/// The occupancy of four blocks, from which on the last wave of a product is taken to be ragged;
/// measured were eight and more.
inline constexpr std::int64_t kRaggedFrom = kOne / 12;

/// When a kernel keeps all SMs until it ends, so that a collective that comes up meanwhile waits
/// for that, whatever moves it.
enum class HoldsSms {
  never,
  once_running,  ///< what comes up with it still gets in: cuDNN's attention begins with small
                 ///< kernels
  always
};

[[nodiscard]] constexpr HoldsSms holds_sms(KernelClass kind) {
  switch (kind) {
    case KernelClass::product: return HoldsSms::always;
    case KernelClass::attention_forward:
    case KernelClass::attention_backward: return HoldsSms::once_running;
    case KernelClass::memory: break;
  }
  return HoldsSms::never;
}

struct KernelPrice {
  KernelPrice() = default;
  KernelPrice(Nanos its_duration, KernelClass its_kind = KernelClass::memory,
              std::int64_t its_ragged_loss = 0)
      : duration(its_duration), kind(its_kind), ragged_loss(its_ragged_loss) {}

  Nanos duration;
  KernelClass kind = KernelClass::memory;
  /// Parts of kOne that it loses at least to a collective of an occupancy of kRaggedFrom or more.
  std::int64_t ragged_loss = 0;
};

struct CollectivePrice {
  Nanos duration;  ///< alone on its link, latency included
  Nanos latency;   ///< the part that moves no bytes; at most `duration`
  /// Parts of kOne that a product beside it loses for its SMs, as long as it is there: at whatever
  /// rate, and also while it waits for other ranks. More than kOne counts as that.
  std::int64_t occupancy = 0;
  /// How much of that a kernel of each class really loses, of kOne.
  PerKernelClass<std::int64_t> weight{{kOne, kOne, kOne, kOne}};
  /// Parts of kOne that a kernel of each class beside it loses for its memory traffic at full rate;
  /// at another rate in proportion, so none while it waits. An average over `duration`: the engine
  /// knows no phase of latency, it spreads that over the collective, as it does its demand on the
  /// link.
  PerKernelClass<std::int64_t> traffic{};
  /// How many times as long it takes while a rank of its group computes, by what that runs, of
  /// kOne; at least kOne. It is the slack of a shared link as well: the slower of the two decides.
  PerKernelClass<std::int64_t> drag{{kOne, kOne, kOne, kOne}};
  int link = 0;  ///< a number of the cost model's; collectives of one link share it
  /// Of kOne: what it wants of the link while it moves bytes. Several that want more than there is
  /// share it in proportion.
  std::int64_t link_share = kOne;
  bool by_kernels = true;  ///< what moves it, and not copy engines
};

struct CopyPrice {
  Nanos duration;             ///< alone on its link, latency included
  Nanos latency{};            ///< the part that moves no bytes; at most `duration`
  std::optional<int> link{};  ///< none: it stays in one memory. Copies of one link share it
};

/// Each is called once for each op of the plan, not for each instance.
struct Prices {
  std::function<KernelPrice(const Op&)> kernel;  ///< of an op that is one
  std::function<CollectivePrice(const Collective&, const Communicator&)> collective;
  std::function<CopyPrice(const Copy&)> copy;
  /// How long the host takes to issue an op. Empty where ops cost the host nothing, as ours, which
  /// are issued ahead or as graphs.
  std::function<Nanos(const Op&)> host{};
  /// Whether a collective by kernels begins no earlier than the one of those that the host issued
  /// before it, on whatever communicator: NCCL_LAUNCH_ORDER_IMPLICIT.
  bool launches_in_order = false;
};

}  // namespace mfsdp
