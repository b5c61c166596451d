// One block of a Llama model and of similar families: Gemma has GeGLU in place of SwiGLU; GPT-2 has
// layer norms, biases, no RoPE, and GELU without a gate.
//
//   x --norm--> normed1 --gemm--> qkv --rope, attention--> attention --gemm--> attention_out
//   mid = x + attention_out --norm--> normed2 --gemm--> gate_up --swiglu--> `product` --gemm-->
//   mlp_out
//
// x of the next block is mid + mlp_out, added inside its norm. Output norms read the projections'
// outputs ("raw") and write attention_out and mlp_out. OLMo 2 has output norms only, and they add
// to the residual themselves:
//
//   mid = x + norm(attention_out.raw)      out = mid + norm(mlp_out.raw)      x of the next = out
//
// Blocks with experts replace gate_up to mlp_out (expert_mlp.hpp).
//
// Where ranks of tp share blocks (core/plan/tensor_parallel.hpp), a rank has the rows of some tokens
// outside of the two pairs of projections. In between it has all rows, with its heads or features:
//
//   normed1, rows --all_gather--> normed1.whole --gemm--> qkv, own heads --rope, attention-->
//   attention, own heads --gemm--> attention_out.terms --reduce_scatter--> attention_out, rows
//
// and likewise normed2 to mlp_out. Backward gathers gradients of outputs and, once more, inputs, and
// sums gradients of inputs.
//
// With more ranks than heads of keys, the ranks that hold one together exchange their parts of it
// (key_parts.hpp): attention and RoPE work on qkv.heads.
//
// Where ranks share sequences (core/plan/context_parallel.hpp), RoPE and attention work on rows of
// whole sequences, with the heads of one group:
//
//   qkv --split--> qkv.parts --all_to_all--> qkv.heads --rope, attention--> attention.heads
//   attention.heads --all_to_all--> attention.parts --join--> attention
//
// or RoPE on a rank's rows, and attention on its queries and all keys. Backward gathers keys and
// values again, and sums their gradients:
//
//   qkv --rope--> qkv --take--> keys --all_gather--> all_keys, with queries of qkv --attention-->
//   d_attention --attention--> d_query, d_all_keys --reduce_scatter--> d_keys --join--> d_qkv --rope-->
//
// or in steps with the keys of one rank at a time (core/recipe/ring_attention.hpp).
//
// Saved for backward:
//   none        all of the above
//   selective   x, mid, qkv, attention, log-sum-exp, gate_up, and inputs of output norms: not the
//               outputs of norms and of SwiGLU; of shared sequences qkv.heads in place of qkv, and
//               attention.heads too
//   full        x only; backward repeats the block's forward up to gate_up, or the raw mlp_out
#include <optional>
#include <string>

#include "core/recipe/builder.hpp"
#include "core/recipe/expert_mlp.hpp"
#include "core/recipe/key_parts.hpp"
#include "core/recipe/latent_attention.hpp"
#include "core/recipe/ring_attention.hpp"
#include "core/recipe/sequence_exchange.hpp"

namespace mfsdp {
namespace {

using namespace recipe;  // the recipe reads as its list of kernels

class BlockRecipe {
 public:
  BlockRecipe(const PlanConfig& config, const BlockKind& kind)
      : b_(config),
        s_(b_.sizes),
        model_(config.model),
        traits_(model_.traits()),
        gates_(gates_of(model_)),
        first_(kind.first),
        recompute_(kind.recompute),
        slides_(kind.slides),
        other_rope_(kind.other_rope),
        amax_below_(kind.amax_below),
        parts_d_product_(kind.parts_d_product),
        qkv_(b_.with_adapters(
            {.weight = ParameterRole::qkv, .outputs = s_.qkv, .inputs = s_.hidden})),
        attention_out_(b_.with_adapters({.weight = ParameterRole::attention_out,
                                         .outputs = s_.hidden,
                                         .inputs = s_.attention})),
        gate_up_(b_.with_adapters({.weight = ParameterRole::gate_up,
                                   .outputs = model_.gate_up_width() / s_.tensor_ranks,
                                   .inputs = s_.hidden})),
        down_(b_.with_adapters(
            {.weight = ParameterRole::down, .outputs = s_.hidden, .inputs = s_.intermediate})),
        heads_{{"cols", s_.rotated * s_.head_dim}, {"rows", s_.attended}},
        inner_{{"cols", s_.intermediate}, {"rows", s_.tokens}} {
    b_.fp8 = kind.fp8;
    b_.keeps_transposed = recompute_ == Recompute::none;
    if (kind.transposes_d_output) b_.transposes_d_output = ParameterRole::gate_up;
    if (kind.transposes_d_output && casts_product()) b_.product_source = on("gate_up");
    if (kind.experts) experts_.emplace(b_);
    if (traits_.latent_attention) latent_.emplace(b_, with_positions({rope_table()}));
  }

