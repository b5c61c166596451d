#include "verify/checker/model.hpp"

#include <cmath>
#include <utility>

#include "verify/checker/flows.hpp"

namespace mfsdp::checker {
namespace {

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
  const std::string family = model.at("family");
  gpt2_names_ = layer_norms_ = biases_ = family == "gpt2";
  sinks_ = family == "gpt_oss";
  biases_ = biases_ || sinks_;
  gates_ = rotates_ = family != "gpt2";
  input_norms_ = family != "olmo2";
  whole_norms_ = family == "olmo2" || family == "olmoe" || family == "minimax_m2";
  mixtral_names_ = family == "mixtral" || family == "minimax_m2";
  const bool silu = model.value("activation", "silu") == "silu";
  gated_ = !gates_ ? "gelu" : silu ? "swiglu" : "geglu";
  first_width_ = gates_ ? times(2, inner_) : inner_;
  positions_ = model.at("max_seq_len");
  turned_ = model.value("rotary_dim", head_dim_);
  sliding_ = model.value("sliding_layers", sliding_);
  nope_ = model.value("nope_layers", nope_);
  two_tables_ = model.contains("local_rope_theta") || !nope_.empty();
  window_ = model.value("sliding_window", Int{0});
  if (window_ >= seq_) window_ = 0;
  exact_ = config_.value("exact_sums", false);
  compute_ = config_.at("param_dtype");
  tokens = times(seq_, batch_);
  if (config_.value("document_mask", false)) token_rows = 3;
  if (rotates_) rope_tables = {{"rope_table", times(times(seq_, turned_), 4)}};
  if (two_tables_ && rotates_) rope_tables["local_rope_table"] = rope_tables.at("rope_table");
  microbatches = config_.at("microbatches");
  clip = config_.at("clip");
  statistic = compute_ == "fp64" ? "fp64" : "fp32";
  main_weights = config_.at("main_dtype") != compute_;
  scales_loss = config_.contains("loss_scale");
  scale_window = config_.value("loss_scale_window", Int{0});
  for (const auto& [axis, ranks] : view.dense) {
    world_ = times(world_, ranks);
    if (axis == "dp_outer") outer_ = ranks;
  }
  latent_ = family == "deepseek";
  plain_shared_ = latent_ || family == "glm4_moe";
  const Names families{"deepseek", "glm4_moe",   "gpt2",  "gpt_oss", "llama",
                       "mixtral",  "minimax_m2", "olmo2", "olmoe"};
  const bool known = families.contains(family);
  // Options of RoPE need RoPE. Without input norms nothing else adds to the residual.
  const bool odd = !rotates_ && (qk_norm_ || two_tables_ || turned_ != head_dim_ ||
                                 seq_ > positions_ || model.value("scaled_embedding", false) ||
                                 model.contains("embedding_multiplier"));
  const bool both_tables = model.contains("local_rope_theta") && !nope_.empty();
  const bool two_factors =
      model.value("scaled_embedding", false) && model.contains("embedding_multiplier");
  const bool scales_sums = model.contains("residual_multiplier") &&
                           (output_norms_ || !input_norms_ || biases_ || model.contains("experts"));
  const bool other_norms = layer_norms_ && (output_norms_ || centred_);
  if (!known || odd || both_tables || two_factors || scales_sums || other_norms ||
      (!gates_ && silu) || (!input_norms_ && !output_norms_) || tokens < 1 || layers_ < 1 ||
      heads_ < 1 || kv_heads_ < 1)
    refuse("config: this checker does not know the model");
  read_latent(model);
  read_experts(model);
  if (expert_ranks_ != (view.expert_grid.contains("ep") ? view.expert_grid.at("ep") : 0))
    refuse("config: expert_parallel is not the number of ranks on axis ep");
  read_adapters();
  read_context_ranks(view);
  read_fp8();
  read_tensor_ranks(view);
  check_units(view);
  check_parameters(view);
  check_fp8_groups(view);
  take_part_of_rank();
  add_ends();
  add_norms();
  add_attention();
  if (latent_)
    add_latent();
  else if (rotates_)
    add_rotation();
  if (sinks_) add_sinks();
  if (experts_ != 0) add_experts();
  if (experts_ == 0 || !dense_.empty()) add_mlp();
}

// ---- steps --------------------------------------------------------------------------------------

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
    // A block has the GEMM in FP8 or the other one, not both.
    const bool is_other = step.kernel == "gemm_fp8" || step.kernel == "gemm_blocks";
    if (flow.access == "adds" && flow.role == "weight_grad" && !is_other)
      ++gradients_[flow.parameter];
  }
  const std::string product = multiplies(step.kernel) ? fmt::format(" {}", step.product) : "";
  // With more attributes first: what a kernel has beside those of its step is refused at once.
  auto& steps = steps_[step.kernel + product];
  if (fp8_recipe_ == "current" || fp8_recipe_ == "nvfp4") add_with_amax(step);
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
  const bool shared = tied_ && (role == "embedding" || role.starts_with("final_norm"));
  return unit == (shared ? 0 : owner);
}

