#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "gpu_backend/train/data/dataset.hpp"
#include "gpu_backend/train/data/random_bits.hpp"

namespace mfsdp {
namespace {

/// A permutation of [0, 2^(2 half_bits)): a Feistel network, which is a bijection whatever its
/// round function is. Four rounds look random (Luby, Rackoff 1988); eight make up for a simple
/// function.
std::uint64_t permute(std::uint64_t value, unsigned half_bits, std::uint64_t key) {
  constexpr std::uint64_t kRounds = 8;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t mixed = mix_bits(mix_bits(key + round) ^ right) & mask;
    left = std::exchange(right, left ^ mixed);
  }
  return left << half_bits | right;
}

}  // namespace

std::int64_t shuffled_sample(std::uint64_t seed, std::int64_t n, std::int64_t samples) {
  assert(n >= 0 && samples >= 1);
  const auto epoch = static_cast<std::uint64_t>(n / samples);
  const auto count = static_cast<std::uint64_t>(samples);
  const std::uint64_t key = mix_bits(mix_bits(seed) ^ epoch);
  const auto bits = static_cast<unsigned>(std::bit_width(count - 1));
  const unsigned half_bits = std::max(1U, (bits + 1) / 2);
  // Walking the cycle until it comes back below `count` is a permutation of [0, count). The network
  // spans less than 4 * count numbers, so that takes fewer than four steps on average.
  auto place = static_cast<std::uint64_t>(n % samples);
  do {
    place = permute(place, half_bits, key);
  } while (place >= count);
  return static_cast<std::int64_t>(place);
}

Result<void> Dataset::read_in_order(std::uint64_t seed, std::int64_t n,
                                    const SampleSpans& out) const {
  return read(shuffled_sample(seed, n, samples()), out);
}

}  // namespace mfsdp
