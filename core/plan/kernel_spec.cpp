#include "core/plan/kernel_spec.hpp"

#include <algorithm>
#include <type_traits>

#include "core/plan/kernel_calls.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {
namespace {

template <class T>
constexpr Element element_of() {
  if constexpr (std::is_same_v<T, Bf16>) return Element::compute;
  if constexpr (std::is_same_v<T, Fp16>) return Element::gradient;
  if constexpr (std::is_same_v<T, std::int32_t>) return Element::int32;
  if constexpr (std::is_same_v<T, std::uint8_t>) return Element::bytes;
  if constexpr (requires { T::element; }) return T::element;
  return Element::statistic;
}

/// Writes the row of a kind from what its call struct states (kernel_calls.hpp).
class SpecWriter {
 public:
  explicit SpecWriter(KernelSpec& spec) : spec_(spec) {}

  void attribute(std::string_view name, const auto& /*value*/) { unread(name); }
  void unread(std::string_view name) { spec_.attributes.push_back(name); }
  void attribute_if_any(std::string_view name, const auto& /*value*/) { unread_if_any(name); }
  void rank_attribute_if_any(std::string_view name, const auto& /*value*/, bool /*is_stated*/) {
    unread_if_any(name);
    spec_.rank_attributes.push_back(name);
  }
  void unread_if_any(std::string_view name) { spec_.optional_attributes.push_back(name); }

  template <class Field>
  void reads(std::string_view role, const Field& /*field*/, const Dims& shape,
             const OperandTerms& terms = {}) {
    operand<Field>(OperandUse::reads, role, shape, terms);
  }
  template <class Field>
  void writes(std::string_view role, const Field& /*field*/, const Dims& shape,
              const OperandTerms& terms = {}) {
    operand<Field>(OperandUse::writes, role, shape, terms);
  }
  template <class Field>
  void updates(std::string_view role, const Field& /*field*/, const Dims& shape,
               const OperandTerms& terms = {}) {
    operand<Field>(OperandUse::updates, role, shape, terms);
  }
  template <class Field>
  void adds(std::string_view role, const Field& /*field*/, bool /*adds*/, const Dims& shape,
            const OperandTerms& terms = {}) {
    unread("beta");
    operand<Field>(OperandUse::adds, role, shape, terms);
  }
  template <class Read, class Made>
  void yields(std::string_view role, const Read& /*read*/, const Made& /*made*/,
              const Dims& shape) {
    operand<Read>(OperandUse::yields, role, shape, {});
  }
  template <class Field>
  void scratch(std::string_view role, const Field& /*field*/, const Dims& shape) {
    operand<Field>(OperandUse::scratch, role, shape, {});
  }
  /// Planned for machines that need it.
  void scratch_if_any(std::string_view role, const auto& field, const Dims& shape) {
    scratch(role, field, shape);
  }

  void pieces(std::string_view rows, std::string_view /*role*/, std::int64_t /*count*/,
              const kernels::Pieces& /*pieces*/, PieceTerms terms = {}) {
    spec_.pieces = rows;
    spec_.rows_are_sums = terms.rows_are_sums;
    spec_.sum = GradientSum::of_rank;
  }
  void piece_rows(std::string_view rows, std::string_view /*role*/, std::int64_t /*count*/,
                  std::int64_t /*piece*/) {
    spec_.pieces = rows;
  }
  void grid(const std::optional<kernels::GradientGrid>& /*grid*/, GradientSum sum) {
    spec_.sum = sum;
  }

  using Cost = std::int64_t (*)(const Kernel& kernel);
  void workspace(std::span<std::byte> /*bytes*/, Cost least = nullptr) { spec_.workspace = least; }
  void flops(Cost count, Rational model_share = {.num = 1}) {
    spec_.flops = count;
    spec_.model_share = model_share;
  }

  // The operands of an op determine these; a description has none.
  void dim(std::string_view /*name*/, std::int64_t /*value*/) {}
  void let(std::string_view /*name*/, std::int64_t /*value*/) {}
  void expect(bool /*holds*/, std::string_view /*role*/, const auto&... /*text*/) {}

 private:
  template <class Field>
  void operand(OperandUse use, std::string_view role, const Dims& shape,
               const OperandTerms& terms) {
    using In = OperandField<Field>;
    spec_.operands.push_back(
        {.role = role,
         .element = terms.element.value_or(element_of<std::remove_const_t<typename In::Element>>()),
         .use = use,
         .shape = shape.all,
         .dims = shape.count,
         .strided = In::layout == OperandLayout::strided,
         .columns = In::layout == OperandLayout::columns,
         .optional = terms.optional});
  }

