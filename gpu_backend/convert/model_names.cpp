// Names of Megatron-Core: megatron/bridge/models/*/ of NVIDIA-NeMo/Megatron-Bridge, 067f987df0.
// Names of torchtitan: torchtitan/models/*/model/state_dict_adapter.py, b5bcd76c66.
#include "gpu_backend/convert/model_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>

#include "core/formats/safetensors.hpp"

namespace mfsdp {
namespace {

struct NameRow {
  std::string_view hf;
  std::string_view titan;
  std::string_view mcore;  ///< empty: part of a fused tensor
};

constexpr std::array kGlobalRows{
    NameRow{"model.embed_tokens.weight", "tok_embeddings.weight",
            "embedding.word_embeddings.weight"},
    NameRow{"model.norm.weight", "norm.weight", "decoder.final_layernorm.weight"},
    NameRow{"lm_head.weight", "output.weight", "output_layer.weight"},
};

/// After "model.layers.N.", "layers.N." and "decoder.layers.N.".
constexpr std::array kLayerRows{
    NameRow{"input_layernorm.weight", "attention_norm.weight",
            "self_attention.linear_qkv.layer_norm_weight"},
    NameRow{"self_attn.q_proj.weight", "attention.wq.weight", ""},
    NameRow{"self_attn.k_proj.weight", "attention.wk.weight", ""},
    NameRow{"self_attn.v_proj.weight", "attention.wv.weight", ""},
    NameRow{"self_attn.q_proj.bias", "attention.wq.bias", ""},
    NameRow{"self_attn.k_proj.bias", "attention.wk.bias", ""},
    NameRow{"self_attn.v_proj.bias", "attention.wv.bias", ""},
    NameRow{"self_attn.o_proj.weight", "attention.wo.weight", "self_attention.linear_proj.weight"},
    NameRow{"self_attn.q_norm.weight", "attention.q_norm.weight",
            "self_attention.q_layernorm.weight"},
    NameRow{"self_attn.k_norm.weight", "attention.k_norm.weight",
            "self_attention.k_layernorm.weight"},
    NameRow{"mlp.gate_proj.weight", "feed_forward.w1.weight", ""},
    NameRow{"mlp.up_proj.weight", "feed_forward.w3.weight", ""},
    NameRow{"mlp.down_proj.weight", "feed_forward.w2.weight", "mlp.linear_fc2.weight"},
    NameRow{"mlp.gate.weight", "moe.router.gate.weight", "mlp.router.weight"},
    NameRow{"block_sparse_moe.gate.weight", "moe.router.gate.weight", "mlp.router.weight"},
};

/// One of Hugging Face's tensors, its name taken apart.
struct HfName {
  std::string full;
  std::int64_t layer = -1;  ///< -1: of no layer
  std::string rest;         ///< after the layer's number
  std::int64_t expert = -1;
  std::string projection;  ///< of an expert: "gate", "up" or "down"
};

/// A number and the dot after it, at the beginning; -1 if there is none.
std::int64_t take_number(std::string_view& text) {
  std::int64_t number = -1;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || stop == text.data() + text.size() || *stop != '.') return -1;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()) + 1);
  return number;
}

HfName taken_apart(const std::string& name) {
  constexpr std::string_view kLayers = "model.layers.";
  constexpr std::array<std::string_view, 2> kExperts{"mlp.experts.", "block_sparse_moe.experts."};
  HfName parts{.full = name, .rest = {}, .projection = {}};
  std::string_view rest = name;
  if (!rest.starts_with(kLayers)) return parts;
  rest.remove_prefix(kLayers.size());
  parts.layer = take_number(rest);
  parts.rest = rest;
  for (const std::string_view prefix : kExperts) {
    if (!rest.starts_with(prefix)) continue;
    rest.remove_prefix(prefix.size());
    parts.expert = take_number(rest);
    if (rest == "gate_proj.weight" || rest == "w1.weight") parts.projection = "gate";
    if (rest == "up_proj.weight" || rest == "w3.weight") parts.projection = "up";
    if (rest == "down_proj.weight" || rest == "w2.weight") parts.projection = "down";
  }
  return parts;
}