/// The three GEMMs of a linear layer: out = in W^T; d_in = d_out W; d_W = d_out^T in. Where d_in is
/// "A>B" it is added to A, which makes B.
/// Rows of the head's results, logits, begin on multiples of 16 bytes if all chunks are as long.
Flow Model::in_rows_of(Place place, Flow flow) const {
  const Int in_16_bytes = 16 / size_of(compute_);
  const Int row = (vocab_here_ + in_16_bytes - 1) / in_16_bytes * in_16_bytes;
  const Int chunk = std::min(tokens, config_.at("logits_chunk").get<Int>());
  const bool stays = place != Place::head || row == vocab_here_ || tokens % chunk != 0;
  return stays ? flow : in_rows(std::move(flow), row);
}

void Model::add_product(const std::string& parameter, Place place, Int outputs, Int inputs,
                        const std::array<const char*, 4>& values) {
  const std::string in = of_all_rows(parameter, 0, values[0]);
  const bool has_bias = parameter == "qkv"    ? bias_
                        : parameter == "head" ? false
                                              : biases_ && !parameter.starts_with("shared");
  const bool adds_later = has_bias && has_terms(parameter);
  const std::string out = adds_later ? short_of_bias(values[1]) : values[1];
  const std::string d_out = of_all_rows(parameter, 1, values[2]);
  const std::string d_in = values[3];
  const bool chunk = place == Place::head;
  const bool to_residual = parameter == "attention_out" || parameter == "down";
  const char* const multiplier = chunk ? "logit_multiplier" : "residual_multiplier";
  const Json& model = config_.at("model");
  const bool is_scaled = (chunk || to_residual) && model.contains(multiplier);
  const Int rows = chunk ? kRows : cut_.contains(parameter) ? tokens : rows_;
  const Shape matrix{outputs, inputs};
  const auto step = [&](Int product, std::vector<Flow> flows) {
    Step made{.kernel = "gemm",
              .product = product,
              .place = place,
              .attributes = {{"k", inputs}, {"kind", product}, {"m", rows}, {"n", outputs}},
              .flows = std::move(flows),
              .chunk = chunk,
              .least_scratch = 1};
    if (product != 2) made.attributes["beta"] = made.flows.back().access == "read_write" ? 1 : 0;
    if (is_scaled) made.attributes["scale"] = model.at(multiplier);
    if (fp8_ && place == Place::block) made.fp8 = false;
    add(std::move(made));
  };
  std::vector<Flow> forward{
      reads("input", compute_, {rows, inputs}, in), weight(parameter, matrix),
      in_rows_of(place, makes("output", compute_, {rows, outputs},
                              in_terms(parameter, 1, product_without_adapters(parameter, out))))};
  if (adds_later) add_bias_of_sum(parameter, values[1]);
  if (has_bias && !adds_later) {
    forward.push_back(weight(parameter + "_bias", {outputs}));
    // The last of the flows states whether the GEMM adds to its output.
    std::swap(forward[2], forward.back());
  }
  step(0, std::move(forward));
  const std::string gradient_in =
      in_terms(parameter, 0, gradient_without_adapters(parameter, d_in));
  const std::size_t arrow = gradient_in.find('>');
  Flow made = arrow == std::string::npos
                  ? makes("d_input", compute_, {rows, inputs}, gradient_in)
                  : turns("d_input", compute_, {rows, inputs}, gradient_in.substr(0, arrow),
                          gradient_in.substr(arrow + 1));
  const Flow gradient_out = in_rows_of(place, reads("d_output", compute_, {rows, outputs}, d_out));
  step(1, {gradient_out, weight(parameter, matrix), std::move(made)});
  step(2,
       {gradient_out, reads("input", compute_, {rows, inputs}, in), gradient(parameter, matrix)});
  add_adapters(parameter, outputs, values);
  if (fp8_ && place == Place::block) add_fp8_product(parameter, outputs, inputs, values);
}

