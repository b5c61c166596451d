#include "sim/engines/module_block.hpp"

#include <cassert>
#include <map>
#include <string>
#include <utility>

#include "sim/engines/eager_ops.hpp"
#include "sim/engines/expert_ops.hpp"
#include "sim/engines/latent_ops.hpp"
#include "sim/engines/module_weights.hpp"

namespace mfsdp {

std::int64_t mask_bytes(const PlanConfig& config, std::int64_t element) {
  const ModelShape& model = config.model;
  if (model.sliding_layers.empty() || model.window_of(true, config.seq_len) == 0) return 0;
  const std::int64_t pairs = checked_mul(config.seq_len, config.seq_len);
  return checked_mul(checked_mul(config.micro_batch, pairs), element);
}

NormCode norm_code(const ModelShape& model, Modules modules) {
  if (modules == Modules::torchtitan) return NormCode::fused;
  if (model.zero_centered_norms) return NormCode::zero_centered;
  return model.family == Family::olmo2 ? NormCode::cast_last : NormCode::cast_first;
}

namespace {

class EagerModuleBlock final : public LlamaBlock {
 public:
  using Value = EagerTape::Value;
  using Ref = EagerTape::Ref;

  EagerModuleBlock(StepBuilder& step, const PlanConfig& config, const Fsdp2Options& options,
                   Fsdp2Units& units)
      : LlamaBlock(step, config, options.selective_ac.every),
        options_(options),
        units_(units),
        tape_(step),
        ops_(tape_, config),
        rows_(step, config),
        experts_(tape_, ops_, config),
        latent_(tape_, ops_, config),
        norm_(norm_code(config.model, options.modules)),
        rope_(rope_code(config.model, options.modules)),
        kinds_{module_weights(config, options.modules, 0)} {
    for (std::int64_t layer = 1; layer < config.model.layers && config.model.experts != 0; ++layer)
      kinds_.push_back(module_weights(config, options.modules, layer));
  }

  Tensor forward(std::size_t layer, Tensor input) override {
    layer_ = layer;
    // The model's variable refers to the input until the block returns.
    const Value x = tape_.leaf(tape_.adopt(input), rows_.own(sizes_.state),
                               [this](Ref gradient) { input_gradient_ = std::move(gradient); });
    const auto block = [this, layer, x] { return run(layer, x); };
    Value out = options_.selective_ac.by_operator || recomputes(layer)
                    ? tape_.checkpoint(block, options_.selective_ac.by_operator)
                    : block();
    assert(out.ref.use_count() == 1);
    const Tensor output = out.ref->give_up();
    out.ref.reset();
    outputs_.insert_or_assign(layer, std::move(out));
    return output;
  }

  BlockGradients backward(std::size_t layer, Tensor /*input*/, Tensor output) override {
    layer_ = layer;
    gradients_.assign(weights().size(), std::nullopt);
    tape_.backward(std::exchange(outputs_.at(layer), {}), tape_.adopt(output));
    const Tensor input = input_gradient_->give_up();
    input_gradient_.reset();
    for (const char* name : {"norm1_grad_sum", "norm2_grad_sum"})
      if (rows_.shares()) rows_.sum(name, sizes_.hidden, DType::bf16);
    const bool apart = options_.units.parts_of_blocks;
    return {.input = input,
            .weights = all_of(apart ? std::optional(BlockPart::norms) : std::nullopt),
            .later = {}};
  }

  void free_angles(const Angles& /*angles*/) override {}

 private:
  /// Stores the gradient of the weight of that name, or adds it to that of earlier microbatches.
  EagerTape::Sink sink(const std::string& name) {
    return [this, position = position_of(weights(), name)](Ref gradient) {
      const Tensor tensor = gradient->give_up();
      if (units_.adds_in_place())
        units_.add_in_place(tensor);
      else
        gradients_[position] = tensor;
    };
  }