class StyleBuilder {
 public:
  StyleBuilder(const Model& model, NameStyle style)
      : shape_(model.shape), style_(style), shapes_(hf_shapes_of(model)) {}

  Result<std::map<std::string, StyledTensor>> build() {
    for (const auto& [name, shape] : shapes_)
      if (!add(taken_apart(name), shape))
        return fail(shown_name(name),
                    fmt::format("has no name in the style {}", to_string(style_)));
    for (auto& [name, tensor] : tensors_) std::ranges::sort(tensor.pieces, {}, &StyledPiece::begin);
    return std::move(tensors_);
  }

 private:
  using Sizes = std::vector<std::int64_t>;

  [[nodiscard]] bool is_megatron() const {
    return style_ == NameStyle::megatron || style_ == NameStyle::megatron_fsdp;
  }
  /// Layers of one kind are one tensor.
  [[nodiscard]] bool is_stacked() const {
    return style_ == NameStyle::megatron && (shape_.experts == 0 || shape_.dense_layers.empty());
  }

  /// Puts `count` elements of a tensor into another one, `shape` of which a layer has.
  void put(const HfName& hf, const std::string& rest, Sizes shape, std::int64_t hf_begin,
           std::int64_t begin, std::int64_t count) {
    std::string name = rest;
    if (hf.layer >= 0 && style_ == NameStyle::torchtitan)
      name = fmt::format("layers.{}.{}", hf.layer, rest);
    if (hf.layer >= 0 && is_megatron()) {
      if (is_stacked()) {
        begin += hf.layer * product_of(shape);
        shape.insert(shape.begin(), shape_.layers);
        name = fmt::format("decoder.layers.{}", rest);
      } else {
        name = fmt::format("decoder.layers.{}.{}", hf.layer, rest);
      }
    }
    StyledTensor& tensor = tensors_[name];
    tensor.shape = std::move(shape);
    tensor.pads_rows = is_megatron() && hf.layer < 0 && tensor.shape.front() == shape_.vocab;
    tensor.pieces.push_back({.hf = hf.full, .hf_begin = hf_begin, .begin = begin, .count = count});
  }

  void put_whole(const HfName& hf, const std::string& name, const Sizes& shape) {
    put(hf, name, shape, 0, 0, product_of(shape));
  }

  [[nodiscard]] bool add(const HfName& hf, const Sizes& shape) {
    if (style_ == NameStyle::hf) return put_named(hf, shape);
    if (hf.expert >= 0) return add_expert(hf, shape);
    if (hf.layer < 0) {
      const auto* row = std::ranges::find(kGlobalRows, std::string_view(hf.full), &NameRow::hf);
      if (row == kGlobalRows.end()) return false;
      put_whole(hf, std::string(is_megatron() ? row->mcore : row->titan), shape);
      return true;
    }
    if (add_norm(hf, shape)) return true;
    const auto* row = std::ranges::find(kLayerRows, std::string_view(hf.rest), &NameRow::hf);
    if (row == kLayerRows.end()) return false;
    if (style_ == NameStyle::torchtitan) return add_titan(hf, std::string(row->titan), shape);
    if (row->mcore.empty()) return add_fused(hf, shape);
    put_whole(hf, std::string(row->mcore), shape);
    return true;
  }

  [[nodiscard]] bool put_named(const HfName& hf, const Sizes& shape) {
    tensors_[hf.full] = {
        .shape = shape,
        .pieces = {{.hf = hf.full, .hf_begin = 0, .begin = 0, .count = product_of(shape)}}};
    return true;
  }

  /// Norms around attention and MLP, whose names depend on how many there are.
  [[nodiscard]] bool add_norm(const HfName& hf, const Sizes& shape) {
    const bool has_experts =
        shape_.experts > 0 && !std::ranges::binary_search(shape_.dense_layers, hf.layer);
    const std::string before_mlp =
        has_experts ? "pre_mlp_layernorm.weight" : "mlp.linear_fc1.layer_norm_weight";
    std::string name;
    if (shape_.output_norms) {
      if (!is_megatron()) return false;
      if (hf.rest == "post_attention_layernorm.weight")
        name = "self_attention.linear_proj.post_layernorm.weight";
      if (hf.rest == "pre_feedforward_layernorm.weight") name = before_mlp;
      if (hf.rest == "post_feedforward_layernorm.weight")
        name = "mlp.linear_fc2.post_layernorm.weight";
    } else if (hf.rest == "post_attention_layernorm.weight") {
      name = is_megatron() ? before_mlp : "ffn_norm.weight";
    }
    if (name.empty()) return false;
    put_whole(hf, name, shape);
    return true;
  }

