// The ops that the proofs of gradients, weights and scaling follow, a minority, and the places of
// their operands: computed once for each op, however often it runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "verify/proof/ledger/gradient_memory.hpp"
#include "verify/proof/ledger/layouts.hpp"
#include "verify/proof/order/accesses.hpp"

namespace mfsdp {

/// Bits of an op's entry.
inline constexpr std::uint8_t kFollowGradients = 1;
inline constexpr std::uint8_t kFollowWeights = 2;
inline constexpr std::uint8_t kFollowScaling = 4;
inline constexpr std::uint8_t kUsesParameters = 8;  ///< such that each is to get a gradient
inline constexpr std::uint8_t kUpdates = 16;
inline constexpr std::uint8_t kMakesGradient = 32;
inline constexpr std::uint8_t kAdds = 64;  ///< a kernel whose attribute "beta" is not 0
inline constexpr std::uint8_t kFollowDirections = 128;

/// An operand in a buffer that holds weights or gradients.
struct FollowedOperand {
  const Operand* operand = nullptr;
  Located located;
  std::optional<Spot> spot = {};        ///< of a gradient
  std::optional<AtomRange> atoms = {};  ///< of weights that are the same elements on all ranks
  bool gradient = false;                ///< or a weight
  bool reads = false;                   ///< and does no more
  bool own_unit = false;                ///< the op has no unit, or is of the operand's
  bool weight_grad = false;             ///< what a kernel that makes gradients makes
};

/// An op overwrites loss sums, partial norms, 1/T or a norm, and is not the op that computes them.
struct ScalingOverwrite {
  std::size_t op = 0;
  BufferId buffer;
  std::int64_t begin = 0;  ///< bytes of the buffer, of all ranks together
  std::int64_t end = 0;
};

/// An op overwrites a gradient that belongs to no group yet, and does not compute one there.
struct UngroupedOverwrite {
  std::size_t op = 0;
  std::uint32_t buffer = 0;
  std::int64_t begin = 0;  ///< bytes of the buffer, of all ranks together
  std::int64_t end = 0;
};

struct FollowedOps {
  std::vector<std::uint8_t> bits{};  ///< by op, in the order of the plan's ops
  /// Of ops that gradients or weights are followed through, in the order of their operands.
  std::vector<FollowedOperand> operands{};
  std::vector<std::uint32_t> first{0};                     ///< by op, and one past the last
  std::vector<ScalingOverwrite> scaling_overwrites{};      ///< by op, ascending
  std::vector<UngroupedOverwrite> ungrouped_overwrites{};  ///< likewise

  [[nodiscard]] std::span<const FollowedOperand> of(std::size_t op) const {
    return std::span(operands).subspan(first[op], first[op + 1] - first[op]);
  }
  [[nodiscard]] auto ungrouped_overwrites_of(std::size_t op) const {
    return std::ranges::equal_range(ungrouped_overwrites, op, {}, &UngroupedOverwrite::op);
  }
  /// The entry of one of the op's operands, or null where its buffer holds something else.
  [[nodiscard]] const FollowedOperand* find(std::size_t op, const Operand& operand) const {
    for (const FollowedOperand& followed : of(op))
      if (followed.operand == &operand) return &followed;
    return nullptr;
  }
};

[[nodiscard]] FollowedOps followed_ops(const Program& program, const Plan& plan,
                                       const Layouts& layouts, const AccessTable& table);

}  // namespace mfsdp
