// An optimizer's step on one rank's slice of a group.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/runtime/calls/kernel_settings.hpp"
#include "core/runtime/calls/take_update.hpp"
#include "core/runtime/step_report.hpp"
#include "verify/cpu/kernels/optimizer.hpp"
#include "verify/cpu/kernels/run_kind.hpp"
#include "verify/cpu/kernels/sums.hpp"

namespace mfsdp::kernels {
namespace {

/// The factor from the step of the range to the step of elements with one rate.
template <class R>
class Steps {
 public:
  Steps(const StepBlock& block, const OptimizerSettings& optimizer)
      : block_(block), optimizer_(optimizer) {}

  [[nodiscard]] UpdateStep<R> of(const DecayRun& run) const {
    const R rate = static_cast<R>(block_.learning_rate) * static_cast<R>(run.rate);
    return {.learning_rate = rate,
            .keep = run.decays ? 1 - rate * static_cast<R>(optimizer_.weight_decay) : 1,
            .beta1 = static_cast<R>(optimizer_.beta1),
            .beta2 = static_cast<R>(optimizer_.beta2),
            .epsilon = static_cast<R>(optimizer_.epsilon),
            .momentum = static_cast<R>(optimizer_.momentum),
            .corrected_rate = rate / static_cast<R>(block_.bias_correction1),
            .correction_root = std::sqrt(static_cast<R>(block_.bias_correction2))};
  }

 private:
  const StepBlock& block_;
  const OptimizerSettings& optimizer_;
};

template <class Rule, class G, class W, class C, class S>
void advance_runs(const Update<G, W, C, S>& k, const Steps<Real<W>>& steps, Real<W> scale,
                  std::span<const DecayRun> runs) {
  for (const DecayRun& run : runs) {
    std::array<S*, kMostOptimizerStates> states = k.states;
    for (std::size_t s = 0; s < Rule::states.size(); ++s) states[s] += run.first;
    advance<Rule, G, W, S>(steps.of(run), scale, run.count, k.gradients + run.first, states,
                           k.weights + run.first);
  }
}

/// States in bytes: block by block, of which each is computed as if it had been fp32.
template <class Rule, class G, class W, class C>
void advance_blocks(const Update<G, W, C, std::uint8_t>& k, const Steps<float>& steps, float scale,
                    std::span<const DecayRun> runs) {
  constexpr std::size_t kStates = Rule::states.size();
  std::array<std::array<float, kStateBlock>, kStates + 1> values;
  const auto with_each_state = [&]<std::size_t... s>(std::index_sequence<s...>, const auto& use) {
    (use.template operator()<Rule::states[s].is_signed>(s), ...);
  };
  auto run = runs.begin();
  for (std::int64_t begin = 0; begin < k.elements; begin += kStateBlock) {
    const std::int64_t block = begin / kStateBlock;
    with_each_state(std::make_index_sequence<kStates>{}, [&]<bool is_signed>(std::size_t s) {
      decode_block<is_signed>(k.states[s] + begin, k.scales[s][block], values[s].data());
    });
    for (std::int64_t at = begin; at < begin + kStateBlock;) {
      while (run->first + run->count <= at) ++run;
      const std::int64_t end = std::min(begin + kStateBlock, run->first + run->count);
      std::array<float*, kMostOptimizerStates> states{};
      for (std::size_t s = 0; s < kStates; ++s) states[s] = values[s].data() + (at - begin);
      advance<Rule, G, W>(steps.of(*run), scale, end - at, k.gradients + at, states,
                          k.weights + at);
      at = end;
    }
    with_each_state(std::make_index_sequence<kStates>{}, [&]<bool is_signed>(std::size_t s) {
      encode_block<is_signed>(values[s].data(), k.states[s] + begin, k.scales[s][block]);
    });
  }
}

/// The main weights are updated, then rounded into the compute weights. Without main weights the
/// compute weights are the ones that are updated. Gradients without a finite norm change nothing.
template <class Rule, class G, class W, class C, class S>
void update(const Update<G, W, C, S>& k, const OptimizerSettings& optimizer,
            std::span<const DecayRun> runs) {
  StepBlock block;
  std::memcpy(&block, k.step, sizeof block);
  float scale = k.loss == nullptr ? 1 : read_report<LossReport>(k.loss).inverse_tokens;
  if (k.norm != nullptr) {
    const auto norm = read_report<NormReport>(k.norm);
    if (norm.non_finite != 0) {
      if (std::is_same_v<Rule, MuonMomentumRule>) std::fill_n(k.weights, k.elements, W{});
      return;
    }
    if (k.loss != nullptr) scale *= norm.clip_factor;
  }
  const Steps<Real<W>> steps(block, optimizer);
  if constexpr (std::is_same_v<S, std::uint8_t>)
    advance_blocks<Rule>(k, steps, scale, runs);
  else
    advance_runs<Rule>(k, steps, static_cast<Real<W>>(scale), runs);
  if (k.compute != nullptr) accumulate(k.elements, k.weights, false, k.compute);
}

}  // namespace

template <>
Result<void> run_kind(const KernelRun<K::update>& run) {
  const auto& [call, settings] = run;
  MFSDP_LET(group, take_updated_group(call, *settings.program));
  MFSDP_LET(runs, take_decay_runs(call, *group, settings.program->config.mesh));
  const Optimizer optimizer = *group->optimizer;
  return with_update_types(
      AllElementTypes{}, call, optimizer,
      [&]<class G, class W, class C>(TypeTag<G>, TypeTag<W>, TypeTag<C>) -> Result<void> {
        return with_state_type<W>(call, optimizer, [&]<class S>(TypeTag<S>) -> Result<void> {
          MFSDP_LET(k, (take_update<G, W, C, S>(call, optimizer)));
          with_rule(optimizer,
                    [&]<class Rule>(Rule) { update<Rule>(k, settings.optimizer, runs); });
          return {};
        });
      });
}

/// No rate and no decay: these are the update's.
template <>
Result<void> run_kind(const KernelRun<K::momentum>& run) {
  const auto& [call, settings] = run;
  MFSDP_LET(group, take_updated_group(call, *settings.program));
  const Optimizer optimizer = *group->optimizer;
  return with_update_types(
      AllElementTypes{}, call, optimizer,
      [&]<class G, class W, class C>(TypeTag<G>, TypeTag<W>, TypeTag<C>) -> Result<void> {
        return with_state_type<W>(call, optimizer, [&]<class S>(TypeTag<S>) -> Result<void> {
          MFSDP_LET(k, (take_update<G, W, C, S>(call, optimizer)));
          const DecayRun all{.first = 0, .count = k.elements};
          update<MuonMomentumRule>(k, settings.optimizer, {&all, 1});
          return {};
        });
      });
}

}  // namespace mfsdp::kernels
