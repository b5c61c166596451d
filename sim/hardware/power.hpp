// Effect of a GPU's power limit on prices.
//
// Continuous GEMMs and attention reach the power limit, and the GPU lowers its clock to stay within
// it. The rate of computation then grows slightly more slowly than the limit:
//
//   rate at W / rate at the tables' limit = (W / the tables' limit) ^ (7/8)
//
// The exponent gives 0.745 for H100s limited to 500 of 700 W, on which public traces of training
// show GEMMs and attention at about 0.75. Other published figures were not used for the fit: 10 to
// 15 % longer steps at 600 of 700 W (the law: 13 % lower rates), and a GB300 at 500 of 1400 W with
// 0.28 to 0.39 of its rate (facebookexperimental/triton pull request 2023; the law: 0.41).
// Memory-bound kernels, copies and collectives draw less than such limits and keep their prices.
#pragma once

#include <string>

#include "core/base/error.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// Fraction of the tables' limit below which the law was never compared with measurements.
inline constexpr double kLeastPowerShare = 0.35;

/// Rate of GEMMs and attention relative to the tables' limit; 1 if no limit is known.
[[nodiscard]] double power_rate(const Gpu& gpu);

/// An error that asks for --power-limit: the owner of the machine sets this GPU's limit.
[[nodiscard]] Result<void> check_power_is_stated(const Gpu& gpu);

/// The GPU with another limit, in watts. Below the tables' limit, GEMMs and attention no longer
/// count as measured. The error names --power-limit: the tables' limit is unknown, or the new one
/// is above it (where nothing is known), or below kLeastPowerShare of it. A limit that the owner
/// sets may be above it: the GPU is priced as at the tables' limit.
[[nodiscard]] Result<Gpu> with_power_limit(Gpu gpu, double watts);

/// States in one sentence that the law was applied; empty if it was not.
[[nodiscard]] std::string power_statement(const Gpu& gpu);

}  // namespace mfsdp
