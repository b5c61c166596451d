#include <cstring>

#include "verify/cpu/kernels/bindings.hpp"
#include "verify/cpu/kernels/operand_reader.hpp"
#include "verify/cpu/kernels/sums.hpp"

namespace mfsdp::kernels {

Result<void> run_accumulate(const KernelCall& call) {
  // The head's sum over chunks is cast straight into a weight gradient.
  const std::string_view output =
      OperandReader(call).find("weight_grad") != nullptr ? "weight_grad" : "output";
  return with_type_of(call, "input", [&]<class In>(TypeTag<In>) {
    return with_type_beside<In>(call, output, [&]<class Out>(TypeTag<Out>) -> Result<void> {
      OperandReader in(call);
      const std::int64_t count = in.elements("input");
      const auto* from = in.take_flat<const In>("input", count);
      auto* to = in.take_flat<Out>(output, count);
      const bool adds = in.attribute("beta") != 0;
      MFSDP_TRY(in.result());
      accumulate(count, from, adds, to);
      return {};
    });
  });
}

/// Zeros are zeros in every dtype: all operands are cleared as bytes.
Result<void> run_zero_padding(const KernelCall& call) {
  for (const OperandView& view : call.operands)
    if (view.role != "padding" || view.access == Access::read ||
        !OperandReader::is_contiguous(view))
      return fail("kernel zero_padding", "expected contiguous, written operands padding");
  for (const OperandView& view : call.operands)
    std::memset(view.data, 0,
                static_cast<std::size_t>(product_of(view.shape) * size_of(view.dtype)));
  return {};
}

Result<void> run_loss_finish(const KernelCall& call) {
  return with_type_of(call, "input", [&]<class T>(TypeTag<T>) -> Result<void> {
    OperandReader in(call);
    const std::int64_t count = in.dim("input", 0);
    const auto* sums = in.take<const T>("input", {count});
    auto* report = in.take<float>("loss", {4});
    if (count % 2 != 0) in.complain("input", "expected loss and tokens of each rank");
    MFSDP_TRY(in.result());
    write_report(finish_loss(std::span(sums, static_cast<std::size_t>(count))), report);
    return {};
  });
}

Result<void> run_norm_partial(const KernelCall& call) {
  return with_type_of(call, "input", [&]<class T>(TypeTag<T>) -> Result<void> {
    OperandReader in(call);
    const std::int64_t count = in.dim("input", 0);
    const auto* values = in.take<const T>("input", {count});
    auto* partial = in.take<float>("output", {1});
    MFSDP_TRY(in.result());
    *partial = static_cast<float>(sum_of_squares(count, values));
    return {};
  });
}

Result<void> run_norm_finish(const KernelCall& call, const KernelSettings& settings) {
  OperandReader in(call);
  const std::int64_t count = in.dim("input", 0);
  const auto* partials = in.take<const float>("input", {count});
  const auto* loss = in.take<const float>("loss", {4});
  auto* report = in.take<float>("norm", {4});
  MFSDP_TRY(in.result());
  const double inverse_tokens = read_report<LossReport>(loss).inverse_tokens;
  write_report(finish_norm({partials, static_cast<std::size_t>(count)}, inverse_tokens,
                           settings.program->config.clip.value()),
               report);
  return {};
}

}  // namespace mfsdp::kernels
