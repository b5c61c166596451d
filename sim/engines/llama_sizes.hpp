// Bytes of a Llama's tensors in one microbatch; bf16 unless their name states another type.
#pragma once

#include <cstdint>

#include "core/plan/config.hpp"

namespace mfsdp {

// Bytes of an element in compute, and of one in sums and in weights between steps.
inline constexpr std::int64_t kHalf = size_of(DType::bf16);
inline constexpr std::int64_t kFull = size_of(DType::fp32);

struct LlamaSizes {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;  ///< columns, as those below
  std::int64_t qkv_columns = 0;
  std::int64_t query_columns = 0;
  std::int64_t key_columns = 0;
  std::int64_t ffn = 0;
  std::int64_t vocab = 0;

  std::int64_t state = 0;      ///< of a hidden state
  std::int64_t statistic = 0;  ///< fp32, one a token
  std::int64_t qkv = 0;
  std::int64_t query = 0;
  std::int64_t key = 0;
  std::int64_t query_statistic = 0;  ///< fp32, one a token and query head
  std::int64_t key_statistic = 0;
  std::int64_t gate_up = 0;
  std::int64_t product = 0;  ///< activation times the other half
  std::int64_t logits = 0;
  std::int64_t logits_fp32 = 0;
  std::int64_t angles = 0;               ///< cosines of all positions, or sines
  std::int64_t norm_partial = 0;         ///< of a norm's weight gradient, as Inductor sums it
  std::int64_t attention_workspace = 0;  ///< of attention's backward
};

[[nodiscard]] LlamaSizes llama_sizes(const PlanConfig& config);

}  // namespace mfsdp
