// Helpers that tests of experts' kernels share.
#pragma once

#include <rapidcheck.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mfsdp::kernels::experts_test {

using Numbers = std::vector<std::int32_t>;

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

inline std::int64_t between(std::int64_t low, std::int64_t high) {
  return *rc::gen::inRange(low, high + 1);
}

}  // namespace mfsdp::kernels::experts_test
