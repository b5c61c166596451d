#include "sim/engines/te_modules.hpp"

#include <string>

namespace mfsdp {

void TeModules::gemm(GemmKind kind, std::string_view name, std::int64_t m, std::int64_t n,
                     std::int64_t k, Library library) {
  // Size for GPUs since Hopper, and 1024 bytes for alignment.
  constexpr std::int64_t kWorkspace = (std::int64_t{32} << 20) + 1024;
  if (library == Library::pytorch) return step_.gemm(kind, name, m, n, k);
  if (!workspace_) step_.keep("te_workspace", kWorkspace, Category::workspace);
  workspace_ = true;
  step_.gemm(kind, name, m, n, k, GemmWorkspace::callers);
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
  const Tensor sums = step_.allocate(std::string(name) + "_rstd", statistic, Category::activation);
  const Tensor rows = step_.allocate(name, bytes, Category::activation);
  step_.memory_bound(KernelKind::rms_norm_forward, name, 2 * bytes);
  return {.rows = rows, .statistic = sums};
}

std::pair<Tensor, Tensor> TeModules::norm_backward(std::string_view name, std::int64_t bytes,
                                                   std::int64_t columns) {
  // One row of partial sums for each thread block; there is one block for each SM, 132 on Hopper.
  constexpr std::int64_t kPartialRows = 132;
  const std::string own(name);
  const Tensor rows = step_.allocate("d_" + own, bytes, Category::activation);
  const Tensor weight = step_.allocate(own + "_grad", columns * kHalf, Category::unsharded_grad);
  step_.scratch(own + "_partial", kPartialRows * columns * kFull);
  step_.memory_bound(KernelKind::rms_norm_backward, "d_" + own, 3 * bytes);
  return {rows, weight};
}

}  // namespace mfsdp
