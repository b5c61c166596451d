// The project's vocabulary, in the field's terms (docs/words.md has all of them).
//
//   axis        one dimension of the device mesh (dp_outer, dp_shard, ...); a tensor has dims
//   unit        is gathered as one: the embedding; each block; final norm and head
//   group       a unit's parameters of equal dtype and requires_grad, in one flat layout
//   buffer      named bytes with dtype, pool and lifetime
//   pool        one allocation that buffers of one kind share
//   op          one entry of the plan, on one stream
//   segment     the ops of one microbatch, or of the optimizer
//
// One microbatch of two blocks under optim_grads_params, prefetch 1 (time runs right):
//
//   all_gather      AG e | AG 1 | AG 2 | AG h |             | AG 1 |
//   compute              | F e  | F 1  | F 2  | head F+B | B 2 | B 1 | B e
//   reduce_scatter                                          | RS h | RS 2 | RS 1 | RS e
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/quantity.hpp"

namespace mfsdp {

/// fp64 is for reference runs on the CPU: the GPU backend and the cost model do not support it. The
/// fp8 types and fp4_e2m1x2, two numbers in a byte, only hold values that are multiplied by a scale
/// (core/plan/kernels/fp8.hpp, fp8_blocks.hpp). e8m0 holds such scales: powers of two.
enum class DType {
  bf16,
  fp16,
  fp32,
  fp64,
  int32,
  int64,
  uint8,
  fp8_e4m3,
  fp8_e5m2,
  fp4_e2m1x2,
  e8m0
};

[[nodiscard]] constexpr bool is_fp8(DType dtype) {
  return dtype == DType::fp8_e4m3 || dtype == DType::fp8_e5m2;
}

/// Axis of the device mesh (core/plan/mesh.hpp). The first five are the axes of the dense grid; pp
/// and the last four are the axes of the experts' grid over the same ranks.
enum class Axis { pp, dp_outer, dp_shard, cp, tp, expt_dp_outer, expt_dp, ep, etp };

/// Sharding strategy, = ZeRO stage 0..3.
enum class Strategy { no_shard, optim, optim_grads, optim_grads_params };

/// How a group's parameters are placed in its flat buffer: core/shard/flat_layout.hpp.
enum class LayoutRule { packed, megatron_fsdp };

/// The dtype in which frozen matrices of linear layers are stored, beside adapters.
enum class BaseDType {
  compute,  ///< the compute dtype
  nf4       ///< 4 bits (core/plan/nf4.hpp)
};

/// Activation recomputation: how much of a block's forward is repeated in backward.
enum class Recompute { none, selective, full };

/// FP8 and FP4 GEMMs in linear layers of blocks.
enum class Fp8Recipe {
  off,
  current,    ///< a scale for each tensor, of its own largest magnitude
  delayed,    ///< a scale for each tensor, of its largest magnitudes in earlier steps
  blockwise,  ///< a scale for 1 x 128 values, of weights for 128 x 128 (core/plan/fp8_blocks.hpp)
  mxfp8,      ///< for 1 x 32, a power of two
  nvfp4       ///< E2M1 with a scale for 1 x 16, and one for each tensor
};

/// How ranks that share sequences exchange what attention needs.
enum class ContextExchange {
  a2a,         ///< heads: each attends whole sequences with a part of the heads (Ulysses)
  all_gather,  ///< keys and values: each attends with the queries of its tokens
  p2p          ///< the same, with the keys of one rank at a time, which go around (ring)
};

/// The order in which a stage of a pipeline computes forward and backward of its microbatches.
enum class PipelineSchedule {
  one_f_one_b,  ///< as many forwards ahead as stages follow, then one backward for each forward
  gpipe,        ///< all forwards, then all backwards
  interleaved,  ///< 1F1B of stages with several chunks of blocks
  zb_h1         ///< 1F1B with late weight gradients
};

/// Delayed scaling: the largest magnitude of earlier steps that gives a scale.
enum class Fp8Amax {
  max,         ///< of all in the history
  most_recent  ///< the last step's
};

/// FP8 GEMMs that may keep sums in fewer bits while a tile is computed.
enum class Fp8Accumulate {
  fast_forward,  ///< those of forward
  split,         ///< none
  fast           ///< all
};

enum class AllocatorPolicy { temporary, double_buffer, trace_pool, best_fit };

/// How a collective moves bytes inside a node. The last two need operands in registered (symmetric)
/// memory, which all members of the communicator can address at equal offsets.
enum class Transport {
  nccl,         ///< NCCL's choice for ordinary memory: rings, one thread block per channel
  symmetric,    ///< NCCL kernels that read and write registered memory of peers
  copy_engine,  ///< uses no SM, but cannot add: a kernel sums what it has moved
};

/// When gathers of weights and reductions of gradients are issued. Later issue never passes an op
/// that waits for the collective.
enum class CollectivePlacement {
  earliest,         ///< as soon as their inputs and their memory are ready
  attention,        ///< both with the next attention kernel
  after_attention,  ///< gathers with the next attention kernel, reductions when it has ended
  gathers,          ///< gathers with the next attention kernel, reductions as early as they can
};

/// Purpose of live bytes. `runtime` is memory outside all pools, never the category of a buffer.
enum class Category {
  model_weight,
  main_weight,
  main_grad,
  optimizer_state,
  unsharded_weight,
  unsharded_grad,
  activation,
  logits,
  workspace,
  runtime
};

/// The streams of the default schedule, in the order of their StreamId. Only plans that overlap
/// token exchanges with kernels have `exchange`, and only stages of pipelines `send` and `recv`.
enum class StreamRole {
  compute,
  all_gather,
  reduce_scatter,
  outer,
  h2d,
  d2h,
  exchange,
  send,
  recv
};

/// The part of the step to which an op belongs.
enum class Phase { input, forward, recompute, backward, reduce, optimizer, refresh, output };

/// The names of an enumeration's values, in declaration order; value_names(Enum) states them.
template <class Enum>
struct Names {
  static constexpr auto values = value_names(Enum{});
};

[[nodiscard]] constexpr auto name_array(auto... names) {
  return std::array<std::string_view, sizeof...(names)>{names...};
}

constexpr auto value_names(DType) {
  return name_array("bf16", "fp16", "fp32", "fp64", "int32", "int64", "uint8", "fp8_e4m3",
                    "fp8_e5m2", "fp4_e2m1x2", "e8m0");
}
constexpr auto value_names(Axis) {
  return name_array("pp", "dp_outer", "dp_shard", "cp", "tp", "expt_dp_outer", "expt_dp", "ep",
                    "etp");
}
constexpr auto value_names(Strategy) {
  return name_array("no_shard", "optim", "optim_grads", "optim_grads_params");
}
constexpr auto value_names(LayoutRule) { return name_array("packed", "megatron_fsdp"); }
constexpr auto value_names(BaseDType) { return name_array("compute", "nf4"); }
constexpr auto value_names(Recompute) { return name_array("none", "selective", "full"); }
constexpr auto value_names(Fp8Recipe) {
  return name_array("off", "current", "delayed", "blockwise", "mxfp8", "nvfp4");
}
constexpr auto value_names(ContextExchange) { return name_array("a2a", "all_gather", "p2p"); }
constexpr auto value_names(PipelineSchedule) {
  return name_array("1f1b", "gpipe", "interleaved", "zb_h1");
}
constexpr auto value_names(Fp8Amax) { return name_array("max", "most_recent"); }
constexpr auto value_names(Fp8Accumulate) { return name_array("fast_forward", "split", "fast"); }
constexpr auto value_names(AllocatorPolicy) {
  return name_array("temporary", "double_buffer", "trace_pool", "best_fit");
}
constexpr auto value_names(Transport) { return name_array("nccl", "symmetric", "copy_engine"); }
constexpr auto value_names(CollectivePlacement) {
  return name_array("earliest", "attention", "after_attention", "gathers");
}
constexpr auto value_names(Category) {
  return name_array("model_weight", "main_weight", "main_grad", "optimizer_state",
                    "unsharded_weight", "unsharded_grad", "activation", "logits", "workspace",
                    "runtime");
}
constexpr auto value_names(StreamRole) {
  return name_array("compute", "all_gather", "reduce_scatter", "outer", "h2d", "d2h", "exchange",
                    "send", "recv");
}
constexpr auto value_names(Phase) {
  return name_array("input", "forward", "recompute", "backward", "reduce", "optimizer", "refresh",
                    "output");
}

template <class Enum>
[[nodiscard]] constexpr std::string_view to_string(Enum value) {
  return Names<Enum>::values.at(static_cast<std::size_t>(value));
}

/// The value with that name, if there is one.
template <class Enum>
[[nodiscard]] constexpr std::optional<Enum> parse(std::string_view name) {
  constexpr auto& names = Names<Enum>::values;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  return std::nullopt;
}

/// All names of an enumeration, for messages: "a, b or c".
template <class Enum>
[[nodiscard]] std::string name_list() {
  constexpr auto& names = Names<Enum>::values;
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) list += i + 1 == names.size() ? " or " : ", ";
    list += names[i];
  }
  return list;
}

[[nodiscard]] constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
    case DType::fp16: return 2;
    case DType::fp32:
    case DType::int32: return 4;
    case DType::fp64:
    case DType::int64: return 8;
    case DType::uint8:
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::fp4_e2m1x2:
    case DType::e8m0: return 1;
  }
  return 0;
}

[[nodiscard]] inline Bytes bytes_of(std::int64_t elements, DType dtype) {
  return Bytes(checked_mul(elements, size_of(dtype)));
}

}  // namespace mfsdp
