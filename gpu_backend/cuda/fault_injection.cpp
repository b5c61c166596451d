#include "gpu_backend/cuda/fault_injection.hpp"

#include <csignal>
#include <cstring>
#include <utility>
#include <variant>

#include "gpu_backend/cuda/kernels/test_kernels.hpp"

namespace mfsdp::cuda {
namespace {

/// Pseudo-random bits: SplitMix64's finalizer (Steele, Lea, Flood 2014).
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t number) {
  std::uint64_t bits = seed + number * 0x9e3779b97f4a7c15U;
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31U);
}

}  // namespace

Result<void> FaultInjection::open() {
  if (!fault_) return {};
  MFSDP_LET(word, allocate_pinned(sizeof(std::uint32_t), "the end of an injected stop"));
  std::memset(word.get(), 0, sizeof(std::uint32_t));
  released_ = std::move(word);
  return {};
}

void FaultInjection::release_stops() {
  if (released_ != nullptr) *reinterpret_cast<volatile std::uint32_t*>(released_.get()) = 1;
}

std::optional<Nanos> FaultInjection::draw_delay(const BoundOp& op, std::int64_t step,
                                                const PreparedPlace& place) {
  const bool its_turn = delays_.each_in_turn && place.number() == step % place.list->plan_ops;
  if (delays_.op == op.op->id || its_turn) return delays_.duration;
  if (!delays_.seed) return std::nullopt;
  const std::uint64_t draw =
      random_bits(*delays_.seed + static_cast<std::uint64_t>(rank_), ++delays_drawn_);
  if (draw % 4 != 0) return std::nullopt;
  const auto longest = static_cast<std::uint64_t>(delays_.duration.value);
  return Nanos(static_cast<std::int64_t>(draw / 4 % longest));
}

Result<void> FaultInjection::run_faulty(const BoundOp& op, Communicators& communicators,
                                        cudaStream_t stream) {
  switch (fault_->kind) {
    case InjectedFault::Kind::kill: std::raise(SIGKILL); break;
    case InjectedFault::Kind::stop:
      return stop_until(reinterpret_cast<const volatile std::uint32_t*>(released_.get()), stream);
    case InjectedFault::Kind::miscount:
      if (const auto* collective = std::get_if<Collective>(&op.op->body))
        return communicators.launch(op, collective->count - 1, stream);
      break;
    case InjectedFault::Kind::fail: break;
  }
  return fail("", "fails, as requested", Fault::environment);
}

}  // namespace mfsdp::cuda
