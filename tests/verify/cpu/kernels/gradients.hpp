// Random tensors, and gradients by finite differences, in double precision.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace mfsdp::test {

using Values = std::vector<double>;

/// The epsilon of norms. It is large, so that rows near 0 stay smooth over the steps of finite
/// differences.
inline constexpr double kEpsilon = 0.1;

/// Tensors of standard normal values.
class RandomValues {
 public:
  explicit RandomValues(std::uint32_t seed) : random_(seed) {}

  Values operator()(std::int64_t count, double size = 1) {
    Values values(static_cast<std::size_t>(count));
    std::normal_distribution<double> normal(0, size);
    for (double& value : values) value = normal(random_);
    return values;
  }
  std::int32_t below(std::int64_t bound) {
    return static_cast<std::int32_t>(
        std::uniform_int_distribution<std::int64_t>(0, bound - 1)(random_));
  }

 private:
  std::mt19937 random_;
};

inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// |a - b| / |b| in the Euclidean norm; both may be 0.
inline double relative_error(const Values& a, const Values& b) {
  double difference = 0;
  for (std::size_t i = 0; i < b.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]);
  return difference == 0 ? 0 : std::sqrt(difference / dot(b, b));
}

/// d loss / d x by central differences of five points: its own error is about step^4.
inline Values finite_differences(Values& x, const std::function<double()>& loss) {
  constexpr double step = 1e-3;
  Values gradient;
  for (double& value : x) {
    const double middle = value;
    const auto at = [&](double steps) {
      value = middle + steps * step;
      return loss();
    };
    gradient.push_back((8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step));
    value = middle;
  }
  return gradient;
}

}  // namespace mfsdp::test
