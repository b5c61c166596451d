// Which operands each kind of kernel takes: roles, accesses, dtypes and numbers of elements. The one
// place where the proof states it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/plan/config.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {

/// What a kernel may do to an operand.
enum class Takes : std::uint8_t {
  read,
  write,
  update,          ///< reads and writes
  read_or_update,  ///< the plan chooses; written, it holds what the kernel makes again
  sum,             ///< writes or, adding, updates
  scratch
};

/// Dtypes by what they are for, as the configuration sets them.
enum class Element : std::uint8_t {
  compute,    ///< weights and activations
  statistic,  ///< sums, statistics of rows, moments
  main,       ///< main weights
  norm,       ///< parts of the gradient's norm: fp32, whole numbers with exact sums
  fp32,
  int32,
  bytes,
  of_buffer  ///< any floats: gradients, whose widths gradients.hpp judges
};

struct OperandSignature {
  std::string_view role;
  Takes takes = Takes::read;
  Element element = Element::compute;
  /// Its number of elements: a number times attributes by their letters. Empty: any.
  std::string_view elements;
  bool optional = false;
};

struct KernelSignature {
  KernelKind kind = KernelKind::gemm;
  std::int64_t variant = 0;  ///< a GEMM's attribute "kind"
  /// The kernel's attributes, a letter for each.
  std::span<const std::pair<char, std::string_view>> letters;
  std::span<const OperandSignature> operands;
};

/// Null for a GEMM of no kind.
[[nodiscard]] const KernelSignature* signature_of(const Kernel& kernel);

/// What is wrong with a kernel's operands, or nothing.
[[nodiscard]] std::string signature_fault(const Kernel& kernel, const PlanConfig& config);

}  // namespace mfsdp
