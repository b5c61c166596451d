#include "sim/predict/format_check.hpp"

#include <fmt/format.h>

namespace mfsdp {

Result<void> check_formats(const PlanConfig& config, const Gpu& gpu) {
  if (!config.has_fp8() || gpu.multiplies(MatmulFormat::fp8)) return {};
  const std::string_view wanted = to_string(MatmulFormat::fp8);
  if (gpu.formats.empty())
    return fail("--fp8", fmt::format("the file of {} does not state which numbers its matrix units "
                                     "multiply: expected {} in compute.matmul_formats",
                                     gpu.name, wanted));
  return fail("--fp8", fmt::format("matrix units of {} multiply {}: expected a GPU with {}, as of "
                                   "Hopper, Ada or later",
                                   gpu.name, format_list(gpu.formats), wanted));
}

}  // namespace mfsdp
