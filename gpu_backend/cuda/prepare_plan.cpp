// What CudaBackend does with a plan before the first step: each op becomes what launches it.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/cuda_backend.hpp"
#include "gpu_backend/cuda/describe_op.hpp"
#include "gpu_backend/cuda/gemm_cache.hpp"
#include "gpu_backend/cuda/kernels/test_kernels.hpp"

namespace mfsdp::cuda {
namespace {

constexpr int kPoison = 0xff;  ///< as a byte of every element: a NaN in bf16, fp16 and fp32

std::size_t bytes_of(const OperandView& view) {
  return static_cast<std::size_t>(mfsdp::bytes_of(product_of(view.shape), view.dtype).value);
}

cudaMemcpyKind direction(CopyKind kind) {
  switch (kind) {
    case CopyKind::d2h: return cudaMemcpyDeviceToHost;
    case CopyKind::h2d: return cudaMemcpyHostToDevice;
    case CopyKind::d2d: break;
  }
  return cudaMemcpyDeviceToDevice;
}

}  // namespace

Result<void> CudaBackend::prepare(const BoundPlan& plan) {
  MFSDP_TRY(watcher_->outcome());
  if (!std::exchange(first_prepared_, true)) MFSDP_TRY(begin_choosing());
  MFSDP_TRY(learn_algorithms());
  MFSDP_TRY(prepare_segments(plan));
  MFSDP_TRY(check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", "choosing algorithms"));
  MFSDP_TRY(tell_algorithms());
  if (settings_.poison)
    for (const std::span<std::byte> pool : device_pools_)
      MFSDP_TRY(check(cudaMemset(pool.data(), kPoison, pool.size()), "cudaMemset"));
  MFSDP_TRY(check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
  static_cast<void>(cudaGetLastError());  // of what was tried: no error of the first launch
  return {};
}

// ---- GEMM algorithms ---------------------------------------------------------------------------

/// Rank 0 chooses for all, on numbers: a GPU multiplies zeros faster.
Result<void> CudaBackend::begin_choosing() {
  if (settings_.rank != 0 || settings_.gemm.timed_rounds == 0) return {};
  for (const std::span<std::byte> pool : device_pools_)
    MFSDP_TRY(fill_with_numbers(pool, setup_.get()));
  MFSDP_TRY(check(cudaStreamSynchronize(setup_.get()), "cudaStreamSynchronize"));
  if (!settings_.gemm_cache) return {};
  MFSDP_LET(machine, this_machine());
  const GemmCache cache = load_gemm_cache(gemm_cache_path(*settings_.gemm_cache, machine), machine);
  if (!cache.note.empty()) notes_.push_back(cache.note);
  cached_algorithms_ = cache.algorithms;
  return binder_.offer(cache.algorithms);
}

Result<void> CudaBackend::learn_algorithms() {
  if (alone() || settings_.rank == 0) return {};
  MFSDP_LET(bytes, settings_.peers.broadcast({}));
  std::string text(bytes.size(), '\0');
  std::memcpy(text.data(), bytes.data(), bytes.size());
  MFSDP_LET(machine, this_machine());
  MFSDP_LET(algorithms, read_gemm_algorithms(text, machine, "rank 0's GEMM algorithms"));
  return binder_.offer(algorithms);
}

Result<void> CudaBackend::tell_algorithms() {
  if (settings_.rank != 0) return {};
  const std::vector<GemmAlgorithm> chosen = binder_.chosen();
  MFSDP_LET(machine, this_machine());
  if (!alone()) {
    const std::string text = write_gemm_algorithms(machine, chosen);
    Peers::Bytes bytes(text.size());
    std::memcpy(bytes.data(), text.data(), text.size());
    MFSDP_TRY(settings_.peers.broadcast(bytes));
  }
  return keep_algorithms(machine, chosen);
}

/// Those of other shapes stay in the file. What cannot be written costs the next run its time.
Result<void> CudaBackend::keep_algorithms(const GemmMachine& machine,
                                          std::span<const GemmAlgorithm> chosen) {
  if (!settings_.gemm_cache || settings_.gemm.timed_rounds == 0) return {};
  std::vector<GemmAlgorithm> all = cached_algorithms_;
  for (const GemmAlgorithm& algorithm : chosen) {
    const auto same = std::ranges::find(all, algorithm.shape, &GemmAlgorithm::shape);
    if (same == all.end())
      all.push_back(algorithm);
    else
      *same = algorithm;
  }
  if (all == cached_algorithms_) return {};
  const auto path = gemm_cache_path(*settings_.gemm_cache, machine);
  if (const auto saved = save_gemm_cache(path, machine, all); !saved)
    notes_.push_back(saved.error().message());
  cached_algorithms_ = std::move(all);
  return {};
}

// ---- ops ---------------------------------------------------------------------------------------

Result<void> CudaBackend::prepare_segments(const BoundPlan& plan) {
  const bool timed = settings_.timed_from && plan.plan->name == settings_.timed_plan;
  std::int64_t plan_ops = 0;
  std::int64_t timed_ops = 0;
  for (const BoundSegment& segment : plan.segments) {
    plan_ops += std::ssize(segment.ops);
    const auto count = std::ranges::count_if(
        segment.ops, [](const BoundOp& op) { return OpTimer::times(*op.op); });
    timed_ops = checked_add(timed_ops, checked_mul(count, segment.repeat));
  }
  if (timed) MFSDP_TRY(make_room_for_times(timed_ops));
  std::vector<const BoundOp*> last(program_.streams.size(), nullptr);
  std::int64_t first = 0;
  for (const BoundSegment& segment : plan.segments) {
    PreparedSegment& into = prepared_.emplace_back();
    into.bound = segment.ops;
    into.timed = timed;
    into.first = first;
    into.plan_ops = plan_ops;
    first += std::ssize(segment.ops);
    into.ops.reserve(segment.ops.size());
    for (const BoundOp& op : segment.ops) {
      auto made = prepare_op(op);
      if (!made)
        return fail(fmt::format("rank {}, plan \"{}\", op {} ({})", settings_.rank, plan.plan->name,
                                op.op->id.value, op.op->name),
                    made.error().message(), made.error().fault);
      if (op.op->kind() == OpKind::record) made->work = last[op.stream];
      if (OpTimer::times(*op.op) && op.op->kind() != OpKind::host_wait) last[op.stream] = &op;
      into.ops.push_back(std::move(*made));
    }
  }
  return {};
}

/// Two events an op. A plan of very many ops is not timed: its events would take the time and
/// memory of a small model.
Result<void> CudaBackend::make_room_for_times(std::int64_t ops) {
  constexpr std::int64_t kMost = 200'000;
  const std::int64_t all = checked_mul(ops, settings_.timed_steps);
  if (all <= kMost) return timer_.make_room(all);
  settings_.timed_from.reset();
  notes_.push_back(fmt::format("ops are not timed: {} launches are more than {}", all, kMost));
  return {};
}

Result<CudaBackend::PreparedOp> CudaBackend::prepare_op(const BoundOp& op) {
  const auto launch_of = [&]() -> Result<Launch> {
    switch (op.op->kind()) {
      case OpKind::kernel:
        return binder_.bind({.kernel = &std::get<Kernel>(op.op->body),
                             .operands = op.operands,
                             .group = op.op->group,
                             .rank = settings_.rank,
                             .step = 0},
                            stream_of(op));
      case OpKind::collective: return bind_collective(op);
      case OpKind::copy: return bind_copy(op);
      case OpKind::release: return bind_release(op);
      case OpKind::group_begin: return [this] { return communicators_.begin_group(); };
      case OpKind::group_end: return [this] { return communicators_.end_group(); };
      case OpKind::acquire:
      case OpKind::host_wait:
      case OpKind::record:
      case OpKind::wait: break;
    }
    return Launch();
  };
  MFSDP_LET(launch, launch_of());
  return PreparedOp{.launch = std::move(launch), .work = nullptr};
}

Result<Launch> CudaBackend::bind_collective(const BoundOp& op) {
  const auto& collective = std::get<Collective>(op.op->body);
  MFSDP_TRY(check_collective(op, communicators_.member(op.communicator),
                             program_.communicators[op.communicator].size));
  if (collective.count == 0) return Launch();
  return [this, &op, count = collective.count, stream = stream_of(op)] {
    return communicators_.launch(op, count, stream);
  };
}

Result<Launch> CudaBackend::bind_copy(const BoundOp& op) {
  const OperandView& from = op.operands[0];
  const OperandView& to = op.operands[1];
  const std::size_t bytes = bytes_of(from);
  if (!OperandReader::is_contiguous(from) || !OperandReader::is_contiguous(to) ||
      bytes != bytes_of(to))
    return fail("", "expected input and output of a copy to be contiguous and of equal bytes");
  if (from.data == to.data || bytes == 0) return Launch();
  return [from = from.data, to = to.data, bytes, kind = direction(std::get<Copy>(op.op->body).kind),
          stream = stream_of(op)] {
    return check(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
  };
}

Result<Launch> CudaBackend::bind_release(const BoundOp& op) {
  if (!settings_.poison || op.buffer.empty()) return Launch();
  return [buffer = op.buffer, stream = stream_of(op)] {
    return check(cudaMemsetAsync(buffer.data(), kPoison, buffer.size(), stream), "cudaMemsetAsync");
  };
}

}  // namespace mfsdp::cuda
