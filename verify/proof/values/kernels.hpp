// Kernels against their specs: operands by role, with dimensions and dtypes that fit each other and
// the kernel's attributes.
//
//   gemm, forward    input T[m, k], weight T[n, k], output T[m, n]
//   swiglu_forward   gate_up T[rows, 2 cols], `product` T[rows, cols]
//
// Backends rely on these. A kernel that states n columns and has an output of n - 1 touches bytes
// that the plan does not declare, and no other proof would hold.
#pragma once

#include "core/plan/plan.hpp"
#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/program_index.hpp"

namespace mfsdp {

/// Finds MF007: operands, dtypes and attributes that do not fit each other; an operand of another
/// dtype than its buffer; rows that begin within a row; heads at wrong columns; attributes that
/// differ from the model or the configuration. For a program without structure_faults().
void check_kernels(const Program& program, const ProgramIndex& index, FindingList& findings);

}  // namespace mfsdp
