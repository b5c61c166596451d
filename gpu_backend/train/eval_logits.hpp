// The logits of an evaluation, for comparison with other programs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// The logits of one microbatch, on the host.
struct EvalLogits {
  DType dtype = DType::bf16;
  std::vector<std::int64_t> shape;    ///< tokens, vocabulary
  std::span<const std::byte> values;  ///< row-major
};

using TakeLogits = std::function<Result<void>(const EvalLogits&)>;

/// The buffer that holds all logits of a microbatch after the eval plan has run. Errors: the plan
/// computes them in chunks; a later op overwrites them.
[[nodiscard]] Result<Operand> find_eval_logits(const Program& program);

/// Moves the rows together: `bytes` are the operand's span, whose rows may have unused ends, and
/// become its elements.
void close_rows(const Operand& logits, std::vector<std::byte>& bytes);

/// Applies the model's logit softcap, if it has one, and rounds to the logits' dtype. The plan's
/// kernels apply it as they read, so a buffer has the logits from before.
void cap_logits(const ModelShape& model, DType dtype, std::span<std::byte> values);

}  // namespace mfsdp
