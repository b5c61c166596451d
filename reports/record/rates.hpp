// Tokens and FLOPs a second: one formula for simulated and measured steps.
#pragma once

#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// FLOPs of one step on one rank for MFU and TFLOP/s: every GEMM of the plan's forward and
/// backward, and attention. Recomputation (Phase::recompute) does not count, and attention's
/// backward counts as twice its forward, although the kernel takes 2.5 times as many.
///
/// Where everything is trained, that is the usual 6 FLOPs for each token and matrix parameter (head
/// included, input embedding not) and 6 * layers * heads * head_dim * sequence a token for causal
/// attention. A frozen parameter costs 4 where a gradient passes through it, to something trained
/// before it or in its unit, and 2 where backward ends before it.
///
/// Exact as long as it is below 2^53.
[[nodiscard]] double model_flops(const Plan& plan);

/// The rates of one GPU.
struct Rates {
  double tokens_per_second = 0;
  double tflops = 0;
};

/// A larger MFU is one in per cent. Above 1 are those of GPUs whose catalogued peak is below what
/// they do.
inline constexpr int kMostMfu = 2;

/// Rates for steps of the run's plan that take `step` each; 0 for a step of no time.
[[nodiscard]] Rates rates_of(const RunFigures& run, Nanos step);

}  // namespace mfsdp