/// The root as a number of the compute dtype: rounded to the nearest with the dtype's bits.
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
  const Shape table{lookup_rows_, hidden_};
  std::map<std::string, Json> lookup{{"cols", hidden_}, {"rows", tokens}};
  if (config_.at("model").value("scaled_embedding", false)) lookup["scale"] = root_of_hidden();
  if (config_.at("model").contains("embedding_multiplier"))
    lookup["scale"] = config_.at("model").at("embedding_multiplier");
  if (cut_.contains("embedding")) lookup["vocab_begin"] = vocabulary_begin(lookup_rows_);
  if (!rotates_)
    add_positions(lookup);
  else
    add({.kernel = "embedding_forward",
         .place = Place::embedding,
         .attributes = lookup,
         .flows = {reads("tokens", "int32", {tokens}, "tokens"), weight("embedding", table),
                   makes("output", compute_, rows, in_terms("embedding", 0, "+input"))}});
  add({.kernel = "embedding_backward",
       .place = Place::embedding,
       .attributes = lookup,
       .flows = {reads("tokens", "int32", {tokens}, "tokens"),
                 reads("d_output", compute_, rows, of_all_rows("embedding", 0, "d_output")),
                 scratch("token_order", "uint8", {24 * tokens}), gradient("embedding", table)}});
  add_product("head", Place::head, vocab_here_, hidden_,
              {"normed", "logits", "d_logits", "d_normed"});
  const Shape logits{kRows, vocab_here_};
  std::map<std::string, Json> losses{{"cols", vocab_here_}, {"rows", kRows}};
  if (cut_.contains("head")) losses["vocab_begin"] = vocabulary_begin(vocab_here_);
  if (const Json& model = config_.at("model"); model.contains("logit_cap"))
    losses["logit_cap"] = model.at("logit_cap");
  for (const bool trains : {true, false}) {
    Step step{.kernel = trains ? "cross_entropy" : "cross_entropy_loss",
              .place = Place::head,
              .attributes = losses,
              .flows = {in_rows_of(Place::head,
                                   trains ? turns("logits", compute_, logits, "logits", "d_logits")
                                          : reads("logits", compute_, logits, "logits")),
                        reads("labels", "int32", {kRows}, "tokens", tokens),
                        turns("loss_sums", statistic, {2}, "", "", "adds")},
              .chunk = true,
              .least_scratch = kSumScratch};
    if (trains && scales_loss) step.flows.push_back(reads("loss_scale", "fp32", {4}, "loss_scale"));
    if (cut_.contains("head")) {
      add_parts(std::move(step));
      continue;
    }
    if (!trains) {
      Step gives = step;
      gives.flows.push_back(makes("log_probs", statistic, {kRows}, "log_probs"));
      add(std::move(gives));
    }
    add(std::move(step));
  }
}

