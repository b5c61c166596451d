// From a kernel op to its call struct (core/plan/kernel_calls.hpp), with every type, shape and
// attribute checked. Without fmt, which CUDA's compiler does not take.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/plan/kernel_calls.hpp"
#include "core/runtime/calls/operand_reader.hpp"

namespace mfsdp {

/// The grid of a kernel under --exact-sums; none without the flag.
[[nodiscard]] std::optional<kernels::GradientGrid> grid_of(const Kernel& kernel);

/// Fills what a call struct states. The first thing that is wrong is kept: ask result() before
/// touching any pointer.
class CallReader {
 public:
  explicit CallReader(const KernelCall& call) : call_(call), in_(call) {}

  void attribute(std::string_view name, std::int64_t& value) {
    value = in_.attribute(name);
    let(name, value);
  }
  void attribute(std::string_view name, bool& value) { value = in_.attribute(name) != 0; }
  template <class Number>
  void attribute(std::string_view name, Number& value) {
    value = static_cast<Number>(in_.number(name));
  }
  void attribute_if_any(std::string_view name, auto& value) {
    if (call_.kernel->find_attribute(name) != nullptr) attribute(name, value);
  }
  /// The executor has put in the rank's value.
  void rank_attribute_if_any(std::string_view name, std::int64_t& value, bool& is_stated) {
    is_stated = call_.kernel->find_attribute(name) != nullptr;
    attribute_if_any(name, value);
  }
  void unread(std::string_view /*name*/) {}
  void unread_if_any(std::string_view /*name*/) {}

  void reads(std::string_view role, auto& field, const Dims& shape, OperandTerms terms = {}) {
    operand(role, field, shape, terms.optional);
  }
  void writes(std::string_view role, auto& field, const Dims& shape, OperandTerms terms = {}) {
    operand(role, field, shape, terms.optional);
  }
  void updates(std::string_view role, auto& field, const Dims& shape, OperandTerms terms = {}) {
    operand(role, field, shape, terms.optional);
  }
  void adds(std::string_view role, auto& field, bool& adds, const Dims& shape,
            OperandTerms terms = {}) {
    attribute("beta", adds);
    operand(role, field, shape, terms.optional);
  }
  /// `made` is set where the plan lets the operand be written: it wants the new value then.
  template <class T>
  void yields(std::string_view role, const T*& read, T*& made, const Dims& shape) {
    const OperandView* view = operand(role, read, shape, false);
    if (view != nullptr && view->access == Access::read_write)
      made = reinterpret_cast<T*>(view->data);
  }
  void scratch(std::string_view role, auto& field, const Dims& shape) {
    operand(role, field, shape, false);
  }
  void scratch_if_any(std::string_view role, auto& field, const Dims& shape) {
    operand(role, field, shape, true);
  }

  /// `role`: the operand whose rows are summed; `count`: how many they are.
  void pieces(std::string_view rows, std::string_view role, std::int64_t count,
              kernels::Pieces& pieces, PieceTerms terms = {});
  void piece_rows(std::string_view rows, std::string_view role, std::int64_t count,
                  std::int64_t& piece);
  void grid(std::optional<kernels::GradientGrid>& grid, GradientSum /*sum*/) const {
    grid = grid_of(*call_.kernel);
  }

  using Cost = std::int64_t (*)(const Kernel& kernel);
  /// Bytes of any number, or none: not every machine needs them.
  void workspace(std::span<std::byte>& bytes, Cost /*least*/ = nullptr) {
    bytes = in_.workspace_if_any();
  }
  void flops(Cost /*count*/, Rational /*model_share*/ = {}) {}

  /// `value` stays as it is where no operand showed it.
  void dim(std::string_view name, std::int64_t& value) const {
    if (const std::optional<std::int64_t> known = size_named(name)) value = *known;
  }
  void let(std::string_view name, std::int64_t value);

  void expect(bool holds, std::string_view role, const auto&... text) {
    if (holds) return;
    std::string what;
    (append(what, text), ...);
    in_.report_mismatch(role, std::move(what));
  }

  [[nodiscard]] Result<void> result() const { return in_.result(); }

 private:
  /// The types of which an operand states one, if its field leaves that open.
  template <class T>
  static constexpr std::span<const DType> any_of() {
    if constexpr (requires { T::element; }) return dtypes_of(T::element);
    return {};
  }
  static void append(std::string& text, std::string_view part) { text += part; }
  static void append(std::string& text, std::int64_t number) { text += std::to_string(number); }

  template <class Field>
  const OperandView* operand(std::string_view role, Field& field, const Dims& shape,
                             bool optional) {
    using In = OperandField<Field>;
    using T = typename In::Element;
    constexpr std::span<const DType> any = any_of<std::remove_const_t<T>>();
    const OperandView* view =
        take(role,
             {.dtype = dtype_of<std::remove_const_t<T>>, .writes = !std::is_const_v<T>, .any = any},
             shape, In::layout, optional);
    if (view == nullptr) return nullptr;
    In::set(field, reinterpret_cast<T*>(view->data), view->shape, view->strides);
    if constexpr (!any.empty()) field.dtype = view->dtype;
    return view;
  }
  /// The next operand of the role; null where there is none, or something is wrong.
  const OperandView* take(std::string_view role, OperandReader::Wanted wanted, const Dims& shape,
                          OperandLayout layout, bool optional);
  [[nodiscard]] std::optional<std::int64_t> size_named(std::string_view name) const;
  /// The required size of a dim. A name that is not known yet is set from `got`.
  std::int64_t expected(const Dim& dim, std::int64_t got);