  UnitRecipe build() && {
    forward();
    if (experts_)
      experts_->finish();
    else if (!model_.output_norms)
      summed_projection("down", down_, "product", "mlp_out", ParameterRole::down_bias);
    b_.target = &b_.recipe.backward;
    if (recompute_ == Recompute::full) {
      suffix_ = ".again";
      compute_again([this] { forward(); });
    }
    b_.phase = Phase::backward;
    if (casts_residual_gradient(model_, b_.casts_by_amax()))
      b_.expect_amax_of(residual_gradient("d_residual"));  // the unit after this one takes it
    if (experts_)
      backward_experts();
    else
      backward_mlp();
    backward_attention();
    return std::move(b_.recipe);
  }

 private:
  /// Adds kernels of forward to backward. Their tensors have slots of their own.
  void compute_again(const auto& kernels) {
    b_.phase = Phase::recompute;
    b_.slot_class = "again";
    kernels();
    b_.slot_class.clear();
    b_.phase = Phase::backward;
  }
  [[nodiscard]] bool again() const { return !suffix_.empty(); }
  [[nodiscard]] std::string at(const std::string& name) const { return name + suffix_; }

  /// The block's input rows: the output of the unit before, for the first block and where no norm
  /// adds to it; else x.
  [[nodiscard]] RecipeOperand input_rows(const std::string& role) const {
    if (first_ || !traits_.input_norms)
      return from(Source::previous, on(role, stream_name(model_)));
    return on(role, "x");
  }
  /// The inputs of the projections of attention and of the MLP.
  [[nodiscard]] RecipeOperand attention_rows() const {
    if (b_.shares_blocks()) return on("input", at("normed1.whole"));
    return traits_.input_norms ? on("input", at("normed1")) : input_rows("input");
  }
  [[nodiscard]] RecipeOperand mlp_rows() const {
    if (b_.shares_blocks()) return on("input", at("normed2.whole"));
    return on("input", at(traits_.input_norms ? "normed2" : "mid"));
  }

  [[nodiscard]] std::optional<ParameterRole> bias_of(ParameterRole bias) const {
    const bool has = bias == ParameterRole::qkv_bias ? model_.qkv_bias : traits_.biases;
    return has ? std::optional(bias) : std::nullopt;
  }

  [[nodiscard]] RecipeOperand rope_table() const {
    return from(Source::global, on("rope_table", std::string(other_rope_ ? global::local_rope_table
                                                                         : global::rope_table)));
  }

  /// Forward up to the output of SwiGLU. In recomputation nothing is added to x, and backward
  /// computes that output. With output norms forward continues to mlp_out; recomputation stops
  /// before the MLP's output norm, whose 1 / rms was kept.
  void forward() {
    forward_attention();
    if (model_.output_norms)
      normed_projection("attention_out", attention_out_, at("attention"),
                        ParameterRole::attention_output_norm);
    else
      summed_projection(at("attention_out"), attention_out_, at("attention"), at("attention_out"),
                        ParameterRole::attention_out_bias);
    if (traits_.input_norms)
      b_.norm_forward(at("post_norm"), ParameterRole::post_norm,
                      {input_rows("residual"), on("delta", at("attention_out"))},
                      with_amax("normed2", {on("residual_out", at("mid")),
                                            on("normed", at("normed2")), on("rstd", at("rstd2"))}));
    if (experts_) return experts_->forward(suffix_);
    if (b_.shares_blocks())
      b_.whole_rows(at("normed2.rows"), on("input", at("normed2")), at("normed2.whole"));
    b_.gemm_forward(at("gate_up"), gate_up_, s_.tokens, mlp_rows(), on("output", at("gate_up")),
                    bias_of(ParameterRole::gate_up_bias));
    if (!again() || model_.output_norms)
      b_.kernel(
          at(gates_.name), gates_.forward, inner_,
          with_amax("product", {on(gates_.input, at("gate_up")), on("product", at("product"))}));
    if (model_.output_norms)
      normed_projection("mlp_out", down_, at("product"), ParameterRole::mlp_output_norm);
  }

  /// The projection back to the residual stream. Ranks of tp each make a term of all rows, and add
  /// the bias to their rows of the sum.
  void summed_projection(const std::string& name, const Linear& layer, const std::string& input,
                         const std::string& output, ParameterRole bias) {
    if (!b_.shares_blocks())
      return b_.gemm_forward(name, layer, s_.tokens, on("input", input), on("output", output),
                             bias_of(bias));
    const std::string terms = output + ".terms";
    b_.gemm_forward(name, layer, s_.tokens, on("input", input), on("output", terms));
    b_.row_sums(output + ".sums", terms, on("output", output));
    if (bias_of(bias))
      b_.kernel(output + ".bias", KernelKind::add_bias, {{"cols", s_.hidden}, {"rows", s_.rows}},
                {weight(bias), on("output", output)});
  }

