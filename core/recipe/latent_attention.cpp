#include "core/recipe/latent_attention.hpp"

#include <utility>

namespace mfsdp::recipe {

using P = ParameterRole;

LatentAttention::LatentAttention(Builder& builder, std::vector<RecipeOperand> rope)
    : b_(builder),
      model_(builder.config.model),
      rope_(std::move(rope)),
      tokens_(builder.sizes.tokens),
      rows_(builder.sizes.rows),
      heads_(builder.sizes.heads),
      width_(model_.kv_latent + model_.rotary_dim),
      q_{.weight = P::q, .outputs = model_.heads * model_.head_dim, .inputs = builder.sizes.hidden},
      q_a_{.weight = P::q_a, .outputs = model_.query_latent, .inputs = builder.sizes.hidden},
      q_b_{.weight = P::q_b, .outputs = heads_ * model_.head_dim, .inputs = model_.query_latent},
      kv_a_{.weight = P::kv_a, .outputs = width_, .inputs = builder.sizes.hidden},
      kv_b_{.weight = P::kv_b,
            .outputs = heads_ * model_.key_value_dim(),
            .inputs = model_.kv_latent} {}

std::vector<Attribute> LatentAttention::head_sizes(bool forward) const {
  std::vector<Attribute> sizes{
      {"head_dim", model_.head_dim}, {"heads", heads_}, {"key_value_dim", model_.key_value_dim()}};
  if (forward) sizes.emplace_back("latent_width", width_);
  sizes.emplace_back("qkv_dim", 2 * model_.head_dim + model_.value_head_dim());
  sizes.emplace_back("rows", tokens_);
  return sizes;
}

std::string LatentAttention::whole(const std::string& rows, std::int64_t cols,
                                   const std::string& whole) {
  if (!b_.shares_blocks()) return rows;
  const DType dtype = b_.sizes.compute;
  b_.gather_parts(whole + ".rows", Axis::tp,
                  shaped(on("input", rows), Access::read, dtype, {rows_, cols}),
                  shaped(on("output", whole), Access::write, dtype, {tokens_, cols}));
  return whole;
}

std::string LatentAttention::terms(const std::string& rows) const {
  return b_.shares_blocks() ? rows + ".terms" : rows;
}

void LatentAttention::sum(const std::string& rows, std::int64_t cols) {
  if (!b_.shares_blocks()) return;
  const DType dtype = b_.sizes.compute;
  b_.sum_parts(rows + ".sums", Axis::tp,
               shaped(on("input", terms(rows)), Access::read, dtype, {tokens_, cols}),
               shaped(on("output", rows), Access::write, dtype, {rows_, cols}));
}

std::vector<Attribute> LatentAttention::latent_sizes() const {
  return {{"cols", model_.kv_latent}, {"latent_width", width_}, {"rows", rows_}};
}

void LatentAttention::forward(const std::string& suffix) {
  const auto at = [&](const char* name) { return name + suffix; };
  const RecipeOperand normed = on("input", at("normed1"));
  if (model_.query_latent == 0) {
    b_.gemm_forward(at("query"), q_, rows_, normed, on("output", at("query")));
  } else {
    b_.gemm_forward(at("q_latent"), q_a_, rows_, normed, on("output", at("q_latent")));
    b_.norm_forward(at("q_latent.norm"), P::q_a_norm, {on("residual", at("q_latent"))},
                    {on("normed", at("q_latent.normed")), on("rstd", at("q_latent.rstd"))},
                    model_.query_latent);
    const std::string normed_rows =
        whole(at("q_latent.normed"), model_.query_latent, at("q_latent.whole"));
    b_.gemm_forward(at("query"), q_b_, tokens_, on("input", normed_rows),
                    on("output", at("query")));
  }
  b_.gemm_forward(at("kv_latent"), kv_a_, rows_, normed, on("output", at("kv_latent")));
  std::vector<Attribute> sizes = latent_sizes();
  sizes.insert(sizes.begin() + 1, {"epsilon", model_.latent_eps()});
  b_.kernel(at("kv_latent.norm"), KernelKind::latent_norm_forward, std::move(sizes),
            {on("input", at("kv_latent")), weight(P::kv_a_norm),
             on("normed", at("kv_latent.normed")), on("rstd", at("kv_latent.rstd"))});
  const std::string normed_rows =
      whole(at("kv_latent.normed"), model_.kv_latent, at("kv_latent.normed.whole"));
  b_.gemm_forward(at("key_value"), kv_b_, tokens_, on("input", normed_rows),
                  on("output", at("key_value")));
  std::vector<RecipeOperand> operands{
      on("query", at("query")), on("key_value", at("key_value")),
      on("latent", whole(at("kv_latent"), width_, at("kv_latent.whole")))};
  operands.insert(operands.end(), rope_.begin(), rope_.end());
  operands.push_back(on("output", at("qkv")));
  b_.kernel(at("heads"), KernelKind::latent_heads_forward, head_sizes(true), std::move(operands));
}

void LatentAttention::backward(const Backward& how) {
  std::vector<RecipeOperand> operands{on("d_output", "d_qkv")};
  operands.insert(operands.end(), rope_.begin(), rope_.end());
  for (const char* made : {"d_query", "d_key_value"}) operands.push_back(on(made));
  operands.push_back(on("d_turned", terms("d_turned")));
  b_.kernel("heads.backward", KernelKind::latent_heads_backward, head_sizes(false),
            std::move(operands));
  sum("d_turned", model_.rotary_dim);
  key_value_backward(how);
  query_backward(how);
  how.norm();
  const RecipeOperand normed = on("input", how.keeps_output ? "normed1" : "d_normed1");
  const bool has_latent = model_.query_latent != 0;
  const Linear& query = has_latent ? q_a_ : q_;
  b_.gemm_wgrad("kv_latent.wgrad", kv_a_, rows_, on("d_output", "d_kv_latent"), normed,
                weight_grad(P::kv_a));
  b_.gemm_wgrad(has_latent ? "q_latent.wgrad" : "query.wgrad", query, rows_,
                on("d_output", has_latent ? "d_q_latent" : "d_query"), normed,
                weight_grad(query.weight));
}

void LatentAttention::key_value_backward(const Backward& how) {
  const auto at = [&](const char* name) { return name + how.suffix; };
  const RecipeOperand d_key_value = on("d_output", "d_key_value");
  b_.gemm_dgrad("key_value.dgrad", kv_b_, tokens_, d_key_value,
                on("d_input", terms("d_kv_normed")));
  sum("d_kv_normed", model_.kv_latent);
  const std::string partials = "kv_latent.partials";
  b_.declare_partials(partials, b_.sizes.norm_rows * model_.kv_latent);
  std::vector<Attribute> sizes = latent_sizes();
  sizes.insert(sizes.begin() + 2, {"rotated_dim", model_.rotary_dim});
  const RecipeOperand d_normed = on("d_normed", "d_kv_normed");
  b_.kernel("kv_latent.norm.backward", KernelKind::latent_norm_backward, std::move(sizes),
            {how.keeps_output ? d_normed : rewritten(d_normed), on("input", at("kv_latent")),
             on("rstd", at("kv_latent.rstd")), weight(P::kv_a_norm), on("d_turned"),
             on("d_input", "d_kv_latent"), on("partials", partials)});
  b_.norm_weight_grad("kv_latent.norm.weight_grad", P::kv_a_norm, partials, model_.kv_latent);
  const std::string made = how.keeps_output ? at("kv_latent.normed") : "d_kv_normed";
  b_.gemm_wgrad("key_value.wgrad", kv_b_, tokens_, d_key_value,
                on("input", whole(made, model_.kv_latent, "kv_latent.normed.back")),
                weight_grad(P::kv_b));
  b_.gemm_dgrad("kv_latent.dgrad", kv_a_, rows_, on("d_output", "d_kv_latent"),
                on("d_input", "d_normed1"));
}

void LatentAttention::query_backward(const Backward& how) {
  const auto at = [&](const char* name) { return name + how.suffix; };
  const RecipeOperand d_query = on("d_output", "d_query");
  if (model_.query_latent == 0)
    return b_.gemm_dgrad("query.dgrad", q_, rows_, d_query, on("d_input", "d_normed1"), true);
  b_.gemm_dgrad("query.dgrad", q_b_, tokens_, d_query, on("d_input", terms("d_q_normed")));
  sum("d_q_normed", model_.query_latent);
  const RecipeOperand d_normed = on("d_normed", "d_q_normed");
  b_.norm_backward({.name = "q_latent.norm.backward",
                    .role = P::q_a_norm,
                    .d_normed = how.keeps_output ? d_normed : rewritten(d_normed),
                    .input = on("input", at("q_latent")),
                    .rstd = on("rstd", at("q_latent.rstd")),
                    .d_residual = on("d_residual", "d_q_latent"),
                    .adds = false,
                    .cols = model_.query_latent});
  const std::string made = how.keeps_output ? at("q_latent.normed") : "d_q_normed";
  b_.gemm_wgrad("query.wgrad", q_b_, tokens_, d_query,
                on("input", whole(made, model_.query_latent, "q_latent.back")),
                weight_grad(P::q_b));
  b_.gemm_dgrad("q_latent.dgrad", q_a_, rows_, on("d_output", "d_q_latent"),
                on("d_input", "d_normed1"), true);
}

}  // namespace mfsdp::recipe