  KernelSpec& spec_;
};

template <class Call>
KernelSpec row_of(KernelKind kind, std::optional<GemmKind> variant = std::nullopt) {
  KernelSpec spec{.kind = kind, .variant = variant};
  SpecWriter writer(spec);
  Call().state(writer);
  std::ranges::sort(spec.attributes);
  std::ranges::sort(spec.optional_attributes);
  std::ranges::sort(spec.rank_attributes);
  return spec;
}

using Table = std::array<KernelSpec, kKernelKinds>;

template <std::size_t... kinds>
Table make_table(std::index_sequence<kinds...> /*all*/) {
  return {row_of<typename CallOf<static_cast<KernelKind>(kinds)>::Example>(
      static_cast<KernelKind>(kinds))...};
}

const KernelSpec& fp8_gemm_spec(GemmKind kind) {
  static const std::array table{
      row_of<kernels::Fp8GemmForward<Bf16>>(KernelKind::gemm_fp8, GemmKind::forward),
      row_of<kernels::Fp8GemmInputGradient<Bf16>>(KernelKind::gemm_fp8, GemmKind::input_gradient),
      row_of<kernels::Fp8GemmWeightGradient<Bf16>>(KernelKind::gemm_fp8,
                                                   GemmKind::weight_gradient)};
  return table.at(static_cast<std::size_t>(kind));
}

const KernelSpec& block_gemm_spec(GemmKind kind) {
  static const std::array table{
      row_of<kernels::BlockGemmForward<Bf16>>(KernelKind::gemm_blocks, GemmKind::forward),
      row_of<kernels::BlockGemmInputGradient<Bf16>>(KernelKind::gemm_blocks,
                                                    GemmKind::input_gradient),
      row_of<kernels::BlockGemmWeightGradient<Bf16>>(KernelKind::gemm_blocks,
                                                     GemmKind::weight_gradient)};
  return table.at(static_cast<std::size_t>(kind));
}

const KernelSpec& gemm_spec(GemmKind kind) {
  static const std::array table{
      row_of<kernels::GemmForward<Bf16>>(KernelKind::gemm, GemmKind::forward),
      row_of<kernels::GemmInputGradient<Bf16>>(KernelKind::gemm, GemmKind::input_gradient),
      row_of<kernels::GemmWeightGradient<Bf16, Fp16>>(KernelKind::gemm, GemmKind::weight_gradient)};
  return table.at(static_cast<std::size_t>(kind));
}

}  // namespace

Access access_of(OperandUse use, bool adds) {
  switch (use) {
    case OperandUse::reads:
    case OperandUse::yields: return Access::read;
    case OperandUse::writes: return Access::write;
    case OperandUse::updates: return Access::read_write;
    case OperandUse::adds: return adds ? Access::read_write : Access::write;
    case OperandUse::scratch: break;
  }
  return Access::scratch;
}

const KernelSpec& spec_of(KernelKind kind, std::optional<GemmKind> variant) {
  if (kind == KernelKind::gemm) return gemm_spec(variant.value_or(GemmKind::forward));
  if (kind == KernelKind::gemm_fp8) return fp8_gemm_spec(variant.value_or(GemmKind::forward));
  if (kind == KernelKind::gemm_blocks) return block_gemm_spec(variant.value_or(GemmKind::forward));
  static const Table table = make_table(std::make_index_sequence<kKernelKinds>());
  return table.at(static_cast<std::size_t>(kind));
}

const KernelSpec* spec_of(const Kernel& kernel) {
  if (!is_gemm(kernel.kind)) return &spec_of(kernel.kind);
  const std::optional<GemmKind> variant = gemm_kind(kernel);
  return variant ? &spec_of(kernel.kind, variant) : nullptr;
}

std::optional<GemmKind> gemm_kind(const Kernel& kernel) {
  if (!is_gemm(kernel.kind)) return std::nullopt;
  const std::int64_t number = kernel.attribute("kind");
  if (number < 0 || number > number_of(GemmKind::weight_gradient)) return std::nullopt;
  return static_cast<GemmKind>(number);
}

std::int64_t least_workspace(const Kernel& kernel) {
  const KernelSpec* found = spec_of(kernel);
  return found == nullptr || found->workspace == nullptr ? 0 : found->workspace(kernel);
}

}  // namespace mfsdp