/// A token's row, and that of its place in the sequence.
void Model::add_positions(std::map<std::string, Json> sizes) {
  const Shape rows{tokens, hidden_};
  const Shape table{positions_, hidden_};
  sizes["seq"] = seq_;
  add({.kernel = "embedding_forward",
       .place = Place::embedding,
       .attributes = sizes,
       .flows = in_documents(
           {reads("tokens", "int32", {tokens}, "tokens"), weight("embedding", {vocab_, hidden_}),
            weight("position_embedding", table), makes("output", compute_, rows, "+input")})});
  add({.kernel = "position_embedding_backward",
       .place = Place::embedding,
       .attributes = sizes,
       .flows = in_documents({reads("d_output", compute_, rows, "d_output"),
                              gradient("position_embedding", table)})});
}

/// Adds the attribute of zero-centred norms to the sizes of a norm.
std::map<std::string, Json> Model::norm_sizes(std::map<std::string, Json> sizes) const {
  if (centred_) sizes["zero_centered"] = 1;
  return sizes;
}

void Model::add_weight_gradient(const std::string& parameter, Place place, const char* partials,
                                Int cols, Int column) {
  const Int partial_rows = std::min(rows_, kPartialRows);
  add({.kernel = "norm_weight_grad",
       .place = place,
       .attributes = {{"cols", cols}, {"rows", partial_rows}},
       .flows = {reads("partials", statistic, {partial_rows, cols}, partials, column),
                 gradient(parameter, {cols})}});
}

/// The backward of an RMS norm, or of a layer norm, which has "mean1" beside its rstd "rstd1".
void Model::add_norm_backward(const std::string& parameter, Place place, const char* d_normed,
                              const char* normed, const char* input, const char* rstd,
                              const char* d_after, const char* d_before, const char* partials) {
  const Shape rows{rows_, hidden_};
  const Int partial_rows = std::min(rows_, kPartialRows);
  const bool adds = *d_after != 0;
  Step step{
      .kernel = layer_norms_ ? "layer_norm_backward" : "rms_norm_backward",
      .place = place,
      .attributes = norm_sizes({{"beta", adds ? 1 : 0}, {"cols", hidden_}, {"rows", rows_}}),
      .flows = {
          *normed == 0 ? reads("d_normed", compute_, rows, d_normed)
                       : turns("d_normed", compute_, rows, d_normed, normed, "may"),
          reads("input", compute_, rows, input), reads("rstd", statistic, {rows_}, rstd),
          turns("d_residual", compute_, rows, d_after, d_before, "adds"),
          makes("partials", statistic, {(layer_norms_ ? 2 : 1) * partial_rows, hidden_}, partials),
          weight(parameter, {hidden_})}};
  if (layer_norms_) {
    step.flows.push_back(weight(parameter + "_bias", {hidden_}));
    step.flows.push_back(reads("mean", statistic, {rows_}, "mean of " + std::string(rstd)));
  }
  add(std::move(step));
  add_weight_gradient(parameter, place, partials, hidden_, 0);
  if (layer_norms_)
    add_weight_gradient(parameter + "_bias", place, partials, hidden_, partial_rows * hidden_);
}