  [[nodiscard]] std::vector<Tensor> all_of(std::optional<BlockPart> part) const {
    std::vector<Tensor> made;
    for (std::size_t i = 0; i < gradients_.size(); ++i)
      if (gradients_[i] && (!part || weights()[i].part == *part)) made.push_back(*gradients_[i]);
    return made;
  }

  [[nodiscard]] static RopeCode rope_code(const ModelShape& model, Modules modules) {
    if (modules != Modules::torchtitan) return RopeCode::halves;
    return model.experts != 0 ? RopeCode::wide : RopeCode::complex;
  }

  /// Those of the layer that runs. All layers of models without experts have the same ones.
  [[nodiscard]] const std::vector<Weight>& weights() const {
    return kinds_[kinds_.size() > 1 ? layer_ : 0];
  }
  /// Whether the model has experts.
  [[nodiscard]] bool has_experts() const { return config_.model.experts != 0; }
  [[nodiscard]] auto sinks() {
    return [this](const std::string& name) { return sink(name); };
  }
  [[nodiscard]] bool is_olmo() const { return !config_.model.traits().input_norms; }

  Value run(std::size_t layer, const Value& input) {
    Value sum = add_attention(layer, input);
    return add_mlp(layer, std::move(sum));
  }

  Value norm(const std::string& name, Value x) {
    return ops_.norm(name, std::move(x), sizes_.hidden, norm_, sink(name));
  }

  /// A module of the block. It may be a unit of its own.
  template <class Module>
  Value part(UnitPlace place, std::size_t layer, Value input, Module&& module) {
    if (!options_.units.parts_of_blocks) return module(input);
    const BlockPart of = place == UnitPlace::mlp ? BlockPart::mlp : BlockPart::attention;
    const auto back = [this, layer] { step_.at(units_.block(layer), step_.phase()); };
    units_.pre_forward(place, layer);
    back();
    Value output = module(tape_.watch(std::move(input), [this, place, layer, of] {
      units_.post_backward(place, layer, all_of(of));
      step_.at(units_.block(layer), Phase::backward);
    }));
    units_.post_forward(place, layer);
    return tape_.watch(std::move(output), [this, place, layer, back] {
      units_.pre_backward(place, layer);
      back();
    });
  }

  Value add_attention(std::size_t layer, const Value& input) {
    Value mixed = part(
        UnitPlace::attention, layer, is_olmo() ? input : norm("norm1", input), [&](const Value& x) {
          return ops_.reduce_rows("out", attention(layer, ops_.gather_rows("norm1", x)));
        });
    if (is_olmo() || config_.model.output_norms) mixed = norm("attention_norm", std::move(mixed));
    return ops_.add("sum", input, mixed);
  }

  Value add_mlp(std::size_t layer, Value sum) {
    Value made =
        part(UnitPlace::mlp, layer, is_olmo() ? sum : norm("norm2", sum), [&](const Value& x) {
          return ops_.reduce_rows("down", mlp(ops_.gather_rows("norm2", x)));
        });
    if (is_olmo() || config_.model.output_norms) made = norm("mlp_norm", std::move(made));
    return ops_.add("output", sum, made);
  }

  Value project(const std::string& name, const Value& x, std::int64_t outputs) {
    return ops_.linear(name, x, outputs, sizes_.hidden, sink(name),
                       config_.model.qkv_bias ? sink(name + "_bias") : EagerTape::Sink{});
  }

  struct Heads {
    Value query, key, value;
  };

  Heads heads_of(const Value& x) {
    if (has_experts()) {
      const std::vector<Value> parts =
          ops_.split_and_copy("qkv_part", project("qkv", x, sizes_.qkv_columns),
                              {sizes_.query, sizes_.key, sizes_.key});
      return {head_norm("query", parts[0], sizes_.query_columns),
              head_norm("key", parts[1], sizes_.key_columns), parts[2]};
    }
    if (config_.model.fused_weights) {
      const Value qkv = project("qkv", x, sizes_.qkv_columns);
      std::vector<Value> parts =
          ops_.split("qkv_part", qkv, {sizes_.query, sizes_.key, sizes_.key});
      return {std::move(parts[0]), std::move(parts[1]), std::move(parts[2])};
    }
    Heads heads;
    heads.query =
        head_norm("query", project("query", x, sizes_.query_columns), sizes_.query_columns);
    heads.key = head_norm("key", project("key", x, sizes_.key_columns), sizes_.key_columns);
    heads.value = project("value", x, sizes_.key_columns);
    return heads;
  }

