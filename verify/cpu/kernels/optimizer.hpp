// Updates of a slice of weights, by the rules of core/plan/optimizer_spec.hpp. Gradients come as
// sums over tokens: `scale` divides by their number and clips in one multiplication.
#pragma once

#include <array>
#include <cstdint>

#include "core/plan/optimizer_spec.hpp"
#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/vector_clones.hpp"

namespace mfsdp::kernels {

/// Updates `count` weights of which all or none decay. `states`: one array a state of the rule.
template <class Rule, class G, class W>
MFSDP_VECTOR_CLONES void advance(const UpdateStep<Real<W>>& step, Real<W> scale, std::int64_t count,
                                 const G* gradients,
                                 const std::array<Real<W>*, kMostOptimizerStates>& states,
                                 W* weights) {
  constexpr std::size_t kStates = Rule::states.size();
  for (std::int64_t i = 0; i < count; ++i) {
    std::array<Real<W>, kStates + 1> state;  // never empty
    for (std::size_t s = 0; s < kStates; ++s) state[s] = states[s][i];
    weights[i] = narrow<W>(
        Rule::updated(widen(weights[i]), widen(gradients[i]) * scale, state.data(), step));
    for (std::size_t s = 0; s < kStates; ++s) states[s][i] = state[s];
  }
}

}  // namespace mfsdp::kernels
