#include <cstring>

#include "verify/cpu/kernels/bindings.hpp"
#include "verify/cpu/kernels/operand_reader.hpp"
#include "verify/cpu/kernels/pieces.hpp"
#include "verify/cpu/kernels/sums.hpp"

namespace mfsdp::kernels {
namespace {

/// With --exact-sums partials are whole numbers, so that their sum is the same however gradients
/// are cut into slices.
bool has_exact_partials(const KernelCall& call, std::string_view role) {
  const OperandView* partials = OperandReader(call).find(role);
  return partials != nullptr && partials->dtype == DType::int64;
}

std::int64_t grid_exponent(const KernelCall& call) {
  return call.kernel->attribute(exact_attribute::grid_exponent);
}

Result<void> exact_norm_partial(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t count = in.dim("input", 0);
  const auto* values = in.take<const float>("input", {count});
  auto* partial = in.take<std::int64_t>("output", {1});
  MFSDP_TRY(in.result());
  const std::int64_t exponent = grid_exponent(call);
  std::optional<float> outlier;
  *partial = exact_sum_of_squares({values, static_cast<std::size_t>(count)}, exponent, outlier);
  if (!outlier) return {};
  return fail("kernel norm_partial: operand input",
              fmt::format("--exact-sums expects multiples of 2^{} within 24 bits, got {}", exponent,
                          *outlier));
}

}  // namespace

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
      if (auto sums = grid_sums<Real<In>>(*call.kernel)) {
        if constexpr (std::is_same_v<In, Real<In>>)
          sums->add(std::span(from, static_cast<std::size_t>(count)), adds, to);
        return exact_result(*sums, *call.kernel, output);
      }
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
  if (has_exact_partials(call, "output")) return exact_norm_partial(call);
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
  const bool exact = has_exact_partials(call, "input");
  const auto* whole = exact ? in.take<const std::int64_t>("input", {count}) : nullptr;
  const auto* partials = exact ? nullptr : in.take<const float>("input", {count});
  const auto* loss = in.take<const float>("loss", {4});
  auto* report = in.take<float>("norm", {4});
  MFSDP_TRY(in.result());
  const double inverse_tokens = read_report<LossReport>(loss).inverse_tokens;
  const double limit = settings.program->config.clip.value();
  const auto size = static_cast<std::size_t>(count);
  write_report(exact ? finish_norm({whole, size}, grid_exponent(call), inverse_tokens, limit)
                     : finish_norm({partials, size}, inverse_tokens, limit),
               report);
  return {};
}

}  // namespace mfsdp::kernels
