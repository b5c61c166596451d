// Updates of a range of weights, by the rules of core/plan/optimizer_spec.hpp. Gradients are sums
// over tokens: multiplying by `scale` divides by their number and clips.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "core/plan/optimizer_spec.hpp"
#include "core/plan/state_codes.hpp"
#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/vector_clones.hpp"

namespace mfsdp::kernels {

/// Updates `count` weights, of which all or none decay. `states`: one array for each state of the
/// rule, each value rounded once.
template <class Rule, class G, class W, class S = Real<W>>
MFSDP_VECTOR_CLONES void advance(const UpdateStep<Real<W>>& step, Real<W> scale, std::int64_t count,
                                 const G* gradients,
                                 const std::array<S*, kMostOptimizerStates>& states, W* weights) {
  constexpr std::size_t kStates = Rule::states.size();
  for (std::int64_t i = 0; i < count; ++i) {
    std::array<Real<W>, kStates + 1> state;  // never empty
    for (std::size_t s = 0; s < kStates; ++s) state[s] = widen(states[s][i]);
    weights[i] = narrow<W>(
        Rule::updated(widen(weights[i]), widen(gradients[i]) * scale, state.data(), step));
    for (std::size_t s = 0; s < kStates; ++s) states[s][i] = narrow<S>(state[s]);
  }
}

/// Decodes one block of a state: codes times the block's scale.
template <bool is_signed>
void decode_block(const std::uint8_t* codes, float scale, float* values) {
  static constexpr std::array<float, 256> table = values_of_codes<is_signed>();
  for (std::int64_t i = 0; i < kStateBlock; ++i) values[i] = table[codes[i]] * scale;
}

/// Encodes one block of a state. The scale is the largest magnitude, 0 if all are 0.
template <bool is_signed>
void encode_block(const float* values, std::uint8_t* codes, float& scale) {
  float largest = 0;
  for (std::int64_t i = 0; i < kStateBlock; ++i) largest = std::max(largest, std::fabs(values[i]));
  scale = largest;
  for (std::int64_t i = 0; i < kStateBlock; ++i)
    codes[i] =
        largest > 0 ? code_of_value<is_signed>(values[i] / largest) : static_cast<std::uint8_t>(0);
}

}  // namespace mfsdp::kernels