void Model::add_norms() {
  const Shape rows{rows_, hidden_};
  const Json epsilon = config_.at("model").at("rms_norm_eps");
  const auto forward = [&](const std::string& parameter, Place place, const char* residual,
                           const char* delta, const char* sum, const std::string& rstd) {
    Step step{.kernel = layer_norms_ ? "layer_norm_forward" : "rms_norm_forward",
              .place = place,
              .attributes = norm_sizes({{"cols", hidden_}, {"epsilon", epsilon}, {"rows", rows_}}),
              .flows = {reads("residual", compute_, rows, residual),
                        makes("normed", compute_, rows, "normed" + rstd.substr(4)),
                        makes("rstd", statistic, {rows_}, rstd), weight(parameter, {hidden_})}};
    if (layer_norms_) {
      step.flows.push_back(weight(parameter + "_bias", {hidden_}));
      step.flows.push_back(makes("mean", statistic, {rows_}, "mean of " + rstd));
    }
    if (*delta != 0) step.flows.push_back(reads("delta", compute_, rows, delta));
    if (*sum != 0) step.flows.push_back(makes("residual_out", compute_, rows, sum));
    add(std::move(step));
  };
  if (output_norms_) add_output_norms();
  if (!input_norms_) {
    forward("final_norm", Place::head, "input", "", "", "rstd");
  } else {
    forward("input_norm", Place::block, "input", "", "", "rstd1");
    forward("input_norm", Place::block, "-mid", "-mlp_out", "input", "rstd1");
    forward("post_norm", Place::block, "input", "attention_out", "mid", "rstd2");
    forward("post_norm", Place::block, "mid", "", "", "rstd2");
    forward("final_norm", Place::head, "-mid", "-mlp_out", "input", "rstd");
    add_norm_backward("input_norm", Place::block, "d_normed1", "normed1", "input", "rstd1", "d_mid",
                      "-d_output", "partials1");
    add_norm_backward("post_norm", Place::block, "d_normed2", "normed2", "mid", "rstd2", "d_output",
                      "d_mid", "partials2");
  }
  add_norm_backward("final_norm", Place::head, "d_normed", "normed", "input", "rstd", "",
                    "-d_output", "partials");
  if (!qk_norm_) return;
  const Int partial_rows = std::min(rows_, kPartialRows);
  const Int of_query = whole_norms_ ? heads_ * head_dim_ : head_dim_;
  const Int of_key = whole_norms_ ? kv_heads_ * head_dim_ : head_dim_;
  add_weight_gradient("q_norm", Place::block, "qk_partials", of_query, 0);
  add_weight_gradient("k_norm", Place::block, "qk_partials", of_key, times(partial_rows, of_query));
}

/// Adds norms of the outputs of attention and MLP. The gradient of the residual stays: it is used
/// again after the norm. In OLMo 2 the norm also adds its output to the residual.
void Model::add_output_norms() {
  const Shape rows{rows_, hidden_};
  const Json epsilon = config_.at("model").at("rms_norm_eps");
  const auto forward = [&](const char* parameter, const std::string& name, const char* skip,
                           const char* sum) {
    Step step{
        .kernel = "rms_norm_forward",
        .attributes = norm_sizes({{"cols", hidden_}, {"epsilon", epsilon}, {"rows", rows_}}),
        .flows = {reads("residual", compute_, rows, "raw_" + name),
                  makes("normed", compute_, rows, input_norms_ ? name : sum),
                  makes("rstd", statistic, {rows_}, name + "_rstd"), weight(parameter, {hidden_})}};
    if (!input_norms_) step.flows.push_back(reads("skip", compute_, rows, skip));
    add(std::move(step));
  };
  forward("attention_output_norm", "attention_out", "input", "mid");
  forward("mlp_output_norm", "mlp_out", "mid", "+input");
  add_norm_backward("attention_output_norm", Place::block, "d_mid", "", "raw_attention_out",
                    "attention_out_rstd", "", "d_raw_attention_out", "attention_out_partials");
  add_norm_backward("mlp_output_norm", Place::block, "d_output", "", "raw_mlp_out", "mlp_out_rstd",
                    "", "d_raw_mlp_out", "mlp_out_partials");
}

/// Where documents are masked, what attends, rotates or looks positions up goes by those in them.
std::vector<Flow> Model::in_documents(std::vector<Flow> flows) const {
  if (token_rows > 2) flows.push_back(reads("positions", "int32", {places_}, "tokens", 2 * tokens));
  return flows;
}

/// Query, key and value: query and key rotated, in rows of their own or beside the value.
std::vector<Flow> Model::heads(const std::string& rotated, Int row) const {
  const auto view = [&](const char* role, Int count, Int columns, const std::string& value,
                        Int width, Int column) {
    return in_rows(reads(role, compute_, {batch_, count, seq_, columns}, value), width, column);
  };
  const Int query = heads_ * head_dim_;
  const Int query_key = (heads_ + kv_heads_) * head_dim_;
  const Int all = query_key + kv_heads_ * value_dim_;
  return {view("query", heads_, head_dim_, rotated, row, 0),
          view("key", kv_heads_, head_dim_, rotated, row, query),
          view("value", kv_heads_, value_dim_, qk_norm_ ? as_attended("qkv") : rotated, all,
               query_key)};
}

