#include "sim/engines/expert_ops.hpp"

#include <utility>

namespace mfsdp {
namespace {

constexpr std::int64_t kIndex = 8;  // bytes: int64

/// Copies of the indices that their sorting allocates.
constexpr std::int64_t kSortedCopies = 2;

}  // namespace

ExpertOps::Value ExpertOps::run(const Value& x, const Sinks& sinks) {
  Ref experts;
  const Value weights = route(x, sinks("router"), experts);
  // A map of tokens and experts in bool, summed for the counts.
  const Ref counts = make("expert_counts", sizes_.experts * kIndex);
  tape_.step().scratch("routing_map", cells());
  kernel(KernelKind::expert_order, "routing_map", 2 * cells());
  kernel(KernelKind::expert_order, "expert_counts", cells());
  // Variables of the modules live until they return.
  const Dispatched dispatched = dispatch(x, weights);
  const Value made = multiply(dispatched.rows, sinks);
  const Value sum = combine(made, dispatched);
  return sizes_.shared == 0 ? sum : ops_.add("with_shared", sum, shared(x, sinks));
}

ExpertOps::Value ExpertOps::shared(const Value& x, const Sinks& sinks) {
  const auto linear = [&](const std::string& name, Value in, std::int64_t outputs,
                          std::int64_t inputs) {
    return ops_.linear(name, std::move(in), outputs, inputs, sinks(name));
  };
  Value active = ops_.activate(
      "shared_silu", linear("shared_gate", x, sizes_.shared, sizes_.hidden), Activation::silu);
  Value product = ops_.multiply("shared_product", std::move(active),
                                linear("shared_up", x, sizes_.shared, sizes_.hidden));
  return linear("shared_down", std::move(product), sizes_.hidden, sizes_.shared);
}

ExpertOps::Value ExpertOps::multiply(const Value& rows, const Sinks& sinks) {
  Value product = ops_.activate(
      "experts_silu",
      grouped("experts_gate", rows, sizes_.width, sizes_.hidden, sinks("experts_gate")),
      Activation::silu);
  product =
      ops_.multiply("experts_product", product,
                    grouped("experts_up", rows, sizes_.width, sizes_.hidden, sinks("experts_up")));
  return grouped("experts_down", product, sizes_.hidden, sizes_.width, sinks("experts_down"));
}

// ---- Router ----------------------------------------------------------------------------------

ExpertOps::Value ExpertOps::route(const Value& x, Sink router, Ref& experts) {
  const Value all = probabilities(cast("router_input", x, 2 * sizes_.state), std::move(router));
  const std::int64_t bytes = sizes_.rows * kFull;
  EagerTape::Saved saved;
  experts = make("chosen_experts", sizes_.rows * kIndex);
  tape_.step().scratch("largest", bytes);
  kernel(KernelKind::router_forward, "largest", all.bytes + sizes_.rows * kIndex);
  tape_.save(experts, saved);
  Ref chosen = make("chosen", bytes);
  kernel(KernelKind::router_forward, "chosen", 2 * bytes);
  if (model_.normalised_routing) {
    tape_.save(chosen, saved);
    const Ref sum = make("chosen_sum", sizes_.tokens * kFull);
    kernel(KernelKind::router_forward, "chosen_sum", bytes);
    tape_.save(sum, saved);
    Ref normalised = make("normalised", bytes);
    kernel(KernelKind::router_forward, "normalise", 2 * bytes);
    chosen = std::move(normalised);
  }
  Ref scaled = make("routing_weights", bytes);
  kernel(KernelKind::router_forward, "scale_weights", 2 * bytes);
  chosen.reset();
  return tape_.output(std::move(scaled), bytes, {all.node}, std::move(saved),
                      [this, bytes](Ref gradient, EagerTape::Refs kept) {
                        Ref inner = make("d_normalised", bytes);
                        kernel(KernelKind::router_backward, "d_normalise", 4 * bytes);
                        gradient.reset();
                        Ref made = make("d_probabilities", cells() * kFull);
                        kernel(KernelKind::zero_padding, "d_probabilities", cells() * kFull);
                        kernel(KernelKind::router_backward, "d_chosen", 2 * bytes);
                        kept.clear();
                        return EagerTape::Refs{std::move(made)};
                      });
}

/// A GEMM in fp32, and softmax.
ExpertOps::Value ExpertOps::probabilities(const Value& wide, Sink router) {
  const std::int64_t bytes = cells() * kFull;
  const std::int64_t matrix = sizes_.experts * sizes_.hidden;
  EagerTape::Saved saved;
  tape_.save(wide.ref, saved);
  const Ref weight = make("router_weight_fp32", matrix * kFull);
  kernel(KernelKind::cast, "router_weight_fp32", matrix * (kHalf + kFull));
  tape_.save(weight, saved);
  Ref logits = make("router_logits", bytes);
  tape_.step().gemm(GemmKind::forward, "router", sizes_.tokens, sizes_.experts, sizes_.hidden);
  Ref made = make("probabilities", bytes);
  kernel(KernelKind::router_forward, "softmax", 2 * bytes);
  logits.reset();
  tape_.save(made, saved);
  return tape_.output(
      std::move(made), bytes, {wide.node, tape_.leaf_node(std::move(router))}, std::move(saved),
      [this, bytes, matrix, input = wide.bytes](Ref gradient, EagerTape::Refs kept) {
        const Ref of_logits = make("d_router_logits", bytes);
        kernel(KernelKind::router_backward, "d_softmax", 3 * bytes);
        gradient.reset();
        kept[2].reset();
        Ref wide_weight = make("router_grad_fp32", matrix * kFull);
        tape_.step().gemm(GemmKind::weight_gradient, "router", sizes_.tokens, sizes_.experts,
                          sizes_.hidden);
        EagerTape::Refs made_here{make("d_router_input", input)};
        tape_.step().gemm(GemmKind::input_gradient, "router", sizes_.tokens, sizes_.experts,
                          sizes_.hidden);
        made_here.push_back(make("router_grad", matrix * kHalf, Category::unsharded_grad));
        kernel(KernelKind::cast, "router_grad", matrix * (kHalf + kFull));
        wide_weight.reset();
        kept.clear();
        return made_here;
      });
}

// ---- Rows ------------------------------------------------------------------------------------

ExpertOps::Dispatched ExpertOps::dispatch(const Value& x, const Value& weights) {
  Dispatched made;
  const std::int64_t indices = sizes_.rows * kIndex;
  const Ref order = make("row_order", indices);
  tape_.step().scratch("sorted_experts", kSortedCopies * indices);
  kernel(KernelKind::expert_order, "sort_rows", 2 * indices);
  made.weights = pick("row_weights", weights, sizes_.rows * kFull, order);
  made.tokens = make("row_tokens", indices);
  kernel(KernelKind::expert_order, "row_tokens", 2 * indices);
  const Value sorted = pick("permuted", x, sizes_.row_states, made.tokens);
  if (!exchanges()) {
    made.rows = sorted;
    return made;
  }
  wait_for_counts();
  const Value received = exchanged("dispatch", sorted);
  made.permutation = make("row_permutation", indices);
  kernel(KernelKind::expert_order, "row_permutation", 4 * indices);
  made.rows = pick("by_expert", received, sizes_.row_states, made.permutation);
  return made;
}

/// Counts of each pair of ranks are exchanged; lists of Python get them.
void ExpertOps::wait_for_counts() {
  tape_.step().scratch("all_counts", sizes_.experts * kIndex);
  tape_.step().exchange(CollectiveKind::all_to_all, "counts",
                        ceil_div(sizes_.experts, sizes_.peers), DType::int64);
  tape_.step().host_wait(tape_.step().record(StreamRole::compute));
}

ExpertOps::Value ExpertOps::combine(const Value& made, const Dispatched& dispatched) {
  const Value rows =
      exchanges() ? exchanged("combine", by_rank(made, dispatched.permutation)) : made;
  const Ref zeros = make("combined_zeros", sizes_.state);
  kernel(KernelKind::zero_padding, "combined_zeros", sizes_.state);
  const Value narrow = cast(
      "weighted_rows", weighted(cast("rows_fp32", rows, 2 * sizes_.row_states), dispatched.weights),
      sizes_.row_states);
  return added_up(narrow, dispatched.tokens);
}

/// Rows written by index; backward reads by index.
ExpertOps::Value ExpertOps::by_rank(const Value& rows, const Ref& permutation) {
  EagerTape::Saved saved;
  tape_.save(permutation, saved);
  const Traffic traffic{2 * sizes_.row_states, AccessPattern::strided};
  Ref made = make("by_rank", sizes_.row_states);
  kernel(KernelKind::permute_rows, "by_rank", traffic);
  return tape_.output(std::move(made), sizes_.row_states, {rows.node}, std::move(saved),
                      [this, traffic](Ref gradient, EagerTape::Refs kept) {
                        Ref back = make("d_by_rank", sizes_.row_states);
                        kernel(KernelKind::permute_rows, "d_by_rank", traffic);
                        gradient.reset();
                        kept.clear();
                        return EagerTape::Refs{std::move(back)};
                      });
}

ExpertOps::Value ExpertOps::cast(std::string_view name, const Value& x, std::int64_t bytes) {
  const std::string own(name);
  Ref made = make(own, bytes);
  kernel(KernelKind::cast, own, x.bytes + bytes);
  return tape_.output(std::move(made), bytes, {x.node}, {},
                      [this, own, bytes, before = x.bytes](Ref gradient, const EagerTape::Refs&) {
                        Ref back = make("d_" + own, before);
                        kernel(KernelKind::cast, "d_" + own, before + bytes);
                        gradient.reset();
                        return EagerTape::Refs{std::move(back)};
                      });
}

ExpertOps::Value ExpertOps::pick(std::string_view name, const Value& x, std::int64_t moved,
                                 const Ref& index) {
  const std::string own(name);
  EagerTape::Saved saved;
  tape_.save(index, saved);
  Ref made = make(own, moved);
  kernel(KernelKind::permute_rows, own, {2 * moved, AccessPattern::strided});
  return tape_.output(std::move(made), moved, {x.node}, std::move(saved),
                      [this, own, moved, whole = x.bytes](Ref gradient, EagerTape::Refs kept) {
                        Ref sum = make("d_" + own, whole);
                        kernel(KernelKind::zero_padding, "d_" + own + "_zeros", whole);
                        // index_put_ with accumulation sorts its indices first.
                        const std::int64_t indices = sizes_.rows * kIndex;
                        tape_.step().scratch("d_" + own + "_sort", 2 * kSortedCopies * indices);
                        kernel(KernelKind::expert_order, "d_" + own + "_sort", 4 * indices);
                        kernel(KernelKind::combine_rows, "d_" + own,
                               {moved + whole, AccessPattern::strided});
                        gradient.reset();
                        kept.clear();
                        return EagerTape::Refs{std::move(sum)};
                      });
}

ExpertOps::Value ExpertOps::exchanged(std::string_view name, const Value& rows) {
  const std::string own(name);
  const std::int64_t elements = checked_mul(ceil_div(sizes_.rows, sizes_.peers), sizes_.hidden);
  Ref made = make(own, rows.bytes);
  tape_.step().exchange(CollectiveKind::all_to_all, own, elements, DType::bf16);
  return tape_.output(
      std::move(made), rows.bytes, {rows.node}, {},
      [this, own, elements, bytes = rows.bytes](Ref gradient, const EagerTape::Refs&) {
        Ref back = make("d_" + own, bytes);
        tape_.step().exchange(CollectiveKind::all_to_all, "d_" + own, elements, DType::bf16);
        gradient.reset();
        return EagerTape::Refs{std::move(back)};
      });
}

ExpertOps::Value ExpertOps::grouped(std::string_view name, const Value& x, std::int64_t outputs,
                                    std::int64_t inputs, Sink weight) {
  const std::string own(name);
  const GroupedShape shape{.experts = sizes_.local,
                           .rows = sizes_.rows,
                           .outputs = outputs,
                           .inputs = inputs,
                           .one_kernel = true};
  EagerTape::Saved saved;
  tape_.save(x.ref, saved);
  const std::int64_t bytes = checked_mul(checked_mul(sizes_.rows, outputs), kHalf);
  Ref made = make(own, bytes);
  tape_.step().grouped_gemm(GemmKind::forward, own, shape);
  return tape_.output(
      std::move(made), bytes, {x.node, tape_.leaf_node(std::move(weight))}, std::move(saved),
      [this, own, shape, before = x.bytes](Ref gradient, EagerTape::Refs kept) {
        EagerTape::Refs both{make("d_" + own + "_input", before)};
        tape_.step().grouped_gemm(GemmKind::input_gradient, own, shape);
        both.push_back(make(own + "_grad", kHalf * shape.experts * shape.outputs * shape.inputs,
                            Category::unsharded_grad));
        tape_.step().grouped_gemm(GemmKind::weight_gradient, own, shape);
        gradient.reset();
        kept.clear();
        return both;
      });
}

/// Rows in fp32 times their weights.
ExpertOps::Value ExpertOps::weighted(const Value& wide, const Value& weights) {
  EagerTape::Saved saved;
  tape_.save(wide.ref, saved);
  tape_.save(weights.ref, saved);
  Ref made = make("rows_times_weights", wide.bytes);
  kernel(KernelKind::accumulate, "rows_times_weights", 2 * wide.bytes);
  return tape_.output(
      std::move(made), wide.bytes, {wide.node, weights.node}, std::move(saved),
      [this, bytes = wide.bytes, few = weights.bytes](Ref gradient, EagerTape::Refs kept) {
        EagerTape::Refs both{make("d_rows_fp32", bytes)};
        kernel(KernelKind::accumulate, "d_rows_fp32", 2 * bytes);
        {
          const Ref products = make("d_row_weights_products", bytes);
          kernel(KernelKind::accumulate, "d_row_weights_products", 3 * bytes);
          gradient.reset();
          both.push_back(make("d_row_weights", few));
          kernel(KernelKind::router_backward, "d_row_weights", bytes);
        }
        kept.clear();
        return both;
      });
}

/// Each token's rows, added to zeros.
ExpertOps::Value ExpertOps::added_up(const Value& rows, const Ref& tokens) {
  EagerTape::Saved saved;
  tape_.save(tokens, saved);
  Ref sum = make("combined", sizes_.state);
  kernel(KernelKind::combine_rows, "combined",
         {rows.bytes + 2 * sizes_.state, AccessPattern::strided});
  return tape_.output(std::move(sum), sizes_.state, {rows.node}, std::move(saved),
                      [this, bytes = rows.bytes](Ref gradient, EagerTape::Refs kept) {
                        Ref made = make("d_combined", bytes);
                        kernel(KernelKind::permute_rows, "d_combined",
                               {2 * bytes, AccessPattern::strided});
                        gradient.reset();
                        kept.clear();
                        return EagerTape::Refs{std::move(made)};
                      });
}

// ---- Weights ---------------------------------------------------------------------------------

namespace {

class TitanWeights {
 public:
  explicit TitanWeights(const PlanConfig& config) : config_(config), model_(config.model) {}

