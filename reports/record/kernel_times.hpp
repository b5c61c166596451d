// Time of a step's kernels by group, so that casts to FP8 are seen beside the GEMMs that they serve.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "core/plan/kernel_spec.hpp"
#include "reports/record/facts.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// gemm_fp8: GEMMs of casts, in FP4 too. casts: the largest magnitudes, casts and transposes of
/// their operands. optimizer: its updates.
enum class KernelGroup { gemm, gemm_fp8, attention, casts, optimizer, others };

constexpr auto value_names(KernelGroup) {
  return name_array("gemm", "gemm_fp8", "attention", "casts", "optimizer", "others");
}

/// Nanoseconds by group.
using TimeByKernelGroup = std::array<Nanos, Names<KernelGroup>::values.size()>;

[[nodiscard]] KernelGroup group_of(KernelKind kind);

/// Times of the kernels of a whole step, contention included; other ops of the timeline are left
/// out.
[[nodiscard]] TimeByKernelGroup kernel_times(const std::vector<OpTime>& timeline);

/// Facts of topic "kernels": gemm_ns, gemm_fp8_ns and so on.
[[nodiscard]] Facts kernel_facts(const TimeByKernelGroup& times);

/// The time of a group in such facts; none without them.
[[nodiscard]] std::optional<Nanos> time_of(KernelGroup group, const Facts& facts);

}  // namespace mfsdp