  /// The projection to "NAME.raw", and its output norm to NAME.
  void normed_projection(const std::string& name, const Linear& layer, const std::string& input,
                         ParameterRole norm) {
    const std::string raw = at(name + ".raw");
    const bool last = norm == ParameterRole::mlp_output_norm;
    summed_projection(at(last ? "down" : name), layer, input, raw,
                      last ? ParameterRole::down_bias : ParameterRole::attention_out_bias);
    if (again() && last) return;
    std::vector<RecipeOperand> inputs{on("residual", raw)};
    std::string normed = at(name);
    if (!traits_.input_norms) {
      inputs.push_back(last ? on("skip", at("mid")) : input_rows("skip"));
      normed = last ? stream_name(model_) : at("mid");
    }
    std::vector<RecipeOperand> outputs{on("normed", normed), on("rstd", at(name + ".rstd"))};
    if (!traits_.input_norms && !last) outputs = with_amax("mid", std::move(outputs));
    b_.norm_forward(at(name + ".norm"), norm, std::move(inputs), std::move(outputs));
  }
  /// Backward of the output norm: from the gradient of its output to "d_NAME", which it returns.
  RecipeOperand normed_projection_backward(const std::string& name, ParameterRole norm) {
    const bool kept = norm == ParameterRole::mlp_output_norm;
    b_.norm_backward({.name = name + ".norm.backward",
                      .role = norm,
                      .d_normed = residual_gradient("d_normed"),
                      .input = on("input", at(name + ".raw")),
                      .rstd = on("rstd", kept ? name + ".rstd" : at(name + ".rstd")),
                      .d_residual = on("d_residual", "d_" + name),
                      .adds = false,
                      .takes_amax = b_.casts_by_amax()});
    return gradient_of_all_rows(name, on("d_output", "d_" + name));
  }

  void forward_input_norm() {
    std::vector<RecipeOperand> inputs;
    std::vector<RecipeOperand> outputs;
    if (first_ || again()) {
      inputs = {input_rows("residual")};
    } else {
      inputs = {from(Source::previous, on("residual", "mid")),
                from(Source::previous, on("delta", "mlp_out"))};
      outputs = {on("residual_out", "x")};
    }
    outputs.push_back(on("normed", at("normed1")));
    outputs.push_back(on("rstd", at("rstd1")));
    b_.norm_forward(at("input_norm"), ParameterRole::input_norm, std::move(inputs),
                    with_amax("normed1", std::move(outputs)));
  }

  void forward_attention() {
    if (traits_.input_norms) forward_input_norm();
    if (b_.shares_blocks() && !latent_)
      b_.whole_rows(at("normed1.rows"), on("input", at("normed1")), at("normed1.whole"));
    if (latent_) {
      latent_->forward(suffix_);
    } else {
      b_.gemm_forward(at("qkv"), qkv_, s_.tokens, attention_rows(), on("output", at("qkv")),
                      bias_of(ParameterRole::qkv_bias));
      if (key_parts_.apply()) key_parts_.join(suffix_);
      if (sequences_.by_heads()) sequences_.split("qkv", s_.qkv, sequences_.key_cols(), suffix_);
      if (traits_.rotates) rotate(by_heads("qkv"), at("qk"), at("qk_rstd"));
      if (s_.gathers_keys) sequences_.gather_keys(own_keys(at("qk")), suffix_);
    }
    if (s_.passes_keys) return ring_.forward(ring_inputs(at("qk")), own_keys(at("qk")), suffix_);
    std::vector<RecipeOperand> operands = attention_inputs(at("qk"), suffix_);
    for (RecipeOperand& operand :
         std::vector{on("output", by_heads("attention")), on("log_sum_exp", at("log_sum_exp")),
                     stream_workspace()})
      operands.push_back(std::move(operand));
    b_.kernel(at("attention"), KernelKind::attention_forward, attention_sizes(),
              with_positions(std::move(operands)));
    if (sequences_.by_heads()) sequences_.join("attention", s_.attention, 0, suffix_);
    if (traits_.sinks)
      b_.kernel(at("sinks"), KernelKind::sink_forward, sink_sizes(),
                {on("output", at("attention")), on("log_sum_exp", at("log_sum_exp")),
                 weight(ParameterRole::sinks)});
  }