void Model::add_attention() {
  const Int query = heads_ * head_dim_;
  const Int all = projected_cols();
  if (latent_)
    ;  // add_latent() has what makes qkv
  else if (!input_norms_)
    add_product("qkv", Place::block, all, hidden_, {"input", "qkv", "d_qkv", "d_mid>-d_output"});
  else
    add_product("qkv", Place::block, all, hidden_, {"normed1", "qkv", "d_qkv", "d_normed1"});
  if (bias_) add_bias("qkv_bias", all, "d_qkv");
  if (biases_) add_bias("attention_out_bias", hidden_, "d_mid");
  if (output_norms_)
    add_product("attention_out", Place::block, hidden_, query,
                {"attention", "raw_attention_out", "d_raw_attention_out", "d_attention"});
  else
    add_product("attention_out", Place::block, hidden_, heads_ * value_dim_,
                {"attention", "attention_out", "d_mid", "d_attention"});
  add_groups_of_heads();
  add_key_parts();
  std::map<std::string, Json> sizes{
      {"batch", batch_},       {"deterministic", config_.value("deterministic", false) ? 1 : 0},
      {"head_dim", head_dim_}, {"heads", heads_},
      {"kv_heads", kv_heads_}, {"seq", seq_}};
  if (value_dim_ != head_dim_) sizes["value_dim"] = value_dim_;
  for (const char* name : {"query_scalar", "score_cap"})
    if (const Json& model = config_.at("model"); model.contains(name)) sizes[name] = model.at(name);
  sizes = of_part(std::move(sizes));
  if (window_ == 0) return add_attention_of(sizes, {});
  // With more attributes first: what a kernel has beside those of its step is refused at once.
  std::map<std::string, Json> sliding = sizes;
  sliding["window"] = window_;
  add_attention_of(sliding, true);
  add_attention_of(sizes, false);
}

void Model::add_bias(const std::string& parameter, Int cols, const char* d_output) {
  // Where ranks do not divide the bias, each has its own rows.
  const Int rows = cut_.contains(parameter) ? tokens : rows_;
  add({.kernel = "bias_grad",
       .attributes = {{"cols", cols}, {"rows", rows}},
       .flows = {reads("d_output", compute_, {rows, cols}, d_output),
                 scratch("partials", statistic, {std::min(rows_, kPartialRows), cols}),
                 gradient(parameter, {cols})}});
}

void Model::add_attention_of(const std::map<std::string, Json>& sizes, std::optional<bool> slides) {
  if (passes_keys_) return add_ring_attention(sizes, slides);
  const Int query = heads_ * head_dim_;
  const Int query_key = (heads_ + kv_heads_) * head_dim_;
  const Int all = query_key + kv_heads_ * value_dim_;
  const Shape rows{attended_, heads_ * value_dim_};
  const Shape per_head{attended_, heads_};
  // Without RoPE what the projection makes is taken as it is.
  const std::vector<Flow> inputs = gathers_keys_          ? gathered_inputs()
                                   : qk_norm_             ? heads("query_key", query_key)
                                   : !rotates_ || latent_ ? heads("qkv", all)
                                                          : heads("rotated", all);
  Step forward{.kernel = "attention_forward",
               .attributes = sizes,
               .flows = inputs,
               .slides = slides,
               .least_scratch = kAttentionScratch};
  const std::string short_of = sinks_ ? " short of sinks" : "";
  forward.flows.push_back(makes("output", compute_, rows, as_attended("attention") + short_of));
  forward.flows.push_back(makes("log_sum_exp", statistic, per_head, "log_sum_exp" + short_of));
  forward.flows = in_documents(std::move(forward.flows));
  add(std::move(forward));
  Step backward{.kernel = "attention_backward",
                .attributes = sizes,
                .flows = inputs,
                .slides = slides,
                .least_scratch = backward_scratch()};
  for (Flow& flow : std::vector{reads("output", compute_, rows, as_attended("attention")),
                                reads("d_output", compute_, rows, as_attended("d_attention")),
                                reads("log_sum_exp", statistic, per_head, "log_sum_exp"),
                                scratch("d_query_sum", statistic, {attended_, query}),
                                scratch("row_sums", statistic, per_head)})
    backward.flows.push_back(std::move(flow));
  const Flow d_qkv =
      makes("d_qkv", compute_, {attended_, all}, rotates_ && !latent_ ? "d_rotated" : "d_qkv");
  for (Flow& flow : gathers_keys_ ? gathered_gradients() : std::vector{d_qkv})
    backward.flows.push_back(std::move(flow));
  backward.flows = in_documents(std::move(backward.flows));
  add(std::move(backward));
}

