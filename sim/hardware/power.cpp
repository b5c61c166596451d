#include "sim/hardware/power.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace mfsdp {
namespace {}  // namespace

double power_rate(const Gpu& gpu) {
  if (!gpu.power || gpu.power->own >= gpu.power->tables) return 1;
  const double share = gpu.power->own / gpu.power->tables;
  return share / std::sqrt(std::sqrt(std::sqrt(share)));  // share ^ (7/8), by square roots only
}

Result<Gpu> with_power_limit(Gpu gpu, double watts) {
  if (!gpu.power)
    return fail("--power-limit", fmt::format("the file of {} does not state the power limit of its "
                                             "tables: expected power.tables_w",
                                             gpu.name));
  const double most = gpu.power->tables;
  if (watts > most || watts < kLeastPowerShare * most)
    return fail("--power-limit",
                fmt::format("{:g} W is out of range: expected {:g} to {:g}, the limit at which the "
                            "prices of {} hold",
                            watts, std::ceil(kLeastPowerShare * most), most, gpu.name));
  gpu.power->own = watts;
  if (watts < most) {
    gpu.calibration = "datasheet";
    gpu.measured.gemm = false;
    gpu.measured.attention = false;
  }
  return gpu;
}

std::string power_statement(const Gpu& gpu) {
  const double rate = power_rate(gpu);
  if (rate == 1) return "";
  return fmt::format(
      "power limit {:g} W: GEMMs and attention at {:.2f} of their rate at {:g} W, "
      "by a law fitted to one published figure",
      gpu.power->own, rate, gpu.power->tables);
}

}  // namespace mfsdp