  [[nodiscard]] std::vector<Attribute> sink_sizes() const {
    return {{"head_dim", model_.head_dim}, {"heads", s_.heads}, {"rows", s_.tokens}};
  }
  /// The attention backward kernel reads the output after sinks were applied; nothing else in it
  /// depends on sinks.
  void sinks_backward() {
    b_.kernel("sinks.backward", KernelKind::sink_backward, sink_sizes(),
              {on("output", at("attention")), on("d_output", "d_attention"),
               on("log_sum_exp", at("log_sum_exp")), weight(ParameterRole::sinks), on("d_sinks")},
              ParameterRole::sinks);
    b_.bias_grad("sinks.grad", ParameterRole::sinks, on("d_output", "d_sinks"), s_.tokens, s_.heads,
                 "sinks.partials");
  }

  /// RoPE in place on the query and key columns of qkv. With q/k norms the projection is kept, and
  /// the normed and rotated columns are written to another tensor.
  void rotate(const std::string& qkv, const std::string& qk, const std::string& rstd) {
    const RecipeOperand columns = strided(on("query_key", qkv), {s_.qkv_row, s_.head_dim, 1});
    if (!model_.qk_norm)
      return b_.kernel(at("rope"), KernelKind::rope_forward, rotation_sizes(),
                       with_positions({columns, rope_table()}));
    std::vector<Attribute> sizes = qk_norm_sizes();
    sizes.insert(sizes.begin() + 1, {"epsilon", model_.rms_norm_eps});
    b_.kernel(qk,
              traits_.whole_qk_norms ? KernelKind::qk_row_norm_rope_forward
                                     : KernelKind::qk_norm_rope_forward,
              std::move(sizes),
              with_positions({columns, rope_table(), weight(ParameterRole::q_norm),
                              weight(ParameterRole::k_norm), on("output", qk), on("rstd", rstd)}));
  }

  /// Positions of tokens within their documents, where attention is masked between documents.
  [[nodiscard]] std::vector<RecipeOperand> with_positions(
      std::vector<RecipeOperand> operands) const {
    if (b_.config.document_mask) operands.push_back(document_positions(s_));
    return operands;
  }

  /// Norms of each head, or over all `heads` heads of a kind.
  [[nodiscard]] std::vector<Attribute> qk_norm_sizes() const {
    std::vector<Attribute> sizes{heads_[0]};
    if (traits_.whole_qk_norms) sizes.emplace_back("key_heads", s_.kv_heads);
    sequences_.add_part(sizes);
    sizes.emplace_back("query_heads", s_.heads);
    sizes.push_back(heads_[1]);
    return b_.norm_attributes(std::move(sizes));
  }

  /// The tensor as attention has it: of whole sequences, with whole heads. Gradients have no suffix.
  [[nodiscard]] std::string by_heads(const std::string& name, const std::string& suffix) const {
    const bool joins = key_parts_.apply() && name.ends_with("qkv");
    return (sequences_.by_heads() || joins ? name + ".heads" : name) + suffix;
  }
  [[nodiscard]] std::string by_heads(const std::string& name) const {
    return by_heads(name, suffix_);
  }

  /// Rows of query and key heads.
  [[nodiscard]] std::vector<Attribute> rotation_sizes() const {
    std::vector<Attribute> sizes{heads_[0]};
    sequences_.add_part(sizes);
    sizes.push_back(heads_[1]);
    return sizes;
  }
  /// Query, key and value as views [batch, heads, seq, head_dim]. `gathered`: suffix of all ranks'
  /// keys and values, where these are gathered.
  [[nodiscard]] std::vector<RecipeOperand> attention_inputs(const std::string& qk,
                                                            const std::string& gathered) const {
    const std::int64_t query_key = s_.rotated * s_.head_dim;
    const std::int64_t row = model_.qk_norm ? query_key : s_.qkv_row;
    const std::string rotated = model_.qk_norm ? qk : by_heads("qkv");
    const auto view = [&](const char* role, const std::string& tensor, std::int64_t head_dim,
                          std::int64_t width, std::int64_t begin) {
      return strided(on(role, tensor), {b_.config.seq_len * width, head_dim, width, 1}, begin);
    };
    if (s_.gathers_keys) {
      const std::int64_t keys = sequences_.own_keys();
      return {own_query(qk), view("key", "all_keys" + gathered, s_.head_dim, 2 * keys, 0),
              view("value", "all_keys" + gathered, s_.head_dim, 2 * keys, keys)};
    }
    return {view("query", rotated, s_.head_dim, row, 0),
            view("key", rotated, s_.head_dim, row, s_.heads * s_.head_dim),
            view("value", by_heads("qkv"), model_.value_head_dim(), s_.qkv_row, query_key)};
  }

