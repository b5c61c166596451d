// Whether an operand has the form that a step of the model gives it, and where in its value it
// lies.
#pragma once

#include "verify/checker/model.hpp"

namespace mfsdp::checker {

/// A step is not what the op does: another may be.
struct Mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};
template <class... Parts>
[[noreturn]] void differ(fmt::format_string<Parts...> what, Parts&&... parts) {
  throw Mismatch(fmt::format(what, std::forward<Parts>(parts)...));
}

/// Checks access, dtype, shape and strides of an operand of an op that works on `rows` rows.
void check_form(const Op& op, const Flow& flow, const Operand& operand, Int rows);

/// The bytes of a buffer that an operand's rows take, and where in the value they begin.
struct Extent {
  Int begin, bytes, position;
};
/// `row`: the first that the op works on.
Extent extent_of(const Flow& flow, const Operand& operand, Int row);

}  // namespace mfsdp::checker