  struct Size {
    std::string_view name;
    std::int64_t value = 0;
  };
  const KernelCall& call_;
  OperandReader in_;
  std::array<Size, 16> sizes_;
  std::size_t size_count_ = 0;
  std::array<std::string_view, 16> roles_;  ///< of the operands so far
  std::size_t role_count_ = 0;
};

/// Errors name the kernel, the operand or attribute, and what was expected.
template <class Call>
[[nodiscard]] Result<Call> read_call(const KernelCall& call) {
  Call k;
  CallReader reader(call);
  k.state(reader);
  MFSDP_TRY(reader.result());
  return k;
}

/// The operands whose types are a call struct's: the first of element `compute`, else `gradient`,
/// else `statistic`; and, of two types, the last one of element `gradient`.
struct TypeRoles {
  std::string_view first;
  std::string_view second;
};
[[nodiscard]] TypeRoles type_roles(const KernelSpec& spec, const KernelCall& call);

/// Element types that a machine has kernels for, and those of gradients beside a type.
struct AllTypes {
  using First = AllElementTypes;
  template <class T>
  using Second = AllElementTypes;
};

/// Reads the call as `Struct` (a CallOf...) with the types of its operands, and runs `run` with it.
template <class Struct, class Types, class Run>
[[nodiscard]] Result<void> with_struct(const KernelSpec& spec, const KernelCall& call,
                                       const Run& run) {
  const auto read = [&]<class Call>(TypeTag<Call>) -> Result<void> {
    MFSDP_LET(k, read_call<Call>(call));
    if constexpr (std::is_void_v<decltype(run(k))>) {
      run(k);
      return {};
    } else {
      return run(k);
    }
  };
  if constexpr (Struct::types == 0) {
    return read(TypeTag<typename Struct::Example>{});
  } else {
    const TypeRoles roles = type_roles(spec, call);
    return with_type_of(typename Types::First{}, call, roles.first, [&]<class T>(TypeTag<T>) {
      if constexpr (Struct::types == 1)
        return read(TypeTag<typename Struct::template With<T>>{});
      else
        return with_type_beside<T>(
            typename Types::template Second<T>{}, call, roles.second,
            [&]<class Other>(TypeTag<Other>) {
              return read(TypeTag<typename Struct::template With<T, Other>>{});
            });
    });
  }
}

/// Runs `run` with the call struct of a kind.
template <KernelKind kind, class Types = AllTypes, class Run>
[[nodiscard]] Result<void> with_call(const KernelCall& call, const Run& run) {
  return with_struct<CallOf<kind>, Types>(spec_of(kind), call, run);
}

/// The same for a GEMM of any of the three kinds, each with its struct.
template <class Forward, class InputGradient, class WeightGradient, class Types, class Run>
[[nodiscard]] Result<void> with_gemm_kind(const KernelCall& call, const Run& run) {
  const KernelSpec* spec = spec_of(*call.kernel);
  if (spec == nullptr || call.kernel->find_attribute("kind") == nullptr) return wrong_gemm(call);
  switch (*spec->variant) {
    case GemmKind::forward: return with_struct<Forward, Types>(*spec, call, run);
    case GemmKind::input_gradient: return with_struct<InputGradient, Types>(*spec, call, run);
    case GemmKind::weight_gradient: break;
  }
  return with_struct<WeightGradient, Types>(*spec, call, run);
}

/// `run` takes a kernels::Gemm.
template <class Types = AllTypes, class Run>
[[nodiscard]] Result<void> with_gemm(const KernelCall& call, const Run& run) {
  return with_gemm_kind<CallOfOneType<kernels::GemmForward>,
                        CallOfOneType<kernels::GemmInputGradient>,
                        CallOfTwoTypes<kernels::GemmWeightGradient>, Types>(
      call, [&]<class T, class C>(const kernels::Gemm<T, C>& k) { return run(k); });
}

/// For FP8 operands; `run` takes a kernels::Fp8Gemm.
template <class Types = AllTypes, class Run>
[[nodiscard]] Result<void> with_fp8_gemm(const KernelCall& call, const Run& run) {
  return with_gemm_kind<CallOfOneType<kernels::Fp8GemmForward>,
                        CallOfOneType<kernels::Fp8GemmInputGradient>,
                        CallOfOneType<kernels::Fp8GemmWeightGradient>, Types>(
      call, [&]<class C>(const kernels::Fp8Gemm<C>& k) { return run(k); });
}

/// For operands with scales of blocks; `run` takes a kernels::BlockGemm.
template <class Types = AllTypes, class Run>
[[nodiscard]] Result<void> with_block_gemm(const KernelCall& call, const Run& run) {
  return with_gemm_kind<CallOfOneType<kernels::BlockGemmForward>,
                        CallOfOneType<kernels::BlockGemmInputGradient>,
                        CallOfOneType<kernels::BlockGemmWeightGradient>, Types>(
      call, [&]<class C>(const kernels::BlockGemm<C>& k) { return run(k); });
}

}  // namespace mfsdp
