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

Result<std::optional<NonFinite>> look_at(Backend& backend, const HeldElements& held,
                                         std::size_t parameter) {
  std::optional<NonFinite> found;
  MFSDP_TRY(for_each_value(backend, held, [&](std::int64_t element, double value) {
    if (!found && !std::isfinite(value))
      found = {.parameter = parameter, .element = element, .value = value};
  }));
  return found;
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

Result<std::optional<NonFinite>> find_non_finite_weight(
    Backend& backend, std::span<const ParameterPlaces> parameters) {
  for (std::size_t p = 0; p < parameters.size(); ++p)
    for (const HeldElements* held : {&parameters[p].own, &parameters[p].weight}) {
      MFSDP_LET(found, look_at(backend, *held, p));
      if (found) return found;
    }
  return std::nullopt;
}

Result<std::optional<NonFinite>> find_non_finite_gradient(
    Backend& backend, std::span<const ParameterPlaces> parameters,
    std::span<const GradientWriter> writers) {
  std::optional<NonFinite> first;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (first && writers[first->parameter].position <= writers[p].position) continue;
    MFSDP_LET(found, look_at(backend, parameters[p].gradient, p));
    if (found) first = found;
  }
  return first;
}

}  // namespace mfsdp
