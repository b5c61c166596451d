#include "core/model/model.hpp"

#include <algorithm>
#include <cmath>

#include "core/model/model_shape.hpp"

namespace mfsdp {
namespace {

constexpr std::string_view kCorrection = ".e_score_correction_bias";
constexpr std::string_view kIndexer = "self_attn.indexer.";

/// Appends units and their parameters in forward order. Names of checkpoint tensors are optional:
/// with thousands of experts they take longer than everything else.
class ModelBuilder {
 public:
  ModelBuilder(const ModelShape& shape, DType dtype, bool names_parts = true)
      : shape_(shape),
        traits_(shape.traits()),
        names_(traits_.names),
        dtype_(dtype),
        names_parts_(names_parts) {
    const auto layers = static_cast<std::size_t>(shape.layers);
    model_.shape = shape;
    model_.units.reserve(layers + 2);
    model_.parameters.reserve(layers * kMostPerBlock + kMostAtEnds);
  }

  void embedding() {
    open_unit(shape_.tied_embeddings ? "embedding_head" : "embedding",
              shape_.tied_embeddings ? UnitKind::embedding_and_head : UnitKind::embedding);
    add(ParameterRole::embedding, weight_of(names_.embedding), {shape_.vocab, shape_.hidden});
    if (!traits_.rotates)
      add(ParameterRole::position_embedding, weight_of(names_.positions),
          {shape_.max_seq_len, shape_.hidden});
    if (shape_.tied_embeddings) final_norm();
  }

  void block(std::int64_t layer) {
    const std::string number = std::to_string(layer);
    open_unit("layers." + number, UnitKind::block);
    const std::string prefix = std::string(names_.blocks) + number + ".";
    if (traits_.input_norms)
      norm(ParameterRole::input_norm, ParameterRole::input_norm_bias,
           prefix + std::string(names_.input_norm));
    attention(prefix + std::string(names_.attention), layer);
    // With output norms the names shift: this is Hugging Face's name for the norm before the MLP.
    std::string post_norm = prefix + std::string(names_.post_norm);
    if (shape_.output_norms) {
      add(ParameterRole::attention_output_norm, weight_of(post_norm), {shape_.hidden});
      post_norm = prefix + "pre_feedforward_layernorm";
    }
    if (traits_.input_norms)
      norm(ParameterRole::post_norm, ParameterRole::post_norm_bias, post_norm);
    const std::string inner = prefix + std::string(names_.mlp);
    if (shape_.has_experts(layer))
      experts(inner);
    else
      mlp(inner);
    if (shape_.output_norms)
      add(ParameterRole::mlp_output_norm, weight_of(prefix + "post_feedforward_layernorm"),
          {shape_.hidden});
  }

  void head() {
    if (shape_.tied_embeddings) return;
    open_unit("head", UnitKind::head);
    final_norm();
    add(ParameterRole::head, weight_of(names_.head), {shape_.vocab, shape_.hidden});
  }

  [[nodiscard]] Model take() { return std::move(model_); }

 private:
  static constexpr std::size_t kMostPerBlock = 21;
  static constexpr std::size_t kMostAtEnds = 5;

  static std::string weight_of(std::string_view module) { return std::string(module) + ".weight"; }
  static std::string bias_of(std::string_view module) { return std::string(module) + ".bias"; }

  void norm(ParameterRole weight, ParameterRole bias, std::string_view module) {
    add(weight, weight_of(module), {shape_.hidden});
    if (traits_.layer_norms) add(bias, bias_of(module), {shape_.hidden});
  }

  /// A block's matrix [outputs, inputs].
  void projection(ParameterRole role, std::string_view module, std::int64_t outputs,
                  std::int64_t inputs, std::vector<ParameterPart> parts = {}) {
    add(role, weight_of(module), {outputs, inputs}, std::move(parts));
    model_.parameters.back().transposed = traits_.transposed_weights;
  }

