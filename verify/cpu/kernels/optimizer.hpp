// Updates of a slice of weights. Gradients come as sums over tokens: `scale` divides by their
// number and clips in one multiplication.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/vector_clones.hpp"

namespace mfsdp::kernels {

/// Adam's moments with decay apart from the gradient (Loshchilov and Hutter, arXiv 1711.05101),
/// in the order of PyTorch's AdamW.
template <class R>
struct AdamW {
  R learning_rate = 0;
  R weight_decay = 0;
  R beta1 = 0;
  R beta2 = 0;
  R epsilon = 0;
  R bias_correction1 = 1;  ///< 1 - beta1^t
  R bias_correction2 = 1;  ///< 1 - beta2^t
  R scale = 1;             ///< of the gradient
};

/// Updates `count` weights of which all or none decay.
template <class G, class W>
MFSDP_VECTOR_CLONES void adamw(const AdamW<Real<W>>& a, bool decays, std::int64_t count,
                               const G* gradients, Real<W>* exp_avg, Real<W>* exp_avg_sq,
                               W* weights) {
  const Real<W> keep = decays ? 1 - a.learning_rate * a.weight_decay : 1;
  const Real<W> step = a.learning_rate / a.bias_correction1;
  const Real<W> root = std::sqrt(a.bias_correction2);
  for (std::int64_t i = 0; i < count; ++i) {
    const Real<W> gradient = widen(gradients[i]) * a.scale;
    exp_avg[i] = a.beta1 * exp_avg[i] + (1 - a.beta1) * gradient;
    exp_avg_sq[i] = a.beta2 * exp_avg_sq[i] + (1 - a.beta2) * gradient * gradient;
    const Real<W> divisor = std::sqrt(exp_avg_sq[i]) / root + a.epsilon;
    weights[i] = narrow<W>(widen(weights[i]) * keep - step * exp_avg[i] / divisor);
  }
}

/// Plain gradient descent, with the same decay.
template <class G, class W>
void sgd(Real<W> learning_rate, Real<W> weight_decay, Real<W> scale, bool decays,
         std::int64_t count, const G* gradients, W* weights) {
  const Real<W> keep = decays ? 1 - learning_rate * weight_decay : 1;
  for (std::int64_t i = 0; i < count; ++i)
    weights[i] =
        narrow<W>(widen(weights[i]) * keep - learning_rate * (widen(gradients[i]) * scale));
}

}  // namespace mfsdp::kernels
