// Functions with which the rows of the table of kernels are written (kernel_spec.cpp and others).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "core/plan/kernel_spec.hpp"

namespace mfsdp::spec {

[[nodiscard]] constexpr Dim d(std::string_view name) { return {.first = name}; }
[[nodiscard]] constexpr Dim d(std::int64_t times, std::string_view name = {}) {
  return {.first = name, .times = times};
}
[[nodiscard]] constexpr Dim d(std::string_view first, std::string_view second) {
  return {.first = first, .second = second};
}

[[nodiscard]] constexpr OperandSpec operand(OperandUse use, std::string_view role, Element element,
                                            std::initializer_list<Dim> shape) {
  OperandSpec spec{.role = role, .element = element, .use = use};
  for (const Dim& dim : shape) spec.shape[spec.dims++] = dim;
  return spec;
}
[[nodiscard]] constexpr OperandSpec optional(OperandSpec spec) {
  spec.optional = true;
  return spec;
}
[[nodiscard]] constexpr OperandSpec strided(OperandUse use, std::string_view role,
                                            std::initializer_list<Dim> shape) {
  OperandSpec spec = operand(use, role, Element::compute, shape);
  spec.strided = true;
  return spec;
}
[[nodiscard]] constexpr OperandSpec columns(OperandSpec spec) {
  spec.columns = true;
  return spec;
}
[[nodiscard]] constexpr OperandSpec matrix(OperandUse use, std::string_view role) {
  return operand(use, role, Element::compute, {d("rows"), d("cols")});
}

inline constexpr OperandSpec kRopeTable =
    operand(OperandUse::reads, "rope_table", Element::fp32, {d("seq"), d("rotated_dim")});

/// Positions of tokens in their documents, where attention is masked between documents: a query
/// sees only the tokens of its document.
[[nodiscard]] constexpr OperandSpec document_positions(std::initializer_list<Dim> tokens) {
  return optional(operand(OperandUse::reads, "positions", Element::int32, tokens));
}
/// Positions that select rows of a table.
inline constexpr OperandSpec kByPosition = document_positions({d("rows")});

// Rows by topic; kernel_spec.cpp has the others and joins them.
[[nodiscard]] std::vector<KernelSpec> attention_specs();
[[nodiscard]] std::vector<KernelSpec> latent_specs();
[[nodiscard]] std::vector<KernelSpec> rotation_specs();
[[nodiscard]] std::vector<KernelSpec> routing_specs();
[[nodiscard]] std::vector<KernelSpec> expert_specs();
[[nodiscard]] std::vector<KernelSpec> expert_activation_specs();

}  // namespace mfsdp::spec