  /// The queries of a rank's own tokens.
  [[nodiscard]] RecipeOperand own_query(const std::string& qk) const {
    const std::int64_t queries = s_.attended / b_.config.micro_batch;
    const std::int64_t row = model_.qk_norm ? s_.rotated * s_.head_dim : s_.qkv_row;
    return strided(on("query", model_.qk_norm ? qk : by_heads("qkv")),
                   {queries * row, s_.head_dim, row, 1});
  }
  [[nodiscard]] SequenceExchange::KeySource own_keys(const std::string& qk) const {
    if (!model_.qk_norm) return {at("qkv"), s_.qkv_row, at("qkv")};
    return {qk, s_.rotated * s_.head_dim, at("qkv")};
  }
  [[nodiscard]] RingAttention::Inputs ring_inputs(const std::string& qk) const {
    return {.sizes = attention_sizes(), .query = own_query(qk), .positions = with_positions({})};
  }

  /// States only differences from Llama, which has no window, no softcap, and logits divided by
  /// head_dim's root.
  [[nodiscard]] std::vector<Attribute> attention_sizes() const {
    std::vector<Attribute> sizes{{"batch", b_.config.micro_batch},
                                 {"deterministic", b_.config.deterministic ? 1 : 0},
                                 {"head_dim", model_.head_dim},
                                 {"heads", s_.heads},
                                 {"kv_heads", s_.kv_heads}};
    sequences_.add_part(sizes);
    if (model_.query_scalar.num != 0) sizes.emplace_back("query_scalar", model_.query_scalar);
    if (model_.score_cap.num != 0) sizes.emplace_back("score_cap", model_.score_cap);
    sizes.emplace_back("seq", b_.config.seq_len);
    if (model_.value_dim != 0) sizes.emplace_back("value_dim", model_.value_dim);
    if (const std::int64_t window = model_.window_of(slides_, b_.config.seq_len); window != 0)
      sizes.emplace_back("window", window);
    return sizes;
  }

  /// The operands of a kernel that makes a tensor, with the amax for its casts. A tensor that is
  /// computed again has that of forward.
  [[nodiscard]] std::vector<RecipeOperand> with_amax(const char* made,
                                                     std::vector<RecipeOperand> operands) {
    if (b_.casts_by_amax() && !again()) operands.push_back(b_.amax_of(on("amax", made)));
    return operands;
  }

  static RecipeOperand residual_gradient(const char* role) {
    return from(Source::microbatch, on(role, "d_residual"));
  }

  /// Whether outputs of norms were kept. If not, the norm's backward recomputes its output in place
  /// of the gradient that it reads.
  [[nodiscard]] bool keeps_output() const { return recompute_ == Recompute::none; }
  /// Whether SwiGLU's output exists: kept, or recomputed for the MLP's output norm.
  [[nodiscard]] bool has_product() const {
    return keeps_output() || (recompute_ == Recompute::full && model_.output_norms);
  }
  [[nodiscard]] RecipeOperand kept_or(RecipeOperand operand) const {
    return keeps_output() ? operand : rewritten(std::move(operand));
  }

  void backward_mlp() {
    const RecipeOperand d_output =
        model_.output_norms ? normed_projection_backward("mlp_out", ParameterRole::mlp_output_norm)
                            : gradient_of_sum("mlp_out");
    const auto weight_gradient = [&] {
      b_.gemm_wgrad("down.wgrad", down_, s_.tokens, d_output,
                    on("input", has_product() ? at("product") : "d_product"),
                    weight_grad(ParameterRole::down));
    };
    if (casts_product()) {
      b_.cast_product("down", on("gate_up", at("gate_up")), s_.tokens, s_.intermediate);
      weight_gradient();
    }
    if (casts_product() && parts_d_product_)
      backward_of_parts(d_output);
    else
      backward_of_product(d_output);
    if (!casts_product() && !b_.shares_blocks()) weight_gradient();
    bias_of_sum_backward(ParameterRole::down_bias, d_output);
    bias_backward(ParameterRole::gate_up_bias, on("d_output", at("gate_up")), gate_up_.outputs);
    const auto norm = [this] {
      norm_backward("post_norm.backward", ParameterRole::post_norm, "d_normed2",
                    on("input", at("mid")), at("rstd2"));
    };
    begin_key_exchange();
    projection_backward("gate_up", gate_up_, on("d_output", at("gate_up")), mlp_rows(), "d_normed2",
                        weight_gradient, norm);
  }