  void attention(const std::string& prefix, std::int64_t layer) {
    const std::int64_t q_rows = checked_mul(shape_.heads, shape_.head_dim);
    const std::int64_t kv_rows = checked_mul(shape_.kv_heads, shape_.head_dim);
    const std::int64_t rows = checked_add(q_rows, checked_mul(2, kv_rows));
    const auto parts = [&](const char* kind) {
      if (shape_.fused_weights) return std::vector<ParameterPart>{};
      return std::vector<ParameterPart>{{prefix + "q_proj." + kind, q_rows},
                                        {prefix + "k_proj." + kind, kv_rows},
                                        {prefix + "v_proj." + kind, kv_rows}};
    };
    if (traits_.latent_attention) return latent_attention(prefix, layer);
    const std::string qkv = prefix + std::string(names_.qkv);
    projection(ParameterRole::qkv, qkv, rows, shape_.hidden, parts("weight"));
    if (shape_.qkv_bias) add(ParameterRole::qkv_bias, bias_of(qkv), {rows}, parts("bias"));
    if (shape_.qk_norm) {
      add(ParameterRole::q_norm, weight_of(prefix + "q_norm"),
          {shape_.qk_norm_width(shape_.heads)});
      add(ParameterRole::k_norm, weight_of(prefix + "k_norm"),
          {shape_.qk_norm_width(shape_.kv_heads)});
    }
    const std::string out = prefix + std::string(names_.attention_out);
    projection(ParameterRole::attention_out, out, shape_.hidden, q_rows);
    if (traits_.biases) add(ParameterRole::attention_out_bias, bias_of(out), {shape_.hidden});
    if (traits_.sinks) add(ParameterRole::sinks, prefix + "sinks", {shape_.heads});
  }

  void latent_attention(const std::string& prefix, std::int64_t layer) {
    const std::int64_t queries = checked_mul(shape_.heads, shape_.head_dim);
    const std::int64_t hidden = shape_.hidden;
    if (shape_.query_latent == 0) {
      projection(ParameterRole::q, prefix + "q_proj", queries, hidden);
    } else {
      projection(ParameterRole::q_a, prefix + "q_a_proj", shape_.query_latent, hidden);
      add(ParameterRole::q_a_norm, weight_of(prefix + "q_a_layernorm"), {shape_.query_latent});
      projection(ParameterRole::q_b, prefix + "q_b_proj", queries, shape_.query_latent);
    }
    projection(ParameterRole::kv_a, prefix + "kv_a_proj_with_mqa",
               checked_add(shape_.kv_latent, shape_.rotary_dim), hidden);
    add(ParameterRole::kv_a_norm, weight_of(prefix + "kv_a_layernorm"), {shape_.kv_latent});
    projection(ParameterRole::kv_b, prefix + "kv_b_proj",
               checked_mul(shape_.heads, shape_.key_value_dim()), shape_.kv_latent);
    projection(ParameterRole::attention_out, prefix + std::string(names_.attention_out), hidden,
               shape_.attention_width());
    if (shape_.has_indexer(layer)) indexer(prefix + "indexer.");
  }

  void indexer(const std::string& prefix) {
    projection(ParameterRole::index_q, prefix + "wq_b",
               checked_mul(shape_.index_heads, shape_.index_dim), shape_.query_latent);
    projection(ParameterRole::index_k, prefix + "wk", shape_.index_dim, shape_.hidden);
    add(ParameterRole::index_k_norm, weight_of(prefix + "k_norm"), {shape_.index_dim});
    add(ParameterRole::index_k_norm_bias, bias_of(prefix + "k_norm"), {shape_.index_dim});
    projection(ParameterRole::index_weights, prefix + "weights_proj", shape_.index_heads,
               shape_.hidden);
  }

