#include "gpu_backend/cuda/describe_op.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mfsdp::cuda {

std::string place_of(const Program& program, std::int64_t rank, const BoundOp& op,
                     std::int64_t step) {
  return fmt::format("rank {}, {} ({}), step {}", rank, op.op->name,
                     to_string(program.streams[op.stream].role), step + 1);
}

std::string shape_of(const Program& program, const BoundOp& op) {
  if (const auto* collective = std::get_if<Collective>(&op.op->body)) {
    const Communicator& communicator = program.communicators[op.communicator];
    return fmt::format("{} of {} {} over {} ranks ({})", to_string(collective->kind),
                       collective->count, to_string(collective->dtype), communicator.size,
                       communicator.purpose);
  }
  std::string text(to_string(op.op->kind()));
  if (const auto* kernel = std::get_if<Kernel>(&op.op->body)) text = to_string(kernel->kind);
  for (const OperandView& view : op.operands)
    text += fmt::format(", {} {} [{}]", view.role, to_string(view.dtype),
                        fmt::join(view.shape.begin(), view.shape.end(), ", "));
  return text;
}

}  // namespace mfsdp::cuda