  /// Whether SwiGLU's output is computed again as its cast alone.
  [[nodiscard]] bool casts_product() const {
    return b_.fp8 && b_.config.fp8 == Fp8Recipe::current && !has_product() &&
           gates_.forward == KernelKind::swiglu_forward;
  }
  /// Through the down projection and the activation, to the gradient of gate_up in its place.
  void backward_of_product(const RecipeOperand& d_output) {
    b_.gemm_dgrad("down.dgrad", down_, s_.tokens, d_output, on("d_input", "d_product"));
    gather_again("normed2");
    std::vector<RecipeOperand> activation{
        on(gates_.input, at("gate_up")),
        has_product() || casts_product() ? on("d_product") : rewritten(on("d_product"))};
    if (b_.casts_by_amax()) activation.push_back(b_.amax_of(on("amax", at("gate_up"))));
    b_.kernel(gates_.name + std::string(".backward"), gates_.backward, inner_,
              std::move(activation));
  }
  /// The same for some rows after the other. The largest magnitude is taken of all rows later.
  void backward_of_parts(const RecipeOperand& d_output) {
    b_.dgrad_in_parts(
        "down.dgrad", down_, s_.tokens, d_output, "d_product",
        [this](std::int64_t begin, const std::string& d_product) {
          RecipeOperand gate_up = on(gates_.input, at("gate_up"));
          gate_up.offset = checked_mul(begin, gate_up_.outputs);
          b_.kernel(gates_.name + std::string(".backward") + d_product.substr(d_product.find('.')),
                    gates_.backward, {{"cols", s_.intermediate}, {"rows", s_.tokens / 2}},
                    {std::move(gate_up), on("d_product", d_product)});
        });
  }

  /// The gradient of a projection back to the residual stream: of all rows.
  RecipeOperand gradient_of_sum(const std::string& output) {
    return gradient_of_all_rows(output, residual_gradient("d_output"));
  }
  RecipeOperand gradient_of_all_rows(const std::string& output, RecipeOperand rows) {
    if (!b_.shares_blocks()) return rows;
    b_.whole_rows("d_" + output + ".rows", std::move(rows), "d_" + output + ".whole");
    return on("d_output", "d_" + output + ".whole");
  }

  void backward_experts() {
    const ExpertMlp::Backward how{.suffix = suffix_, .keeps_output = keeps_output()};
    experts_->backward_rows(how);
    begin_key_exchange();
    norm_backward("post_norm.backward", ParameterRole::post_norm, "d_normed2",
                  on("input", at("mid")), at("rstd2"));
    experts_->backward_weights(how);
  }

  /// Backward of a projection. Its input is a norm's output, or the residual itself, to whose
  /// gradient it then adds. `other_weight_gradient`: of the projection before, which comes here where
  /// ranks of tp share both.
  void projection_backward(const std::string& name, const Linear& layer,
                           const RecipeOperand& d_output, RecipeOperand rows,
                           const std::string& d_normed, const auto& other_weight_gradient,
                           const auto& norm) {
    if (b_.shares_blocks())
      return shared_projection_backward(name, layer, d_output, d_normed, other_weight_gradient,
                                        norm);
    if (traits_.input_norms) {
      b_.gemm_dgrad(name + ".dgrad", layer, s_.tokens, d_output, on("d_input", d_normed));
      norm();
      if (!keeps_output()) rows = on("input", d_normed);
    }
    b_.gemm_wgrad(name + ".wgrad", layer, s_.tokens, d_output, std::move(rows),
                  weight_grad(layer.weight));
    if (!traits_.input_norms)
      b_.gemm_dgrad(name + ".dgrad", layer, s_.tokens, d_output, residual_gradient("d_input"),
                    true);
  }

  /// Where ranks of tp share the projection: its input's gradient is summed to rows. A collective
  /// begins when the GEMM that runs has ended, so it takes two weight gradients to hide the sum.
  void shared_projection_backward(const std::string& name, const Linear& layer,
                                  const RecipeOperand& d_output, const std::string& d_normed,
                                  const auto& other_weight_gradient, const auto& norm) {
    b_.gemm_dgrad(name + ".dgrad", layer, s_.tokens, d_output, on("d_input", d_normed + ".terms"));
    b_.row_sums(d_normed + ".sums", d_normed + ".terms", on("output", d_normed));
    other_weight_gradient();
    b_.gemm_wgrad(name + ".wgrad", layer, s_.tokens, d_output,
                  on("input", d_normed.substr(2) + ".back"), weight_grad(layer.weight));
    norm();
  }

  /// Where ranks of tp share blocks: gathers the norm's output once more, for a weight gradient that
  /// comes later. The kernels until then hide it.
  void gather_again(const std::string& normed) {
    if (b_.shares_blocks())
      b_.whole_rows(normed + ".back.rows", on("input", rows_again(normed)), normed + ".back");
  }

  /// The norm's output rows in backward: its tensor's name.
  std::string rows_again(const std::string& normed) {
    if (recompute_ != Recompute::selective) return at(normed);
    const bool of_mlp = normed == "normed2";
    const std::string made = normed + ".again";
    compute_again([&] {
      b_.norm_forward(made, of_mlp ? ParameterRole::post_norm : ParameterRole::input_norm,
                      {of_mlp ? on("residual", "mid") : input_rows("residual")},
                      {on("normed", made), on("rstd", of_mlp ? "rstd2" : "rstd1")});
    });
    return made;
  }

