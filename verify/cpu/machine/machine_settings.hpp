// How the CPU's machine runs, and what tests may do to it.
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

/// Runs a kernel on the calling thread; called by many threads at once. What it throws counts as
/// its error. It must return: a thread cannot be ended from outside.
using KernelFunction = std::function<Result<void>(const KernelCall&)>;

/// Faults that tests put into a run.
struct InjectedFaults {
  std::optional<OpId> dropped_wait;  ///< no rank does this wait
  std::optional<InjectedFault> fault;
};

struct MachineSettings {
  KernelFunction kernel;
  /// A run in which no op of any rank ends for so long, while all hosts wait for ops, has failed.
  std::chrono::milliseconds deadline{10'000};
  std::optional<std::uint64_t> chaos;  ///< seed of random delays before ops
  /// Memory begins as NaN of every floating dtype (bytes 0xff) instead of undefined, and becomes
  /// so again when a buffer is released; acquiring clears nothing.
  bool poison = false;
  std::int64_t timed_steps = 0;  ///< so many of the last steps of `timed_plan` are timed
  std::string timed_plan = "train";
  InjectedFaults faults;
};

}  // namespace mfsdp
