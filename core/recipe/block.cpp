// One transformer block.
//
//   x --norm--> normed1 --gemm--> qkv --rope, attention--> attention --gemm--> attention_out
//   mid = x + attention_out --norm--> normed2 --gemm--> gate_up --swiglu--> product --gemm-->
//   mlp_out
//
// x of the next block is mid + mlp_out, added inside its norm. Saved for backward:
//   none        all of the above
//   selective   x, mid, qkv, attention, log-sum-exp, gate_up: no norm output, no SwiGLU product
//   full        x alone; backward runs the block forward again up to gate_up
#include <string>

#include "core/recipe/parts.hpp"

namespace mfsdp {
namespace {

using namespace recipe;  // the recipe reads as its list of kernels

class BlockRecipe {
 public:
  BlockRecipe(const PlanConfig& config, bool first, Recompute recompute)
      : b_(config), s_(b_.sizes), model_(config.model), first_(first), recompute_(recompute) {}

  UnitRecipe build() && {
    forward();
    b_.tensor("mlp_out", s_.compute, s_.tokens * s_.hidden);
    b_.gemm_forward("down", ParameterRole::down, s_.hidden, s_.intermediate,
                    read("input", "product", s_.compute, {s_.tokens, s_.intermediate}),
                    write("output", "mlp_out", s_.compute, {s_.tokens, s_.hidden}));
    b_.target = &b_.recipe.backward;
    if (recompute_ == Recompute::full) {
      b_.phase = Phase::recompute;
      suffix_ = ".again";
      forward();
    }
    b_.phase = Phase::backward;
    backward_mlp();
    backward_attention();
    return std::move(b_.recipe);
  }

 private:
  [[nodiscard]] bool again() const { return !suffix_.empty(); }
  [[nodiscard]] std::string at(const std::string& name) const { return name + suffix_; }
  [[nodiscard]] Shape rows(std::int64_t columns) const { return {s_.tokens, columns}; }

  /// The block's input rows: for the first block the embedding's output itself.
  [[nodiscard]] RecipeOperand input_rows(const std::string& role) const {
    return first_ ? from(Source::previous, read(role, "mid", s_.compute, rows(s_.hidden)))
                  : read(role, "x", s_.compute, rows(s_.hidden));
  }

  /// Everything up to the SwiGLU product; the second time nothing is added to x and the product
  /// is left to the backward.
  void forward() {
    declare();
    forward_attention();
    b_.gemm_forward(at("attention_out"), ParameterRole::attention_out, s_.hidden, s_.attention,
                    read("input", at("attention"), s_.compute, rows(s_.attention)),
                    write("output", at("attention_out"), s_.compute, rows(s_.hidden)));
    b_.norm_forward(
        at("post_norm"), ParameterRole::post_norm,
        {input_rows("residual"), read("delta", at("attention_out"), s_.compute, rows(s_.hidden))},
        {write("residual_out", at("mid"), s_.compute, rows(s_.hidden)),
         write("normed", at("normed2"), s_.compute, rows(s_.hidden)),
         write("rstd", at("rstd2"), s_.statistic, {s_.tokens})});
    b_.gemm_forward(at("gate_up"), ParameterRole::gate_up, 2 * s_.intermediate, s_.hidden,
                    read("input", at("normed2"), s_.compute, rows(s_.hidden)),
                    write("output", at("gate_up"), s_.compute, rows(2 * s_.intermediate)));
    if (again()) return;
    b_.tensor("product", s_.compute, s_.tokens * s_.intermediate);
    b_.add({.name = "swiglu",
            .phase = b_.phase,
            .kind = KernelKind::swiglu_forward,
            .operands = {read("gate_up", "gate_up", s_.compute, rows(2 * s_.intermediate)),
                         write("product", "product", s_.compute, rows(s_.intermediate))},
            .attributes = {{"cols", s_.intermediate}, {"rows", s_.tokens}},
            .flops = 0,
            .gradient_of = {}});
  }

  void declare() {
    const auto declare_as = [&](const std::string& name, DType dtype, std::int64_t elements) {
      b_.tensor(at(name), dtype, elements, Category::activation, Source::tensor,
                again() ? "again" : name);
    };
    const auto tensor = [&](const std::string& name, std::int64_t columns) {
      declare_as(name, s_.compute, s_.tokens * columns);
    };
    if (!first_ && !again()) tensor("x", s_.hidden);
    tensor("normed1", s_.hidden);
    declare_as("rstd1", s_.statistic, s_.tokens);
    tensor("qkv", s_.qkv);
    tensor("attention", s_.attention);
    declare_as("log_sum_exp", s_.statistic, s_.tokens * model_.heads);
    tensor("attention_out", s_.hidden);
    tensor("mid", s_.hidden);
    tensor("normed2", s_.hidden);
    declare_as("rstd2", s_.statistic, s_.tokens);
    tensor("gate_up", 2 * s_.intermediate);
  }