  /// torchtitan's Llama rotates neighbouring elements, Hugging Face's the two halves of a head: row
  /// 2 i + j of a head there is row j d/2 + i here. With norms of queries and keys (Qwen3) it
  /// rotates halves too.
  [[nodiscard]] bool add_titan(const HfName& hf, const std::string& name, const Sizes& shape) {
    const bool is_query_or_key =
        hf.rest.find("q_proj") != std::string::npos || hf.rest.find("k_proj") != std::string::npos;
    if (!is_query_or_key || shape_.qk_norm || shape_.qkv_bias) {
      put_whole(hf, name, shape);
      return true;
    }
    const std::int64_t row = product_of(shape) / shape.front();
    const std::int64_t half = shape_.head_dim / 2;
    for (std::int64_t head = 0; head < shape.front() / shape_.head_dim; ++head)
      for (std::int64_t i = 0; i < half; ++i)
        for (std::int64_t j = 0; j < 2; ++j) {
          const std::int64_t first = head * shape_.head_dim;
          put(hf, name, shape, (first + j * half + i) * row, (first + 2 * i + j) * row, row);
        }
    return true;
  }

  /// Query, key and value by groups of a key-value head; gate above up.
  [[nodiscard]] bool add_fused(const HfName& hf, const Sizes& shape) {
    const std::int64_t row = product_of(shape) / shape.front();
    if (hf.rest.starts_with("mlp."))
      return add_gate_or_up(hf, "mlp.linear_fc1.weight", shape,
                            hf.rest == "mlp.up_proj.weight" ? "up" : "gate");
    if (shape_.value_head_dim() != shape_.head_dim) return false;
    const std::int64_t dim = shape_.head_dim;
    const std::int64_t queries = shape_.heads / shape_.kv_heads;
    const char part = hf.rest.at(std::string_view("self_attn.").size());
    Sizes whole = shape;
    whole.front() = (shape_.heads + 2 * shape_.kv_heads) * dim;
    const std::int64_t rows = part == 'q' ? queries * dim : dim;
    const std::int64_t before = part == 'q' ? 0 : part == 'k' ? queries * dim : (queries + 1) * dim;
    const std::string name = hf.rest.ends_with("bias") ? "self_attention.linear_qkv.bias"
                                                       : "self_attention.linear_qkv.weight";
    for (std::int64_t group = 0; group < shape_.kv_heads; ++group)
      put(hf, name, whole, group * rows * row, (group * (queries + 2) * dim + before) * row,
          rows * row);
    return true;
  }

  [[nodiscard]] bool add_gate_or_up(const HfName& hf, const std::string& name, const Sizes& shape,
                                    std::string_view projection) {
    const bool is_up = projection == "up";
    if (style_ == NameStyle::megatron_fsdp) {
      put_whole(hf, name + (is_up ? "_v" : "_w"), shape);
      return true;
    }
    Sizes both = shape;
    both.front() *= 2;
    put(hf, name, both, 0, is_up ? product_of(shape) : 0, product_of(shape));
    return true;
  }

  /// One expert's matrix: a tensor of its own, or one of all experts.
  [[nodiscard]] bool add_expert(const HfName& hf, const Sizes& shape) {
    if (hf.projection.empty()) return false;
    const std::int64_t elements = product_of(shape);
    const std::string fc = hf.projection == "down" ? "linear_fc2" : "linear_fc1";
    if (style_ == NameStyle::torchtitan) {
      const char* name = hf.projection == "gate" ? "w1" : hf.projection == "up" ? "w3" : "w2";
      put(hf, fmt::format("moe.experts.{}", name), {shape_.experts, shape[0], shape[1]}, 0,
          hf.expert * elements, elements);
      return true;
    }
    if (style_ == NameStyle::megatron_fsdp) {
      const std::string name = fmt::format("mlp.experts.{}.weight{}", fc, hf.expert);
      if (hf.projection != "down") return add_gate_or_up(hf, name, shape, hf.projection);
      put_whole(hf, name, shape);
      return true;
    }
    const bool is_down = hf.projection == "down";
    const std::int64_t of_expert = is_down ? elements : 2 * elements;
    put(hf, fmt::format("mlp.experts.experts.{}.weight", fc),
        {shape_.experts, is_down ? shape[0] : 2 * shape[0], shape[1]}, 0,
        hf.expert * of_expert + (hf.projection == "up" ? elements : 0), elements);
    return true;
  }