/// The workspace that cuDNN needs: gradients of keys and values by query heads where heads share
/// them, and the attention logits where sums are to be deterministic.
Int Model::backward_scratch() const {
  Int bytes = kAttentionScratch;
  const Int element = size_of(compute_);
  // Nor does it attend with a part of a sequence.
  if (element != 2 || has_chunks()) return bytes;
  if (heads_ != kv_heads_)
    bytes =
        plus(bytes, times(2, round_up(times(times(attended_, heads_), head_dim_ * element), 128)));
  if (config_.value("deterministic", false))
    bytes = plus(bytes, times(times(batch_ * heads_, round_up(seq_, 64)),
                              times(round_up(seq_, 128), element)));
  return bytes;
}

/// A sink is a score of no token: what attention makes becomes less by its share, exp(sink - sum).
void Model::add_sinks() {
  const Shape rows{tokens, heads_ * head_dim_};
  const Shape per_head{tokens, heads_};
  const std::map<std::string, Json> sizes{
      {"head_dim", head_dim_}, {"heads", heads_}, {"rows", tokens}};
  const Flow sinks = weight("sinks", {heads_});
  add({.kernel = "sink_forward",
       .attributes = sizes,
       .flows = {
           turns("output", compute_, rows, "attention short of sinks", "attention"),
           turns("log_sum_exp", statistic, per_head, "log_sum_exp short of sinks", "log_sum_exp"),
           sinks}});
  add({.kernel = "sink_backward",
       .attributes = sizes,
       .flows = {reads("output", compute_, rows, "attention"),
                 reads("d_output", compute_, rows, "d_attention"),
                 reads("log_sum_exp", statistic, per_head, "log_sum_exp"), sinks,
                 makes("d_sinks", compute_, per_head, "d_sinks")}});
  add_bias("sinks", heads_, "d_sinks");
}

void Model::add_mlp() {
  const Shape first{tokens, first_width_};
  const Shape inner{tokens, inner_};
  const std::map<std::string, Json> sizes{{"cols", inner_}, {"rows", tokens}};
  if (!input_norms_)
    add_product("gate_up", Place::block, first_width_, hidden_,
                {"mid", "gate_up", "d_gate_up", "d_output>d_mid"});
  else
    add_product("gate_up", Place::block, first_width_, hidden_,
                {"normed2", "gate_up", "d_gate_up", "d_normed2"});
  if (biases_) add_bias("gate_up_bias", first_width_, "d_gate_up");
  if (biases_) add_bias("down_bias", hidden_, "d_output");
  const char* role = gates_ ? "gate_up" : "input";
  if (output_norms_)
    add_product("down", Place::block, hidden_, inner_,
                {"product", "raw_mlp_out", "d_raw_mlp_out", "d_product"});
  else
    add_product("down", Place::block, hidden_, inner_,
                {"product", "mlp_out", "d_output", "d_product"});
  if (fp8_ && gated_ == "swiglu") add_product_casts();
  add({.kernel = gated_ + "_forward",
       .attributes = sizes,
       .flows = {reads(role, compute_, first, "gate_up"),
                 makes("product", compute_, inner, "product")}});
  add({.kernel = gated_ + "_backward",
       .attributes = sizes,
       .flows = {turns(role, compute_, first, "gate_up", "d_gate_up"),
                 turns("d_product", compute_, inner, "d_product", "product", "may")}});
}

}  // namespace mfsdp::checker
