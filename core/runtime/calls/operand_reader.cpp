#include "core/runtime/calls/operand_reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace mfsdp {
namespace {

std::string describe(std::string_view dtype, std::span<const std::int64_t> shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

/// "bf16, fp16 or fp32".
std::string alternatives(std::span<const DType> dtypes) {
  std::string text;
  for (std::size_t i = 0; const DType dtype : dtypes) {
    if (i > 0) text += i + 1 < dtypes.size() ? ", " : " or ";
    text += to_string(dtype);
    ++i;
  }
  return text;
}

std::string place_of(const KernelCall& call, std::string_view role) {
  return fmt::format("kernel {}: operand {}", to_string(call.kernel->kind), role);
}

}  // namespace

tl::unexpected<Error> wrong_type(const KernelCall& call, std::string_view role,
                                 std::initializer_list<DType> expected) {
  const OperandView* view = OperandReader(call).find(role);
  if (view == nullptr) return fail(place_of(call, role), "expected this operand");
  return fail(place_of(call, role),
              fmt::format("expected {}, got {}", alternatives(expected), to_string(view->dtype)));
}

tl::unexpected<Error> wrong_gemm(const KernelCall& call) {
  const Attribute* kind = call.kernel->find_attribute("kind");
  const std::string kernel = fmt::format("kernel {}", to_string(call.kernel->kind));
  if (kind == nullptr) return fail(kernel, "expected an attribute kind");
  return fail(kernel, fmt::format("attribute kind: expected 0, 1 or 2, got {}", kind->value.num));
}

tl::unexpected<Error> wrong_company(const KernelCall& call, std::string_view role) {
  return fail(place_of(call, role), "expected fp64 only beside fp64");
}

std::int64_t OperandReader::attribute(std::string_view name) {
  constexpr std::int64_t none = std::numeric_limits<std::int64_t>::min();
  const std::int64_t value = call_.kernel->attribute(name, none);
  if (value >= 0) return value;
  if (!error_)
    error_ = Error{.where = fmt::format("kernel {}", to_string(call_.kernel->kind)),
                   .what = value == none ? fmt::format("expected an attribute {}", name)
                                         : fmt::format("attribute {}: expected 0 or more, got {}",
                                                       name, value)};
  return 0;
}

double OperandReader::number(std::string_view name) {
  const Attribute* found = call_.kernel->find_attribute(name);
  if (found != nullptr && found->value.num >= 0) return found->value.value();
  if (!error_)
    error_ =
        Error{.where = fmt::format("kernel {}", to_string(call_.kernel->kind)),
              .what = found == nullptr ? fmt::format("expected an attribute {}", name)
                                       : fmt::format("attribute {}: expected 0 or more", name)};
  return 0;
}

std::int64_t OperandReader::attribute_if_any(std::string_view name) {
  return call_.kernel->find_attribute(name) == nullptr ? 0 : attribute(name);
}

double OperandReader::number_if_any(std::string_view name) {
  return call_.kernel->find_attribute(name) == nullptr ? 0 : number(name);
}

const OperandView* OperandReader::find(std::string_view role, std::size_t nth) const {
  for (const OperandView& view : call_.operands)
    if (view.role == role && nth-- == 0) return &view;
  return nullptr;
}

std::int64_t OperandReader::dim(std::string_view role, std::size_t index) {
  const OperandView* view = find(role);
  if (view != nullptr && index < view->shape.size()) return view->shape[index];
  report_mismatch(role, view == nullptr ? "expected this operand"
                                        : fmt::format("expected at least {} dims", index + 1));
  return 0;
}

std::int64_t OperandReader::elements(std::string_view role) {
  const OperandView* view = find(role);
  if (view == nullptr) {
    report_mismatch(role, "expected this operand");
    return 0;
  }
  return product_of(view->shape);
}

std::span<std::byte> OperandReader::workspace_if_any() {
  if (find("workspace") == nullptr) return {};
  const std::int64_t bytes = dim("workspace", 0);
  auto* data = take<std::uint8_t>("workspace", {bytes});
  return {reinterpret_cast<std::byte*>(data), static_cast<std::size_t>(bytes)};
}

void OperandReader::check_elements(std::string_view role, std::int64_t count) {
  if (const std::int64_t got = elements(role); got != count)
    report_mismatch(role, fmt::format("expected {} elements, got {}", count, got));
}

void OperandReader::report_mismatch(std::string_view role, std::string what) {
  if (error_) return;
  error_ = Error{.where = place_of(call_, role), .what = std::move(what)};
}

Result<void> OperandReader::result() const {
  if (error_) return tl::unexpected<Error>(*error_);
  return {};
}

bool OperandReader::is_contiguous(const OperandView& view) {
  std::int64_t expected = 1;
  for (std::size_t i = view.shape.size(); i-- > 0;) {
    if (view.shape[i] != 1 && view.strides[i] != expected) return false;
    expected *= view.shape[i];
  }
  return true;
}

const OperandView* OperandReader::check(std::string_view role, std::size_t nth, Wanted wanted,
                                        std::span<const std::int64_t> shape) {
  const std::span<const DType> dtypes =
      wanted.any.empty() ? std::span(&wanted.dtype, 1) : wanted.any;
  const OperandView* view = find(role, nth);
  if (view == nullptr) {
    report_mismatch(role, "expected this operand");
  } else if (std::ranges::find(dtypes, view->dtype) == dtypes.end() ||
             !std::ranges::equal(view->shape, shape)) {
    report_mismatch(role, fmt::format("expected {}, got {}", describe(alternatives(dtypes), shape),
                                      describe(to_string(view->dtype), view->shape)));
  } else if (wanted.writes && view->access == Access::read) {
    report_mismatch(role, "expected an operand that may be written, got one that is read");
  } else if (view->strides.size() != view->shape.size() ||
             (!view->shape.empty() && view->shape.back() > 1 && view->strides.back() != 1)) {
    report_mismatch(role, "expected strides whose last one is 1");
  } else {
    return view;
  }
  return nullptr;
}

}  // namespace mfsdp