  void forward_attention() {
    std::vector<RecipeOperand> inputs;
    std::vector<RecipeOperand> outputs;
    if (first_ || again()) {
      inputs = {input_rows("residual")};
    } else {
      inputs = {from(Source::previous, read("residual", "mid", s_.compute, rows(s_.hidden))),
                from(Source::previous, read("delta", "mlp_out", s_.compute, rows(s_.hidden)))};
      outputs = {write("residual_out", "x", s_.compute, rows(s_.hidden))};
    }
    outputs.push_back(write("normed", at("normed1"), s_.compute, rows(s_.hidden)));
    outputs.push_back(write("rstd", at("rstd1"), s_.statistic, {s_.tokens}));
    b_.norm_forward(at("input_norm"), ParameterRole::input_norm, std::move(inputs),
                    std::move(outputs));
    b_.gemm_forward(at("qkv"), ParameterRole::qkv, s_.qkv, s_.hidden,
                    read("input", at("normed1"), s_.compute, rows(s_.hidden)),
                    write("output", at("qkv"), s_.compute, rows(s_.qkv)));
    if (model_.qkv_bias)
      b_.last().operands.push_back(weight(ParameterRole::qkv_bias, s_.compute, {s_.qkv}));
    rotate(at("qkv"), at("qk"));
    b_.add({.name = at("attention"),
            .phase = b_.phase,
            .kind = KernelKind::attention_forward,
            .operands = attention_operands(
                at("qk"),
                {write("output", at("attention"), s_.compute, rows(s_.attention)),
                 write("log_sum_exp", at("log_sum_exp"), s_.statistic, {s_.tokens, model_.heads}),
                 stream_workspace()}),
            .attributes = attention_attributes(),
            .flops = product_of(2, b_.config.micro_batch, model_.heads, model_.head_dim,
                                b_.config.seq_len, b_.config.seq_len),
            .gradient_of = {}});
  }

  /// RoPE in place on the query and key columns of qkv. With q/k norm the projection stays as it
  /// is and the normed, rotated columns go to a tensor of their own.
  void rotate(const std::string& qkv, const std::string& qk) {
    const std::int64_t heads = model_.heads + model_.kv_heads;
    const Shape shape{s_.tokens, heads, model_.head_dim};
    const Shape strides{s_.qkv, model_.head_dim, 1};
    const RecipeOperand table =
        from(Source::global, read("rope_table", std::string(global::rope_table), DType::fp32,
                                  {b_.config.seq_len, model_.head_dim}));
    const std::vector<Attribute> attributes{{"cols", heads * model_.head_dim}, {"rows", s_.tokens}};
    if (!model_.qk_norm) {
      RecipeOperand columns = update("query_key", qkv, s_.compute, shape);
      columns.strides = strides;
      b_.add({.name = at("rope"),
              .phase = b_.phase,
              .kind = KernelKind::rope_forward,
              .operands = {std::move(columns), table},
              .attributes = attributes,
              .flops = 0,
              .gradient_of = {}});
      return;
    }
    const auto declare_as = [&](const std::string& name, DType dtype, std::int64_t elements,
                                const char* slots) {
      b_.tensor(name, dtype, elements, Category::activation, Source::tensor, slots);
    };
    declare_as(qk, s_.compute, s_.tokens * heads * model_.head_dim, qk == "qk" ? "qk" : "again");
    if (b_.phase == Phase::forward || again())
      declare_as(at("qk_rstd"), s_.statistic, s_.tokens * heads, again() ? "again" : "qk_rstd");
    RecipeOperand columns = read("query_key", qkv, s_.compute, shape);
    columns.strides = strides;
    b_.add({.name = qk,
            .phase = b_.phase,
            .kind = KernelKind::qk_norm_rope_forward,
            .operands = {std::move(columns), table,
                         weight(ParameterRole::q_norm, s_.compute, {model_.head_dim}),
                         weight(ParameterRole::k_norm, s_.compute, {model_.head_dim}),
                         write("output", qk, s_.compute, shape),
                         write("rstd", at("qk_rstd"), s_.statistic, {s_.tokens, heads})},
            .attributes = {{"cols", heads * model_.head_dim},
                           {"epsilon", model_.rms_norm_eps},
                           {"query_heads", model_.heads},
                           {"rows", s_.tokens}},
            .flops = 0,
            .gradient_of = {}});
  }

