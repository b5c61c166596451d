// The call struct of every kind of kernel.
//
// A call struct is what a machine's kernel takes: sizes, typed pointers, scratch. Its member
// `state(op)` names each attribute and operand once. The type of `op` decides what that does:
//   SpecWriter   (core/plan/kernel_spec.cpp)   writes the kind's row of the table of kernels
//   CallReader   (core/runtime/calls)          fills the struct from an op, checks types and shapes
// So `state` must be right for a struct of zeros, too: it divides by no size, follows no pointer.
//
//   op.attribute("rows", rows)               a required attribute; `attribute_if_any`: optional
//   op.rank_attribute_if_any("vocab_begin", value, is_stated)   optional, may differ by rank
//   op.unread("bytes")                       a required attribute that the kernel does not use
//   op.reads("input", input, {"rows", ...})  reads, writes, updates, scratch, adds (with attribute
//                                            "beta"), yields: as OperandUse
//   op.dim("partial_rows", partial_rows)     the value of a name in the shapes above
//   `op.let("room", room)`                   the value of a name in the shapes below
//   op.pieces(...), op.piece_rows, op.grid   requirements of --exact-sums
//   op.workspace(span, least bytes), op.flops(function, share of a model's FLOPs)
//   op.expect(holds, role, text...)          a further condition
#pragma once

#include "core/plan/kernels/attention.hpp"
#include "core/plan/kernels/experts.hpp"
#include "core/plan/kernels/fp8.hpp"
#include "core/plan/kernels/fp8_blocks.hpp"
#include "core/plan/kernels/gemm.hpp"
#include "core/plan/kernels/head_groups.hpp"
#include "core/plan/kernels/key_columns.hpp"
#include "core/plan/kernels/newton_schulz.hpp"
#include "core/plan/kernels/norm.hpp"
#include "core/plan/kernels/quantised.hpp"
#include "core/plan/kernels/ring.hpp"
#include "core/plan/kernels/rope.hpp"
#include "core/plan/kernels/sums.hpp"
#include "core/plan/kernels/swiglu.hpp"
#include "core/plan/kernels/tokens.hpp"

namespace mfsdp {

/// A call struct by how many element types it has; `Example` has types of the table's Elements:
/// bf16 for `compute`, fp16 for `gradient`.
template <class Call>
struct CallWithoutTypes {
  static constexpr int types = 0;
  using Example = Call;
};
template <template <class> class Call>
struct CallOfOneType {
  static constexpr int types = 1;
  template <class T>
  using With = Call<T>;
  using Example = Call<Bf16>;
};
template <template <class, class> class Call>
struct CallOfTwoTypes {
  static constexpr int types = 2;
  template <class T, class Other>
  using With = Call<T, Other>;
  using Example = Call<Bf16, Fp16>;
};

template <class Call>
CallWithoutTypes<Call> call_template();
template <template <class> class Call>
CallOfOneType<Call> call_template();
template <template <class, class> class Call>
CallOfTwoTypes<Call> call_template();

template <KernelKind kind>
struct CallOf;
#define MFSDP_CALL_OF(name, call) \
  template <>                     \
  struct CallOf<KernelKind::name> : decltype(call_template<kernels::call>()) {};
MFSDP_KERNEL_KINDS(MFSDP_CALL_OF)
#undef MFSDP_CALL_OF

}  // namespace mfsdp
