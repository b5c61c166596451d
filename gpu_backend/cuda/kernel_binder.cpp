// In a separate library: the other sources of this folder define the functions that it calls.
#include "gpu_backend/cuda/kernel_binder.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "core/plan/exact_sums.hpp"
#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {

namespace {

using Bind = Result<Launch> (*)(const KernelCall&, KernelBinder&, ExactOutlier*, cudaStream_t);

template <KernelKind kind>
Result<Launch> bind_one(const KernelCall& call, KernelBinder& binder, ExactOutlier* outlier,
                        cudaStream_t stream) {
  return bind_kind(
      KernelBinding<kind>{.call = call, .binder = binder, .outlier = outlier, .stream = stream});
}

template <std::size_t... kinds>
constexpr std::array<Bind, sizeof...(kinds)> all_kinds(std::index_sequence<kinds...> /*all*/) {
  return {&bind_one<static_cast<KernelKind>(kinds)>...};
}

/// The CPU has log probabilities, and GPUs do not yet.
Result<void> check_supported(const Kernel& kernel) {
  const bool has_log_probs = std::ranges::any_of(
      kernel.operands, [](const Operand& operand) { return operand.role == "log_probs"; });
  if (!has_log_probs) return {};
  return fail("kernel " + std::string(to_string(kernel.kind)), "GPUs have no log_probs yet");
}

constexpr std::array kBinds = all_kinds(std::make_index_sequence<kKernelKinds>());

}  // namespace

Result<Launch> KernelBinder::bind(const KernelCall& call, cudaStream_t stream) {
  const auto kind = static_cast<std::size_t>(call.kernel->kind);
  if (kind >= kBinds.size()) return fail("kernel", "expected one of the kinds of the plan");
  MFSDP_TRY(check_supported(*call.kernel));
  MFSDP_LET(outlier, this->outlier(*call.kernel));
  return kBinds[kind](call, *this, outlier, stream);
}

// ---- GEMMs and attention -----------------------------------------------------------------------

Result<GemmPlanner*> KernelBinder::gemm() {
  if (!gemm_) {
    MFSDP_LET(made, GemmPlanner::create(gemm_settings_));
    gemm_ = std::move(made);
  }
  return &*gemm_;
}

Result<AttentionPlanner*> KernelBinder::attention() {
  if (!attention_) {
    MFSDP_LET(made, AttentionPlanner::create(attention_kernels_));
    attention_ = std::move(made);
  }
  return &*attention_;
}

Result<void> KernelBinder::offer(std::span<const GemmAlgorithm> algorithms) {
  MFSDP_LET(planner, gemm());
  planner->offer(algorithms);
  return {};
}

std::vector<GemmAlgorithm> KernelBinder::chosen() const {
  return gemm_ ? gemm_->chosen() : std::vector<GemmAlgorithm>{};
}

// ---- sums --------------------------------------------------------------------------------------

Result<ExactOutlier*> KernelBinder::outlier(const Kernel& kernel) {
  const bool leaves_faults = kernel.kind == KernelKind::peer_order ||
                             kernel.find_attribute(exact_attribute::grid_exponent) != nullptr;
  if (!leaves_faults) return nullptr;
  if (outlier_ == nullptr) {
    MFSDP_LET(made, allocate_device(sizeof(ExactOutlier), "faults of exact sums"));
    MFSDP_TRY(check(cudaMemset(made.get(), 0, sizeof(ExactOutlier)), "cudaMemset"));
    outlier_ = std::move(made);
  }
  return reinterpret_cast<ExactOutlier*>(outlier_.get());
}

Result<void> KernelBinder::exact_outcome() const {
  if (outlier_ == nullptr) return {};
  ExactOutlier outlier;
  MFSDP_TRY(check(cudaMemcpy(&outlier, outlier_.get(), sizeof outlier, cudaMemcpyDeviceToHost),
                  "cudaMemcpy"));
  return check_exact(outlier);
}

// ---- the optimizer -----------------------------------------------------------------------------

/// Copied once: they are equal in every step.
Result<std::span<const kernels::DecayRun>> KernelBinder::on_device(
    std::span<const kernels::DecayRun> runs) {
  if (runs.empty()) return std::span<const kernels::DecayRun>{};
  MFSDP_LET(memory, allocate_device(runs.size_bytes(), "which elements decay"));
  MFSDP_TRY(check(cudaMemcpy(memory.get(), runs.data(), runs.size_bytes(), cudaMemcpyHostToDevice),
                  "cudaMemcpy"));
  const auto* first = reinterpret_cast<const kernels::DecayRun*>(memory.get());
  decay_runs_.push_back(std::move(memory));
  return std::span(first, runs.size());
}

}  // namespace mfsdp::cuda
