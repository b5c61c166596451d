// Looks at parameters between steps: their norms, and values that are not finite.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/runtime/backend.hpp"
#include "gpu_backend/train/parameter_places.hpp"

namespace mfsdp {

/// This rank's share of the squared norms of each parameter: weight, gradient, in the order of
/// `parameters`. Shares of all ranks add up to the whole; what several ranks hold counts once.
/// Gradients are multiplied by `scale`, 1/T.
[[nodiscard]] Result<std::vector<double>> squared_norms(Backend& backend,
                                                        std::span<const ParameterPlaces> parameters,
                                                        double scale);

/// The first value that is infinite or NaN, gradients of all parameters before weights of any.
struct NonFinite {
  const ParameterPlaces* parameter = nullptr;
  std::string what;          ///< "gradient", "weight"
  std::int64_t element = 0;  ///< of the parameter
  double value = 0;
};
[[nodiscard]] Result<std::optional<NonFinite>> find_non_finite(
    Backend& backend, std::span<const ParameterPlaces> parameters);

}  // namespace mfsdp