  const ModelShape& shape_;
  NameStyle style_;
  std::map<std::string, Sizes> shapes_;
  std::map<std::string, StyledTensor> tensors_;
};

void replace_in(std::string& text, std::string_view from, std::string_view to) {
  if (const std::size_t at = text.find(from); at != std::string::npos)
    text.replace(at, from.size(), to);
}

/// The other name that Megatron-Core gives a tensor: with modules that are not fused with their
/// norm, and with experts one by one.
std::string alias_of(const std::string& name) {
  std::string alias = name;
  replace_in(alias, "self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight");
  replace_in(alias, "mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight");
  for (const std::string_view fc : {"linear_fc1", "linear_fc2"}) {
    const std::string grouped = fmt::format("experts.{}.weight", fc);
    const std::size_t at = alias.find(grouped);
    if (at == std::string::npos) continue;
    std::string rest = alias.substr(at + grouped.size());
    const std::size_t digits = rest.find_first_not_of("0123456789");
    const std::string number = rest.substr(0, digits);
    if (number.empty()) continue;
    rest = digits == std::string::npos ? "" : rest.substr(digits);
    alias = fmt::format("{}experts.local_experts.{}.{}.weight{}", alias.substr(0, at), number, fc,
                        rest);
  }
  return alias;
}

using ByParameter = std::map<std::string_view, const NamedTensor*>;

const NamedTensor* find_styled(const ByParameter& by_parameter, const std::string& name) {
  auto found = by_parameter.find(name);
  if (found == by_parameter.end()) found = by_parameter.find(alias_of(name));
  return found == by_parameter.end() ? nullptr : found->second;
}

/// Whether a tensor has its style's shape, or more rows where it may.
bool fits(const std::vector<std::int64_t>& shape, const StyledTensor& styled) {
  if (shape == styled.shape) return true;
  return styled.pads_rows && shape.size() == styled.shape.size() &&
         shape.front() > styled.shape.front() &&
         std::equal(shape.begin() + 1, shape.end(), styled.shape.begin() + 1);
}

/// One kind of tensors, weights or a moment, as Hugging Face's.
Result<void> add_hf_tensors(const ByParameter& by_parameter, const std::string& state,
                            const std::map<std::string, StyledTensor>& styled,
                            const std::map<std::string, std::vector<std::int64_t>>& shapes,
                            std::vector<MappedTensor>& all) {
  std::map<std::string, MappedTensor> mapped;
  std::set<std::string_view> known;
  for (const auto& [name, tensor] : styled) {
    const NamedTensor* source = find_styled(by_parameter, name);
    if (source == nullptr) continue;
    known.insert(source->parameter);
    if (!fits(source->tensor->shape, tensor))
      return fail(shown_name(source->tensor->name),
                  fmt::format("has shape {}, the model's has {}",
                              shown_shape(source->tensor->shape), shown_shape(tensor.shape)));
    for (const StyledPiece& piece : tensor.pieces) {
      MappedTensor& hf = mapped[piece.hf];
      hf.name = piece.hf;
      hf.state = state;
      hf.type = source->tensor->type;
      hf.shape = shapes.at(piece.hf);
      hf.copies.push_back({.source = source->tensor,
                           .source_begin = piece.begin,
                           .begin = piece.hf_begin,
                           .count = piece.count});
    }
  }
  for (const auto& [parameter, named] : by_parameter)
    if (!known.contains(parameter))
      mapped[named->parameter] = {
          .name = named->parameter,
          .state = state,
          .type = named->tensor->type,
          .shape = named->tensor->shape,
          .copies = {{.source = named->tensor, .count = named->tensor->elements()}}};
  for (auto& [name, tensor] : mapped) {
    std::ranges::sort(tensor.copies, {}, &ElementCopy::begin);
    all.push_back(std::move(tensor));
  }
  return {};
}

}  // namespace

