#include "gpu_backend/cuda/bind_op.hpp"

#include <variant>

#include "core/runtime/calls/operand_reader.hpp"
#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/pool_memory.hpp"

namespace mfsdp::cuda {
namespace {

std::size_t size_of(const OperandView& view) {
  return static_cast<std::size_t>(bytes_of(product_of(view.shape), view.dtype).value);
}

cudaMemcpyKind direction(CopyKind kind) {
  switch (kind) {
    case CopyKind::d2h: return cudaMemcpyDeviceToHost;
    case CopyKind::h2d: return cudaMemcpyHostToDevice;
    case CopyKind::d2d: break;
  }
  return cudaMemcpyDeviceToDevice;
}

Result<Launch> bind_collective(const BoundOp& op, const OpTargets& targets) {
  const auto& collective = std::get<Collective>(op.op->body);
  MFSDP_TRY(check_collective(op, targets.communicators.member(op.communicator),
                             targets.program.communicators[op.communicator].size));
  if (collective.count == 0) return Launch();
  return [&communicators = targets.communicators, &op, count = collective.count,
          stream = targets.streams.of(op)] { return communicators.launch(op, count, stream); };
}

Result<Launch> bind_copy(const BoundOp& op, const OpTargets& targets) {
  const OperandView& from = op.operands[0];
  const OperandView& to = op.operands[1];
  const std::size_t bytes = size_of(from);
  if (!OperandReader::is_contiguous(from) || !OperandReader::is_contiguous(to) ||
      bytes != size_of(to))
    return fail("", "expected input and output of a copy to be contiguous and of equal bytes");
  if (from.data == to.data || bytes == 0) return Launch();
  return [from = from.data, to = to.data, bytes, kind = direction(std::get<Copy>(op.op->body).kind),
          stream = targets.streams.of(op)] {
    return check(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
  };
}

Result<Launch> bind_release(const BoundOp& op, const OpTargets& targets) {
  if (!targets.poison || op.buffer.empty()) return Launch();
  return [buffer = op.buffer, stream = targets.streams.of(op)] {
    return check(cudaMemsetAsync(buffer.data(), kPoisonByte, buffer.size(), stream),
                 "cudaMemsetAsync");
  };
}

}  // namespace

Result<Launch> bind_op(const BoundOp& op, const OpTargets& targets) {
  Communicators& communicators = targets.communicators;
  switch (op.op->kind()) {
    case OpKind::kernel:
      return targets.kernels.bind({.kernel = op.kernel,
                                   .operands = op.operands,
                                   .group = op.op->group,
                                   .rank = targets.rank,
                                   .step = 0},
                                  targets.streams.of(op));
    case OpKind::collective: return bind_collective(op, targets);
    case OpKind::copy: return bind_copy(op, targets);
    case OpKind::release: return bind_release(op, targets);
    case OpKind::group_begin: return [&communicators] { return communicators.begin_group(); };
    case OpKind::group_end: return [&communicators] { return communicators.end_group(); };
    case OpKind::acquire:
    case OpKind::host_wait:
    case OpKind::record:
    case OpKind::wait: break;
  }
  return Launch();
}

}  // namespace mfsdp::cuda
