// One clock for all kernels of a step.
//
// Tables have what kernels take when their like runs alone for a second: at the power limit, at
// which a GPU lowers its clock until what it draws on average is the limit. Products draw most and
// settle lowest; attention alone runs at a clock higher by kAttentionClock; what is bound by memory
// does not reach the limit, and is as fast at any clock. In a step they all have one clock. With
// P, A and M the times of products, attention and all else alone, D the energy of collectives
// beside them, as time at the limit (contention.hpp, draw), and c the clock over that of products
// alone:
//
//   times    P / c,  A kAttentionClock / c,  M
//   energy   P + A + kMemoryDraw M + D = limit * all of these times
//
// as the energy of what is computed depends little on the clock. So attention in a step takes
// longer than alone and products less, and what draws little gives the others its part. The clock
// is not taken to be lower than that of products alone: steps do not show it.
#pragma once

#include "sim/cost/kernel_class.hpp"

namespace mfsdp {

/// Whether a product or attention that takes that long alone, in nanoseconds, is at the power limit
/// then. In the tables (sm_mhz) all that take less than about a millisecond had the highest clock,
/// and in steps they take what they took there: the others' clock is not counted for them. They are
/// faster all the same where a GPU waits: idle_clock(). Not so attention's backward pass: of
/// whatever length it is slower in a step that is at the limit by what the mix says
/// (docs/lab/2026-11-28-kernels-beside-collectives.md).
[[nodiscard]] constexpr bool is_limited(double alone) { return alone >= 0.95e6; }

/// What the times alone of each class are to be multiplied by, of those that are limited.
using ClassFactors = PerKernelClass<double>;

/// `mixed` at a clock that is higher by `clock` still, as far as clocks go.
[[nodiscard]] ClassFactors faster(const ClassFactors& mixed, double clock);

/// The clock of a step in which the GPU computes nothing for `idle` nanoseconds, over that of one
/// in which products and attention take `limited` without pause; `limit` is the power limit as a
/// share of that of the tables. While it waits the GPU draws kIdleDraw of the tables' limit, and
/// what it spares lets the clock rise, up to that of short bursts; the same work needs more energy
/// then:
///   limited c^1.25 + kIdleDraw / limit idle = limited / c + idle
/// An empirical correction: 1.25 was chosen, as 2026-11-27-idle-clock.md says.
/// 1 where nothing is limited.
[[nodiscard]] double idle_clock(double limited, double idle, double limit = 1);

/// How many times as long as alone on a cool GPU a collective takes that SMs move, where nothing
/// runs beside it in a step at the power limit: its kernels go by the step's clock, too.
[[nodiscard]] double collective_slowdown(const ClassFactors& mixed);

/// `alone`: nanoseconds of a step by class; `drawn`: D. All are 1 where products and attention are
/// none of the step.
[[nodiscard]] ClassFactors power_mix(const PerKernelClass<double>& alone, double drawn = 0);

}  // namespace mfsdp
