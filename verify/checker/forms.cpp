#include "verify/checker/forms.hpp"

namespace mfsdp::checker {

void check_form(const Op& op, const Flow& flow, const Operand& operand, Int rows) {
  const bool adds = op.attribute("beta") != 0;
  const std::string wanted = flow.access == "adds" ? (adds ? "read_write" : "write") : flow.access;
  const bool either =
      flow.access == "may" && (operand.access == "read" || operand.access == "read_write");
  if (operand.access != wanted && !either) differ("'{}' is {}", flow.role, operand.access);
  if (!flow.dtype.empty() && operand.dtype != flow.dtype)
    differ("'{}' is {}, not {}", flow.role, operand.dtype, flow.dtype);
  std::vector<Int> shape = flow.shape;
  for (Int& dim : shape) dim = dim < 0 ? times(dim / kRows, rows) : dim;
  if (operand.shape != shape) differ("'{}' is of another shape", flow.role);
  if (flow.row == 0) {
    if (!operand.dense) differ("'{}' has strides", flow.role);
    return;
  }
  if (shape.size() == 2) {
    if (operand.strides != std::vector<Int>{flow.row, 1})
      differ("'{}' is no columns in rows of {}", flow.role, flow.row);
    if (operand.offset != times(flow.column, size_of(operand.dtype)))
      differ("'{}' does not begin at column {}", flow.role, flow.column);
    return;
  }
  const Int head = shape.back();
  std::vector<Int> strides{flow.row, head, 1};
  if (shape.size() == 4) strides = {times(shape[2], flow.row), head, flow.row, 1};
  const bool dense = shape.size() == 3 && times(shape[1], head) == flow.row;
  if (operand.strides != strides && !(dense && operand.strides.empty()))
    differ("'{}' is no heads in rows of {}", flow.role, flow.row);
}

Extent extent_of(const Flow& flow, const Operand& operand, Int row) {
  const Int size = size_of(operand.dtype);
  if (flow.row != 0) {
    const Int rows =
        flow.shape.size() == 4 ? times(flow.shape[0], flow.shape[2]) : operand.shape.at(0);
    return {operand.offset - flow.column * size, times(times(rows, flow.row), size),
            times(times(row, flow.row), size)};
  }
  // A value that does not have the op's rows begins where the operand does.
  Int width = flow.shape.empty() || flow.shape[0] >= 0 ? 0 : flow.shape[0] / kRows;
  for (std::size_t d = 1; d < flow.shape.size(); ++d) width = times(width, flow.shape[d]);
  return {operand.offset, times(operand.elements, size),
          times(flow.column + times(row, width), size)};
}

}  // namespace mfsdp::checker