  void mlp(const std::string& prefix) {
    std::vector<ParameterPart> parts;
    if (!shape_.fused_weights)
      parts = {{prefix + "gate_proj.weight", shape_.intermediate},
               {prefix + "up_proj.weight", shape_.intermediate}};
    const std::string gate_up = prefix + std::string(names_.gate_up);
    const std::int64_t rows = checked_mul(traits_.gated ? 2 : 1, shape_.intermediate);
    projection(ParameterRole::gate_up, gate_up, rows, shape_.hidden, std::move(parts));
    if (traits_.biases) add(ParameterRole::gate_up_bias, bias_of(gate_up), {rows});
    const std::string down = prefix + std::string(names_.down);
    projection(ParameterRole::down, down, shape_.hidden, shape_.intermediate);
    if (traits_.biases) add(ParameterRole::down_bias, bias_of(down), {shape_.hidden});
  }

  /// One parameter contains the matrices of all experts, each as one part.
  void experts(const std::string& prefix) {
    const std::string router = prefix + std::string(names_.router);
    add(ParameterRole::router, weight_of(router), {shape_.experts, shape_.hidden});
    if (traits_.biases) add(ParameterRole::router_bias, bias_of(router), {shape_.experts});
    if (shape_.sigmoid_routing)
      add(ParameterRole::router_correction, prefix + std::string(names_.router_correction),
          {shape_.experts});
    const std::int64_t inner = shape_.expert_intermediate;
    std::vector<ParameterPart> gate_up;
    std::vector<ParameterPart> down;
    const std::int64_t named = names_parts_ ? shape_.experts : 0;
    gate_up.reserve(static_cast<std::size_t>(named) * 2);
    down.reserve(static_cast<std::size_t>(named));
    const std::string all = prefix + std::string(names_.experts);
    for (std::int64_t expert = 0; expert < named; ++expert) {
      const std::string one = all + std::to_string(expert) + ".";
      if (traits_.interleaved_experts) {
        gate_up.push_back({weight_of(one + std::string(names_.gate_up)), 2 * inner});
      } else {
        gate_up.push_back({weight_of(one + std::string(names_.expert_gate)), inner});
        gate_up.push_back({weight_of(one + std::string(names_.expert_up)), inner});
      }
      down.push_back({weight_of(one + std::string(names_.expert_down)), shape_.hidden});
    }
    add(ParameterRole::experts_gate_up, weight_of(all + std::string(names_.gate_up)),
        {product_of(2, shape_.experts, inner), shape_.hidden}, std::move(gate_up));
    model_.parameters.back().transposed = traits_.interleaved_experts;
    if (traits_.biases)
      add(ParameterRole::experts_gate_up_bias, bias_of(all + std::string(names_.gate_up)),
          {product_of(2, shape_.experts, inner)});
    add(ParameterRole::experts_down, weight_of(all + std::string(names_.down)),
        {product_of(shape_.experts, shape_.hidden), inner}, std::move(down));
    model_.parameters.back().transposed = traits_.interleaved_experts;
    if (traits_.biases)
      add(ParameterRole::experts_down_bias, bias_of(all + std::string(names_.down)),
          {product_of(shape_.experts, shape_.hidden)});
    if (shape_.shared_intermediate != 0) shared_expert(prefix);
  }

  void shared_expert(const std::string& prefix) {
    const std::int64_t inner = shape_.shared_intermediate;
    const std::string one = prefix + std::string(names_.shared_expert);
    add(ParameterRole::shared_gate_up, weight_of(one + std::string(names_.gate_up)),
        {checked_mul(2, inner), shape_.hidden},
        {{weight_of(one + std::string(names_.expert_gate)), inner},
         {weight_of(one + std::string(names_.expert_up)), inner}});
    add(ParameterRole::shared_down, weight_of(one + std::string(names_.expert_down)),
        {shape_.hidden, inner});
    if (shape_.has_gated_shared())
      add(ParameterRole::shared_gate, weight_of(prefix + std::string(names_.shared_gate)),
          {1, shape_.hidden});
  }

  void final_norm() {
    norm(ParameterRole::final_norm, ParameterRole::final_norm_bias, names_.final_norm);
  }

