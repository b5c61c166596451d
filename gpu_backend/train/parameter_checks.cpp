#include "gpu_backend/train/parameter_checks.hpp"

#include <cmath>

#include "core/runtime/scalar.hpp"

namespace mfsdp {
namespace {

/// Calls visit(index, value) for each element that the rank holds, in order.
template <class Visit>
void for_each_value(const HeldElements& held, const Visit& visit) {
  with_floating(held.dtype, [&]<class T>(T) {
    const T* values = reinterpret_cast<const T*>(held.data);
    for (std::int64_t i = 0; i < held.elements.size(); ++i)
      visit(held.elements.begin + i, static_cast<double>(widen(values[i])));
  });
}

double sum_of_squares(const HeldElements& held, double scale) {
  double sum = 0;
  for_each_value(held, [&](std::int64_t, double value) { sum += value * scale * (value * scale); });
  return sum;
}

}  // namespace

std::vector<double> squared_norms(std::span<const ParameterPlaces> parameters, double scale) {
  std::vector<double> sums;
  for (const ParameterPlaces& places : parameters) {
    sums.push_back(places.first_replica ? sum_of_squares(places.own, 1) : 0);
    sums.push_back(places.first_replica ? sum_of_squares(places.gradient, scale) : 0);
  }
  return sums;
}

std::optional<NonFinite> find_non_finite(std::span<const ParameterPlaces> parameters) {
  std::optional<NonFinite> found;
  const auto look = [&](const ParameterPlaces& places, const HeldElements& held, const char* what) {
    for_each_value(held, [&](std::int64_t element, double value) {
      if (!found && !std::isfinite(value))
        found = {.parameter = &places, .what = what, .element = element, .value = value};
    });
  };
  for (const ParameterPlaces& places : parameters) look(places, places.gradient, "gradient");
  for (const ParameterPlaces& places : parameters) {
    look(places, places.own, "weight");
    look(places, places.weight, "weight");
  }
  return found;
}

}  // namespace mfsdp
