// What each kind of kernel takes: operands by role, with the dims and element types that have to
// fit each other and the kernel's attributes.
//
//   gemm, forward    input T[m, k], weight T[n, k], output T[m, n]
//   swiglu_forward   gate_up T[rows, 2 cols], product T[rows, cols]
//
// Whoever runs a kernel takes these for granted: one that says n where its output has n - 1 columns
// reads or writes what the plan does not declare, and everything else that is proved would mean
// nothing.
#pragma once

#include "core/plan/plan.hpp"
#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/program_index.hpp"

namespace mfsdp {

/// Finds MF007: a kernel whose operands, dtypes and attributes do not fit each other, an operand of
/// another dtype than its buffer (bytes, uint8, may be anything), rows that begin within a row,
/// heads that are not at their columns, attributes that are not as the model or the configuration
/// has them.
/// Operands that a kernel of that kind does not take are not looked at. The program is one
/// (structure.hpp).
void check_kernels(const Program& program, const ProgramIndex& index, FindingList& findings);

}  // namespace mfsdp