  std::vector<Weight> of(std::int64_t layer) {
    const bool is_latent = model_.traits().latent_attention;
    if (is_latent)
      add_latent();
    else
      add_heads();
    if (is_latent) add_norms();
    if (model_.has_experts(layer))
      add_experts();
    else
      add_mlp("", model_.intermediate);
    if (!is_latent) add_norms();
    return std::move(weights_);
  }

 private:
  void add(const std::string& name, std::int64_t rows, std::int64_t columns, BlockPart part) {
    weights_.push_back({name, rows, columns, part});
  }

  void add_heads() {
    add("qkv", model_.qkv_width(), model_.hidden, BlockPart::attention);
    add("out", model_.hidden, model_.attention_width(), BlockPart::attention);
    add("query_norm", model_.head_dim, 1, BlockPart::attention);
    add("key_norm", model_.head_dim, 1, BlockPart::attention);
  }

  void add_latent() {
    constexpr BlockPart kPart = BlockPart::attention;
    std::int64_t inputs = model_.hidden;
    if (model_.query_latent != 0) {
      inputs = model_.query_latent;
      add("query_down", inputs, model_.hidden, kPart);
      add("query_latent_norm", inputs, 1, kPart);
    }
    add("query", model_.heads * model_.head_dim, inputs, kPart);
    add("kv_down", model_.kv_latent + model_.rotary_dim, model_.hidden, kPart);
    add("kv_latent_norm", model_.kv_latent, 1, kPart);
    add("kv", model_.heads * model_.key_value_dim(), model_.kv_latent, kPart);
    add("out", model_.hidden, model_.attention_width(), kPart);
  }

