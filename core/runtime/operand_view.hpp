// The argument of a backend's kernels: a plan's kernel op with its operands resolved to memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/base/vocabulary.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {

/// An operand of an op on one rank, resolved to memory.
struct OperandView {
  std::string_view role;  ///< as the plan's Operand
  Access access = Access::read;
  std::byte* data = nullptr;  ///< first element
  DType dtype = DType::bf16;
  std::span<const std::int64_t> shape;    ///< as the plan's Operand
  std::span<const std::int64_t> strides;  ///< elements; never empty (contiguous ones filled in)
};

/// One kernel op with its operands resolved, in the plan's order.
struct KernelCall {
  const Kernel* kernel = nullptr;
  std::span<const OperandView> operands;
  std::optional<GroupId> group{};  ///< the op's
  std::int64_t rank = 0;           ///< of the world
  std::int64_t step = 0;           ///< of the run, from 0
};

}  // namespace mfsdp
