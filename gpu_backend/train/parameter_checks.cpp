#include "gpu_backend/train/parameter_checks.hpp"

#include <cmath>

#include "gpu_backend/train/held_values.hpp"

namespace mfsdp {
namespace {

Result<double> sum_of_squares(Backend& backend, const HeldElements& held, double scale) {
  double sum = 0;
  MFSDP_TRY(for_each_value(
      backend, held, [&](std::int64_t, double value) { sum += value * scale * (value * scale); }));
  return sum;
}

}  // namespace

Result<std::vector<double>> squared_norms(Backend& backend,
                                          std::span<const ParameterPlaces> parameters,
                                          double scale) {
  std::vector<double> sums;
  for (const ParameterPlaces& places : parameters) {
    if (!places.first_replica) {
      sums.insert(sums.end(), {0, 0});
      continue;
    }
    MFSDP_LET(weight, sum_of_squares(backend, places.own, 1));
    MFSDP_LET(gradient, sum_of_squares(backend, places.gradient, scale));
    sums.insert(sums.end(), {weight, gradient});
  }
  return sums;
}

Result<std::optional<NonFinite>> find_non_finite(Backend& backend,
                                                 std::span<const ParameterPlaces> parameters) {
  std::optional<NonFinite> found;
  const auto look = [&](const ParameterPlaces& places, const HeldElements& held, const char* what) {
    return for_each_value(backend, held, [&](std::int64_t element, double value) {
      if (!found && !std::isfinite(value))
        found = {.parameter = &places, .what = what, .element = element, .value = value};
    });
  };
  for (const ParameterPlaces& places : parameters)
    MFSDP_TRY(look(places, places.gradient, "gradient"));
  for (const ParameterPlaces& places : parameters) {
    MFSDP_TRY(look(places, places.own, "weight"));
    MFSDP_TRY(look(places, places.weight, "weight"));
  }
  return found;
}

}  // namespace mfsdp
