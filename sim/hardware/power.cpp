#include "sim/hardware/power.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace mfsdp {

double power_rate(const Gpu& gpu) {
  if (!gpu.power || gpu.power->own >= gpu.power->tables) return 1;
  const double share = gpu.power->own / gpu.power->tables;
  return share / std::sqrt(std::sqrt(std::sqrt(share)));  // share ^ (7/8), by square roots only
}

Result<void> check_power_is_stated(const Gpu& gpu) {
  if (!gpu.owner_sets_power) return {};
  return fail("--power-limit",
              fmt::format("is needed for {}: its owner sets the limit, {:g} to {:g} W; nvidia-smi "
                          "shows it (Pwr:Usage/Cap)",
                          gpu.name, gpu.owner_sets_power->least, gpu.owner_sets_power->most));
}

Result<Gpu> with_power_limit(Gpu gpu, double watts) {
  if (!gpu.power)
    return fail("--power-limit", fmt::format("the file of {} does not state its power limit: "
                                             "expected power.limit_w",
                                             gpu.name));
  const double tables = gpu.power->tables;
  const double least = std::ceil(kLeastPowerShare * tables);
  const double most = gpu.owner_sets_power ? std::max(tables, gpu.owner_sets_power->most) : tables;
  if (watts > most || watts < least)
    return fail(
        "--power-limit",
        fmt::format("{:g} W is out of range: expected {:g} to {:g}, {}", watts, least, most,
                    gpu.owner_sets_power
                        ? fmt::format("the limits of {}", gpu.name)
                        : fmt::format("the limit at which the prices of {} hold", gpu.name)));
  gpu.power->own = watts;
  if (watts < tables) {
    gpu.calibration = "datasheet";
    gpu.measured.gemm = false;
    gpu.measured.attention = false;
  }
  return gpu;
}

std::string power_statement(const Gpu& gpu) {
  if (gpu.power && gpu.power->own > gpu.power->tables)
    return fmt::format("power limit {:g} W: priced as at {:g} W, above which nothing is known",
                       gpu.power->own, gpu.power->tables);
  const double rate = power_rate(gpu);
  if (rate == 1) return "";
  return fmt::format(
      "power limit {:g} W: GEMMs and attention at {:.2f} of their rate at {:g} W, "
      "by a law fitted to one published figure",
      gpu.power->own, rate, gpu.power->tables);
}

}  // namespace mfsdp
