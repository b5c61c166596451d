// When a rank took part in a collective.
#pragma once

#include <chrono>

namespace mfsdp {

/// A member's times of a collective. It begins when the member has joined and the previous
/// collective has ended; it ends when all members are done. A send or a recv begins when its rank
/// has reached it.
struct MeetingTimes {
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
};

}  // namespace mfsdp
