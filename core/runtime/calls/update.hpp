// The arguments of an update: one rank's shard of a group.
#pragma once

#include <array>
#include <cstdint>

#include "core/plan/optimizer_spec.hpp"
#include "core/runtime/scalar.hpp"
#include "core/runtime/step_block.hpp"

namespace mfsdp::kernels {

/// Elements of a slice that decay, or do not, and have one learning rate.
struct DecayRun {
  std::int64_t first = 0;  ///< from the slice's start
  std::int64_t count = 0;
  bool decays = false;
  float rate = 1;  ///< what of the learning rate they get

  friend bool operator==(const DecayRun&, const DecayRun&) = default;
};

/// Gradients are sums over tokens: they are multiplied by 1/T of the loss's report and the clip
/// factor of the norm's. A norm that is not finite changes nothing. Beside directions, which are
/// orthogonalised in place of gradients, there is no loss and the norm scales nothing.
///
/// For the kernel `momentum`, the weights are the directions that it computes: 0 if the norm is not
/// finite.
///
/// S: what states are kept in: Real<W>, bf16, or bytes, which stand for codes of state_codes.hpp.
template <class G, class W, class C, class S = Real<W>>
struct Update {
  std::int64_t elements = 0;
  const G* gradients = nullptr;
  W* weights = nullptr;  ///< the main weights; without those, the compute weights
  C* compute = nullptr;  ///< what the main weights are rounded into; null without those
  /// As the optimizer's rule lists them; null beyond those.
  std::array<S*, kMostOptimizerStates> states = {};
  /// For states in bytes: [elements / kStateBlock], else null.
  std::array<float*, kMostOptimizerStates> scales = {};
  const StepBlock* step = nullptr;
  const float* loss = nullptr;  ///< [4], a LossReport; null beside directions
  const float* norm = nullptr;  ///< [4], a NormReport; null without clipping
};

}  // namespace mfsdp::kernels