std::map<std::string, std::vector<std::int64_t>> hf_shapes_of(const Model& model) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.parts.empty()) {
      auto shape = parameter.shape;
      if (parameter.transposed) std::swap(shape.at(0), shape.at(1));
      shapes[parameter.name] = shape;
      continue;
    }
    for (const ParameterPart& part : parameter.parts) {
      auto shape = parameter.shape;
      shape.front() = part.rows;
      if (parameter.transposed) std::swap(shape.at(0), shape.at(1));
      shapes[part.name] = shape;
    }
  }
  return shapes;
}

Result<std::map<std::string, StyledTensor>> styled_tensors(const Model& model, NameStyle style) {
  return StyleBuilder(model, style).build();
}

NameStyle style_of(const std::vector<NamedTensor>& named, const Model& model) {
  ByParameter by_parameter;
  for (const NamedTensor& one : named)
    if (one.is_weight()) by_parameter[one.parameter] = &one;
  NameStyle best = NameStyle::hf;
  std::int64_t most = 0;
  for (const NameStyle style :
       {NameStyle::hf, NameStyle::torchtitan, NameStyle::megatron_fsdp, NameStyle::megatron}) {
    const auto styled = styled_tensors(model, style);
    if (!styled) continue;
    const auto found = std::ranges::count_if(*styled, [&](const auto& entry) {
      return find_styled(by_parameter, entry.first) != nullptr;
    });
    if (found > most) {
      most = found;
      best = style;
    }
  }
  return best;
}

Result<std::vector<MappedTensor>> to_hf_names(const std::vector<NamedTensor>& named,
                                              const Model& model) {
  MFSDP_LET(styled, styled_tensors(model, style_of(named, model)));
  const auto shapes = hf_shapes_of(model);
  std::map<std::string, ByParameter> by_state;
  for (const NamedTensor& one : named)
    if (!one.is_other && one.state != "step") by_state[one.state][one.parameter] = &one;
  std::vector<MappedTensor> all;
  for (const auto& [state, by_parameter] : by_state)
    MFSDP_TRY(add_hf_tensors(by_parameter, state, styled, shapes, all));
  return all;
}

Result<std::vector<MappedTensor>> to_style(const std::vector<MappedTensor>& hf, const Model& model,
                                           NameStyle style) {
  MFSDP_LET(styled, styled_tensors(model, style));
  std::map<std::string, std::map<std::string_view, const MappedTensor*>> by_state;
  for (const MappedTensor& tensor : hf) by_state[tensor.state][tensor.name] = &tensor;
  std::vector<MappedTensor> all;
  for (const auto& [state, tensors] : by_state) {
    std::set<std::string_view> used;
    for (const auto& [name, target] : styled) {
      MappedTensor made{.name = name, .state = state, .shape = target.shape, .copies = {}};
      for (const StyledPiece& piece : target.pieces) {
        const auto found = tensors.find(piece.hf);
        if (found == tensors.end())
          return fail(shown_name(piece.hf),
                      state.empty() ? "is missing; the model has it"
                                    : fmt::format("has no {}; other parameters do", state));
        used.insert(found->first);
        made.type = found->second->type;
        for (const ElementCopy& copy : found->second->copies) {
          const std::int64_t begin = std::max(copy.begin, piece.hf_begin);
          const std::int64_t end = std::min(copy.begin + copy.count, piece.hf_begin + piece.count);
          if (begin < end)
            made.copies.push_back({.source = copy.source,
                                   .source_begin = copy.source_begin + begin - copy.begin,
                                   .begin = piece.begin + begin - piece.hf_begin,
                                   .count = end - begin});
        }
      }
      all.push_back(std::move(made));
    }
    for (const auto& [name, tensor] : tensors)
      if (!used.contains(name) && name != "lm_head.weight")
        return fail(shown_name(name), "is no parameter of the model");
  }
  return all;
}

}  // namespace mfsdp
