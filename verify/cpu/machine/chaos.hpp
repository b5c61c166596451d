// Random delays before ops: what a schedule leaves to luck, comes out differently.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

namespace mfsdp {

/// The delays of one stream of one rank. In spells of a few ops the stream is slow, otherwise it
/// runs at full speed, so that streams overtake each other by many ops and not only by one.
class Chaos {
 public:
  /// No seed, no delays.
  Chaos(std::optional<std::uint64_t> seed, std::int64_t rank, std::size_t stream)
      : active_(seed.has_value()),
        state_(seed.value_or(0) * 0x9e3779b97f4a7c15U +
               (static_cast<std::uint64_t>(rank) << 32U) + stream) {}

  void delay() {
    if (!active_) return;
    if (left_ == 0 && next() % kRarity == 0) left_ = 1 + next() % kLongestSpell;
    if (left_ == 0) return;
    --left_;
    std::this_thread::sleep_for(std::chrono::microseconds(next() % kLongestMicroseconds));
  }

 private:
  static constexpr std::uint64_t kRarity = 24;
  static constexpr std::uint64_t kLongestSpell = 8;
  static constexpr std::uint64_t kLongestMicroseconds = 400;

  /// SplitMix64 (Steele, Lea and Flood 2014).
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }

  bool active_;
  std::uint64_t state_;
  std::uint64_t left_ = 0;  ///< ops of the present spell
};

}  // namespace mfsdp
