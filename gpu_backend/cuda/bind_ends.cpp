// Kernels at the ends of a step: tokens, the embedding, loss, sums into gradients, norm and update.
#include <fmt/format.h>

#include <type_traits>

#include "core/runtime/calls/take_sums.hpp"
#include "core/runtime/calls/take_tokens.hpp"
#include "core/runtime/calls/take_update.hpp"
#include "gpu_backend/cuda/bind_kind.hpp"
#include "gpu_backend/cuda/kernel_binder.hpp"
#include "gpu_backend/cuda/kernels/sums.hpp"
#include "gpu_backend/cuda/kernels/tokens.hpp"
#include "gpu_backend/cuda/kernels/update.hpp"

namespace mfsdp::cuda {
namespace {

Result<Launch> bind_sum(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, "input", [&]<class In>(TypeTag<In>) -> Result<Launch> {
    // Sums in fp32 go to any type.
    using OutTypes = std::conditional_t<std::is_same_v<In, float>, CudaTypes, GradientTypes<In>>;
    return bind_by_type(OutTypes{}, call, kernels::accumulate_output(call),
                        [&]<class Out>(TypeTag<Out>) -> Result<Launch> {
                          MFSDP_LET(k, (kernels::take_accumulate<In, Out>(call)));
                          return [k, outlier = to.outlier, stream = to.stream] {
                            return accumulate(k, stream, outlier);
                          };
                        });
  });
}

}  // namespace

template <>
Result<Launch> bind_kind<KernelKind::token_copy>(const KernelCall& call, const BindTarget& to) {
  MFSDP_LET(k, kernels::take_token_copy(call));
  return [k, stream = to.stream] { return token_copy(k, stream); };
}

template <>
Result<Launch> bind_kind<KernelKind::embedding_forward>(const KernelCall& call,
                                                        const BindTarget& to) {
  return bind_by_type(call, "weight", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_embedding_forward<T>(call));
    return [k, stream = to.stream] { return embedding_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::embedding_backward>(const KernelCall& call,
                                                         const BindTarget& to) {
  return bind_by_type(call, "d_output", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    return bind_by_type(GradientTypes<T>{}, call, "weight_grad",
                        [&]<class G>(TypeTag<G>) -> Result<Launch> {
                          MFSDP_LET(k, (kernels::take_embedding_backward<T, G>(call)));
                          return [k, outlier = to.outlier, stream = to.stream] {
                            return embedding_backward(k, stream, outlier);
                          };
                        });
  });
}

template <>
Result<Launch> bind_kind<KernelKind::position_embedding_backward>(const KernelCall& call,
                                                                  const BindTarget& to) {
  return bind_by_type(call, "d_output", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    return bind_by_type(GradientTypes<T>{}, call, "weight_grad",
                        [&]<class G>(TypeTag<G>) -> Result<Launch> {
                          MFSDP_LET(k, (kernels::take_position_embedding_backward<T, G>(call)));
                          return [k, outlier = to.outlier, stream = to.stream] {
                            return position_embedding_backward(k, stream, outlier);
                          };
                        });
  });
}

template <>
Result<Launch> bind_kind<KernelKind::accumulate>(const KernelCall& call, const BindTarget& to) {
  return bind_sum(call, to);
}

template <>
Result<Launch> bind_kind<KernelKind::cast>(const KernelCall& call, const BindTarget& to) {
  return bind_sum(call, to);
}

template <>
Result<Launch> bind_kind<KernelKind::sum_ranks>(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, "input", [&]<class In>(TypeTag<In>) -> Result<Launch> {
    return bind_by_type(KeptGradientTypes{}, call, "output",
                        [&]<class Out>(TypeTag<Out>) -> Result<Launch> {
                          MFSDP_LET(k, (kernels::take_sum_ranks<In, Out>(call)));
                          return [k, outlier = to.outlier, stream = to.stream] {
                            return sum_ranks(k, stream, outlier);
                          };
                        });
  });
}

template <>
Result<Launch> bind_kind<KernelKind::zero_padding>(const KernelCall& call, const BindTarget& to) {
  MFSDP_LET(k, kernels::take_zero_padding(call));
  return [k, stream = to.stream] { return zero_padding(k, stream); };
}

template <>
Result<Launch> bind_kind<KernelKind::loss_finish>(const KernelCall& call, const BindTarget& to) {
  MFSDP_LET(k, kernels::take_loss_finish<float>(call));
  return [k, stream = to.stream] { return loss_finish(k, stream); };
}

template <>
Result<Launch> bind_kind<KernelKind::norm_partial>(const KernelCall& call, const BindTarget& to) {
  if (kernels::has_exact_partials(call, "output")) {
    MFSDP_LET(k, kernels::take_exact_norm_partial(call));
    return [k, outlier = to.outlier, stream = to.stream] {
      return exact_norm_partial(k, stream, outlier);
    };
  }
  return bind_by_type(KeptGradientTypes{}, call, "input",
                      [&]<class T>(TypeTag<T>) -> Result<Launch> {
                        MFSDP_LET(k, kernels::take_norm_partial<T>(call));
                        return [k, stream = to.stream] { return norm_partial(k, stream); };
                      });
}

template <>
Result<Launch> bind_kind<KernelKind::norm_finish>(const KernelCall& call, const BindTarget& to) {
  MFSDP_LET(k, kernels::take_norm_finish(call));
  return [k, outlier = to.outlier, stream = to.stream] { return norm_finish(k, stream, outlier); };
}

template <>
Result<Launch> bind_kind<KernelKind::cross_entropy>(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, "logits", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_cross_entropy<T>(call, to.binder.settings()));
    return [k, stream = to.stream] { return cross_entropy(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::cross_entropy_loss>(const KernelCall& call,
                                                         const BindTarget& to) {
  return bind_by_type(call, "logits", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_cross_entropy<const T>(call, to.binder.settings()));
    return [k, stream = to.stream] { return cross_entropy(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::update>(const KernelCall& call, const BindTarget& to) {
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
Result<Launch> bind_kind<KernelKind::momentum>(const KernelCall& call, const BindTarget& to) {
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
