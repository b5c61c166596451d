#include "core/runtime/calls/call_reader.hpp"

#include <algorithm>

#include "core/plan/exact_sums.hpp"

namespace mfsdp {

std::optional<kernels::GradientGrid> grid_of(const Kernel& kernel) {
  const std::int64_t limit = kernel.attribute(exact_attribute::sum_limit);
  if (limit == 0) return std::nullopt;
  return kernels::GradientGrid{.exponent = kernel.attribute(exact_attribute::grid_exponent),
                               .limit = limit};
}

void CallReader::pieces(std::string_view rows, std::string_view role, std::int64_t count,
                        kernels::Pieces& pieces, PieceTerms /*terms*/) {
  piece_rows(rows, role, count, pieces.rows);
  pieces.grid = grid_of(*call_.kernel);
}

void CallReader::piece_rows(std::string_view /*rows*/, std::string_view role, std::int64_t count,
                            std::int64_t& piece) {
  piece = call_.kernel->attribute(exact_attribute::piece_rows, count);
  expect(count == 0 || (piece > 0 && count % piece == 0), role, "expected a multiple of the ",
         piece, " rows of a piece, got ", count);
  piece = std::max<std::int64_t>(piece, 1);
}

void CallReader::let(std::string_view name, std::int64_t value) {
  sizes_.at(size_count_++) = {.name = name, .value = value};
}

std::optional<std::int64_t> CallReader::size_named(std::string_view name) const {
  const auto sizes = std::span(sizes_).first(size_count_);
  if (const auto known = std::ranges::find(sizes, name, &Size::name); known != sizes.end())
    return known->value;
  if (call_.kernel->find_attribute(name) == nullptr) return std::nullopt;
  return call_.kernel->attribute(name);
}

std::int64_t CallReader::expected(const Dim& dim, std::int64_t got) {
  std::int64_t product = dim.times;
  std::string_view unknown;
  for (const std::string_view name : {dim.first, dim.second}) {
    if (name.empty()) continue;
    if (const std::optional<std::int64_t> known = size_named(name))
      product = checked_mul(product, *known);
    else
      unknown = name;
  }
  if (unknown.empty()) return product;
  const std::int64_t left = product == 0 ? 0 : got / product;
  let(unknown, left);
  return checked_mul(product, left);
}

const OperandView* CallReader::take(std::string_view role, OperandReader::Wanted wanted,
                                    const Dims& shape, OperandLayout layout, bool optional) {
  const auto before = std::span(roles_).first(role_count_);
  const auto nth = static_cast<std::size_t>(std::ranges::count(before, role));
  roles_.at(role_count_++) = role;
  const OperandView* view = in_.find(role, nth);
  if (view == nullptr && optional) return nullptr;
  std::array<std::int64_t, 4> sizes{};
  for (std::size_t i = 0; i < shape.count; ++i)
    sizes.at(i) =
        expected(shape.all.at(i), view != nullptr && i < view->shape.size() ? view->shape[i] : 0);
  view = in_.check(role, nth, wanted, std::span(sizes).first(shape.count));
  if (view == nullptr) return nullptr;
  const bool contiguous = OperandReader::is_contiguous(*view);
  if (layout == OperandLayout::contiguous) expect(contiguous, role, "expected contiguous elements");
  if (layout == OperandLayout::columns && view->shape[0] > 1)
    expect(view->strides[0] >= view->shape[1], role, "expected rows that do not overlap");
  return view;
}

TypeRoles type_roles(const KernelSpec& spec, const KernelCall& call) {
  const OperandReader in(call);
  TypeRoles roles;
  for (const Element element : {Element::compute, Element::gradient, Element::statistic})
    for (const OperandSpec& operand : spec.operands) {
      if (operand.element != element) continue;
      if (element == Element::gradient) roles.second = operand.role;
      if (roles.first.empty() && (!operand.optional || in.find(operand.role) != nullptr))
        roles.first = operand.role;
    }
  return roles;
}

}  // namespace mfsdp
