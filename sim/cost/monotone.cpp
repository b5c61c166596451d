#include "sim/cost/monotone.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace mfsdp {
namespace {

constexpr double kLeastTrustedBytes = 1048576;

/// Orders the sizes from `first` up to `last` in all curves.
void order(TimeGrid& times, std::size_t first, std::size_t last) {
  const TimeGrid measured = times;
  for (std::size_t c = 0; c < times.size(); ++c) {
    for (std::size_t s = first; s < last; ++s) {
      double below = measured[c][s];
      double above = measured[c][s];
      for (std::size_t curve = 0; curve < times.size(); ++curve) {
        for (std::size_t size = first; size < last; ++size) {
          const double time = measured[curve][size];
          if (curve <= c && size <= s) below = std::max(below, time);
          if (curve >= c && size >= s) above = std::min(above, time);
        }
      }
      if (below != above) times[c][s] = std::sqrt(below * above);
    }
  }
}

}  // namespace

void make_monotone(TimeGrid& times, const std::vector<double>& bytes) {
  const auto trusted =
      static_cast<std::size_t>(std::ranges::lower_bound(bytes, kLeastTrustedBytes) - bytes.begin());
  order(times, trusted, bytes.size());
  order(times, 0, trusted);
  if (trusted == bytes.size()) return;
  for (std::vector<double>& curve : times)
    for (std::size_t s = 0; s < trusted; ++s) curve[s] = std::min(curve[s], curve[trusted]);
}

}  // namespace mfsdp