  void norm_backward(const std::string& name, ParameterRole role, const std::string& d_normed,
                     RecipeOperand input, const std::string& rstd) {
    const bool by_amax = role == ParameterRole::post_norm ? b_.casts_by_amax() : amax_below_;
    const bool of_experts = experts_ && role == ParameterRole::post_norm;
    const bool of_latent = latent_ && role == ParameterRole::input_norm;
    // Then rows_again() made its output.
    const bool gathers = b_.shares_blocks() && !of_experts && !of_latent;
    b_.norm_backward(
        {.name = name,
         .role = role,
         .d_normed = gathers ? on("d_normed", d_normed) : kept_or(on("d_normed", d_normed)),
         .input = std::move(input),
         .rstd = on("rstd", rstd),
         .d_residual = residual_gradient("d_residual"),
         .takes_amax = casts_residual_gradient(model_, by_amax)});
  }

  void backward_attention() {
    const RecipeOperand d_output =
        model_.output_norms
            ? normed_projection_backward("attention_out", ParameterRole::attention_output_norm)
            : gradient_of_sum("attention_out");
    b_.gemm_dgrad("attention_out.dgrad", attention_out_, s_.tokens, d_output,
                  on("d_input", "d_attention"));
    if (!latent_) gather_again("normed1");
    // The weight's gradient hides the exchange.
    if (sequences_.by_heads()) sequences_.split("d_attention", s_.attention, 0, "");
    const auto weight_gradient = [&] {
      b_.gemm_wgrad("attention_out.wgrad", attention_out_, s_.tokens, d_output,
                    on("input", at("attention")), weight_grad(ParameterRole::attention_out));
    };
    if (latent_ || (!b_.shares_blocks() && !s_.gathers_keys)) weight_gradient();
    bias_of_sum_backward(ParameterRole::attention_out_bias, d_output);
    if (traits_.sinks) sinks_backward();
    attention_backward();
    const auto norm = [this] {
      norm_backward("input_norm.backward", ParameterRole::input_norm, "d_normed1",
                    input_rows("input"), at("rstd1"));
    };
    if (latent_)
      return latent_->backward({.suffix = suffix_, .keeps_output = keeps_output(), .norm = norm});
    if (s_.gathers_keys) {
      sequences_.sum_key_gradients();
      if (!b_.shares_blocks()) weight_gradient();  // hides the sum
    }
    if (b_.config.has_chunks()) sequences_.join_gradients();
    if (traits_.rotates) rotate_backward();
    if (sequences_.by_heads()) sequences_.join("d_qkv", s_.qkv, sequences_.key_cols(), "");
    if (key_parts_.apply()) key_parts_.split_gradients();
    bias_backward(ParameterRole::qkv_bias, on("d_output", "d_qkv"), s_.qkv);
    projection_backward("qkv", qkv_, on("d_output", "d_qkv"), attention_rows(), "d_normed1",
                        weight_gradient, norm);
  }

  /// The normed and rotated queries and keys in backward: recomputed once from the projection's
  /// output where they are not kept.
  void rotate_again() {
    if (!qk_again_.empty()) return;
    qk_again_ = at("qk");
    if (!model_.qk_norm || recompute_ != Recompute::selective) return;
    qk_again_ = "qk.again";
    compute_again([&] { rotate(by_heads("qkv"), qk_again_, at("qk_rstd")); });
  }
  /// Keys are exchanged again: to keep them would take as much memory as without ranks of cp. The
  /// GEMMs until attention hide it.
  void begin_key_exchange() {
    if (!b_.config.has_chunks()) return;
    rotate_again();
    if (s_.gathers_keys) sequences_.gather_keys(own_keys(qk_again_), ".back");
    if (s_.passes_keys) ring_.begin_backward(own_keys(qk_again_));
  }

  void attention_backward() {
    rotate_again();
    const std::string& qk = qk_again_;
    if (s_.passes_keys) return ring_.backward(ring_inputs(qk), suffix_);
    const std::int64_t workspace =
        s_.gathers_keys ? kAttentionWorkspaceBytes
                        : attention_backward_workspace({.batch = b_.config.micro_batch,
                                                        .heads = s_.heads,
                                                        .kv_heads = s_.kv_heads,
                                                        .seq = b_.config.seq_len,
                                                        .head_dim = model_.head_dim,
                                                        .deterministic = b_.config.deterministic,
                                                        .compute = s_.compute});
    std::vector<RecipeOperand> operands = attention_inputs(qk, ".back");
    for (RecipeOperand& operand : std::vector{
             on("output", by_heads("attention")), on("d_output", by_heads("d_attention", "")),
             on("log_sum_exp", at("log_sum_exp")), on("d_query_sum"), on("row_sums"),
             shaped(on("workspace", "attention_workspace"), Access::scratch, DType::uint8,
                    {workspace})})
      operands.push_back(std::move(operand));
    const auto made = operands.begin() + 6;  // after what it reads
    if (s_.gathers_keys)
      operands.insert(made, {on("d_query"), on("d_key_value", "d_all_keys")});
    else
      operands.insert(made, on("d_qkv", by_heads("d_qkv", "")));
    b_.kernel("attention.backward", KernelKind::attention_backward, attention_sizes(),
              with_positions(std::move(operands)));
  }

