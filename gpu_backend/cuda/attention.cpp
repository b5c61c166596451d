#include "gpu_backend/cuda/attention.hpp"

#include <fmt/format.h>

#include <type_traits>
#include <utility>

#include "core/runtime/scalar.hpp"
#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/kernels/plain_attention.hpp"
#include "gpu_backend/cuda/warpgroup_attention.hpp"

namespace mfsdp::cuda {
namespace {

std::string place(const kernels::AttentionShape& s) {
  return fmt::format("attention [batch {}, heads {} / {}, seq {}, head_dim {}{}]", s.batch, s.heads,
                     s.kv_heads, s.seq_len, s.head_dim,
                     s.positions == nullptr ? "" : ", masked between documents");
}

tl::unexpected<Error> at(const kernels::AttentionShape& shape, const Error& error) {
  return fail(place(shape) + ": " + error.where, error.what, error.fault);
}

template <class T>
inline constexpr bool kPlain = std::is_same_v<T, float>;

template <class T>
Result<void> run_plain(const kernels::AttentionForward<T>& k, cudaStream_t stream) {
  return plain_attention_forward(k, stream);
}
template <class T>
Result<void> run_plain(const kernels::AttentionBackward<T>& k, cudaStream_t stream) {
  return plain_attention_backward(k, stream);
}

}  // namespace

Result<AttentionPlanner> AttentionPlanner::create(AttentionKernels which) {
  cudnnHandle_t handle = nullptr;
  MFSDP_TRY(check(cudnnCreate(&handle), "cudnnCreate"));
  return AttentionPlanner(handle, which);
}

template <class Plan, class Layout, class Call>
Result<void> AttentionPlanner::prepare_in(std::map<Layout, Plan>& plans, const Call& k) {
  const Layout layout = layout_of(k);
  if (plans.contains(layout)) return {};
  Plan plan(layout);
  if (auto built =
          plan.build(CudnnTarget(handle_.get()), static_cast<std::int64_t>(k.workspace.size()));
      !built)
    return at(k.shape, built.error());
  plans.emplace(layout, std::move(plan));
  return {};
}

template <class Plan, class Layout, class Call>
Result<void> AttentionPlanner::run_of(const std::map<Layout, Plan>& plans, const Call& k,
                                      cudaStream_t stream) {
  const auto found = plans.find(layout_of(k));
  if (found == plans.end())
    return fail(place(k.shape), "expected prepare() with the same layout before run()");
  MFSDP_TRY(check(cudnnSetStream(handle_.get(), stream), "cudnnSetStream"));
  if (auto ran = found->second.run(handle_.get(), k); !ran) return at(k.shape, ran.error());
  return {};
}

template <class Call>
Result<Launch> AttentionPlanner::bind_of(const Call& k, cudaStream_t stream) {
  const bool is_part = !k.shape.share.is_whole();
  if constexpr (std::is_same_v<std::remove_cvref_t<decltype(*k.query.data)>, Bf16>) {
    if (which_ == AttentionKernels::warpgroups || is_part) {
      MFSDP_LET(take, warpgroups_take(k));
      if (take) return warpgroup_launch(k, stream);
    }
  }
  if (is_part) return Launch([k, stream] { return run_plain(k, stream); });
  MFSDP_TRY(prepare(k));
  return [this, k, stream] { return run(k, stream); };
}

template <class T>
Result<Launch> AttentionPlanner::bind(const kernels::AttentionForward<T>& k, cudaStream_t stream) {
  return bind_of(k, stream);
}
template <class T>
Result<Launch> AttentionPlanner::bind(const kernels::AttentionBackward<T>& k, cudaStream_t stream) {
  return bind_of(k, stream);
}

template <class T>
Result<void> AttentionPlanner::prepare(const kernels::AttentionForward<T>& k) {
  if constexpr (kPlain<T>)
    return {};
  else
    return prepare_in(forward_, k);
}
template <class T>
Result<void> AttentionPlanner::prepare(const kernels::AttentionBackward<T>& k) {
  if constexpr (kPlain<T>)
    return {};
  else
    return prepare_in(backward_, k);
}

template <class T>
Result<void> AttentionPlanner::run(const kernels::AttentionForward<T>& k, cudaStream_t stream) {
  if constexpr (kPlain<T>)
    return plain_attention_forward(k, stream);
  else
    return run_of(forward_, k, stream);
}
template <class T>
Result<void> AttentionPlanner::run(const kernels::AttentionBackward<T>& k, cudaStream_t stream) {
  if constexpr (kPlain<T>)
    return plain_attention_backward(k, stream);
  else
    return run_of(backward_, k, stream);
}

#define MFSDP_INSTANTIATE(T)                                                                      \
  template Result<Launch> AttentionPlanner::bind(const kernels::AttentionForward<T>&,             \
                                                 cudaStream_t);                                   \
  template Result<Launch> AttentionPlanner::bind(const kernels::AttentionBackward<T>&,            \
                                                 cudaStream_t);                                   \
  template Result<void> AttentionPlanner::prepare(const kernels::AttentionForward<T>&);           \
  template Result<void> AttentionPlanner::prepare(const kernels::AttentionBackward<T>&);          \
  template Result<void> AttentionPlanner::run(const kernels::AttentionForward<T>&, cudaStream_t); \
  template Result<void> AttentionPlanner::run(const kernels::AttentionBackward<T>&, cudaStream_t);
MFSDP_INSTANTIATE(Bf16)
MFSDP_INSTANTIATE(Fp16)
MFSDP_INSTANTIATE(float)
#undef MFSDP_INSTANTIATE

}  // namespace mfsdp::cuda
