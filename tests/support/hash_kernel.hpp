// A kernel for testing schedules: whatever it is asked to compute, it writes a hash of everything
// that it reads. One stale or foreign byte anywhere changes all that follows.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "core/base/error.hpp"
#include "core/runtime/operand_view.hpp"

namespace mfsdp::test {

/// One step of a hash (the finaliser of SplitMix64).
inline std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  std::uint64_t z = hash * 0x9e3779b97f4a7c15U + value;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

/// Calls `visit(element)` for every element's first byte, innermost dim fastest.
template <class Visit>
void for_each_element(const OperandView& view, Visit visit, std::size_t dim = 0,
                      std::int64_t at = 0) {
  if (dim == view.shape.size()) return visit(view.data + at * size_of(view.dtype));
  for (std::int64_t i = 0; i < view.shape[dim]; ++i)
    for_each_element(view, visit, dim + 1, at + i * view.strides[dim]);
}

/// Writes a value made of random bits; a finite one, so that it can be summed.
inline void put_value(std::byte* to, DType dtype, std::uint64_t bits) {
  const auto number = static_cast<float>(bits >> 44U) * 0x1p-10F;
  const auto pattern = std::bit_cast<std::uint32_t>(number);
  switch (dtype) {
    case DType::fp32: std::memcpy(to, &pattern, 4); return;
    case DType::bf16: {
      const auto upper = static_cast<std::uint16_t>(pattern >> 16U);
      std::memcpy(to, &upper, 2);
      return;
    }
    default: std::memcpy(to, &bits, static_cast<std::size_t>(size_of(dtype))); return;
  }
}

inline std::uint64_t hash_of_reads(const KernelCall& call) {
  std::uint64_t hash = static_cast<std::uint64_t>(call.kernel->kind);
  for (const Attribute& attribute : call.kernel->attributes)
    hash = mix(hash, static_cast<std::uint64_t>(attribute.value.num));
  for (const OperandView& operand : call.operands) {
    if (operand.access == Access::write || operand.access == Access::scratch) continue;
    for_each_element(operand, [&](const std::byte* element) {
      std::uint64_t value = 0;
      std::memcpy(&value, element, static_cast<std::size_t>(size_of(operand.dtype)));
      hash = mix(hash, value);
    });
  }
  return hash;
}

/// The beginning of scratch is left holding what no two calls agree on; all of it would take long,
/// as GEMMs have 32 MiB.
inline Result<void> hash_kernel(const KernelCall& call) {
  static std::atomic<std::uint64_t> junk{0};
  std::uint64_t hash = hash_of_reads(call);
  for (const OperandView& operand : call.operands) {
    if (operand.access == Access::read) continue;
    if (operand.access == Access::scratch) {
      const std::int64_t bytes = product_of(operand.shape) * size_of(operand.dtype);
      const std::uint64_t value = mix(junk.fetch_add(1, std::memory_order_relaxed), 0);
      std::memset(operand.data, static_cast<int>(value % 256),
                  static_cast<std::size_t>(std::min<std::int64_t>(bytes, 256)));
      continue;
    }
    for_each_element(operand, [&](std::byte* element) {
      hash = mix(hash, 1);
      put_value(element, operand.dtype, hash);
    });
  }
  return {};
}

}  // namespace mfsdp::test
