// Findings about two instances, with an order of ops in which the plan goes wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/findings/finding.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// Bytes of a buffer.
struct BufferRange {
  std::uint32_t buffer = 0;  ///< position in Program::buffers
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Two instances that nothing orders, and of which `first` has to run before `then`: the missing
/// edge. Its interleaving has `then` run first, with the last wait before each: everything that
/// those two follow has run, and the plan lets the device go on in this order.
[[nodiscard]] Finding unordered_finding(const UnrolledPlan& unrolled, std::string rule,
                                        std::uint32_t first, std::uint32_t then,
                                        const BufferRange& range);

/// Instances that are wrong in host order already, such as a use after a release. The last one is
/// the culprit. `what` follows the culprit's name.
[[nodiscard]] Finding ordered_finding(const UnrolledPlan& unrolled, std::string rule,
                                      std::vector<std::uint32_t> instances,
                                      const BufferRange& range, const std::string& what);

}  // namespace mfsdp
