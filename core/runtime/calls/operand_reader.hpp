// From a kernel call to typed pointers, one operand at a time. Call structs are read by CallReader
// (call_reader.hpp), which asks this; kernels without one read their operands here. Without fmt,
// which CUDA's compiler does not take.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "core/base/error.hpp"
#include "core/runtime/operand_view.hpp"
#include "core/runtime/scalar.hpp"

namespace mfsdp {

/// Reads a call's operands by role. The first thing that is wrong is kept: ask result() before
/// touching any pointer.
class OperandReader {
 public:
  explicit OperandReader(const KernelCall& call) : call_(call) {}

  using Shape = std::initializer_list<std::int64_t>;

  /// An attribute that must be there, an integer of at least 0.
  [[nodiscard]] std::int64_t attribute(std::string_view name);
  /// An attribute that must be there and may be a fraction, at least 0.
  [[nodiscard]] double number(std::string_view name);
  /// The same where the attribute may be left out: 0 then.
  [[nodiscard]] std::int64_t attribute_if_any(std::string_view name);
  [[nodiscard]] double number_if_any(std::string_view name);

  /// A contiguous operand of exactly this type and shape; T is const where it is only read.
  /// `nth`: which of several operands of one role. Null where something is wrong.
  template <class T>
  [[nodiscard]] T* take(std::string_view role, Shape shape, std::size_t nth = 0) {
    return contiguous<T>(role, strided<T>(role, shape, nth));
  }

  /// The same for an operand that may be left out: null then.
  template <class T>
  [[nodiscard]] T* take_if_any(std::string_view role, Shape shape, std::size_t nth = 0) {
    return find(role, nth) == nullptr ? nullptr : take<T>(role, shape, nth);
  }

  /// A contiguous operand of `count` elements in any shape, for elementwise kernels.
  template <class T>
  [[nodiscard]] T* take_flat(std::string_view role, std::int64_t count) {
    check_elements(role, count);
    const OperandView* view = find(role);
    if (view == nullptr) return nullptr;
    return contiguous<T>(role, check(role, 0, wanted<T>(), view->shape));
  }

  /// An operand whose strides the kernel follows; the last one must be 1.
  template <class T>
  [[nodiscard]] const OperandView* strided(std::string_view role, Shape shape,
                                           std::size_t nth = 0) {
    return check(role, nth, wanted<T>(), {shape.begin(), shape.size()});
  }

  /// A type, and whether the kernel writes.
  struct Wanted {
    DType dtype = DType::bf16;
    bool writes = false;
    std::span<const DType> any = {};  ///< if there are some: one of these in place of `dtype`
  };
  /// The `nth` operand of the role, of that type and exactly that shape, with strides whose last
  /// one is 1; null where something is wrong.
  const OperandView* check(std::string_view role, std::size_t nth, Wanted wanted,
                           std::span<const std::int64_t> shape);

  /// The operand "workspace": bytes of any number; none where the call has none.
  [[nodiscard]] std::span<std::byte> workspace_if_any();

  /// Size of a dim of an operand that must be there.
  [[nodiscard]] std::int64_t dim(std::string_view role, std::size_t index);

  /// Elements of an operand that must be there, over all dims.
  [[nodiscard]] std::int64_t elements(std::string_view role);
  /// Requires `count` elements.
  void check_elements(std::string_view role, std::int64_t count);

  /// The operand, or null.
  [[nodiscard]] const OperandView* find(std::string_view role, std::size_t nth = 0) const;

  void report_mismatch(std::string_view role, std::string what);
  [[nodiscard]] Result<void> result() const;

  template <class T>
  [[nodiscard]] static T* data(const OperandView* view) {
    return view == nullptr ? nullptr : reinterpret_cast<T*>(view->data);
  }
  [[nodiscard]] static bool is_contiguous(const OperandView& view);

 private:
  template <class T>
  static constexpr Wanted wanted() {
    return {.dtype = dtype_of<std::remove_const_t<T>>, .writes = !std::is_const_v<T>};
  }
  template <class T>
  T* contiguous(std::string_view role, const OperandView* view) {
    if (view == nullptr || is_contiguous(*view)) return data<T>(view);
    report_mismatch(role, "expected contiguous elements");
    return nullptr;
  }
  const KernelCall& call_;
  std::optional<Error> error_;
};

/// The error of an operand that is not there, or not of one of these types.
[[nodiscard]] tl::unexpected<Error> wrong_type(const KernelCall& call, std::string_view role,
                                               std::initializer_list<DType> expected);
/// The error of a GEMM that is none of the three kinds.
[[nodiscard]] tl::unexpected<Error> wrong_gemm(const KernelCall& call);
/// The error of fp64 beside another type.
[[nodiscard]] tl::unexpected<Error> wrong_company(const KernelCall& call, std::string_view role);

/// Stands for a type where a generic lambda takes one.
template <class T>
struct TypeTag {
  using type = T;
};

/// Element types that a machine's kernels are made for.
template <class... Types>
struct ElementTypes {};
using AllElementTypes = ElementTypes<Bf16, Fp16, float, double>;

/// Calls `run` with the tag of the operand's element type, one of `Types`.
template <class... Types, class Run>
[[nodiscard]] Result<void> with_type_of(ElementTypes<Types...>, const KernelCall& call,
                                        std::string_view role, const Run& run) {
  const OperandView* view = OperandReader(call).find(role);
  if (view == nullptr) return wrong_type(call, role, {});
  std::optional<Result<void>> outcome;
  const auto try_type = [&]<class T>(TypeTag<T> tag) {
    if (view->dtype == dtype_of<T>) outcome = run(tag);
  };
  (try_type(TypeTag<Types>{}), ...);
  if (outcome) return std::move(*outcome);
  return wrong_type(call, role, {dtype_of<Types>...});
}
[[nodiscard]] Result<void> with_type_of(const KernelCall& call, std::string_view role,
                                        const auto& run) {
  return with_type_of(AllElementTypes{}, call, role, run);
}

/// The same for an operand that meets elements of type T in arithmetic: fp64 meets fp64 alone.
template <class T, class Types, class Run>
[[nodiscard]] Result<void> with_type_beside(Types types, const KernelCall& call,
                                            std::string_view role, const Run& run) {
  return with_type_of(types, call, role, [&]<class Other>(TypeTag<Other> tag) -> Result<void> {
    if constexpr (std::is_same_v<Real<T>, Real<Other>>)
      return run(tag);
    else
      return wrong_company(call, role);
  });
}

}  // namespace mfsdp