  void rotate_backward() {
    const Shape strides{s_.qkv_row, s_.head_dim, 1};
    const RecipeOperand gradient = strided(on("d_query_key", by_heads("d_qkv", "")), strides);
    if (!model_.qk_norm)
      return b_.kernel("rope.backward", KernelKind::rope_backward, rotation_sizes(),
                       with_positions({gradient, rope_table()}));
    const std::int64_t query_width = model_.qk_norm_width(model_.heads);
    const std::int64_t key_width = model_.qk_norm_width(model_.kv_heads);
    const std::int64_t keys_begin = s_.norm_rows * query_width;
    b_.declare_partials("qk_norm.partials", keys_begin + s_.norm_rows * key_width);
    b_.kernel(
        "qk_norm.backward",
        traits_.whole_qk_norms ? KernelKind::qk_row_norm_rope_backward
                               : KernelKind::qk_norm_rope_backward,
        qk_norm_sizes(),
        with_positions({gradient, strided(on("query_key", by_heads("qkv")), strides), rope_table(),
                        on("rstd", at("qk_rstd")), weight(ParameterRole::q_norm),
                        weight(ParameterRole::k_norm), on("partials", "qk_norm.partials")}));
    b_.norm_weight_grad("q_norm.weight_grad", ParameterRole::q_norm, "qk_norm.partials",
                        query_width);
    b_.norm_weight_grad("k_norm.weight_grad", ParameterRole::k_norm, "qk_norm.partials", key_width,
                        keys_begin);
  }

  /// Does nothing where the model has no such bias.
  void bias_backward(ParameterRole bias, RecipeOperand d_output, std::int64_t cols) {
    if (!bias_of(bias)) return;
    add_bias_gradient(bias, std::move(d_output), s_.tokens, cols);
  }
  /// The same for a projection back to the residual stream: a rank of tp has rows of its gradient.
  void bias_of_sum_backward(ParameterRole bias, RecipeOperand d_output) {
    if (!bias_of(bias)) return;
    if (b_.shares_blocks()) d_output = residual_gradient("d_output");
    add_bias_gradient(bias, std::move(d_output), s_.rows, s_.hidden);
  }
  void add_bias_gradient(ParameterRole bias, RecipeOperand d_output, std::int64_t rows,
                         std::int64_t cols) {
    const std::string name(to_string(bias));
    b_.bias_grad(name + ".grad", bias, std::move(d_output), rows, cols,
                 bias == ParameterRole::qkv_bias ? "bias.partials" : name + ".partials");
  }

  /// The activation kernels of the MLP.
  struct Gates {
    const char* name;
    const char* input;  ///< role
    KernelKind forward;
    KernelKind backward;
  };
  static Gates gates_of(const ModelShape& model) {
    if (!model.traits().gated)
      return {"gelu", "input", KernelKind::gelu_forward, KernelKind::gelu_backward};
    const GatedKernels gated = gated_kernels(model.activation);
    return {gated.name, "gate_up", gated.forward, gated.backward};
  }

  Builder b_;
  SequenceExchange sequences_{b_};
  RingAttention ring_{b_, sequences_};
  KeyParts key_parts_{b_};
  const Sizes& s_;
  const ModelShape& model_;
  const FamilyTraits& traits_;
  Gates gates_;
  bool first_;
  Recompute recompute_;
  bool slides_;
  bool other_rope_;
  bool amax_below_;
  bool parts_d_product_;
  Linear qkv_;
  Linear attention_out_;
  Linear gate_up_;
  Linear down_;
  std::string qk_again_{};                 ///< rotate_again() has it
  std::vector<Attribute> heads_;           ///< rows of query and key heads
  std::vector<Attribute> inner_;           ///< rows of the MLP's inner width
  std::string suffix_;                     ///< of the tensors of full recomputation
  std::optional<ExpertMlp> experts_;       ///< in place of gate_up_ and down_
  std::optional<LatentAttention> latent_;  ///< in place of qkv_ and RoPE
};

}  // namespace

UnitRecipe block_recipe(const PlanConfig& config, const BlockKind& kind) {
  return BlockRecipe(config, kind).build();
}

}  // namespace mfsdp