  Value head_norm(const std::string& name, Value x, std::int64_t columns) {
    if (!config_.model.qk_norm) return x;
    const bool whole = config_.model.traits().whole_qk_norms;
    return ops_.norm(name + "_norm", std::move(x), whole ? columns : config_.model.head_dim, norm_,
                     sink(name + "_norm"));
  }

  Value attention(std::size_t layer, const Value& x) {
    if (config_.model.traits().latent_attention) return latent_.run(x, sinks());
    Heads heads = heads_of(x);
    heads.query = ops_.rotate("rotated_query", std::move(heads.query), rope_);
    heads.key = ops_.rotate("rotated_key", std::move(heads.key), rope_);
    LayerMask shape;
    if (config_.model.slides(static_cast<std::int64_t>(layer)))
      shape.mask_bytes = mask_bytes(config_, kHalf);
    // With a mask, transformers does not leave the sharing of keys to the kernel.
    const bool repeats = options_.modules == Modules::torchtitan && !has_experts();
    if (repeats || shape.mask_bytes != 0) {
      heads.key = ops_.repeat("repeated_key", std::move(heads.key));
      heads.value = ops_.repeat("repeated_value", std::move(heads.value));
    }
    const Value mixed =
        ops_.attention(std::move(heads.query), std::move(heads.key), std::move(heads.value), shape);
    return ops_.linear("out", mixed, sizes_.hidden, sizes_.query_columns, sink("out"));
  }

  Value mlp(const Value& x) {
    if (config_.model.has_experts(static_cast<std::int64_t>(layer_)))
      return experts_.run(x, sinks());
    Value gate;
    Value up;
    if (config_.model.fused_weights) {
      const Value both = ops_.linear("gate_up", x, 2 * sizes_.ffn, sizes_.hidden, sink("gate_up"));
      std::vector<Value> parts = ops_.split("gate_up_part", both, {sizes_.product, sizes_.product});
      gate = ops_.activate("activated", std::move(parts[0]), config_.model.activation);
      up = std::move(parts[1]);
    } else {
      gate = ops_.activate("activated",
                           ops_.linear("gate", x, sizes_.ffn, sizes_.hidden, sink("gate")),
                           config_.model.activation);
      up = ops_.linear("up", x, sizes_.ffn, sizes_.hidden, sink("up"));
    }
    Value product = ops_.multiply("product", std::move(gate), std::move(up));
    return ops_.linear("down", std::move(product), sizes_.hidden, sizes_.ffn, sink("down"));
  }

  Fsdp2Options options_;
  Fsdp2Units& units_;
  EagerTape tape_;
  EagerOps ops_;
  TensorRows rows_;
  ExpertOps experts_;
  LatentOps latent_;
  NormCode norm_;
  RopeCode rope_;
  std::vector<std::vector<Weight>> kinds_;        ///< weights of each layer, or of all
  std::size_t layer_ = 0;                         ///< that runs
  std::map<std::size_t, Value> outputs_;          ///< of each layer's forward
  std::vector<std::optional<Tensor>> gradients_;  ///< of the weights of the layer in backward
  Ref input_gradient_;
};

}  // namespace

std::unique_ptr<LlamaBlock> eager_module_block(StepBuilder& step, const PlanConfig& config,
                                               const Fsdp2Options& options, Fsdp2Units& units) {
  return std::make_unique<EagerModuleBlock>(step, config, options, units);
}

}  // namespace mfsdp
