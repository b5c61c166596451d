// Which ops the proofs of gradients, weights and scales have to look at: a minority.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/proof/layouts.hpp"
#include "verify/proof/structure.hpp"

namespace mfsdp {

/// Bits of an op's entry.
inline constexpr std::uint8_t kFollowGradients = 1;
inline constexpr std::uint8_t kFollowWeights = 2;
inline constexpr std::uint8_t kFollowScales = 4;
inline constexpr std::uint8_t kUsesParameters = 8;  ///< such that each is to get a gradient

/// By op of a plan, in the order of its ops.
[[nodiscard]] std::vector<std::uint8_t> followed_ops(const Plan& plan, const Layouts& layouts,
                                                     const AccessTable& table);

}  // namespace mfsdp
