// What a limit on a GPU's power does to prices.
//
// Under continuous products and attention a GPU draws all that it may, and its clock falls until it
// does. What it computes in a second then grows with the limit a little more slowly than the limit:
//
//   rate at W / rate at the tables' limit = (W / the tables' limit) ^ (7/8)
//
// The exponent makes 0.745 of H100s that are limited to 500 of 700 W, on which public traces of
// training show products and attention at about 0.75. What else is published was not used: 10 to
// 15 % longer steps at 600 of 700 W (the law: 13 % lower rates), and a GB300 at 500 of 1400 W with
// 0.28 to 0.39 of its rate (facebookexperimental/triton pull request 2023; the law: 0.41).
// Kernels that move memory, copies and collectives draw less than such limits and keep their
// prices.
#pragma once

#include <string>

#include "core/base/error.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// Of the tables' limit; below it the law was never compared.
inline constexpr double kLeastPowerShare = 0.35;

/// Of products and attention, relative to the tables' limit; 1 where no limit is known.
[[nodiscard]] double power_rate(const Gpu& gpu);

/// The GPU under another limit, in watts. Below the tables' limit products and attention are no
/// longer measured. The error names --power-limit: no limit of the tables is known, or it is above
/// theirs, where nothing is known, or below kLeastPowerShare of it.
[[nodiscard]] Result<Gpu> with_power_limit(Gpu gpu, double watts);

/// That the law was applied, in one sentence; empty where it was not.
[[nodiscard]] std::string power_statement(const Gpu& gpu);

}  // namespace mfsdp
