#include "gpu_backend/cuda/run_errors.hpp"

#include <fmt/format.h>

#include "gpu_backend/cuda/describe_op.hpp"

namespace mfsdp::cuda {

Error op_failure(const Program& program, std::int64_t rank, const BoundOp& op, std::int64_t step,
                 const Error& reason) {
  return {.where = place_of(program, rank, op, step),
          .what = reason.message() + ": " + shape_of(program, op),
          .fault = Fault::environment};
}

Error stall(const Program& program, std::int64_t rank, const std::optional<UnfinishedOp>& at,
            std::chrono::milliseconds held) {
  const double seconds = static_cast<double>(held.count()) / 1000;
  if (!at)
    return {.where = fmt::format("rank {}", rank),
            .what = fmt::format("the host has been held in one call for {:.1f} s", seconds),
            .fault = Fault::environment};
  return {.where = place_of(program, rank, *at->op, at->step),
          .what = fmt::format("has not ended while the host waited for {:.1f} s: {}", seconds,
                              shape_of(program, *at->op)),
          .fault = Fault::environment};
}

}  // namespace mfsdp::cuda
