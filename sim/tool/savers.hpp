// Settings that save memory and train the same: a step takes longer. They recompute activations,
// gather no unit ahead, hold one full gradient at a time. Types of numbers and lengths of
// sequences, which change what is trained, are none of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/tool/sim_options.hpp"

namespace mfsdp {

inline constexpr std::int64_t kLeastPrefetch = 0;
inline constexpr std::int64_t kLeastGradSlots = 1;

enum class MemorySaver { recompute, prefetch, grad_slots };

inline constexpr std::array kEverySaver{MemorySaver::recompute, MemorySaver::prefetch,
                                        MemorySaver::grad_slots};

/// Options, and the flags in which they are not what was asked.
struct Variant {
  SimOptions options;
  std::vector<MemorySaver> savers = {};
  std::string flags = {};  ///< "--recompute full --prefetch 0"; empty: as asked
};

/// The options with `savers`, but for those that they have already and those that the engine does
/// not know.
[[nodiscard]] Variant with_savers(const SimOptions& options, std::span<const MemorySaver> savers);

/// From what was asked to the least memory: as asked, with full recomputation, with every saver
/// that the command line leaves open. Each takes what the one before takes, and more.
[[nodiscard]] std::vector<Variant> saving_variants(const SimOptions& asked);

}  // namespace mfsdp
