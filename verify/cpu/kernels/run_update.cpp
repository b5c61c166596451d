// AdamW and SGD on one rank's slice of a group.
#include <cstring>

#include "core/runtime/calls/kernel_settings.hpp"
#include "core/runtime/calls/take_update.hpp"
#include "core/runtime/step_report.hpp"
#include "verify/cpu/kernels/bindings.hpp"
#include "verify/cpu/kernels/optimizer.hpp"
#include "verify/cpu/kernels/sums.hpp"

namespace mfsdp::kernels {
namespace {

/// The main weights are updated, then rounded into the compute weights. Without main weights the
/// compute weights are the ones that are updated. Gradients without a finite norm change nothing.
template <class G, class W, class C>
void update(const Update<G, W, C>& k, const OptimizerSettings& optimizer,
            std::span<const DecayRun> runs) {
  StepBlock step;
  std::memcpy(&step, k.step, sizeof step);
  float scale = read_report<LossReport>(k.loss).inverse_tokens;
  if (k.norm != nullptr) {
    const auto norm = read_report<NormReport>(k.norm);
    if (norm.non_finite != 0) return;
    scale *= norm.clip_factor;
  }
  const auto decay = static_cast<Real<W>>(optimizer.weight_decay);
  const AdamW<Real<W>> adam{.learning_rate = step.learning_rate,
                            .weight_decay = decay,
                            .beta1 = static_cast<Real<W>>(optimizer.beta1),
                            .beta2 = static_cast<Real<W>>(optimizer.beta2),
                            .epsilon = static_cast<Real<W>>(optimizer.epsilon),
                            .bias_correction1 = step.bias_correction1,
                            .bias_correction2 = step.bias_correction2,
                            .scale = scale};
  for (const auto& [first, count, decays] : runs) {
    if (k.exp_avg == nullptr)
      sgd<G, W>(step.learning_rate, decay, scale, decays, count, k.gradients + first,
                k.weights + first);
    else
      adamw(adam, decays, count, k.gradients + first, k.exp_avg + first, k.exp_avg_sq + first,
            k.weights + first);
  }
  if (k.compute != nullptr) accumulate(k.elements, k.weights, false, k.compute);
}

}  // namespace

Result<void> run_update(const KernelCall& call, const KernelSettings& settings) {
  MFSDP_LET(runs, take_decay_runs(call, *settings.program));
  return with_update_types(
      AllElementTypes{}, call,
      [&]<class G, class W, class C>(TypeTag<G>, TypeTag<W>, TypeTag<C>) -> Result<void> {
        MFSDP_LET(k, (take_update<G, W, C>(call)));
        update(k, settings.optimizer, runs);
        return {};
      });
}

}  // namespace mfsdp::kernels
