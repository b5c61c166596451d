// Prices that the engine needs from a cost model: the duration of each op of a plan when it runs
// alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "core/plan/plan.hpp"
#include "sim/cost/kernel_class.hpp"

namespace mfsdp {

/// Shares and rates are fixed-point numbers; this is 1.
inline constexpr std::int64_t kOne = std::int64_t{1} << 20;

/// The occupancy of four blocks. From this occupancy on, the last wave of a GEMM counts as
/// incomplete; eight blocks and more were measured.
inline constexpr std::int64_t kRaggedFrom = kOne / 12;

/// Whether a kernel holds all SMs until it ends, so that a collective that becomes ready meanwhile
/// must wait, with any transport.
enum class HoldsSms {
  never,
  once_running,  ///< collectives ready at its start run: cuDNN's attention begins with small
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
  /// Smallest speed loss, in units of 1 / kOne, beside a collective of an occupancy of kRaggedFrom
  /// or more.
  std::int64_t ragged_loss = 0;
};

struct CollectivePrice {
  Nanos duration;  ///< alone on its link, latency included
  Nanos latency;   ///< the part that moves no bytes; at most `duration`
  /// Speed that a concurrent GEMM loses to its SMs, in units of 1 / kOne, as long as it is
  /// resident: at any rate, and also while it waits for other ranks. Values above kOne count as
  /// kOne.
  std::int64_t occupancy = 0;
  /// Fraction of `occupancy` that a kernel of each class loses; kOne is 1.
  PerKernelClass<std::int64_t> weight{{kOne, kOne, kOne, kOne}};
  /// Speed that a concurrent kernel of each class loses to its memory traffic at full rate, in
  /// units of 1 / kOne. Proportional to the rate, so 0 while it waits. An average over `duration`:
  /// the engine has no separate latency phase, and distributes traffic and the demand on the link
  /// over the collective.
  PerKernelClass<std::int64_t> traffic{};
  /// Slowdown while a rank of its group computes, by the class that runs there; kOne is 1, the
  /// minimum. It overlaps with the slowdown by a shared link: the larger of the two counts.
  PerKernelClass<std::int64_t> drag{{kOne, kOne, kOne, kOne}};
  int link = 0;  ///< number from the cost model; collectives of one link share it
  /// Demand on the link while it moves bytes; kOne is 1. If the sum of demands exceeds the link,
  /// collectives share it in proportion.
  std::int64_t link_share = kOne;
  bool by_kernels = true;  ///< false: by copy engines
};

struct CopyPrice {
  Nanos duration;             ///< alone on its link, latency included
  Nanos latency{};            ///< the part that moves no bytes; at most `duration`
  std::optional<int> link{};  ///< none: within one memory. Copies of one link share it
};

/// Time of the host to issue an op.
using IssueTime = std::function<Nanos(const Op&)>;

/// Each function is called once for each op of the plan, not for each instance.
struct Prices {
  std::function<KernelPrice(const Op&)> kernel;  ///< for kernels
  std::function<CollectivePrice(const Collective&, const Communicator&)> collective;
  std::function<CopyPrice(const Copy&)> copy;
  /// Host time to issue an op. Empty if it is 0, as for mfsdp-exec, which issues ops ahead or as
  /// graphs.
  IssueTime host{};
  /// Whether a collective by kernels begins no earlier than all such collectives that the host
  /// issued before it, on any communicator: NCCL_LAUNCH_ORDER_IMPLICIT.
  bool launches_in_order = false;
  /// Whether kernels leave SMs to collectives, which then begin beside them, as GEMMs of Transformer
  /// Engine with tp_comm_overlap do (set_sm_margin).
  bool leaves_sms = false;
};

}  // namespace mfsdp
