#include "verify/traces/kernel_kinds.hpp"

#include <algorithm>

#include "core/base/text.hpp"

namespace mfsdp::traces {
namespace {

using enum KernelKind;

/// Order matters: an optimizer's and an attention's kernels carry "elementwise" and "gemm" in their
/// template arguments. Names are those of cuBLAS (nvjet, cutlass, xmma), cuDNN, FlashAttention,
/// Transformer Engine, Apex, ATen and Triton as Inductor writes them.
constexpr std::array kPatterns{
    KernelPattern{"chunk_cat", packing},
    KernelPattern{"split_with_sizes_copy", packing},
    KernelPattern{"native::Copy<", packing},
    KernelPattern{"multi_tensor", optimizer},
    KernelPattern{"fused_adam", optimizer},
    KernelPattern{"FusedAdam", optimizer},
    KernelPattern{"flash", attention},
    KernelPattern{"fmha", attention},
    KernelPattern{"sdpa", attention},
    KernelPattern{"attention", attention},
    KernelPattern{"dot_do_o", attention},
    KernelPattern{"convert_dq", attention},
    KernelPattern{"cross_entropy", loss},
    KernelPattern{"nll_loss", loss},
    KernelPattern{"log_softmax", loss},
    KernelPattern{"LogSoftMax", loss},
    KernelPattern{"embedding", embedding},
    KernelPattern{"nvjet", gemm},
    KernelPattern{"gemm", gemm},
    KernelPattern{"xmma", gemm},
    KernelPattern{"cutlass", gemm},
    KernelPattern{"matmul", gemm},
    KernelPattern{"splitKreduce", gemm},
    KernelPattern{"rmsnorm", norm},
    KernelPattern{"rms_norm", norm},
    KernelPattern{"layer_norm", norm},
    KernelPattern{"layernorm", norm},
    KernelPattern{"ln_fwd", norm},
    KernelPattern{"ln_bwd", norm},
    KernelPattern{"reduce_kernel", reduction},
    KernelPattern{"triton_red", reduction},
    KernelPattern{"triton_per", reduction},
    KernelPattern{"elementwise", elementwise},
    KernelPattern{"triton_poi", elementwise},
    KernelPattern{"CatArrayBatchedCopy", elementwise},
    KernelPattern{"swiglu", elementwise},
    KernelPattern{"rope", elementwise},
    KernelPattern{"cast_transpose", elementwise},
};

}  // namespace

std::span<const KernelPattern> kernel_patterns() { return kPatterns; }

KernelKind kernel_kind(std::string_view name) {
  const auto* found = std::ranges::find_if(
      kPatterns, [&](const KernelPattern& row) { return holds_in_any_case(name, row.part); });
  return found == kPatterns.end() ? other : found->kind;
}

std::optional<std::int64_t> element_bytes(std::string_view dtype) {
  struct Row {
    std::string_view name;
    std::int64_t bytes;
  };
  // The names of c10::ScalarType.
  static constexpr std::array rows{
      Row{"Byte", 1},         Row{"Char", 1},  Row{"Bool", 1}, Row{"Float8_e4m3fn", 1},
      Row{"Float8_e5m2", 1},  Row{"Short", 2}, Row{"Half", 2}, Row{"BFloat16", 2},
      Row{"Int", 4},          Row{"Float", 4}, Row{"Long", 8}, Row{"Double", 8},
      Row{"ComplexFloat", 8},
  };
  const auto* found = std::ranges::find(rows, dtype, &Row::name);
  if (found == rows.end()) return std::nullopt;
  return found->bytes;
}

}  // namespace mfsdp::traces
