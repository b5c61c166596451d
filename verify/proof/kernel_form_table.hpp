// The table of what kernels take, which kernel_forms.hpp compares a plan with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/plan/op.hpp"

namespace mfsdp {

/// Types of elements that go together in one kernel.
enum class Element {
  compute,    ///< T: any floating type, the same throughout the kernel
  statistic,  ///< S: fp32, or fp64 beside fp64
  gradient,   ///< G: any floating type, but fp64 beside fp64 alone
  partial,    ///< fp32, or int64 where sums are exact
  fp32,
  int32,
  bytes
};

/// times * first * second. A name is an attribute's, or stands for whatever the first operand with
/// it has there.
struct Dim {
  std::string_view first = {};
  std::string_view second = {};
  std::int64_t times = 1;
};

struct OperandForm {
  std::string_view role;
  Element element = Element::compute;
  std::array<Dim, 4> shape = {};
  std::size_t dims = 0;
  bool strided = false;   ///< need not be contiguous
  bool optional = false;  ///< may be left out
};

/// What a kernel of that kind takes, short of its workspace.
struct KernelForm {
  KernelKind kind = KernelKind::gemm;
  std::optional<std::int64_t> gemm_kind = {};
  std::vector<OperandForm> operands;  ///< of one role in their order
};

/// The form of a kernel's kind. Null for element-wise kernels, whose operands have any shape, and
/// for a product of no kind.
[[nodiscard]] const KernelForm* form_of(const Kernel& kernel);

/// Bytes that a kernel's operand "workspace" has at least, 0 where it needs none: what a GPU's
/// kernels take beside their operands, so that none of it lies outside the plan. A product's is as
/// large as whoever runs it wants it.
[[nodiscard]] std::int64_t least_workspace(const Kernel& kernel);

}  // namespace mfsdp