  /// Query, key and value as views [batch, heads, seq, head_dim], then `others`.
  std::vector<RecipeOperand> attention_operands(const std::string& qk,
                                                std::vector<RecipeOperand> others) const {
    const std::int64_t query_key = (model_.heads + model_.kv_heads) * model_.head_dim;
    const std::int64_t row = model_.qk_norm ? query_key : s_.qkv;
    const std::string rotated = model_.qk_norm ? qk : at("qkv");
    std::vector<RecipeOperand> operands{
        head_view("query", rotated, model_.heads, row, 0),
        head_view("key", rotated, model_.kv_heads, row, model_.heads * model_.head_dim),
        head_view("value", at("qkv"), model_.kv_heads, s_.qkv, query_key)};
    for (RecipeOperand& other : others) operands.push_back(std::move(other));
    return operands;
  }

  RecipeOperand head_view(const std::string& role, const std::string& tensor, std::int64_t heads,
                          std::int64_t row, std::int64_t offset) const {
    RecipeOperand view = read(role, tensor, s_.compute,
                              {b_.config.micro_batch, heads, b_.config.seq_len, model_.head_dim});
    view.strides = {b_.config.seq_len * row, model_.head_dim, row, 1};
    view.offset = offset;
    return view;
  }

  std::vector<Attribute> attention_attributes() const {
    return {{"batch", b_.config.micro_batch}, {"deterministic", b_.config.deterministic ? 1 : 0},
            {"head_dim", model_.head_dim},    {"heads", model_.heads},
            {"kv_heads", model_.kv_heads},    {"seq", b_.config.seq_len}};
  }

  [[nodiscard]] RecipeOperand residual_gradient(Access access) const {
    RecipeOperand gradient =
        from(Source::microbatch, read(access == Access::read ? "d_output" : "d_residual",
                                      "d_residual", s_.compute, rows(s_.hidden)));
    gradient.access = access;
    return gradient;
  }

  /// `keeps_output`: the norm's output is still there; otherwise the backward writes it again over
  /// the gradient that it has just read.
  [[nodiscard]] bool keeps_output() const { return recompute_ == Recompute::none; }

  void backward_mlp() {
    const Shape inner = rows(s_.intermediate);
    b_.tensor("d_product", s_.compute, s_.tokens * s_.intermediate);
    b_.gemm_dgrad("down.dgrad", ParameterRole::down, s_.hidden, s_.intermediate,
                  residual_gradient(Access::read),
                  write("d_input", "d_product", s_.compute, inner));
    const bool product_kept = keeps_output();
    b_.add({.name = "swiglu.backward",
            .phase = b_.phase,
            .kind = KernelKind::swiglu_backward,
            .operands = {update("gate_up", at("gate_up"), s_.compute, rows(2 * s_.intermediate)),
                         product_kept ? read("d_product", "d_product", s_.compute, inner)
                                      : update("d_product", "d_product", s_.compute, inner)},
            .attributes = {{"cols", s_.intermediate}, {"rows", s_.tokens}},
            .flops = 0,
            .gradient_of = {}});
    b_.gemm_wgrad("down.wgrad", ParameterRole::down, residual_gradient(Access::read),
                  read("input", product_kept ? "product" : "d_product", s_.compute, inner),
                  weight_grad(ParameterRole::down, {s_.hidden, s_.intermediate}));
    b_.tensor("d_normed2", s_.compute, s_.tokens * s_.hidden);
    b_.gemm_dgrad("gate_up.dgrad", ParameterRole::gate_up, 2 * s_.intermediate, s_.hidden,
                  read("d_output", at("gate_up"), s_.compute, rows(2 * s_.intermediate)),
                  write("d_input", "d_normed2", s_.compute, rows(s_.hidden)));
    norm_backward("post_norm.backward", ParameterRole::post_norm, "d_normed2",
                  read("input", at("mid"), s_.compute, rows(s_.hidden)), at("rstd2"));
    b_.gemm_wgrad("gate_up.wgrad", ParameterRole::gate_up,
                  read("d_output", at("gate_up"), s_.compute, rows(2 * s_.intermediate)),
                  normed("normed2", "d_normed2"),
                  weight_grad(ParameterRole::gate_up, {2 * s_.intermediate, s_.hidden}));
  }