  void add_norms() {
    add("norm1", model_.hidden, 1, BlockPart::norms);
    add("norm2", model_.hidden, 1, BlockPart::norms);
  }

  /// w1, w2 and w3 of an MLP.
  void add_mlp(const std::string& prefix, std::int64_t width) {
    add(prefix + "gate", width, model_.hidden, BlockPart::mlp);
    add(prefix + "down", model_.hidden, width, BlockPart::mlp);
    add(prefix + "up", width, model_.hidden, BlockPart::mlp);
  }

  void add_experts() {
    add_of_experts("experts_gate", model_.expert_intermediate, model_.hidden);
    add_of_experts("experts_down", model_.hidden, model_.expert_intermediate);
    add_of_experts("experts_up", model_.expert_intermediate, model_.hidden);
    add("router", model_.experts, model_.hidden, BlockPart::mlp);
    if (model_.shared_intermediate != 0) add_mlp("shared_", model_.shared_intermediate);
  }

  void add_of_experts(const std::string& name, std::int64_t rows, std::int64_t columns) {
    const std::int64_t local = config_.experts_per_rank();
    const bool by_rows = config_.mesh.size(Axis::dp_shard) > model_.experts;
    add(name, by_rows ? rows : local, by_rows ? local * columns : rows * columns, BlockPart::mlp);
    weights_.back().dealt = config_.is_expert_parallel();
  }

  const PlanConfig& config_;
  const ModelShape& model_;
  std::vector<Weight> weights_{};
};

}  // namespace

std::vector<Weight> titan_block_weights(const PlanConfig& config, std::int64_t layer) {
  return TitanWeights(config).of(layer);
}

}  // namespace mfsdp
