// From a call to the structs of swiglu.hpp. Errors name the operand and what was expected.
#pragma once

#include "core/runtime/calls/operand_reader.hpp"
#include "core/runtime/calls/swiglu.hpp"

namespace mfsdp::kernels {

template <class T>
[[nodiscard]] Result<SwigluForward<T>> take_swiglu_forward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const SwigluForward<T> k{.rows = rows,
                           .cols = cols,
                           .gate_up = in.take<const T>("gate_up", {rows, 2 * cols}),
                           .product = in.take<T>("product", {rows, cols})};
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<SwigluBackward<T>> take_swiglu_backward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const OperandView* d_product = in.find("d_product");
  // Where the plan lets the gradient be written, it wants the product in its place.
  const bool makes_product = d_product != nullptr && d_product->access == Access::read_write;
  const SwigluBackward<T> k{
      .rows = rows,
      .cols = cols,
      .gate_up = in.take<T>("gate_up", {rows, 2 * cols}),
      .d_product = in.take<const T>("d_product", {rows, cols}),
      .product = makes_product ? in.take<T>("d_product", {rows, cols}) : nullptr};
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<GeluForward<T>> take_gelu_forward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const GeluForward<T> k{.rows = rows,
                         .cols = cols,
                         .input = in.take<const T>("input", {rows, cols}),
                         .product = in.take<T>("product", {rows, cols})};
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<GeluBackward<T>> take_gelu_backward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const OperandView* d_product = in.find("d_product");
  const bool makes_product = d_product != nullptr && d_product->access == Access::read_write;
  const GeluBackward<T> k{
      .rows = rows,
      .cols = cols,
      .input = in.take<T>("input", {rows, cols}),
      .d_product = in.take<const T>("d_product", {rows, cols}),
      .product = makes_product ? in.take<T>("d_product", {rows, cols}) : nullptr};
  MFSDP_TRY(in.result());
  return k;
}

}  // namespace mfsdp::kernels
