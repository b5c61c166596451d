#include "sim/engines/te_modules.hpp"

#include <string>

namespace mfsdp {

void TeModules::take_workspace() {
  // Size for GPUs since Hopper, and 1024 bytes for alignment.
  constexpr std::int64_t kWorkspace = (std::int64_t{32} << 20) + 1024;
  if (!workspace_) step_.keep("te_workspace", kWorkspace, Category::workspace);
  workspace_ = true;
}

void TeModules::gemm(GemmKind kind, std::string_view name, std::int64_t m, std::int64_t n,
                     std::int64_t k, Library library) {
  if (library == Library::pytorch) return step_.gemm(kind, name, m, n, k);
  take_workspace();
  step_.gemm(kind, name, m, n, k, GemmWorkspace::callers);
}

void TeModules::gemm_fp8(GemmKind kind, std::string_view name, const GemmSize& size) {
  take_workspace();
  const bool adds_fp32 = kind == GemmKind::weight_gradient && main_gradient_ == kFull;
  step_.gemm_fp8(kind, name, size, {.fast = kind == GemmKind::forward, .adds_fp32 = adds_fp32},
                 GemmWorkspace::callers);
}

TeCasts TeModules::cast(std::string_view name, std::int64_t elements, LargestMagnitude largest,
                        bool transposes) {
  const std::string own(name);
  if (largest == LargestMagnitude::by_a_pass)
    step_.memory_bound(KernelKind::amax, own + "_amax", elements * kHalf);
  TeCasts casts{.row = step_.allocate(own + "_fp8", elements, Category::activation)};
  if (transposes) casts.column = step_.allocate(own + "_fp8_t", elements, Category::activation);
  step_.memory_bound(KernelKind::cast_scaled, own + "_cast",
                     elements * (kHalf + (transposes ? 2 : 1)));
  return casts;
}

void TeModules::cast_weight(std::size_t weight, std::string_view name, std::int64_t elements) {
  const std::string own(name);
  if (cast_weights_.insert(weight).second)
    for (const char* copy : {"_weight_fp8", "_weight_fp8_t"})
      step_.keep(own + copy, elements, Category::workspace);
  if (!is_first_ || !cast_in_step_.insert(weight).second) return;
  step_.memory_bound(KernelKind::amax, own + "_weight_amax", elements * kHalf);
  step_.memory_bound(KernelKind::cast_scaled, own + "_weight_cast", elements * (kHalf + 2));
}

void TeModules::keep_stand_in(std::int64_t rows, std::int64_t columns) {
  if (stand_ins_.insert({rows, columns}).second)
    step_.keep("gradient_stand_in", rows * columns * kHalf, Category::unsharded_grad);
}

void TeModules::add_to_buffer(std::size_t weight, Tensor gradient) {
  const std::int64_t bytes = step_.bytes_of(gradient);
  step_.memory_bound(KernelKind::accumulate, "add_gradient",
                     bytes + bytes / kHalf * 2 * main_gradient_);
  step_.free(gradient);
  hooks_.ready(weight);
}

TeNorm TeModules::norm(std::string_view name, std::int64_t bytes, std::int64_t statistic) {
  const std::string own(name);
  TeNorm made{};
  if (is_layer_norm_) made.mean = step_.allocate(own + "_mean", statistic, Category::activation);
  made.statistic = step_.allocate(own + "_rstd", statistic, Category::activation);
  made.rows = step_.allocate(name, bytes, Category::activation);
  step_.memory_bound(is_layer_norm_ ? KernelKind::layer_norm_forward : KernelKind::rms_norm_forward,
                     name, 2 * bytes);
  return made;
}

void TeModules::free_statistics(const TeNorm& norm) {
  step_.free(norm.statistic);
  if (norm.mean) step_.free(*norm.mean);
}

TeNormGradients TeModules::norm_backward(std::string_view name, std::int64_t bytes,
                                         std::int64_t columns) {
  // One row of partial sums for each thread block; there is one block for each SM, 132 on Hopper.
  constexpr std::int64_t kPartialRows = 132;
  const std::string own(name);
  const auto vector = [&](const char* of) {
    return step_.allocate(own + of, columns * kHalf, Category::unsharded_grad);
  };
  TeNormGradients made{};
  made.input = step_.allocate("d_" + own, bytes, Category::activation);
  made.weight = vector("_grad");
  if (is_layer_norm_) made.bias = vector("_bias_grad");
  // Those of weight and bias are one allocation.
  step_.scratch(own + "_partial", (made.bias ? 2 : 1) * kPartialRows * columns * kFull);
  step_.memory_bound(
      is_layer_norm_ ? KernelKind::layer_norm_backward : KernelKind::rms_norm_backward, "d_" + own,
      3 * bytes);
  return made;
}

void TeModules::bias_backward(std::size_t weight, std::string_view name, Tensor gradient,
                              std::int64_t columns) {
  const std::string own(name);
  const Tensor bias = step_.allocate(own + "_grad", columns * kHalf, Category::unsharded_grad);
  step_.memory_bound(KernelKind::bias_grad, own, step_.bytes_of(gradient));
  add_to_buffer(weight, bias);
}

}  // namespace mfsdp
