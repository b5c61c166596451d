// The kernels of core/plan/kernels/sums.hpp that CallReader cannot read: slices of any shape, sums
// of one of two types. Errors name the operand and what was expected.
#pragma once

#include "core/plan/exact_sums.hpp"
#include "core/plan/kernels/sums.hpp"
#include "core/runtime/calls/call_reader.hpp"

namespace mfsdp::kernels {

/// The output of accumulate and cast. The head's sum over chunks is written to a weight gradient.
[[nodiscard]] inline std::string_view accumulate_output(const KernelCall& call) {
  return OperandReader(call).find("weight_grad") != nullptr ? "weight_grad" : "output";
}

template <class In, class Out>
[[nodiscard]] Result<Accumulate<In, Out>> take_accumulate(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t count = in.elements("input");
  const Accumulate<In, Out> k{.count = count,
                              .in = in.take_flat<const In>("input", count),
                              .adds = in.attribute("beta") != 0,
                              .out = in.take_flat<Out>(accumulate_output(call), count),
                              .grid = grid_of(*call.kernel)};
  MFSDP_TRY(in.result());
  return k;
}

[[nodiscard]] inline Result<ZeroPadding> take_zero_padding(const KernelCall& call) {
  ZeroPadding k;
  for (const OperandView& view : call.operands) {
    if (view.role != "padding" || view.access == Access::read ||
        !OperandReader::is_contiguous(view))
      return fail("kernel zero_padding", "expected contiguous, written operands padding");
    k.gaps.emplace_back(view.data,
                        static_cast<std::size_t>(product_of(view.shape) * size_of(view.dtype)));
  }
  return k;
}

/// With --exact-sums partials are whole numbers, so that their sum is the same however gradients
/// are cut into slices.
[[nodiscard]] inline bool has_exact_partials(const KernelCall& call, std::string_view role) {
  const OperandView* partials = OperandReader(call).find(role);
  return partials != nullptr && partials->dtype == DType::int64;
}

template <class T>
[[nodiscard]] Result<NormPartial<T>> take_norm_partial(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t count = in.dim("input", 0);
  const auto* values = in.take<const T>("input", {count});
  auto* partial = in.take<float>("output", {1});
  const std::span<std::byte> workspace = in.workspace_if_any();
  MFSDP_TRY(in.result());
  return NormPartial<T>{.values = {values, static_cast<std::size_t>(count)},
                        .partial = partial,
                        .workspace = workspace};
}

[[nodiscard]] inline Result<ExactNormPartial> take_exact_norm_partial(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t count = in.dim("input", 0);
  const auto* values = in.take<const float>("input", {count});
  auto* partial = in.take<std::int64_t>("output", {1});
  const std::span<std::byte> workspace = in.workspace_if_any();
  MFSDP_TRY(in.result());
  return ExactNormPartial{.values = {values, static_cast<std::size_t>(count)},
                          .exponent = call.kernel->attribute(exact_attribute::grid_exponent),
                          .partial = partial,
                          .workspace = workspace};
}

[[nodiscard]] inline Result<NormFinish> take_norm_finish(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t count = in.dim("input", 0);
  const auto size = static_cast<std::size_t>(count);
  NormFinish k;
  if (has_exact_partials(call, "input")) {
    k.exact_partials = {in.take<const std::int64_t>("input", {count}), size};
    k.exponent = call.kernel->attribute(exact_attribute::grid_exponent);
  } else {
    k.partials = {in.take<const float>("input", {count}), size};
  }
  k.loss = in.take<const float>("loss", {4});
  k.limit = in.number("limit");
  k.report = in.take<float>("norm", {4});
  k.scale = reinterpret_cast<LossScaleState*>(in.take_if_any<float>("loss_scale", {4}));
  k.scale_window = call.kernel->attribute("scale_window");
  MFSDP_TRY(in.result());
  return k;
}

}  // namespace mfsdp::kernels
