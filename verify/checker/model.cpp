#include "verify/checker/model.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>

namespace mfsdp::checker {
namespace {

using Shape = std::vector<Int>;

/// "-mid" is of the owner before, "+input" of the next.
Named named(const std::string& text) {
  if (text.starts_with('-')) return {text.substr(1), -1};
  if (text.starts_with('+')) return {text.substr(1), 1};
  return {text, 0};
}

constexpr Int kPartialRows = 256;              ///< at most, of a norm's weight gradient
constexpr Int kSumScratch = 1024 * 2 * 8 + 8;  ///< bytes through which a grid adds two numbers
constexpr Int kAttentionScratch = 256;

Int round_up(Int value, Int multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

Model::Model(const PlanView& view)
    : config_(view.json.at("config")),
      seq_(config_.at("seq_len")),
      batch_(config_.at("micro_batch")) {
  const Json& model = config_.at("model");
  layers_ = model.at("layers");
  hidden_ = model.at("hidden");
  inner_ = model.at("intermediate");
  vocab_ = model.at("vocab");
  heads_ = model.at("heads");
  kv_heads_ = model.at("kv_heads");
  head_dim_ = model.at("head_dim");
  tied_ = model.value("tied_embeddings", false);
  bias_ = model.value("qkv_bias", false);
  qk_norm_ = model.value("qk_norm", false);
  output_norms_ = model.value("output_norms", false);
  centred_ = model.value("zero_centered_norms", false);
  gated_ = model.value("activation", "silu") == "silu" ? "swiglu" : "geglu";
  turned_ = model.value("rotary_dim", head_dim_);
  sliding_ = model.value("sliding_layers", sliding_);
  two_tables_ = model.contains("local_rope_theta");
  window_ = model.value("sliding_window", Int{0});
  if (window_ >= seq_) window_ = 0;
  exact_ = config_.value("exact_sums", false);
  compute_ = config_.at("param_dtype");
  tokens = times(seq_, batch_);
  rope_tables = {{"rope_table", times(times(seq_, turned_), 4)}};
  if (two_tables_) rope_tables["local_rope_table"] = rope_tables.at("rope_table");
  microbatches = config_.at("microbatches");
  clip = config_.at("clip");
  statistic = compute_ == "fp64" ? "fp64" : "fp32";
  main_weights = config_.at("main_dtype") != compute_;
  states = kept_states(config_);
  for (const auto& [axis, ranks] : view.mesh) {
    world_ = times(world_, ranks);
    if (axis == "dp_outer") outer_ = ranks;
  }
  if (model.at("family") != "llama" || tokens < 1 || layers_ < 1 || heads_ < 1 || kv_heads_ < 1)
    refuse("config: no model that this checker knows");
  read_adapters();
  check_units(view);
  check_parameters(view);
  add_ends();
  add_norms();
  add_attention();
  add_rotation();
  add_mlp();
}

// ---- units and parameters -----------------------------------------------------------------------

void Model::check_units(const PlanView& view) const {
  const Json& units = view.json.at("units");
  const Int last = layers_ + (tied_ ? 0 : 1);
  if (std::ssize(units) != last + 1) refuse("units: {}, of the model {}", units.size(), last + 1);
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
  if (position == 0) of["embedding"] = {"model.embed_tokens.weight", {vocab_, hidden_}};
  if (position == (tied_ ? 0 : layers_ + 1)) of["final_norm"] = {"model.norm.weight", {hidden_}};
  if (position == layers_ + 1) of["head"] = {"lm_head.weight", {vocab_, hidden_}};
  if (position == 0 || position > layers_) return of;
  const std::string block = fmt::format("model.layers.{}.", position - 1);
  const std::string attention = block + "self_attn.";
  const Int query = heads_ * head_dim_;
  const Int rows = (heads_ + 2 * kv_heads_) * head_dim_;
  of["input_norm"] = {block + "input_layernorm.weight", {hidden_}};
  of["qkv"] = {attention + "qkv_proj.weight", {rows, hidden_}};
  if (bias_) of["qkv_bias"] = {attention + "qkv_proj.bias", {rows}};
  if (qk_norm_) of["q_norm"] = {attention + "q_norm.weight", {head_dim_}};
  if (qk_norm_) of["k_norm"] = {attention + "k_norm.weight", {head_dim_}};
  of["attention_out"] = {attention + "o_proj.weight", {hidden_, query}};
  const char* before_mlp = output_norms_ ? "pre_feedforward" : "post_attention";
  of["post_norm"] = {fmt::format("{}{}_layernorm.weight", block, before_mlp), {hidden_}};
  if (output_norms_) {
    of["attention_output_norm"] = {block + "post_attention_layernorm.weight", {hidden_}};
    of["mlp_output_norm"] = {block + "post_feedforward_layernorm.weight", {hidden_}};
  }
  of["gate_up"] = {block + "mlp.gate_up_proj.weight", {2 * inner_, hidden_}};
  of["down"] = {block + "mlp.down_proj.weight", {hidden_, inner_}};
  add_parameters_of_adapters(of, block);
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
    if (equals == std::string::npos) refuse("config: '{}' is no scale of a rate", scale);
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
  for (const auto& [name, kept] : states) block = std::max(block, kept.block);
  std::map<Int, std::map<std::string, std::pair<std::string, Shape>>> left;
  for (Int unit = 0; unit < std::ssize(view.json.at("units")); ++unit)
    left[unit] = parameters_of(unit);
  for (std::size_t g = 0; g < view.groups.size(); ++g) {
    const Group& group = view.groups[g];
    const Json& json = view.json.at("groups")[g];
    if (json.at("dtype") != compute_ ||
        (group.trains && json.at("optimizer") != config_.at("optimizer")))
      refuse("group {}: dtype or optimizer is not as configured", g);
    for (const Json& entry : json.at("parameters")) {
      const std::string name = entry.at("name");
      const bool trains =
          !has_part(name, frozen) && (rank_ == 0 || name.find(".lora_") != std::string::npos);
      const auto wanted = left[group.unit].extract(entry.at("role").get<std::string>());
      const bool decays = entry.at("shape").size() > 1 && !has_part(name, no_decay);
      if (wanted.empty() || wanted.mapped() != std::pair(name, entry.at("shape").get<Shape>()) ||
          entry.value("decay", false) != decays || trains != group.trains ||
          !has_its_rate(entry, scales) || (trains && entry.at("offset").get<Int>() % block != 0))
        refuse("group {}: parameter {} is not the model's", g, name);
    }
  }
  for (const auto& [unit, missing] : left)
    if (!missing.empty()) refuse("unit {}: lacks parameter {}", unit, missing.begin()->first);
}

// ---- steps --------------------------------------------------------------------------------------

namespace {

Flow reads(std::string role, std::string dtype, Shape shape, const std::string& value,
           Int column = 0) {
  return {.role = std::move(role),
          .access = "read",
          .dtype = std::move(dtype),
          .shape = std::move(shape),
          .reads = named(value),
          .column = column};
}
Flow makes(std::string role, std::string dtype, Shape shape, const std::string& value) {
  return {.role = std::move(role),
          .access = "write",
          .dtype = std::move(dtype),
          .shape = std::move(shape),
          .makes = named(value)};
}
/// One value over another.
Flow turns(std::string role, std::string dtype, Shape shape, const std::string& from,
           const std::string& to, std::string access = "read_write") {
  return {.role = std::move(role),
          .access = std::move(access),
          .dtype = std::move(dtype),
          .shape = std::move(shape),
          .reads = named(from),
          .makes = named(to)};
}
Flow scratch(std::string role, std::string dtype, Shape shape) {
  return {.role = std::move(role),
          .access = "scratch",
          .dtype = std::move(dtype),
          .shape = std::move(shape)};
}
/// Heads of tokens, side by side in rows.
Flow in_rows(Flow flow, Int row, Int column = 0) {
  flow.row = row;
  flow.column = column;
  return flow;
}

}  // namespace

Flow Model::weight(const std::string& parameter, Shape shape) const {
  return {.role = "weight",
          .access = "read",
          .dtype = compute_,
          .shape = std::move(shape),
          .parameter = parameter};
}

Flow Model::gradient(const std::string& parameter, Shape shape) {
  return {.role = "weight_grad",
          .access = "adds",
          .dtype = "",
          .shape = std::move(shape),
          .parameter = parameter};
}

void Model::add(Step step) {
  for (Flow& flow : step.flows) {
    if (tied_ && flow.parameter == "head") flow.parameter = "embedding";
    if (flow.access == "adds" && flow.role == "weight_grad") ++gradients_[flow.parameter];
  }
  const std::string product = step.kernel == "gemm" ? fmt::format(" {}", step.product) : "";
  // With more attributes first: what a kernel has beside those of its step is refused at once.
  auto& steps = steps_[step.kernel + product];
  const auto at = step.attributes.contains("scale") ? steps.begin() : steps.end();
  steps.insert(at, std::move(step));
}

const std::vector<Step>& Model::steps(const std::string& kernel) const {
  static const std::vector<Step> none;
  const auto found = steps_.find(kernel);
  return found == steps_.end() ? none : found->second;
}

Place Model::place_of(Int owner) const {
  return owner == 0 ? Place::embedding : owner <= layers_ ? Place::block : Place::head;
}

bool Model::slides(Int owner) const {
  return std::ranges::find(sliding_, owner - 1) != sliding_.end();
}

bool Model::owns(Int owner, const std::string& role, Int unit) const {
  const bool shared = tied_ && (role == "embedding" || role == "final_norm");
  return unit == (shared ? 0 : owner);
}

/// The three products of a linear layer: out = in W^T; d_in = d_out W; d_W = d_out^T in.
void Model::add_product(const std::string& parameter, Place place, Int outputs, Int inputs,
                        const std::array<const char*, 4>& values) {
  const auto& [in, out, d_out, d_in] = values;
  const bool chunk = place == Place::head;
  const Int rows = chunk ? kRows : tokens;
  const Shape matrix{outputs, inputs};
  const auto step = [&](Int product, std::vector<Flow> flows) {
    Step made{.kernel = "gemm",
              .product = product,
              .place = place,
              .attributes = {{"k", inputs}, {"kind", product}, {"m", rows}, {"n", outputs}},
              .flows = std::move(flows),
              .chunk = chunk,
              .least_scratch = 1};
    if (product != 2) made.attributes["beta"] = 0;
    add(std::move(made));
  };
  std::vector<Flow> forward{
      reads("input", compute_, {rows, inputs}, in), weight(parameter, matrix),
      makes("output", compute_, {rows, outputs}, product_without_adapters(parameter, out))};
  if (parameter == "qkv" && bias_) forward.push_back(weight("qkv_bias", {outputs}));
  step(0, std::move(forward));
  step(1, {reads("d_output", compute_, {rows, outputs}, d_out), weight(parameter, matrix),
           makes("d_input", compute_, {rows, inputs}, gradient_without_adapters(parameter, d_in))});
  step(2, {reads("d_output", compute_, {rows, outputs}, d_out),
           reads("input", compute_, {rows, inputs}, in), gradient(parameter, matrix)});
  add_adapters(parameter, outputs, values);
}

/// As a number of the compute dtype: that many bits of the root, rounded to the nearest.
Json Model::root_of_hidden() const {
  static const std::map<std::string, int> bits{
      {"bf16", 8}, {"fp16", 11}, {"fp32", 24}, {"fp64", 53}};
  double root = std::sqrt(static_cast<double>(hidden_));
  const double least = std::ldexp(1.0, bits.at(compute_) - 1);
  Int den = 1, times_two = 1;
  for (; root < least; root *= 2) den *= 2;
  for (; root >= 2 * least; root /= 2) times_two *= 2;
  Int num = std::llrint(root) * times_two;
  for (; den > 1 && num % 2 == 0; num /= 2) den /= 2;
  return den == 1 ? Json(num) : Json{{"num", num}, {"den", den}};
}

/// Where a microbatch begins and ends.
void Model::add_ends() {
  const Shape rows{tokens, hidden_};
  const Shape table{vocab_, hidden_};
  std::map<std::string, Json> lookup{{"cols", hidden_}, {"rows", tokens}};
  if (config_.at("model").value("scaled_embedding", false)) lookup["scale"] = root_of_hidden();
  add({.kernel = "embedding_forward",
       .place = Place::embedding,
       .attributes = lookup,
       .flows = {reads("tokens", "int32", {tokens}, "tokens"), weight("embedding", table),
                 makes("output", compute_, rows, "+input")}});
  add({.kernel = "embedding_backward",
       .place = Place::embedding,
       .attributes = lookup,
       .flows = {reads("tokens", "int32", {tokens}, "tokens"),
                 reads("d_output", compute_, rows, "d_output"),
                 scratch("token_order", "uint8", {24 * tokens}), gradient("embedding", table)}});
  add_product("head", Place::head, vocab_, hidden_, {"normed", "logits", "d_logits", "d_normed"});
  const Shape logits{kRows, vocab_};
  std::map<std::string, Json> losses{{"cols", vocab_}, {"rows", kRows}};
  if (const Json& model = config_.at("model"); model.contains("logit_cap"))
    losses["logit_cap"] = model.at("logit_cap");
  for (const bool trains : {true, false})
    add({.kernel = trains ? "cross_entropy" : "cross_entropy_loss",
         .place = Place::head,
         .attributes = losses,
         .flows = {trains ? turns("logits", compute_, logits, "logits", "d_logits")
                          : reads("logits", compute_, logits, "logits"),
                   reads("labels", "int32", {kRows}, "tokens", tokens),
                   turns("loss_sums", statistic, {2}, "", "", "adds")},
         .chunk = true,
         .least_scratch = kSumScratch});
}

/// With what the model's norms have beside.
std::map<std::string, Json> Model::norm_sizes(std::map<std::string, Json> sizes) const {
  if (centred_) sizes["zero_centered"] = 1;
  return sizes;
}

void Model::add_norms() {
  const Shape rows{tokens, hidden_};
  const Json epsilon = config_.at("model").at("rms_norm_eps");
  const Int partial_rows = std::min(tokens, kPartialRows);
  const auto forward = [&](const char* parameter, Place place, const char* residual,
                           const char* delta, const char* sum, const char* normed,
                           const char* rstd) {
    Step step{.kernel = "rms_norm_forward",
              .place = place,
              .attributes = norm_sizes({{"cols", hidden_}, {"epsilon", epsilon}, {"rows", tokens}}),
              .flows = {reads("residual", compute_, rows, residual),
                        makes("normed", compute_, rows, normed),
                        makes("rstd", statistic, {tokens}, rstd), weight(parameter, {hidden_})}};
    if (*delta != 0) step.flows.push_back(reads("delta", compute_, rows, delta));
    if (*sum != 0) step.flows.push_back(makes("residual_out", compute_, rows, sum));
    add(std::move(step));
  };
  if (output_norms_) {
    forward("attention_output_norm", Place::block, "raw_attention_out", "", "", "attention_out",
            "attention_out_rstd");
    forward("mlp_output_norm", Place::block, "raw_mlp_out", "", "", "mlp_out", "mlp_out_rstd");
  }
  forward("input_norm", Place::block, "input", "", "", "normed1", "rstd1");
  forward("input_norm", Place::block, "-mid", "-mlp_out", "input", "normed1", "rstd1");
  forward("post_norm", Place::block, "input", "attention_out", "mid", "normed2", "rstd2");
  forward("final_norm", Place::head, "-mid", "-mlp_out", "input", "normed", "rstd");

  const auto weight_gradient = [&](const char* parameter, Place place, const char* partials,
                                   Int cols, Int column) {
    add({.kernel = "norm_weight_grad",
         .place = place,
         .attributes = {{"cols", cols}, {"rows", partial_rows}},
         .flows = {reads("partials", statistic, {partial_rows, cols}, partials, column),
                   gradient(parameter, {cols})}});
  };
  const auto backward = [&](const char* parameter, Place place, const char* d_normed,
                            const char* normed, const char* input, const char* rstd,
                            const char* d_after, const char* d_before, const char* partials) {
    const bool adds = *d_after != 0;
    add({.kernel = "rms_norm_backward",
         .place = place,
         .attributes = norm_sizes({{"beta", adds ? 1 : 0}, {"cols", hidden_}, {"rows", tokens}}),
         .flows = {*normed == 0 ? reads("d_normed", compute_, rows, d_normed)
                                : turns("d_normed", compute_, rows, d_normed, normed, "may"),
                   reads("input", compute_, rows, input), reads("rstd", statistic, {tokens}, rstd),
                   turns("d_residual", compute_, rows, d_after, d_before, "adds"),
                   makes("partials", statistic, {partial_rows, hidden_}, partials),
                   weight(parameter, {hidden_})}});
    weight_gradient(parameter, place, partials, hidden_, 0);
  };
  backward("input_norm", Place::block, "d_normed1", "normed1", "input", "rstd1", "d_mid",
           "-d_output", "partials1");
  backward("post_norm", Place::block, "d_normed2", "normed2", "mid", "rstd2", "d_output", "d_mid",
           "partials2");
  backward("final_norm", Place::head, "d_normed", "normed", "input", "rstd", "", "-d_output",
           "partials");
  // The gradient of the residual stays: it goes on beside what was added.
  if (output_norms_) {
    backward("attention_output_norm", Place::block, "d_mid", "", "raw_attention_out",
             "attention_out_rstd", "", "d_raw_attention_out", "attention_out_partials");
    backward("mlp_output_norm", Place::block, "d_output", "", "raw_mlp_out", "mlp_out_rstd", "",
             "d_raw_mlp_out", "mlp_out_partials");
  }
  if (!qk_norm_) return;
  weight_gradient("q_norm", Place::block, "qk_partials", head_dim_, 0);
  weight_gradient("k_norm", Place::block, "qk_partials", head_dim_, partial_rows * head_dim_);
}

/// Query, key and value: query and key rotated, in rows of their own or beside the value.
std::vector<Flow> Model::heads(const std::string& rotated, Int row) const {
  const auto view = [&](const char* role, Int count, const std::string& value, Int width,
                        Int column) {
    return in_rows(reads(role, compute_, {batch_, count, seq_, head_dim_}, value), width, column);
  };
  const Int query = heads_ * head_dim_;
  const Int query_key = (heads_ + kv_heads_) * head_dim_;
  const Int all = query_key + kv_heads_ * head_dim_;
  return {view("query", heads_, rotated, row, 0), view("key", kv_heads_, rotated, row, query),
          view("value", kv_heads_, qk_norm_ ? "qkv" : rotated, all, query_key)};
}

void Model::add_attention() {
  const Int query = heads_ * head_dim_;
  const Int query_key = (heads_ + kv_heads_) * head_dim_;
  const Int all = query_key + kv_heads_ * head_dim_;
  std::map<std::string, Json> sizes{
      {"batch", batch_},       {"deterministic", config_.value("deterministic", false) ? 1 : 0},
      {"head_dim", head_dim_}, {"heads", heads_},
      {"kv_heads", kv_heads_}, {"seq", seq_}};
  add_product("qkv", Place::block, all, hidden_, {"normed1", "qkv", "d_qkv", "d_normed1"});
  if (bias_)
    add({.kernel = "bias_grad",
         .attributes = {{"cols", all}, {"rows", tokens}},
         .flows = {reads("d_output", compute_, {tokens, all}, "d_qkv"),
                   scratch("partials", statistic, {std::min(tokens, kPartialRows), all}),
                   gradient("qkv_bias", {all})}});
  if (output_norms_)
    add_product("attention_out", Place::block, hidden_, query,
                {"attention", "raw_attention_out", "d_raw_attention_out", "d_attention"});
  else
    add_product("attention_out", Place::block, hidden_, query,
                {"attention", "attention_out", "d_mid", "d_attention"});
  for (const char* name : {"query_scalar", "score_cap"})
    if (const Json& model = config_.at("model"); model.contains(name)) sizes[name] = model.at(name);
  if (window_ == 0) return add_attention_of(sizes, {});
  // With more attributes first: what a kernel has beside those of its step is refused at once.
  std::map<std::string, Json> sliding = sizes;
  sliding["window"] = window_;
  add_attention_of(sliding, true);
  add_attention_of(sizes, false);
}

void Model::add_attention_of(const std::map<std::string, Json>& sizes, std::optional<bool> slides) {
  const Int query = heads_ * head_dim_;
  const Int query_key = (heads_ + kv_heads_) * head_dim_;
  const Int all = query_key + kv_heads_ * head_dim_;
  const Shape rows{tokens, query};
  const Shape per_head{tokens, heads_};
  const std::vector<Flow> inputs = qk_norm_ ? heads("query_key", query_key) : heads("rotated", all);
  Step forward{.kernel = "attention_forward",
               .attributes = sizes,
               .flows = inputs,
               .slides = slides,
               .least_scratch = kAttentionScratch};
  forward.flows.push_back(makes("output", compute_, rows, "attention"));
  forward.flows.push_back(makes("log_sum_exp", statistic, per_head, "log_sum_exp"));
  add(std::move(forward));
  Step backward{.kernel = "attention_backward",
                .attributes = sizes,
                .flows = inputs,
                .slides = slides,
                .least_scratch = backward_scratch()};
  for (Flow& flow : std::vector{reads("output", compute_, rows, "attention"),
                                reads("d_output", compute_, rows, "d_attention"),
                                reads("log_sum_exp", statistic, per_head, "log_sum_exp"),
                                makes("d_qkv", compute_, {tokens, all}, "d_rotated"),
                                scratch("d_query_sum", statistic, rows),
                                scratch("row_sums", statistic, per_head)})
    backward.flows.push_back(std::move(flow));
  add(std::move(backward));
}

/// What cuDNN asks for: gradients of keys and values by query heads where heads share them, and
/// the scores where sums are to be deterministic.
Int Model::backward_scratch() const {
  Int bytes = kAttentionScratch;
  const Int element = size_of(compute_);
  if (element != 2) return bytes;
  if (heads_ != kv_heads_)
    bytes = plus(bytes, times(2, round_up(times(times(tokens, heads_), head_dim_ * element), 128)));
  if (config_.value("deterministic", false))
    bytes = plus(bytes, times(times(batch_ * heads_, round_up(seq_, 64)),
                              times(round_up(seq_, 128), element)));
  return bytes;
}

void Model::add_rotation() {
  if (!two_tables_) return add_rotation_by("rope_table", {});
  add_rotation_by("rope_table", false);
  add_rotation_by("local_rope_table", true);
}

/// RoPE in place, or behind the norm of each head into a tensor of its own.
void Model::add_rotation_by(const std::string& by, std::optional<bool> slides) {
  const Int rotated = heads_ + kv_heads_;
  const Int all = (rotated + kv_heads_) * head_dim_;
  const Shape heads{tokens, rotated, head_dim_};
  const Flow table = reads("rope_table", "fp32", {seq_, turned_}, by);
  std::map<std::string, Json> sizes{{"cols", rotated * head_dim_}, {"rows", tokens}};
  const Flow gradient = in_rows(turns("d_query_key", compute_, heads, "d_rotated", "d_qkv"), all);
  if (!qk_norm_) {
    add({.kernel = "rope_forward",
         .attributes = sizes,
         .flows = {in_rows(turns("query_key", compute_, heads, "qkv", "rotated"), all), table},
         .slides = slides});
    return add({.kernel = "rope_backward",
                .attributes = sizes,
                .flows = {gradient, table},
                .slides = slides});
  }
  sizes = norm_sizes(sizes);
  sizes["query_heads"] = heads_;
  const Flow columns = in_rows(reads("query_key", compute_, heads, "qkv"), all);
  const Int partial_rows = std::min(tokens, kPartialRows);
  add({.kernel = "qk_norm_rope_backward",
       .attributes = sizes,
       .flows = {gradient, columns, table, reads("rstd", statistic, {tokens, rotated}, "qk_rstd"),
                 weight("q_norm", {head_dim_}), weight("k_norm", {head_dim_}),
                 makes("partials", statistic, {2 * partial_rows, head_dim_}, "qk_partials")},
       .slides = slides});
  sizes["epsilon"] = config_.at("model").at("rms_norm_eps");
  add({.kernel = "qk_norm_rope_forward",
       .attributes = sizes,
       .flows = {columns, table, weight("q_norm", {head_dim_}), weight("k_norm", {head_dim_}),
                 makes("output", compute_, heads, "query_key"),
                 makes("rstd", statistic, {tokens, rotated}, "qk_rstd")},
       .slides = slides});
}

void Model::add_mlp() {
  const Shape both{tokens, 2 * inner_};
  const Shape inner{tokens, inner_};
  const std::map<std::string, Json> sizes{{"cols", inner_}, {"rows", tokens}};
  add_product("gate_up", Place::block, 2 * inner_, hidden_,
              {"normed2", "gate_up", "d_gate_up", "d_normed2"});
  if (output_norms_)
    add_product("down", Place::block, hidden_, inner_,
                {"product", "raw_mlp_out", "d_raw_mlp_out", "d_product"});
  else
    add_product("down", Place::block, hidden_, inner_,
                {"product", "mlp_out", "d_output", "d_product"});
  add({.kernel = gated_ + "_forward",
       .attributes = sizes,
       .flows = {reads("gate_up", compute_, both, "gate_up"),
                 makes("product", compute_, inner, "product")}});
  add({.kernel = gated_ + "_backward",
       .attributes = sizes,
       .flows = {turns("gate_up", compute_, both, "gate_up", "d_gate_up"),
                 turns("d_product", compute_, inner, "d_product", "product", "may")}});
}

/// Sums of gradients are multiples of one power of two, small enough to be exact in fp32 (docs:
/// determinism); products take the rows of one sequence at a time.
std::map<std::string, Json> Model::exact(const std::string& kernel, Int rows) const {
  if (!exact_) return {};
  static const Names of_rank{"bias_grad",        "embedding_backward",    "gemm 2",
                             "norm_weight_grad", "qk_norm_rope_backward", "rms_norm_backward"};
  static const Names of_squares{"norm_finish", "norm_partial"};
  const auto limit = [](Int ranks) { return std::min((Int{1} << 24) / ranks, Int{1} << 22); };
  const Int all = times(times(tokens, microbatches), world_);
  const Int exponent =
      static_cast<Int>(std::bit_width(static_cast<std::uint64_t>(all - 1))) + 3 - 24;
  std::map<std::string, Json> made;
  if (of_rank.contains(kernel) || of_squares.contains(kernel) || kernel == "accumulate")
    made["grid_exponent"] = exponent;
  if (of_rank.contains(kernel)) made["sum_limit"] = limit(world_);
  if (kernel == "accumulate") made["sum_limit"] = limit(outer_);
  if (of_rank.contains(kernel) || kernel == "gemm 0" || kernel == "gemm 1")
    made["piece_rows"] = kernel == "norm_weight_grad" ? 1 : std::min(seq_, rows);
  return made;
}

}  // namespace mfsdp::checker
