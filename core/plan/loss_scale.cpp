#include "core/plan/loss_scale.hpp"

#include <fmt/format.h>

#include <bit>

#include "core/plan/config.hpp"
#include "core/plan/config_fields.hpp"

namespace mfsdp {
namespace {

bool is_power_of_two(const Rational& value) {
  const auto is_power = [](std::int64_t part) {
    return std::has_single_bit(static_cast<std::uint64_t>(part));
  };
  return is_power(value.num) && is_power(value.den);
}

}  // namespace

std::int64_t loss_scale_tokens(const PlanConfig& config) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(config.seq_len)));
}

LossScaleState first_loss_scale(const PlanConfig& config) {
  const double scale =
      static_cast<double>(config.loss_scale.num) / static_cast<double>(config.loss_scale.den);
  return {.scale = static_cast<float>(scale / static_cast<double>(loss_scale_tokens(config)))};
}

Result<void> check_loss_scale(const PlanConfig& config) {
  const Rational& scale = config.loss_scale;
  const std::string given = flag_text(scale);
  if (scale.den <= 0 || scale.num < 0 || scale.num / scale.den > (std::int64_t{1} << 40))
    return fail("--loss-scale", fmt::format("expected dynamic, none, or a number above 0 and at "
                                            "most 2^40, got {}/{}",
                                            scale.num, scale.den));
  if (!config.scales_loss()) {
    if (config.loss_scale_window == 0) return {};
    return fail("--loss-scale-window",
                fmt::format("expected 0 without --loss-scale, got {}", config.loss_scale_window));
  }
  if (config.param_dtype != DType::fp16)
    return fail("--loss-scale", fmt::format("expected none with --param-dtype {}, whose exponents "
                                            "reach far enough, got {}",
                                            to_string(config.param_dtype), given));
  if (!config.exact_sums) return {};
  if (config.loss_scale_window != 0)
    return fail("--loss-scale",
                "expected a number with --exact-sums: sums of gradients lie on "
                "one grid in all steps, which a dynamic scale would move");
  if (!is_power_of_two(scale))
    return fail("--loss-scale",
                fmt::format("expected a power of two with --exact-sums, got {}", given));
  return {};
}

}  // namespace mfsdp
