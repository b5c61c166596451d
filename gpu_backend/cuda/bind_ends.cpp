// Kernels at the beginning and the end of a step: tokens, embedding, loss, sums into gradients,
// norm and update.
#include <fmt/format.h>

#include <type_traits>

#include "core/runtime/calls/take_sums.hpp"
#include "core/runtime/calls/take_update.hpp"
#include "gpu_backend/cuda/bind_kind.hpp"
#include "gpu_backend/cuda/kernel_binder.hpp"
#include "gpu_backend/cuda/kernels/sums.hpp"
#include "gpu_backend/cuda/kernels/tokens.hpp"
#include "gpu_backend/cuda/kernels/update.hpp"

namespace mfsdp::cuda {
namespace {

template <KernelKind kind>
Result<Launch> bind_sum(const KernelBinding<kind>& to) {
  return bind_by_type(to.call, "input", [&]<class In>(TypeTag<In>) -> Result<Launch> {
    // An fp32 sum has any output type.
    using OutTypes = std::conditional_t<std::is_same_v<In, float>, CudaTypes, GradientTypes<In>>;
    return bind_by_type(OutTypes{}, to.call, kernels::accumulate_output(to.call),
                        [&]<class Out>(TypeTag<Out>) -> Result<Launch> {
                          MFSDP_LET(k, (kernels::take_accumulate<In, Out>(to.call)));
                          return [k, outlier = to.outlier, stream = to.stream] {
                            return accumulate(k, stream, outlier);
                          };
                        });
  });
}

/// Output types of sums over ranks: the types in which gradients are stored.
struct RankSumTypes {
  using First = CudaTypes;
  template <class T>
  using Second = KeptGradientTypes;
};
/// Sums of losses are fp32.
struct LossTypes {
  using First = ElementTypes<float>;
};

}  // namespace

template <>
Result<Launch> bind_kind(const KernelBinding<K::token_copy>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return token_copy(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::embedding_forward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return embedding_forward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::embedding_backward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream, ExactOutlier* outlier) {
    return embedding_backward(k, stream, outlier);
  });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::position_embedding_backward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream, ExactOutlier* outlier) {
    return position_embedding_backward(k, stream, outlier);
  });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::accumulate>& to) {
  return bind_sum(to);
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::cast>& to) {
  return bind_sum(to);
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::dequantise>& /*to*/) {
  return fail("kernel dequantise", "is predicted and never run: expected --base-dtype compute");
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::sum_ranks>& to) {
  return to.launch<RankSumTypes>([](const auto& k, cudaStream_t stream, ExactOutlier* outlier) {
    return sum_ranks(k, stream, outlier);
  });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::zero_padding>& to) {
  MFSDP_LET(k, kernels::take_zero_padding(to.call));
  return [k, stream = to.stream] { return zero_padding(k, stream); };
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::loss_finish>& to) {
  return to.launch<LossTypes>(
      [](const auto& k, cudaStream_t stream) { return loss_finish(k, stream); });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::norm_partial>& to) {
  if (kernels::has_exact_partials(to.call, "output")) {
    MFSDP_LET(k, kernels::take_exact_norm_partial(to.call));
    return [k, outlier = to.outlier, stream = to.stream] {
      return exact_norm_partial(k, stream, outlier);
    };
  }
  return bind_by_type(KeptGradientTypes{}, to.call, "input",
                      [&]<class T>(TypeTag<T>) -> Result<Launch> {
                        MFSDP_LET(k, kernels::take_norm_partial<T>(to.call));
                        return [k, stream = to.stream] { return norm_partial(k, stream); };
                      });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::norm_finish>& to) {
  MFSDP_LET(k, kernels::take_norm_finish(to.call));
  return [k, outlier = to.outlier, stream = to.stream] { return norm_finish(k, stream, outlier); };
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::softmax_parts>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return softmax_parts(k, stream); });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::cross_entropy>& to) {
  return to.bind([&](auto k) -> Result<Launch> {
    k.ignored = to.binder.settings().ignore_index;
    return [k, stream = to.stream] { return cross_entropy(k, stream); };
  });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::cross_entropy_loss>& to) {
  return to.bind([&](auto k) -> Result<Launch> {
    k.ignored = to.binder.settings().ignore_index;
    return [k, stream = to.stream] { return cross_entropy(k, stream); };
  });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::update>& to) {
  const KernelCall& call = to.call;
  const KernelSettings& settings = to.binder.settings();
  MFSDP_LET(group, kernels::take_updated_group(call, *settings.program));
  MFSDP_LET(host_runs, kernels::take_decay_runs(call, *group, settings.program->config.mesh));
  Launch launch;
  const auto bind = [&]<class G, class W, class C>(TypeTag<G>, TypeTag<W>,
                                                   TypeTag<C>) -> Result<void> {
    if constexpr (!kHasUpdate<G, W, C>) {
      return fail(
          "kernel update",
          fmt::format("expected main weights in fp32 or as bf16 compute weights, and beside "
                      "fp16 gradients in fp32; got {} gradients, {} main and {} compute "
                      "weights",
                      to_string(dtype_of<G>), to_string(dtype_of<W>), to_string(dtype_of<C>)));
    } else {
      const Optimizer optimizer = *group->optimizer;
      return kernels::with_state_type<W>(call, optimizer, [&]<class S>(TypeTag<S>) -> Result<void> {
        MFSDP_LET(k, (kernels::take_update<G, W, C, S>(call, optimizer)));
        MFSDP_LET(runs, to.binder.on_device(host_runs));
        launch = [k, optimizer, settings = settings.optimizer, runs, stream = to.stream] {
          return update(k, optimizer, settings, runs, stream);
        };
        return {};
      });
    }
  };
  MFSDP_TRY(kernels::with_update_types(CudaTypes{}, call, *group->optimizer, bind));
  return launch;
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::momentum>& to) {
  const KernelCall& call = to.call;
  const KernelSettings& settings = to.binder.settings();
  MFSDP_LET(group, kernels::take_updated_group(call, *settings.program));
  const Optimizer optimizer = *group->optimizer;
  Launch launch;
  const auto bind = [&]<class G, class D, class C>(TypeTag<G>, TypeTag<D>,
                                                   TypeTag<C>) -> Result<void> {
    return kernels::with_state_type<D>(call, optimizer, [&]<class S>(TypeTag<S>) -> Result<void> {
      MFSDP_LET(k, (kernels::take_update<G, D, D, S>(call, optimizer)));
      const kernels::DecayRun all{.first = 0, .count = k.elements};
      MFSDP_LET(run, to.binder.on_device({&all, 1}));
      launch = [k, settings = settings.optimizer, run, stream = to.stream] {
        return momentum(k, settings, run, stream);
      };
      return {};
    });
  };
  MFSDP_TRY(kernels::with_update_types(ElementTypes<Bf16, float>{}, call, optimizer, bind));
  return launch;
}

}  // namespace mfsdp::cuda