  void open_unit(std::string name, UnitKind kind) {
    Unit unit;
    unit.id = UnitId(model_.units.size());
    unit.name = std::move(name);
    unit.kind = kind;
    unit.parameters.reserve(kMostPerBlock);
    model_.units.push_back(std::move(unit));
  }

  void add(ParameterRole role, std::string name, std::vector<std::int64_t> shape,
           std::vector<ParameterPart> parts = {}) {
    Unit& unit = model_.units.back();
    unit.parameters.push_back(model_.parameters.size());
    const bool matrix = shape.size() == 2;
    model_.parameters.push_back(Parameter{.name = std::move(name),
                                          .role = role,
                                          .shape = std::move(shape),
                                          .parts = std::move(parts),
                                          .dtype = dtype_,
                                          .unit = unit.id,
                                          .decay = matrix});
  }

  const ModelShape& shape_;
  const FamilyTraits& traits_;
  const ModuleNames& names_;
  DType dtype_;
  bool names_parts_;
  Model model_;
};

Model model_by(ModelBuilder builder, const ModelShape& shape) {
  builder.embedding();
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) builder.block(layer);
  builder.head();
  return builder.take();
}

}  // namespace

bool ModelShape::slides(std::int64_t layer) const {
  return std::ranges::binary_search(sliding_layers, layer);
}

bool ModelShape::has_other_rope(std::int64_t layer) const {
  return local_rope_theta.num != 0 ? slides(layer) : std::ranges::binary_search(nope_layers, layer);
}

bool ModelShape::has_experts(std::int64_t layer) const {
  return experts != 0 && !std::ranges::binary_search(dense_layers, layer);
}

bool ModelShape::has_indexer(std::int64_t layer) const {
  return index_heads != 0 && !std::ranges::binary_search(shared_index_layers, layer);
}

Rational ModelShape::embedding_scale(DType dtype) const {
  if (embedding_multiplier.num != 0 || !scaled_embedding) return embedding_multiplier;
  const int bits = dtype == DType::bf16   ? 8
                   : dtype == DType::fp16 ? 11
                   : dtype == DType::fp32 ? 24
                                          : 53;
  int exponent = 0;
  const double share = std::frexp(std::sqrt(static_cast<double>(hidden)), &exponent);
  auto digits = static_cast<std::int64_t>(std::nearbyint(std::ldexp(share, bits)));
  std::int64_t den = 1;
  for (; exponent < bits && digits % 2 == 0; ++exponent) digits /= 2;
  for (; exponent < bits; ++exponent) den *= 2;
  for (; exponent > bits; --exponent) digits *= 2;
  return {digits, den};
}

Rational gemm_multiplier(const ModelShape& shape, ParameterRole matrix) {
  switch (matrix) {
    case ParameterRole::attention_out:
    case ParameterRole::down: return shape.residual_multiplier;
    case ParameterRole::embedding:  // its GEMMs are those of a tied head
    case ParameterRole::head: return shape.logit_multiplier;
    default: return {0, 1};
  }
}

bool never_trains(std::string_view name) {
  return name.ends_with(kCorrection) || name.find(kIndexer) != std::string_view::npos;
}

std::int64_t Parameter::elements() const {
  return shape.empty() ? 0 : checked_mul(shape.front(), row_elements());
}

std::int64_t Parameter::row_elements() const {
  return shape.empty() ? 1 : product_of(std::span(shape).subspan(1));
}

std::int64_t Model::parameter_count() const {
  std::int64_t total = 0;
  for (const Parameter& parameter : parameters) total = checked_add(total, parameter.elements());
  return total;
}

std::int64_t Model::active_parameter_count() const {
  return checked_add(parameter_count(), -unchosen_elements(shape));
}

Model make_model(const ModelShape& shape, DType dtype) {
  return model_by(ModelBuilder(shape, dtype), shape);
}

std::int64_t parameter_count(const ModelShape& shape) {
  return model_by(ModelBuilder(shape, DType::bf16, false), shape).parameter_count();
}

}  // namespace mfsdp
