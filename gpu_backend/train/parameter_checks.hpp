// Checks of parameters between steps: their norms, and values that are not finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/runtime/backend.hpp"
#include "gpu_backend/train/gradient_order.hpp"
#include "gpu_backend/train/parameter_places.hpp"

namespace mfsdp {

/// This rank's contribution to the squared norms of each parameter: weight, gradient, in the order
/// of `parameters`. The contributions of all ranks add up to the squared norms. Elements that
/// several ranks hold count once. Gradients are multiplied by `scale`, 1/T.
[[nodiscard]] Result<std::vector<double>> squared_norms(Backend& backend,
                                                        std::span<const ParameterPlaces> parameters,
                                                        double scale);

/// A value of a parameter that is infinite or NaN.
struct NonFinite {
  std::size_t parameter = 0;  ///< index into `parameters`
  std::int64_t element = 0;   ///< of the parameter
  double value = 0;
};

/// The first weight that is not finite, in the order of `parameters`, which is that of forward.
[[nodiscard]] Result<std::optional<NonFinite>> find_non_finite_weight(
    Backend& backend, std::span<const ParameterPlaces> parameters);

/// The gradient that is not finite and is written first.
[[nodiscard]] Result<std::optional<NonFinite>> find_non_finite_gradient(
    Backend& backend, std::span<const ParameterPlaces> parameters,
    std::span<const GradientWriter> writers);

}  // namespace mfsdp