  void norm_backward(const std::string& name, ParameterRole role, const std::string& d_normed,
                     RecipeOperand input, const std::string& rstd) {
    RecipeOperand gradient = read("d_normed", d_normed, s_.compute, rows(s_.hidden));
    if (!keeps_output()) gradient.access = Access::read_write;
    b_.norm_backward({.name = name,
                      .role = role,
                      .d_normed = std::move(gradient),
                      .input = std::move(input),
                      .rstd = read("rstd", rstd, s_.statistic, {s_.tokens}),
                      .d_residual = residual_gradient(Access::read_write)});
  }

  [[nodiscard]] RecipeOperand normed(const std::string& kept, const std::string& again) const {
    return read("input", keeps_output() ? kept : again, s_.compute, rows(s_.hidden));
  }

  void backward_attention() {
    b_.tensor("d_attention", s_.compute, s_.tokens * s_.attention);
    b_.gemm_dgrad("attention_out.dgrad", ParameterRole::attention_out, s_.hidden, s_.attention,
                  residual_gradient(Access::read),
                  write("d_input", "d_attention", s_.compute, rows(s_.attention)));
    b_.gemm_wgrad("attention_out.wgrad", ParameterRole::attention_out,
                  residual_gradient(Access::read),
                  read("input", at("attention"), s_.compute, rows(s_.attention)),
                  weight_grad(ParameterRole::attention_out, {s_.hidden, s_.attention}));
    attention_backward();
    rotate_backward();
    if (model_.qkv_bias) bias_backward();
    b_.tensor("d_normed1", s_.compute, s_.tokens * s_.hidden);
    b_.gemm_dgrad("qkv.dgrad", ParameterRole::qkv, s_.qkv, s_.hidden,
                  read("d_output", "d_qkv", s_.compute, rows(s_.qkv)),
                  write("d_input", "d_normed1", s_.compute, rows(s_.hidden)));
    norm_backward("input_norm.backward", ParameterRole::input_norm, "d_normed1",
                  input_rows("input"), at("rstd1"));
    b_.gemm_wgrad(
        "qkv.wgrad", ParameterRole::qkv, read("d_output", "d_qkv", s_.compute, rows(s_.qkv)),
        normed("normed1", "d_normed1"), weight_grad(ParameterRole::qkv, {s_.qkv, s_.hidden}));
  }

  void attention_backward() {
    std::string qk = at("qk");
    if (model_.qk_norm && recompute_ == Recompute::selective) {
      // A norm's output: made again from the projection, which is kept; so is its rstd.
      qk = "qk.again";
      b_.phase = Phase::recompute;
      rotate(at("qkv"), qk);
      b_.phase = Phase::backward;
    }
    const std::int64_t workspace = attention_backward_workspace(b_.config);
    b_.tensor("d_qkv", s_.compute, s_.tokens * s_.qkv);
    b_.tensor("d_query_sum", s_.statistic, s_.tokens * s_.attention, Category::workspace);
    b_.tensor("row_sums", s_.statistic, s_.tokens * model_.heads, Category::workspace);
    b_.tensor("attention_workspace", DType::uint8, workspace, Category::workspace);
    b_.add(
        {.name = "attention.backward",
         .phase = b_.phase,
         .kind = KernelKind::attention_backward,
         .operands = attention_operands(
             qk, {read("output", at("attention"), s_.compute, rows(s_.attention)),
                  read("d_output", "d_attention", s_.compute, rows(s_.attention)),
                  read("log_sum_exp", at("log_sum_exp"), s_.statistic, {s_.tokens, model_.heads}),
                  write("d_qkv", "d_qkv", s_.compute, rows(s_.qkv)),
                  scratch("d_query_sum", "d_query_sum", s_.statistic, rows(s_.attention)),
                  scratch("row_sums", "row_sums", s_.statistic, {s_.tokens, model_.heads}),
                  scratch("workspace", "attention_workspace", DType::uint8, {workspace})}),
         .attributes = attention_attributes(),
         .flops = product_of(5, b_.config.micro_batch, model_.heads, model_.head_dim,
                             b_.config.seq_len, b_.config.seq_len),
         .gradient_of = {}});
  }

