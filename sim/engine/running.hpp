// What runs at one moment, and how fast: kernels lose speed beside collectives, and collectives
// share links. All integers; an op that runs undisturbed takes exactly its price.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/lowered_plan.hpp"

namespace mfsdp {

/// The slowest that kernels run beside collectives: a quarter of their speed alone.
inline constexpr std::int64_t kSlowestKernel = std::int64_t{1} << 18;

/// An op on a stream that takes time.
struct Running {
  std::uint32_t stream = 0;
  const Entry* entry = nullptr;
  const Launch* launch = nullptr;  ///< of collectives
  std::uint32_t segment = 0;       ///< position among the lowered segments
  std::int64_t step = 0;
  std::int64_t instance = 0;
  std::int64_t start = 0;  ///< ns
  Int128 remaining = 0;    ///< 2^-20 ns at full speed
  std::int64_t rate = kOne;

  /// Until it ends at its present rate, rounded up. ns; throws OverflowError beyond 2^63 - 1.
  [[nodiscard]] std::int64_t time_left() const;
};

/// At most one op per stream, in stream order.
class RunningOps {
 public:
  void start(const Running& op);
  /// Sets the rates after a start or an end.
  void share();
  /// Time until the first of them ends, ns.
  [[nodiscard]] std::int64_t until_first_end() const;
  /// Lets all of them run for that time.
  void pass(std::int64_t time);
  /// Removes those that have ended and returns them in stream order.
  [[nodiscard]] const std::vector<Running>& take_ended();

  [[nodiscard]] const std::vector<Running>& ops() const { return ops_; }
  [[nodiscard]] bool empty() const { return ops_.empty(); }

 private:
  std::vector<Running> ops_;
  std::vector<Running> ended_;
};

}  // namespace mfsdp
