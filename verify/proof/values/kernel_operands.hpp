// One kernel against its form (core/plan/kernel_spec.hpp), and where in their rows its operands
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

/// What of a kernel does not fit its form or the configuration, or nothing. `of_model`: the plan is
/// one of the configured model; one by hand may have kernels for any.
[[nodiscard]] std::optional<std::string> kernel_fault(const Kernel& kernel,
                                                      const PlanConfig& config, bool of_model);

/// What `kernel_fault` asks of operands' offsets.
[[nodiscard]] std::vector<ColumnOf> columns_of(const Kernel& kernel);

}  // namespace mfsdp
