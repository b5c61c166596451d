// One kernel against its spec (core/plan/kernel_spec.hpp), and where in their rows its operands
// begin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/config.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {

/// Where in a row an operand has to begin, in bytes.
struct ColumnOf {
  std::size_t operand = 0;
  std::int64_t row = 0;
  std::int64_t begin = 0;

  [[nodiscard]] bool fits(const Kernel& kernel) const {
    return kernel.operands[operand].offset % row == begin;
  }
};

/// A message where a kernel does not fit its spec or the configuration; else nothing. `of_model`:
/// the plan computes the configured model; a hand-written plan may have kernels of any model.
[[nodiscard]] std::optional<std::string> kernel_fault(const Kernel& kernel,
                                                      const PlanConfig& config, bool of_model);

/// The conditions of `kernel_fault` on offsets of operands.
[[nodiscard]] std::vector<ColumnOf> columns_of(const Kernel& kernel);

}  // namespace mfsdp
