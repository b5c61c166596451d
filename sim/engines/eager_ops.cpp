#include "sim/engines/eager_ops.hpp"

#include <utility>

#include "core/plan/kernel_spec.hpp"

namespace mfsdp {
namespace {

std::string part_of(std::string_view name, std::string_view part) {
  return std::string(name) + "_" + std::string(part);
}

}  // namespace

// ---- GEMMs -----------------------------------------------------------------------------------

/// Selective checkpointing by operator keeps the first, third, ... GEMM of a block. With a bias
/// the operator is another one, which it never keeps.
EagerOps::Value EagerOps::linear(std::string_view name, Value x, std::int64_t outputs,
                                 std::int64_t inputs, Sink weight, const Sink& bias,
                                 Category category) {
  const std::string own(name);
  EagerTape::Saved saved;
  tape_.save(x.ref, saved);
  const std::int64_t bytes = checked_mul(checked_mul(sizes_.tokens, outputs), kHalf);
  const auto compute = [&] {
    Ref made = make(own, bytes, category);
    tape_.step().gemm(GemmKind::forward, own, sizes_.tokens, outputs, inputs);
    return EagerTape::Refs{std::move(made)};
  };
  const bool caches = tape_.caches_by_operator() && !bias && tape_.count_product() % 2 == 1;
  Ref output = caches ? tape_.cached(compute).front() : compute().front();
  std::vector<std::shared_ptr<EagerTape::Node>> next{x.node, tape_.leaf_node(std::move(weight))};
  if (bias) next.push_back(tape_.leaf_node(bias));
  const bool needs_input = x.node != nullptr;
  return tape_.output(
      std::move(output), bytes, std::move(next), std::move(saved),
      [this, own, outputs, inputs, in_bytes = x.bytes, needs_input, has_bias = bool(bias)](
          Ref gradient, EagerTape::Refs kept) {
        EagerTape::Refs made(has_bias ? 3 : 2);
        if (has_bias) {
          made[2] = make(own + "_bias_grad", kHalf * outputs, Category::unsharded_grad);
          kernel(KernelKind::bias_grad, own + "_bias", sizes_.tokens * outputs * kHalf);
        }
        made[1] = make(own + "_grad", kHalf * outputs * inputs, Category::unsharded_grad);
        tape_.step().gemm(GemmKind::weight_gradient, own, sizes_.tokens, outputs, inputs);
        if (needs_input) {
          made[0] = make("d_" + own + "_input", in_bytes);
          tape_.step().gemm(GemmKind::input_gradient, own, sizes_.tokens, outputs, inputs);
        }
        gradient.reset();
        kept.clear();
        return made;
      });
}

std::vector<EagerOps::Value> EagerOps::split(std::string_view name, Value x,
                                             const std::vector<std::int64_t>& parts) {
  // The parts are views. Each one's gradient is copied into zeros of the whole's size; the sums
  // are those of any tensor with several uses.
  std::vector<Value> values;
  for (const std::int64_t bytes : parts)
    values.push_back(tape_.output(x.ref, bytes, {x.node}, {},
                                  [this, own = std::string(name), bytes, whole = x.bytes](
                                      Ref gradient, const EagerTape::Refs&) {
                                    Ref zeros = make(part_of("d", own), whole);
                                    kernel(KernelKind::zero_padding, part_of("d", own + "_zeros"),
                                           whole);
                                    kernel(KernelKind::cast, part_of("d", own + "_part"),
                                           {2 * bytes, AccessPattern::strided});
                                    gradient.reset();
                                    return EagerTape::Refs{std::move(zeros)};
                                  }));
  return values;
}

std::vector<EagerOps::Value> EagerOps::split_and_copy(std::string_view name, const Value& x,
                                                      const std::vector<std::int64_t>& parts) {
  const std::string own(name);
  std::vector<EagerTape::Part> copies;
  for (const std::int64_t bytes : parts) {
    copies.push_back({make(own, bytes), bytes});
    kernel(KernelKind::cast, own, {2 * bytes, AccessPattern::strided});
  }
  return tape_.outputs(copies, {x.node}, {}, joined_backward(own, x.bytes));
}

std::vector<EagerOps::Value> EagerOps::views(std::string_view name, const Value& x,
                                             const std::vector<std::int64_t>& parts) {
  std::vector<EagerTape::Part> all;
  for (const std::int64_t bytes : parts) all.push_back({x.ref, bytes});
  return tape_.outputs(all, {x.node}, {}, joined_backward(std::string(name), x.bytes));
}

EagerTape::PartsBackward EagerOps::joined_backward(const std::string& name, std::int64_t bytes) {
  return [this, name, bytes](EagerTape::Refs gradients, const EagerTape::Refs&) {
    Ref joined = make(part_of("d", name), bytes);
    kernel(KernelKind::cast, part_of("d", name), {2 * bytes, AccessPattern::pieces});
    gradients.clear();
    return EagerTape::Refs{std::move(joined)};
  };
}

// ---- Norms -----------------------------------------------------------------------------------

EagerOps::Value EagerOps::norm(std::string_view name, Value x, std::int64_t width, NormCode code,
                               Sink weight) {
  const std::string own(name);
  if (code == NormCode::fused) return fused_norm(own, x, width, std::move(weight));
  return written_norm(own, x, width, code, std::move(weight));
}

EagerOps::Value EagerOps::fused_norm(const std::string& name, const Value& x, std::int64_t width,
                                     Sink weight) {
  const std::int64_t rows = x.bytes / kHalf / width;
  EagerTape::Saved saved;
  tape_.save(x.ref, saved);
  Ref normed = make(name, x.bytes);
  const Ref statistic = make(part_of(name, "rstd"), rows * kFull);
  kernel(KernelKind::rms_norm_forward, name, 2 * x.bytes);
  tape_.save(statistic, saved);
  return tape_.output(
      std::move(normed), x.bytes, {x.node, tape_.leaf_node(std::move(weight))}, std::move(saved),
      [this, name, bytes = x.bytes, width](Ref gradient, EagerTape::Refs kept) {
        EagerTape::Refs made{make("d_" + name, bytes),
                             make(part_of(name, "grad"), kHalf * width, Category::unsharded_grad)};
        kernel(KernelKind::rms_norm_backward, "d_" + name, 3 * bytes);
        kernel(KernelKind::norm_weight_grad, part_of(name, "grad"), 2 * bytes);
        gradient.reset();
        kept.clear();
        return made;
      });
}

/// Operator by operator: the rows in fp32, their squares, means and inverse roots, and the scaled rows.
EagerOps::Value EagerOps::written_norm(const std::string& name, const Value& x, std::int64_t width,
                                       NormCode code, Sink weight) {
  const std::int64_t bytes = x.bytes;
  const std::int64_t rows = bytes / kHalf / width;
  constexpr KernelKind kKind = KernelKind::rms_norm_forward;
  EagerTape::Saved saved;
  Ref wide = make(part_of(name, "wide"), 2 * bytes);
  kernel(KernelKind::cast, part_of(name, "widen"), 3 * bytes);
  tape_.save(wide, saved);
  Ref statistic;
  {
    const Ref squares = make(part_of(name, "squares"), 2 * bytes);
    kernel(kKind, part_of(name, "square"), 4 * bytes);
    Ref mean = make(part_of(name, "mean"), rows * kFull);
    kernel(kKind, part_of(name, "mean"), 2 * bytes);
    const Ref shifted = make(part_of(name, "shifted"), rows * kFull);
    kernel(kKind, part_of(name, "shift"), 2 * rows * kFull);
    mean.reset();
    statistic = make(part_of(name, "rstd"), rows * kFull);
    kernel(kKind, part_of(name, "rsqrt"), 2 * rows * kFull);
  }
  tape_.save(statistic, saved);
  Ref scaled = make(part_of(name, "scaled"), 2 * bytes);
  kernel(kKind, part_of(name, "scale"), 4 * bytes);
  wide.reset();
  Ref normed;
  if (code == NormCode::cast_first) {
    Ref narrow = make(part_of(name, "narrow"), bytes);
    kernel(KernelKind::cast, part_of(name, "narrow"), 3 * bytes);
    scaled.reset();
    tape_.save(narrow, saved);
    normed = make(name, bytes);
    kernel(kKind, part_of(name, "weight"), 2 * bytes);
  } else {
    tape_.save(scaled, saved);
    const Ref product = make(part_of(name, "product"), 2 * bytes);
    kernel(kKind, part_of(name, "weight"), 4 * bytes);
    scaled.reset();
    normed = make(name, bytes);
    kernel(KernelKind::cast, part_of(name, "narrow"), 3 * bytes);
  }
  return tape_.output(
      std::move(normed), bytes, {x.node, tape_.leaf_node(std::move(weight))}, std::move(saved),
      [this, name, bytes, rows, width, code](Ref gradient, EagerTape::Refs kept) {
        constexpr KernelKind kBack = KernelKind::rms_norm_backward;
        const std::string own = "d_" + name;
        const bool narrow = code == NormCode::cast_first;
        const std::int64_t inner = narrow ? bytes : 2 * bytes;  // of rows times weight
        if (!narrow) {
          Ref cast = make(own + "_widen", inner);
          kernel(KernelKind::cast, own + "_widen", 3 * bytes);
          gradient = std::move(cast);
        }
        Ref scaled_gradient = make(own + "_scaled", inner);
        kernel(kBack, own + "_scaled", 2 * inner);
        Ref weight_gradient;
        {
          const Ref products = make(own + "_weight", inner);
          kernel(kBack, own + "_weight", 3 * inner);
          weight_gradient = make(part_of(name, "grad"), kHalf * width, Category::unsharded_grad);
          kernel(KernelKind::norm_weight_grad, part_of(name, "grad"), inner);
        }
        gradient.reset();
        kept[2].reset();
        if (narrow) {
          Ref cast = make(own + "_widen", 2 * bytes);
          kernel(KernelKind::cast, own + "_widen", 3 * bytes);
          scaled_gradient = std::move(cast);
        }
        Ref made =
            wide_norm_backward(own, bytes, rows, std::move(scaled_gradient), std::move(kept));
        return EagerTape::Refs{std::move(made), std::move(weight_gradient)};
      });
}

/// From the gradient of wide * rstd to that of the norm's input in bf16. `saved`: wide, rstd.
EagerOps::Ref EagerOps::wide_norm_backward(const std::string& name, std::int64_t bytes,
                                           std::int64_t rows, Ref gradient, EagerTape::Refs saved) {
  constexpr KernelKind kBack = KernelKind::rms_norm_backward;
  Ref of_statistic;
  {
    const Ref products = make(name + "_products", 2 * bytes);
    kernel(kBack, name + "_products", 6 * bytes);
    of_statistic = make(name + "_rstd", rows * kFull);
    kernel(kBack, name + "_rstd", 2 * bytes);
  }
  const Ref sum = make(name + "_wide", 2 * bytes);
  kernel(kBack, name + "_wide", 4 * bytes);
  gradient.reset();
  kernel(kBack, name + "_rsqrt", 4 * rows * kFull);
  saved[1].reset();
  Ref of_mean = make(name + "_mean", 2 * bytes);
  kernel(kBack, name + "_mean", 2 * bytes);
  of_statistic.reset();
  {
    // grad * (2 * x ** 1)
    Ref power = make(name + "_power", 2 * bytes);
    kernel(kBack, name + "_power", 4 * bytes);
    const Ref twice = make(name + "_twice", 2 * bytes);
    kernel(kBack, name + "_twice", 4 * bytes);
    power.reset();
    const Ref of_squares = make(name + "_squares", 2 * bytes);
    kernel(kBack, name + "_squares", 6 * bytes);
    of_mean.reset();
    saved[0].reset();
    kernel(KernelKind::accumulate, name + "_add", 6 * bytes);
  }
  Ref made = make(name, bytes);
  kernel(KernelKind::cast, name + "_narrow", 3 * bytes);
  return made;
}

EagerOps::Value EagerOps::layer_norm(std::string_view name, const Value& x, Sink weight,
                                     Sink bias) {
  const std::string own(name);
  EagerTape::Saved saved;
  tape_.save(x.ref, saved);
  Ref normed = make(own, x.bytes);
  const Ref mean = make(part_of(own, "mean"), sizes_.statistic);
  const Ref statistic = make(part_of(own, "rstd"), sizes_.statistic);
  kernel(KernelKind::layer_norm_forward, own, 2 * x.bytes);
  tape_.save(mean, saved);
  tape_.save(statistic, saved);
  return tape_.output(
      std::move(normed), x.bytes,
      {x.node, tape_.leaf_node(std::move(weight)), tape_.leaf_node(std::move(bias))},
      std::move(saved), [this, own, bytes = x.bytes](Ref gradient, EagerTape::Refs kept) {
        EagerTape::Refs made{make("d_" + own, bytes)};
        for (const char* of : {"grad", "bias_grad"})
          made.push_back(make(part_of(own, of), kHalf * sizes_.hidden, Category::unsharded_grad));
        kernel(KernelKind::layer_norm_backward, "d_" + own, 3 * bytes);
        kernel(KernelKind::norm_weight_grad, part_of(own, "grad"), 2 * bytes);
        gradient.reset();
        kept.clear();
        return made;
      });
}

// ---- Attention -------------------------------------------------------------------------------

EagerOps::Value EagerOps::rotate(std::string_view name, Value x, RopeCode code) {
  const std::string own(name);
  switch (code) {
    case RopeCode::complex: return rotate_complex(own, x);
    case RopeCode::wide: return rotate_wide(own, x);
    case RopeCode::halves: break;
  }
  return rotate_halves(own, x);
}

EagerOps::Value EagerOps::rotate_wide(const std::string& name, const Value& x) {
  constexpr KernelKind kKind = KernelKind::rope_forward;
  const std::int64_t narrow = x.bytes;
  const std::int64_t bytes = 2 * narrow;
  Ref rotated;
  {
    const Ref wide = make(part_of(name, "wide"), bytes);
    kernel(KernelKind::cast, part_of(name, "widen"), narrow + bytes);
    Ref straight = make(part_of(name, "times_cosine"), bytes);
    kernel(kKind, part_of(name, "times_cosine"), {2 * bytes, AccessPattern::strided});
    Ref negated = make(part_of(name, "negated"), bytes / 2);
    kernel(kKind, part_of(name, "negate"), {bytes, AccessPattern::strided});
    Ref turned = make(part_of(name, "turned"), bytes);
    kernel(kKind, part_of(name, "turn"), {2 * bytes, AccessPattern::pieces});
    negated.reset();
    Ref crossed = make(part_of(name, "times_sine"), bytes);
    kernel(kKind, part_of(name, "times_sine"), {2 * bytes, AccessPattern::strided});
    turned.reset();
    const Ref sum = make(part_of(name, "sum"), bytes);
    kernel(kKind, part_of(name, "add"), 3 * bytes);
    straight.reset();
    crossed.reset();
    rotated = make(name, narrow);
    kernel(KernelKind::cast, part_of(name, "narrow"), narrow + bytes);
  }
  return tape_.output(std::move(rotated), narrow, {x.node}, {},
                      [this, name, narrow, bytes](Ref gradient, const EagerTape::Refs&) {
                        constexpr KernelKind kBack = KernelKind::rope_backward;
                        const std::string own = "d_" + name;
                        Ref wide = make(own + "_wide", bytes);
                        kernel(KernelKind::cast, own + "_widen", narrow + bytes);
                        gradient.reset();
                        Ref crossed = make(own + "_times_sine", bytes);
                        kernel(kBack, own + "_times_sine", {2 * bytes, AccessPattern::strided});
                        Ref sum = half_into_zeros(own + "_low", bytes);
                        Ref negated = make(own + "_negated", bytes / 2);
                        kernel(kBack, own + "_negate", {bytes, AccessPattern::strided});
                        crossed.reset();
                        {
                          const Ref high = half_into_zeros(own + "_high", bytes);
                          negated.reset();
                          kernel(KernelKind::accumulate, own + "_add", 3 * bytes);
                        }
                        {
                          const Ref straight = make(own + "_times_cosine", bytes);
                          kernel(kBack, own + "_times_cosine", {2 * bytes, AccessPattern::strided});
                          wide.reset();
                          kernel(KernelKind::accumulate, own + "_add", 3 * bytes);
                        }
                        Ref made = make(own, narrow);
                        kernel(KernelKind::cast, own + "_narrow", narrow + bytes);
                        sum.reset();
                        return EagerTape::Refs{std::move(made)};
                      });
}

/// The gradient of a half: it is copied into zeros of the whole's size.
EagerOps::Ref EagerOps::half_into_zeros(const std::string& name, std::int64_t bytes) {
  Ref zeros = make(name, bytes);
  kernel(KernelKind::zero_padding, name, bytes);
  kernel(KernelKind::rope_backward, name + "_slice", {bytes, AccessPattern::strided});
  return zeros;
}

EagerOps::Value EagerOps::rotate_halves(const std::string& name, const Value& x) {
  constexpr KernelKind kKind = KernelKind::rope_forward;
  const std::int64_t bytes = x.bytes;
  Ref rotated;
  {
    const Ref straight = make(part_of(name, "times_cosine"), bytes);
    kernel(kKind, part_of(name, "times_cosine"), {2 * bytes, AccessPattern::strided});
    Ref negated = make(part_of(name, "negated"), bytes / 2);
    kernel(kKind, part_of(name, "negate"), {bytes, AccessPattern::strided});
    Ref turned = make(part_of(name, "turned"), bytes);
    kernel(kKind, part_of(name, "turn"), {2 * bytes, AccessPattern::pieces});
    negated.reset();
    const Ref crossed = make(part_of(name, "times_sine"), bytes);
    kernel(kKind, part_of(name, "times_sine"), {2 * bytes, AccessPattern::strided});
    turned.reset();
    rotated = make(name, bytes);
    kernel(kKind, part_of(name, "add"), {3 * bytes, AccessPattern::strided});
  }
  return tape_.output(
      std::move(rotated), bytes, {x.node}, {},
      [this, name, bytes](Ref gradient, const EagerTape::Refs&) {
        constexpr KernelKind kBack = KernelKind::rope_backward;
        const std::string own = "d_" + name;
        Ref crossed = make(own + "_times_sine", bytes);
        kernel(kBack, own + "_times_sine", {2 * bytes, AccessPattern::strided});
        Ref negated = make(own + "_negated", bytes / 2);
        kernel(kBack, own + "_negate", {bytes, AccessPattern::strided});
        // The exchanged halves are copied into zeros of full size, and added.
        const auto slice_back = [&](const char* part) {
          Ref zeros = make(own + part, bytes);
          kernel(KernelKind::zero_padding, own + part, bytes);
          kernel(kBack, own + "_slice", {bytes, AccessPattern::strided});
          return zeros;
        };
        Ref sum = slice_back("_high");
        negated.reset();
        {
          const Ref low = slice_back("_low");
          crossed.reset();
          kernel(KernelKind::accumulate, own + "_add", {3 * bytes, AccessPattern::strided});
        }
        {
          const Ref straight = make(own + "_times_cosine", bytes);
          kernel(kBack, own + "_times_cosine", {2 * bytes, AccessPattern::strided});
          gradient.reset();
          kernel(KernelKind::accumulate, own + "_add", {3 * bytes, AccessPattern::strided});
        }
        // Heads come first in the sum; rows of tokens are a copy.
        Ref rows = make(own + "_rows", bytes);
        kernel(KernelKind::cast, own + "_rows", {2 * bytes, AccessPattern::strided});
        sum.reset();
        return EagerTape::Refs{std::move(rows)};
      });
}

EagerOps::Value EagerOps::rotate_complex(const std::string& name, const Value& x) {
  constexpr KernelKind kKind = KernelKind::rope_forward;
  const std::int64_t bytes = x.bytes;
  Ref wide = make(part_of(name, "wide"), 2 * bytes);
  kernel(KernelKind::cast, part_of(name, "widen"), {3 * bytes, AccessPattern::strided});
  Ref turned = make(part_of(name, "turned"), 2 * bytes);
  kernel(kKind, part_of(name, "turn"), 4 * bytes);
  wide.reset();
  Ref rotated = make(name, bytes);
  kernel(KernelKind::cast, part_of(name, "narrow"), 3 * bytes);
  turned.reset();
  return tape_.output(std::move(rotated), bytes, {x.node}, {},
                      [this, name, bytes](Ref gradient, const EagerTape::Refs&) {
                        const std::string own = "d_" + name;
                        Ref widened = make(own + "_wide", 2 * bytes);
                        kernel(KernelKind::cast, own + "_widen",
                               {3 * bytes, AccessPattern::strided});
                        gradient.reset();
                        Ref back = make(own + "_turned", 2 * bytes);
                        kernel(KernelKind::rope_backward, own + "_turn", 4 * bytes);
                        widened.reset();
                        Ref made = make(own, bytes);
                        kernel(KernelKind::cast, own + "_narrow", 3 * bytes);
                        back.reset();
                        return EagerTape::Refs{std::move(made)};
                      });
}

EagerOps::Value EagerOps::repeat(std::string_view name, Value x) {
  const std::string own(name);
  const std::int64_t times = config_.model.heads / config_.model.kv_heads;
  if (times == 1) return x;
  const std::int64_t bytes = x.bytes * times;
  Ref repeated = x.ref;  // a single head is repeated by a view
  if (config_.model.kv_heads > 1) {
    repeated = make(own, bytes);
    kernel(KernelKind::cast, own, {x.bytes + bytes, AccessPattern::strided});
  }
  return tape_.output(std::move(repeated), bytes, {x.node}, {},
                      [this, own, bytes, few = x.bytes](Ref gradient, const EagerTape::Refs&) {
                        Ref sum = make("d_" + own, few);
                        kernel(KernelKind::accumulate, "d_" + own, bytes + few);
                        gradient.reset();
                        return EagerTape::Refs{std::move(sum)};
                      });
}

/// A mask that is a tensor has a copy in bf16, and its attention covers all pairs of tokens.
EagerOps::Value EagerOps::attention(Value query, Value key, Value value, const LayerMask& shape) {
  constexpr std::int64_t kRandomState = 8;
  const bool masked = shape.mask_bytes != 0;
  EagerTape::Saved saved;
  for (const Value* one : {&query, &key, &value}) tape_.save(one->ref, saved);
  const auto compute = [&] {
    Ref bias;
    if (masked) {
      bias = make("attention_bias", shape.mask_bytes);
      kernel(KernelKind::cast, "attention_bias", shape.mask_bytes / 2 * 3);
    }
    EagerTape::Refs made{make("attention_seed", kRandomState),
                         make("attention_offset", kRandomState)};
    made.push_back(make("attention", query.bytes));
    made.push_back(make("attention_lse", sizes_.query_statistic));
    tape_.step().scratch("attention_workspace", kAttentionWorkspaceBytes);
    tape_.step().attention(KernelKind::attention_forward, AttentionKind{.whole = masked});
    if (bias) made.push_back(std::move(bias));
    return made;
  };
  EagerTape::Refs outputs = tape_.caches_by_operator() ? tape_.cached(compute) : compute();
  for (const Ref& one : outputs) tape_.save(one, saved);
  return tape_.output(outputs[2], query.bytes, {query.node, key.node, value.node}, std::move(saved),
                      [this, masked, query_bytes = query.bytes, key_bytes = key.bytes](
                          Ref gradient, EagerTape::Refs kept) {
                        EagerTape::Refs made{make("d_query", query_bytes), make("d_key", key_bytes),
                                             make("d_value", key_bytes)};
                        const bool repeats = key_bytes == query_bytes;
                        const std::int64_t workspace =
                            sizes_.attention_workspace -
                            (repeats && sizes_.query != sizes_.key ? 2 * sizes_.query : 0);
                        tape_.step().scratch("attention_backward_workspace", workspace);
                        tape_.step().attention(KernelKind::attention_backward,
                                               AttentionKind{.whole = masked});
                        gradient.reset();
                        kept.clear();
                        return made;
                      });
}

/// Backward allocates gradients of query, key and value, which autograd joins.
EagerOps::Value EagerOps::attention_of_rows(const Value& rows) {
  constexpr std::int64_t kRandomState = 16;
  EagerTape::Saved saved;
  tape_.save(rows.ref, saved);
  Ref mixed = make("attention", sizes_.query);
  const Ref scores = make("attention_lse", sizes_.query_statistic);
  const Ref random_state = make("attention_random_state", kRandomState);
  tape_.step().attention(KernelKind::attention_forward);
  for (const Ref& one : {mixed, scores, random_state}) tape_.save(one, saved);
  return tape_.output(
      std::move(mixed), sizes_.query, {rows.node}, std::move(saved),
      [this, bytes = rows.bytes](Ref gradient, EagerTape::Refs kept) {
        EagerTape::Refs parts{make("d_query", sizes_.query), make("d_key", sizes_.key),
                              make("d_value", sizes_.key)};
        tape_.step().scratch("attention_backward_workspace", sizes_.attention_workspace);
        tape_.step().attention(KernelKind::attention_backward);
        gradient.reset();
        kept.clear();
        Ref joined = make("d_qkv", bytes);
        kernel(KernelKind::cast, "d_qkv_join", {2 * bytes, AccessPattern::pieces});
        parts.clear();
        return EagerTape::Refs{std::move(joined)};
      });
}

// ---- Between -----------------------------------------------------------------------------------

EagerOps::Value EagerOps::gelu(std::string_view name, Value x) {
  return activated(name, x, KernelKind::gelu_forward, KernelKind::gelu_backward);
}

EagerOps::Value EagerOps::activate(std::string_view name, Value x, Activation activation) {
  const GatedKernels kinds = gated_kernels(activation);
  return activated(name, x, kinds.forward, kinds.backward);
}

EagerOps::Value EagerOps::activated(std::string_view name, const Value& x, KernelKind forward,
                                    KernelKind backward) {
  const std::string own(name);
  EagerTape::Saved saved;
  tape_.save(x.ref, saved);
  Ref made = make(own, x.bytes);
  kernel(forward, own, 2 * x.bytes);
  return tape_.output(std::move(made), x.bytes, {x.node}, std::move(saved),
                      [this, own, bytes = x.bytes, backward](Ref gradient, EagerTape::Refs kept) {
                        Ref input = make("d_" + own, bytes);
                        kernel(backward, "d_" + own, 3 * bytes);
                        gradient.reset();
                        kept.clear();
                        return EagerTape::Refs{std::move(input)};
                      });
}

EagerOps::Value EagerOps::multiply(std::string_view name, Value a, Value b) {
  const std::string own(name);
  EagerTape::Saved saved;
  tape_.save(a.ref, saved);
  tape_.save(b.ref, saved);
  Ref product = make(own, a.bytes);
  kernel(KernelKind::swiglu_forward, own, 3 * a.bytes);
  return tape_.output(std::move(product), a.bytes, {a.node, b.node}, std::move(saved),
                      [this, own, bytes = a.bytes](Ref gradient, EagerTape::Refs kept) {
                        EagerTape::Refs made(2);
                        made[1] = make("d_" + own + "_second", bytes);
                        kernel(KernelKind::swiglu_backward, "d_" + own + "_second", 3 * bytes);
                        made[0] = make("d_" + own + "_first", bytes);
                        kernel(KernelKind::swiglu_backward, "d_" + own + "_first", 3 * bytes);
                        gradient.reset();
                        kept.clear();
                        return made;
                      });
}

EagerOps::Value EagerOps::add(std::string_view name, const Value& a, const Value& b) {
  Ref sum = make(name, a.bytes);
  kernel(KernelKind::accumulate, name, 3 * a.bytes);
  return tape_.output(std::move(sum), a.bytes, {a.node, b.node}, {},
                      [](const Ref& gradient, const EagerTape::Refs&) {
                        return EagerTape::Refs{gradient, gradient};
                      });
}

EagerOps::Value EagerOps::scale(std::string_view name, Value x) {
  const std::string own(name);
  Ref scaled = make(own, x.bytes);
  kernel(KernelKind::accumulate, own, 2 * x.bytes);
  return tape_.output(std::move(scaled), x.bytes, {x.node}, {},
                      [this, own, bytes = x.bytes](Ref gradient, const EagerTape::Refs&) {
                        Ref made = make("d_" + own, bytes);
                        kernel(KernelKind::accumulate, "d_" + own, 2 * bytes);
                        gradient.reset();
                        return EagerTape::Refs{std::move(made)};
                      });
}

// ---- Ranks that share weights ----------------------------------------------------------------

EagerOps::Value EagerOps::gather_rows(std::string_view name, Value x) {
  if (!rows_.shares()) return x;
  const std::string own(name);
  const std::int64_t bytes = x.bytes * config_.mesh.size(Axis::tp);
  Ref all = make(part_of(own, "all"), bytes);
  rows_.gather(part_of(own, "all"), bytes);
  return tape_.output(std::move(all), bytes, {x.node}, {},
                      [this, own, bytes](Ref gradient, const EagerTape::Refs&) {
                        Ref made = make(part_of("d", own), rows_.own(bytes));
                        rows_.reduce(part_of("d", own), bytes);
                        gradient.reset();
                        return EagerTape::Refs{std::move(made)};
                      });
}

EagerOps::Value EagerOps::reduce_rows(std::string_view name, Value x) {
  if (!rows_.shares()) return x;
  const std::string own(name);
  const std::int64_t bytes = x.bytes;
  const auto compute = [&] {
    Ref sum = make(part_of(own, "sum"), rows_.own(bytes));
    rows_.reduce(part_of(own, "sum"), bytes);
    return EagerTape::Refs{std::move(sum)};
  };
  // Selective checkpointing by operator keeps reductions.
  Ref sum = tape_.caches_by_operator() ? tape_.cached(compute).front() : compute().front();
  return tape_.output(std::move(sum), rows_.own(bytes), {x.node}, {},
                      [this, own, bytes](Ref gradient, const EagerTape::Refs&) {
                        Ref all = make(part_of("d", own + "_all"), bytes);
                        rows_.gather(part_of("d", own + "_all"), bytes);
                        gradient.reset();
                        return EagerTape::Refs{std::move(all)};
                      });
}

}  // namespace mfsdp
