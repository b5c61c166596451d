#include "reports/record/rates.hpp"

#include "core/plan/instances.hpp"

namespace mfsdp {
namespace {

/// FLOPs that one run of a kernel counts for.
double counted_flops(const Kernel& kernel) {
  const KernelSpec* spec = spec_of(kernel);
  if (spec == nullptr || spec->flops == nullptr) return 0;
  const auto flops = static_cast<double>(kernel.flops);
  return flops * static_cast<double>(spec->model_share.num) /
         static_cast<double>(spec->model_share.den);
}

}  // namespace

double model_flops(const Plan& plan) {
  double sum = 0;
  for (std::size_t s = 0; s < plan.segments.size(); ++s)
    for_each_op_of_run(plan, s, [&](const Op& op) {
      if (op.phase != Phase::forward && op.phase != Phase::backward) return;
      if (const auto* kernel = std::get_if<Kernel>(&op.body))
        sum += counted_flops(*kernel) * static_cast<double>(plan.segments[s].repeat);
    });
  return sum;
}

Rates rates_of(const RunFigures& run, Nanos step) {
  if (step <= Nanos(0)) return {};
  const auto tokens = static_cast<double>(run.config.global_tokens()) /
                      static_cast<double>(run.config.mesh.world_size());
  const double seconds = static_cast<double>(step.value) / 1e9;
  return {.tokens_per_second = tokens / seconds, .tflops = run.plan.model_flops / seconds / 1e12};
}

}  // namespace mfsdp
