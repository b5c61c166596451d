// The common clock of all kernels of a step.
//
// Tables contain the times of kernels when only one kind runs for a second. The GPU then is at the
// power limit and lowers its clock until its mean power is the limit. GEMMs draw most and have the
// lowest clock. Attention alone runs at a clock that is higher by kAttentionClock. Memory-bound
// kernels do not reach the limit and are equally fast at any clock. In a step, all kernels have one
// clock. P, A and M are the times of GEMMs, attention and all other kernels alone. D is the energy
// of concurrent collectives as time at the limit (contention.hpp, draw). c is the clock relative to
// that of GEMMs alone:
//
//   times    P / c,  A kAttentionClock / c,  M
//   energy   P + A + kMemoryDraw M + D = limit * all of these times
//
// GEMMs in FP8, whose times alone are part of P, draw more than those in bf16. Alone they run at
// the clock kFp8Clock, and in a step they take kFp8Clock / c of their time. Their table has them
// without pause, so that the shortest ones were at the limit too.
//
// The energy of a computation depends little on the clock. So attention in a step takes longer than
// alone, GEMMs take less, and kernels that draw little leave their share to the others. The clock
// is assumed to be at least that of the step's GEMMs alone, as steps do not show a lower one.
#pragma once

#include "sim/cost/kernel_class.hpp"

namespace mfsdp {

/// Whether a GEMM or attention kernel that takes `alone` nanoseconds reaches the power limit. In
/// the tables (sm_mhz) all kernels below about a millisecond ran at the highest clock, and in steps
/// they took the same time: the mix does not apply to them. They are still faster if a GPU waits:
/// idle_clock(). Attention's backward pass is an exception: at any length, the mix slows it down in
/// a step at the limit (docs/lab/2026-11-28-kernels-beside-collectives.md).
[[nodiscard]] constexpr bool is_limited(double alone) { return alone >= 0.95e6; }

/// Factors on the times alone of each class, for kernels that are limited.
struct ClassFactors : PerKernelClass<double> {
  constexpr ClassFactors() : PerKernelClass<double>{{1, 1, 1, 1}} {}

  double fp8_product = 1;  ///< of GEMMs in FP8, whose class is that of all GEMMs
  friend bool operator==(const ClassFactors&, const ClassFactors&) = default;
};

/// `mixed` at a clock that is higher by the factor `clock`, up to the highest clock.
[[nodiscard]] ClassFactors faster(const ClassFactors& mixed, double clock);

/// The clock of a step in which the GPU computes nothing for `idle` nanoseconds, relative to a step
/// in which GEMMs and attention take `limited` without pause. `limit` is the power limit relative
/// to that of the tables. While it waits, the GPU draws kIdleDraw of the tables' limit; the energy
/// that it saves lets the clock rise, up to that of short bursts. The same work then needs more
/// energy:
///   limited c^1.25 + kIdleDraw / limit idle = limited / c + idle
/// The exponent 1.25 is an empirical choice (docs/lab/2026-11-27-idle-clock.md).
/// 1 if nothing is limited.
[[nodiscard]] double idle_clock(double limited, double idle, double limit = 1);

/// Nanoseconds alone of a step's kernels by class.
struct StepWork {
  PerKernelClass<double> alone;
  double fp8 = 0;  ///< the part of GEMMs in FP8, which alone[product] contains
};

/// A lower bound of the time of a step that does this work, and computes nothing for at least `idle`
/// nanoseconds: with P, A, M as above, L = P + A - (1 - kMemoryDraw) M and c the clock of idle_clock(L),
///   L / c + M + idle
/// By power_mix() the step's GEMMs and attention take at least L: they save what memory-bound kernels
/// do not draw, and collectives only add. The bound grows with `idle`, since the clock rises by less
/// than 0.37 of it, so a step that idles longer is not shorter. `rests`: the clock follows idle time.
[[nodiscard]] double least_step(const StepWork& work, double idle, bool rests, double limit = 1);

/// A lower bound of the time of kernels at any clock.
[[nodiscard]] double at_highest_clock(const StepWork& work);

/// Slowdown of a collective that runs on SMs, in a step at the power limit without concurrent
/// kernels, relative to its time alone on a cool GPU: its kernels follow the step's clock, too.
[[nodiscard]] double collective_slowdown(const PerKernelClass<double>& mixed);

/// `drawn`: D. All factors are 1 in a step without GEMMs and attention.
[[nodiscard]] ClassFactors power_mix(const StepWork& work, double drawn = 0);

}  // namespace mfsdp
