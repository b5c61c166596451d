#include "sim/simulator/jitter.hpp"

#include <algorithm>

#include "sim/simulator/prices.hpp"

namespace mfsdp {
namespace {

/// One step of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
/// 2014): a bijection on 64 bits, whose outputs for a sequence of states pass tests of randomness.
constexpr std::uint64_t mix(std::uint64_t state) {
  state += 0x9e3779b97f4a7c15;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
  return state ^ (state >> 31);
}

}  // namespace

std::int64_t standard_deviate(std::uint64_t seed, std::int64_t rank, const KernelInstance& kernel) {
  std::uint64_t state = seed;
  for (const std::int64_t part :
       {rank, kernel.step, std::int64_t{kernel.segment}, kernel.instance, std::int64_t{kernel.op}})
    state = mix(state) ^ static_cast<std::uint64_t>(part);
  // A sum of twelve uniform numbers from 0 to 2^16 - 1: mean 6 (2^16 - 1), variance 2^32 - 1.
  std::int64_t sum = 0;
  for (int word = 0; word < 3; ++word) {
    state = mix(state);
    for (int shift = 0; shift < 64; shift += 16)
      sum += static_cast<std::int64_t>((state >> shift) & 0xffff);
  }
  return sum - std::int64_t{6} * 0xffff;
}

std::int64_t KernelTimes::jittered(const KernelInstance& kernel) const {
  const std::int64_t share = kOne + jitter * standard_deviate(seed, rank, kernel) / (1 << 16);
  return factor * std::max<std::int64_t>(share, 0) / kOne;
}

}  // namespace mfsdp
