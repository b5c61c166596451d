// Settings of the CPU machine, and faults that tests inject.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/injected_fault.hpp"
#include "core/runtime/operand_view.hpp"

namespace mfsdp {

/// Runs a kernel on the calling thread; called by many threads at once. An exception counts as its
/// error. It must return: a thread cannot be ended from outside.
using KernelFunction = std::function<Result<void>(const KernelCall&)>;

/// Faults that tests put into a run.
struct InjectedFaults {
  std::optional<OpId> dropped_wait;  ///< all ranks skip this wait
  std::optional<InjectedFault> fault;
};

struct MachineSettings {
  KernelFunction kernel;
  /// A run fails if all hosts wait for ops and no op of any rank ends for this time.
  std::chrono::milliseconds deadline{10'000};
  std::optional<std::uint64_t> chaos;  ///< seed of random delays before ops
  /// Fills memory with NaN of every floating dtype (bytes 0xff) at the start, and a buffer when it
  /// is released. Acquiring clears nothing.
  bool poison = false;
  std::int64_t timed_steps = 0;  ///< number of last steps of `timed_plan` that are timed
  PlanRole timed_plan = PlanRole::train;
  InjectedFaults faults;
};

}  // namespace mfsdp
