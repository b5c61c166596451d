// What an update takes: one rank's slice of a group.
#pragma once

#include <array>
#include <cstdint>

#include "core/plan/optimizer_spec.hpp"
#include "core/runtime/scalar.hpp"
#include "core/runtime/step_block.hpp"

namespace mfsdp::kernels {

/// Elements of a slice that decay, or do not.
struct DecayRun {
  std::int64_t first = 0;  ///< from the slice's start
  std::int64_t count = 0;
  bool decays = false;

  friend bool operator==(const DecayRun&, const DecayRun&) = default;
};

/// Gradients are sums over tokens: they are multiplied by 1/T of the loss's report and the clip
/// factor of the norm's. A norm that is not finite changes nothing.
template <class G, class W, class C>
struct Update {
  std::int64_t elements = 0;
  const G* gradients = nullptr;
  W* weights = nullptr;  ///< the main weights; without those, the compute weights
  C* compute = nullptr;  ///< what the main weights are rounded into; null without those
  /// As the optimizer's rule lists them; null beyond those.
  std::array<Real<W>*, kMostOptimizerStates> states = {};
  const StepBlock* step = nullptr;
  const float* loss = nullptr;  ///< [4], a LossReport
  const float* norm = nullptr;  ///< [4], a NormReport; null without clipping
};

}  // namespace mfsdp::kernels
