// Kinds of kernels that the cost model prices without a measurement of that kind.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <variant>

#include "core/plan/instances.hpp"
#include "sim/cost/cost_model.hpp"
#include "sim/cost/peak.hpp"

namespace mfsdp {
namespace {

/// The dtype of an operand; none for kernels without operands, which other engines have.
std::optional<DType> dtype_of(const Kernel& kernel, std::string_view role) {
  const auto found = std::ranges::find(kernel.operands, role, &Operand::role);
  return found == kernel.operands.end() ? std::nullopt : std::optional(found->dtype);
}

/// "heads of 128 and 256": the measured neighbours of a head_dim.
std::string neighbours(const std::set<std::int64_t>& measured, std::int64_t head_dim) {
  const auto above = measured.lower_bound(head_dim);
  if (above == measured.begin()) return fmt::format("heads of {}", *above);
  const std::int64_t below = *std::prev(above);
  return above == measured.end() ? fmt::format("heads of {}", below)
                                 : fmt::format("heads of {} and {}", below, *above);
}

}  // namespace

void CostModel::add_unmeasured_attention(const Kernel& kernel, std::set<std::string>& kinds) const {
  const std::int64_t head_dim = even_head_dim(kernel);
  if (head_dim <= 0) return;
  const bool own = warpgroups_ && warpgroups_take(kernel);
  const std::set<std::int64_t>& measured = cost_of_attention(kernel).head_dims();
  if (!measured.contains(head_dim)) {
    const std::int64_t keys = kernel.attribute("head_dim");
    const std::int64_t values = kernel.attribute("value_dim", keys);
    const std::string width =
        keys == values ? std::to_string(keys) : fmt::format("{} and values of {}", keys, values);
    kinds.insert(fmt::format("attention of heads of {} (priced from {})", width,
                             neighbours(measured, head_dim)));
  }
  if (const auto dtype = dtype_of(kernel, "query"); dtype && *dtype != DType::bf16)
    kinds.insert(fmt::format("attention in {} (priced as in bf16)", to_string(*dtype)));
  if (!warpgroups_take(kernel) && !kernel.operands.empty() && kernel.attribute("parts", 1) > 1)
    kinds.insert("attention of parts of sequences by plain kernels (priced as cuDNN's)");
  // cuDNN's masks were measured on another GPU; our own kernels' on this one.
  const std::int64_t window = kernel.attribute("window");
  const bool windowed = window > 0 && window < kernel.attribute("seq");
  if (!own && !kernel.operands.empty() && (windowed || masks_documents(kernel)))
    kinds.insert(fmt::format("cuDNN's attention with {} (priced by a ratio of one h100)",
                             windowed ? "windows" : "documents"));
}

std::vector<std::string> CostModel::unmeasured(const Plan& plan) const {
  const MeasuredParts& measured = cluster_.gpu.measured;
  std::set<std::string> kinds;
  for (const Op& op : ops_of(plan)) {
    const auto* kernel = std::get_if<Kernel>(&op.body);
    if (kernel == nullptr) continue;
    const KernelClass which = class_of(kernel->kind);
    const bool attends =
        which == KernelClass::attention_forward || which == KernelClass::attention_backward;
    if (attends && measured.attention) add_unmeasured_attention(*kernel, kinds);
    if (kernel->kind == KernelKind::gemm_fp8 && !fp8_split_)
      kinds.insert("GEMMs in FP8 (priced at twice the rate of bf16)");
    if (kernel->kind == KernelKind::gemm_blocks) {
      const Gpu& gpu = cluster_.gpu;
      const double times = peak_of(*kernel, gpu) / gpu.bf16;
      if (has_block_ratio(*kernel))
        kinds.insert(
            "GEMMs with scales of blocks (priced by their ratio to scales of tensors in "
            "four forward shapes)");
      else
        kinds.insert(fmt::format(
            "GEMMs with scales of blocks (priced at {:.3g} x the rate of bf16)", times));
      kinds.insert("casts with scales of blocks (priced as casts with scales of tensors)");
    }
    if (kernel->kind != KernelKind::gemm || !measured.gemm) continue;
    const auto dtype = dtype_of(*kernel, "input");
    if (dtype && *dtype != DType::bf16)
      kinds.insert(
          fmt::format("GEMMs in {} (priced at bf16's share of the peak)", to_string(*dtype)));
  }
  return {kinds.begin(), kinds.end()};
}

}  // namespace mfsdp