  void rotate_backward() {
    const std::int64_t heads = model_.heads + model_.kv_heads;
    const Shape shape{s_.tokens, heads, model_.head_dim};
    RecipeOperand gradient = update("d_query_key", "d_qkv", s_.compute, shape);
    gradient.strides = {s_.qkv, model_.head_dim, 1};
    const RecipeOperand table =
        from(Source::global, read("rope_table", std::string(global::rope_table), DType::fp32,
                                  {b_.config.seq_len, model_.head_dim}));
    const std::vector<Attribute> attributes{{"cols", heads * model_.head_dim}, {"rows", s_.tokens}};
    if (!model_.qk_norm) {
      b_.add({.name = "rope.backward",
              .phase = b_.phase,
              .kind = KernelKind::rope_backward,
              .operands = {std::move(gradient), table},
              .attributes = attributes,
              .flops = 0,
              .gradient_of = {}});
      return;
    }
    const Shape partial_shape{2 * s_.norm_rows, model_.head_dim};
    b_.tensor("qk_norm.partials", s_.statistic, 2 * s_.norm_rows * model_.head_dim,
              Category::workspace, Source::tensor, "partials");
    RecipeOperand columns = read("query_key", at("qkv"), s_.compute, shape);
    columns.strides = gradient.strides;
    b_.add({.name = "qk_norm.backward",
            .phase = b_.phase,
            .kind = KernelKind::qk_norm_rope_backward,
            .operands = {std::move(gradient), std::move(columns), table,
                         read("rstd", at("qk_rstd"), s_.statistic, {s_.tokens, heads}),
                         weight(ParameterRole::q_norm, s_.compute, {model_.head_dim}),
                         weight(ParameterRole::k_norm, s_.compute, {model_.head_dim}),
                         write("partials", "qk_norm.partials", s_.statistic, partial_shape)},
            .attributes = {{"cols", heads * model_.head_dim},
                           {"query_heads", model_.heads},
                           {"rows", s_.tokens}},
            .flops = 0,
            .gradient_of = {}});
    for (const auto& [name, role, half] :
         {std::tuple{"q_norm.weight_grad", ParameterRole::q_norm, std::int64_t{0}},
          std::tuple{"k_norm.weight_grad", ParameterRole::k_norm, std::int64_t{1}}}) {
      RecipeOperand partials =
          read("partials", "qk_norm.partials", s_.statistic, {s_.norm_rows, model_.head_dim});
      partials.offset = half * s_.norm_rows * model_.head_dim;
      b_.add({.name = name,
              .phase = b_.phase,
              .kind = KernelKind::norm_weight_grad,
              .operands = {std::move(partials), weight_grad(role, {model_.head_dim})},
              .attributes = {{"beta", 0}, {"cols", model_.head_dim}, {"rows", s_.norm_rows}},
              .flops = 0,
              .gradient_of = role});
    }
  }

  void bias_backward() {
    b_.tensor("bias.partials", s_.statistic, s_.norm_rows * s_.qkv, Category::workspace,
              Source::tensor, "partials");
    b_.add({.name = "qkv_bias.grad",
            .phase = b_.phase,
            .kind = KernelKind::bias_grad,
            .operands = {read("d_output", "d_qkv", s_.compute, rows(s_.qkv)),
                         scratch("partials", "bias.partials", s_.statistic, {s_.norm_rows, s_.qkv}),
                         weight_grad(ParameterRole::qkv_bias, {s_.qkv})},
            .attributes = {{"beta", 0}, {"cols", s_.qkv}, {"rows", s_.tokens}},
            .flops = 0,
            .gradient_of = ParameterRole::qkv_bias});
  }

  Builder b_;
  const Sizes& s_;
  const ModelShape& model_;
  bool first_;
  Recompute recompute_;
  std::string suffix_;  ///< names what full recompute makes again
};

}  // namespace

std::int64_t attention_backward_workspace(const PlanConfig& config) {
  const std::int64_t element = size_of(config.param_dtype);
  std::int64_t bytes = kAttentionWorkspaceBytes;
  if (element != 2) return bytes;
  const ModelShape& model = config.model;
  if (model.heads != model.kv_heads) {
    const std::int64_t gradient =
        product_of(config.tokens_per_microbatch(), model.attention_width(), element);
    bytes = checked_add(bytes, checked_mul(2, round_up(gradient, 128)));
  }
  if (config.deterministic)
    bytes =
        checked_add(bytes, product_of(config.micro_batch, model.heads, round_up(config.seq_len, 64),
                                      round_up(config.seq_len, 128), element));
  return bytes;
}

UnitRecipe block_recipe(const PlanConfig& config, bool first, Recompute recompute) {
  return BlockRecipe(config, first, recompute).build();
}

}  // namespace mfsdp
