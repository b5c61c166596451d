// The logits of an evaluation, for other programs' to be compared with.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Those of one microbatch, on the host.
struct EvalLogits {
  DType dtype = DType::bf16;
  std::vector<std::int64_t> shape;    ///< tokens, vocabulary
  std::span<const std::byte> values;  ///< row-major
};

using TakeLogits = std::function<Result<void>(const EvalLogits&)>;

/// Where the eval plan has a microbatch's logits, all of them and still when it has run. Errors: it
/// makes them chunk by chunk; an op behind the loss writes over them.
[[nodiscard]] Result<Operand> find_eval_logits(const Program& program);

/// What the model's soft cap, where it has one, makes of the logits; rounded to their dtype. The
/// plan's kernels cap as they read, so that a buffer has them as the last product made them.
void cap_logits(const ModelShape& model, DType dtype, std::span<std::byte> values);

}  // namespace mfsdp
