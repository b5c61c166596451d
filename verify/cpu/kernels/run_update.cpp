// An optimizer's step on one rank's slice of a group.
#include <cmath>
#include <cstring>

#include "core/runtime/calls/kernel_settings.hpp"
#include "core/runtime/calls/take_update.hpp"
#include "core/runtime/step_report.hpp"
#include "verify/cpu/kernels/optimizer.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"
#include "verify/cpu/kernels/sums.hpp"

namespace mfsdp::kernels {
namespace {

/// The main weights are updated, then rounded into the compute weights. Without main weights the
/// compute weights are the ones that are updated. Gradients without a finite norm change nothing.
template <class Rule, class G, class W, class C>
void update(const Update<G, W, C>& k, const OptimizerSettings& optimizer,
            std::span<const DecayRun> runs) {
  using R = Real<W>;
  StepBlock block;
  std::memcpy(&block, k.step, sizeof block);
  float scale = read_report<LossReport>(k.loss).inverse_tokens;
  if (k.norm != nullptr) {
    const auto norm = read_report<NormReport>(k.norm);
    if (norm.non_finite != 0) return;
    scale *= norm.clip_factor;
  }
  const R rate = block.learning_rate;
  UpdateStep<R> step{.learning_rate = rate,
                     .beta1 = static_cast<R>(optimizer.beta1),
                     .beta2 = static_cast<R>(optimizer.beta2),
                     .epsilon = static_cast<R>(optimizer.epsilon),
                     .corrected_rate = rate / static_cast<R>(block.bias_correction1),
                     .correction_root = std::sqrt(static_cast<R>(block.bias_correction2))};
  for (const auto& [first, count, decays] : runs) {
    step.keep = decays ? 1 - rate * static_cast<R>(optimizer.weight_decay) : 1;
    std::array<R*, kMostOptimizerStates> states = k.states;
    for (std::size_t s = 0; s < Rule::states.size(); ++s) states[s] += first;
    advance<Rule>(step, static_cast<R>(scale), count, k.gradients + first, states,
                  k.weights + first);
  }
  if (k.compute != nullptr) accumulate(k.elements, k.weights, false, k.compute);
}

}  // namespace

template <>
Result<void> run_kind<KernelKind::update>(const KernelCall& call, const KernelSettings& settings) {
  MFSDP_LET(group, take_updated_group(call, *settings.program));
  MFSDP_LET(runs, take_decay_runs(call, *group, settings.program->config.mesh));
  const Optimizer optimizer = *group->optimizer;
  return with_update_types(
      AllElementTypes{}, call,
      [&]<class G, class W, class C>(TypeTag<G>, TypeTag<W>, TypeTag<C>) -> Result<void> {
        MFSDP_LET(k, (take_update<G, W, C>(call, optimizer)));
        with_rule(optimizer, [&]<class Rule>(Rule) { update<Rule>(k, settings.optimizer, runs); });
        return {};
      });
}

}  // namespace mfsdp::kernels
