// Random delays before ops, to vary all orders that a schedule does not fix.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

namespace mfsdp {

/// The delays of one stream of one rank. Every stream has slow spells of a few ops, so that streams
/// overtake each other by many ops. On every rank one stream of `streams`, drawn with the seed,
/// lags by several microbatches: it gets 100 ms of delay, beginning at once.
class Chaos {
 public:
  /// Without a seed there are no delays.
  Chaos(std::optional<std::uint64_t> seed, std::int64_t rank, std::size_t stream,
        std::size_t streams)
      : active_(seed.has_value()),
        state_(seed.value_or(0) * kStep + (static_cast<std::uint64_t>(rank) << 32U)) {
    if (next() % streams == stream) to_lose_ = 100'000;
    state_ += stream;
  }

  void delay() {
    if (!active_) return;
    if (to_lose_ > 100 && next() % 4 == 0) to_lose_ -= sleep_up_to(to_lose_ / 4);
    if (left_ == 0 && next() % 32 == 0) left_ = 1 + next() % 8;
    if (left_ == 0) return;
    --left_;
    sleep_up_to(300);
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15U;

  std::uint64_t sleep_up_to(std::uint64_t most) {
    const std::uint64_t microseconds = next() % most;
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
    return microseconds;
  }

  /// SplitMix64 (Steele, Lea and Flood 2014).
  std::uint64_t next() {
    std::uint64_t z = state_ += kStep;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }

  bool active_;
  std::uint64_t state_;
  std::uint64_t to_lose_ = 0;  ///< microseconds
  std::uint64_t left_ = 0;     ///< remaining ops of the current spell
};

}  // namespace mfsdp
