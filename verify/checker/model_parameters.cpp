// The units and parameters that a plan must have: those of its configuration's model, by Hugging
// Face's names.
#include <cstdlib>

#include "verify/checker/model.hpp"

namespace mfsdp::checker {

void Model::check_units(const PlanView& view) const {
  const Json& units = view.json.at("units");
  const Int last = layers_ + (tied_ ? 0 : 1);
  if (std::ssize(units) != last + 1)
    refuse("units: the plan has {}, the model {}", units.size(), last + 1);
  std::set<Int> seen;
  for (const Json& unit : units) {
    const Int p = unit.at("position");
    const char* kind =
        p == 0 ? (tied_ ? "embedding_and_head" : "embedding") : (p <= layers_ ? "block" : "head");
    if (p > last || !seen.insert(p).second || unit.at("kind") != kind)
      refuse("units: number {} is not the model's {}", p, kind);
  }
}

Model::Parameters Model::parameters_of(Int position) const {
  Parameters of;
  const auto vector = [&](const char* role, const std::string& name, Int elements) {
    of[role] = {name, {elements}};
  };
  const bool ends = position == (tied_ ? 0 : layers_ + 1);
  if (gpt2_names_) {
    if (position == 0) of["embedding"] = {"transformer.wte.weight", {vocab_, hidden_}};
    if (position == 0) of["position_embedding"] = {"transformer.wpe.weight", {positions_, hidden_}};
    if (ends) vector("final_norm", "transformer.ln_f.weight", hidden_);
    if (ends) vector("final_norm_bias", "transformer.ln_f.bias", hidden_);
  } else {
    if (position == 0) of["embedding"] = {"model.embed_tokens.weight", {vocab_, hidden_}};
    if (ends) vector("final_norm", "model.norm.weight", hidden_);
  }
  if (position == layers_ + 1) of["head"] = {"lm_head.weight", {vocab_, hidden_}};
  if (position == 0 || position > layers_) return of;
  const Int query = heads_ * head_dim_;
  const Int rows = (heads_ + 2 * kv_heads_) * head_dim_;
  if (gpt2_names_) {
    const std::string block = fmt::format("transformer.h.{}.", position - 1);
    vector("input_norm", block + "ln_1.weight", hidden_);
    vector("input_norm_bias", block + "ln_1.bias", hidden_);
    of["qkv"] = {block + "attn.c_attn.weight", {rows, hidden_}};
    if (bias_) vector("qkv_bias", block + "attn.c_attn.bias", rows);
    of["attention_out"] = {block + "attn.c_proj.weight", {hidden_, query}};
    vector("attention_out_bias", block + "attn.c_proj.bias", hidden_);
    vector("post_norm", block + "ln_2.weight", hidden_);
    vector("post_norm_bias", block + "ln_2.bias", hidden_);
    of["gate_up"] = {block + "mlp.c_fc.weight", {inner_, hidden_}};
    vector("gate_up_bias", block + "mlp.c_fc.bias", inner_);
    of["down"] = {block + "mlp.c_proj.weight", {hidden_, inner_}};
    vector("down_bias", block + "mlp.c_proj.bias", hidden_);
    return of;
  }
  const std::string block = fmt::format("model.layers.{}.", position - 1);
  const std::string attention = block + "self_attn.";
  if (latent_)
    add_parameters_of_latent(
        of, attention,
        index_heads_ != 0 && std::ranges::find(shared_index_, position - 1) == shared_index_.end());
  else
    of["qkv"] = {attention + "qkv_proj.weight", {rows, hidden_}};
  if (bias_) vector("qkv_bias", attention + "qkv_proj.bias", rows);
  if (qk_norm_) {
    vector("q_norm", attention + "q_norm.weight", whole_norms_ ? query : head_dim_);
    vector("k_norm", attention + "k_norm.weight", whole_norms_ ? kv_heads_ * head_dim_ : head_dim_);
  }
  of["attention_out"] = {attention + "o_proj.weight", {hidden_, heads_ * value_dim_}};
  if (biases_) vector("attention_out_bias", attention + "o_proj.bias", hidden_);
  if (sinks_) vector("sinks", attention + "sinks", heads_);
  if (input_norms_) {
    const char* before_mlp = output_norms_ ? "pre_feedforward" : "post_attention";
    vector("input_norm", block + "input_layernorm.weight", hidden_);
    vector("post_norm", fmt::format("{}{}_layernorm.weight", block, before_mlp), hidden_);
  }
  if (output_norms_) {
    vector("attention_output_norm", block + "post_attention_layernorm.weight", hidden_);
    vector("mlp_output_norm", block + "post_feedforward_layernorm.weight", hidden_);
  }
  add_parameters_of_adapters(of, block);
  if (has_experts(position)) {
    add_parameters_of_experts(of, block);
    return of;
  }
  of["gate_up"] = {block + "mlp.gate_up_proj.weight", {2 * inner_, hidden_}};
  of["down"] = {block + "mlp.down_proj.weight", {hidden_, inner_}};
  return of;
}

namespace {

using Texts = std::vector<std::string>;

bool has_part(const std::string& name, const Texts& parts) {
  return std::ranges::any_of(
      parts, [&](const std::string& part) { return name.find(part) != std::string::npos; });
}

/// Whether a parameter has the rate that "TEXT=X" asks for where its name has TEXT: X as a
/// fraction, or none stated.
bool has_its_rate(const Json& entry, const Texts& scales) {
  Texts asked;  // the X
  for (const std::string& scale : scales) {
    const std::size_t equals = scale.find('=');
    if (equals == std::string::npos)
      refuse("config: '{}' is not a scale of the learning rate", scale);
    if (has_part(entry.at("name"), {scale.substr(0, equals)}))
      asked.push_back(scale.substr(equals + 1));
  }
  if (asked.empty() || !entry.contains("rate")) return asked.empty() && !entry.contains("rate");
  const double wanted = std::strtod(asked[0].c_str(), nullptr);
  const Json& rate = entry.at("rate");
  return asked.size() == 1 && rate.at("num").get<double>() / rate.at("den").get<double>() == wanted;
}

}  // namespace

void Model::check_parameters(const PlanView& view) const {
  const Texts frozen = config_.value("frozen", Texts{});
  const Texts no_decay = config_.value("no_decay", Texts{});
  const Texts scales = config_.value("lr_scale", Texts{});
  Int block = 1;  // where parameters begin
  for (const auto& [name, kept] : kept_states(config_, config_.at("optimizer")))
    block = std::max(block, kept.block);
  std::map<Int, std::map<std::string, std::pair<std::string, Shape>>> left;
  for (Int unit = 0; unit < std::ssize(view.json.at("units")); ++unit)
    left[unit] = parameters_of(unit);
  for (std::size_t g = 0; g < view.groups.size(); ++g) {
    const Group& group = view.groups[g];
    const Json& json = view.json.at("groups")[g];
    if (json.at("dtype") != config_.at(group.fp8 ? "main_dtype" : "param_dtype"))
      refuse("group {}: dtype is not as configured", g);
    for (const Json& entry : json.at("parameters")) {
      const std::string name = entry.at("name");
      const bool trains = !has_part(name, frozen) && !name.ends_with(".e_score_correction_bias") &&
                          name.find("self_attn.indexer.") == std::string::npos &&
                          (rank_ == 0 || name.find(".lora_") != std::string::npos);
      auto wanted = left[group.unit].extract(entry.at("role").get<std::string>());
      if (group.of_experts && !wanted.empty()) wanted.mapped().second.at(0) /= expert_ranks_;
      if (group.tp_dim && !wanted.empty()) {
        Shape& shape = wanted.mapped().second;
        const auto dim = static_cast<Index>(*group.tp_dim);
        if (dim >= shape.size() || shape[dim] % tensor_ranks_ != 0)
          refuse("group {}: ranks of tp do not divide parameter {}", g, name);
        shape[dim] /= tensor_ranks_;
      }
      const bool decays = entry.at("shape").size() > 1 && !has_part(name, no_decay);
      if (wanted.empty() || wanted.mapped() != std::pair(name, entry.at("shape").get<Shape>()) ||
          entry.value("decay", false) != decays || trains != group.trains ||
          !has_its_rate(entry, scales) || (trains && entry.at("offset").get<Int>() % block != 0))
        refuse("group {}: parameter {} differs from the model's", g, name);
    }
  }
  for (const auto& [unit, missing] : left)
    if (!missing.empty()) refuse("unit {}: lacks parameter {}", unit, missing.begin()->first);
}

}  // namespace mfsdp::checker
