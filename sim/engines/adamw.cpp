#include "sim/engines/adamw.hpp"

namespace mfsdp {

void keep_adamw_state(StepBuilder& step, const OwnedWeight& weight) {
  step.at(weight.unit, Phase::optimizer);
  step.keep(weight.name + "_step", kFull, Category::optimizer_state);
  if (weight.elements == 0) return;
  for (const char* moment : {"_exp_avg", "_exp_avg_sq"})
    step.keep(weight.name + moment, weight.elements * kFull, Category::optimizer_state);
}

void update_weights(StepBuilder& step, const PlanConfig& config, std::int64_t elements,
                    std::size_t parameters) {
  const auto lists = static_cast<HostLaunches>(parameters);
  // Reads weight, gradient and moments; writes all except the gradient.
  constexpr std::int64_t kUpdate = 7 * kFull;
  if (config.clip.num != 0) {
    step.host_work(lists * kClipParameter);
    step.memory_bound(KernelKind::norm_partial, "gradient_norm", elements * kFull);
    step.memory_bound(KernelKind::accumulate, "clip", 2 * elements * kFull);
  }
  step.host_work(lists * kOptimizerParameter);
  step.memory_bound(KernelKind::update, "adamw", elements * kUpdate);
}

}  // namespace mfsdp
