// The order of ops by streams, events, communicators and the host, independent of times.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// One execution of an op in the unrolled loop body.
struct OpInstance {
  const Op* op = nullptr;
  std::uint32_t stream = 0;    ///< position in Program::streams
  std::uint32_t position = 0;  ///< in that stream's order, over all steps
  std::int64_t step = 0;
  std::int64_t begun = 0;  ///< microbatches of its step, its segment's included (rotation.hpp)
  std::int64_t lag = 0;    ///< of the op, and of the call of its pass
};

/// A plan unrolled over `steps` steps, repeated segments at most `repeats` times, with one vector
/// clock per instance: component s counts the ops of stream s that certainly ran before it. Where
/// things have several instances, segments run at most `repeats` rotations of all of them, and the
/// rest of their repetitions after whole rotations.
class HappensBefore {
 public:
  HappensBefore(const Program& program, const Plan& plan, std::int64_t steps = 2,
                std::int64_t repeats = 2);

  /// In host order.
  [[nodiscard]] const std::vector<OpInstance>& instances() const { return instances_; }
  [[nodiscard]] std::size_t streams() const { return streams_; }

  /// The clock of instance `i`: one count per stream, the instance itself not included.
  [[nodiscard]] std::span<const std::uint32_t> clock(std::size_t i) const {
    return std::span(clocks_).subspan(i * streams_, streams_);
  }
  /// Whether instance a certainly completes before instance b begins.
  [[nodiscard]] bool before(std::size_t a, std::size_t b) const {
    return clock(b)[instances_[a].stream] > instances_[a].position;
  }

 private:
  std::size_t streams_;
  std::vector<OpInstance> instances_;
  std::vector<std::uint32_t> clocks_;
};

}  // namespace mfsdp
