// Latent attention: a token's row gives a low-rank vector c of keys and values, and k_r, the
// rotated elements of keys, which all heads share. Queries have a low-rank vector too, or are
// computed from the row directly.
//
//   c, k_r = x W_kv_a      keys' rest and values of heads = norm(c) W_kv_b
//   queries = norm(x W_q_a) W_q_b, or x W_q
//   a head: query | key = rest, RoPE(k_r) | value
//
// Ranks of tp have other heads, of the vectors of all rows. Each has a term of the gradient of k_r.
#include "verify/checker/flows.hpp"
#include "verify/checker/model.hpp"

namespace mfsdp::checker {

void Model::read_latent(const Json& model) {
  query_latent_ = model.value("query_latent", Int{0});
  kv_latent_ = model.value("kv_latent", Int{0});
  value_dim_ = model.value("value_dim", head_dim_);
  index_heads_ = model.value("index_heads", Int{0});
  index_dim_ = model.value("index_dim", Int{0});
  shared_index_ = model.value("shared_index_layers", shared_index_);
  const bool sizes = kv_latent_ >= 1 && query_latent_ >= 0 && value_dim_ >= 1 &&
                     turned_ < head_dim_ && kv_heads_ == heads_;
  const bool plain =
      !bias_ && !qk_norm_ && !centred_ && !output_norms_ && window_ == 0 && !two_tables_;
  if (latent_ ? !sizes || !plain : query_latent_ != 0 || kv_latent_ != 0 || value_dim_ != head_dim_)
    refuse("config: this checker does not know this latent attention");
  if (index_heads_ != 0 && (!latent_ || query_latent_ == 0 || index_dim_ < 1))
    refuse("config: this checker does not know this indexer");
}

/// Norms of latent vectors may have an epsilon of their own.
Json Model::latent_epsilon() const {
  const Json& model = config_.at("model");
  return model.contains("latent_norm_eps") ? model.at("latent_norm_eps") : model.at("rms_norm_eps");
}

void Model::add_parameters_of_latent(Parameters& of, const std::string& attention,
                                     bool has_indexer) const {
  const Int queries = times(heads_, head_dim_);
  const Int of_vector = times(heads_, head_dim_ - turned_ + value_dim_);
  if (query_latent_ == 0) {
    of["q"] = {attention + "q_proj.weight", {queries, hidden_}};
  } else {
    of["q_a"] = {attention + "q_a_proj.weight", {query_latent_, hidden_}};
    of["q_a_norm"] = {attention + "q_a_layernorm.weight", {query_latent_}};
    of["q_b"] = {attention + "q_b_proj.weight", {queries, query_latent_}};
  }
  of["kv_a"] = {attention + "kv_a_proj_with_mqa.weight", {kv_latent_ + turned_, hidden_}};
  of["kv_a_norm"] = {attention + "kv_a_layernorm.weight", {kv_latent_}};
  of["kv_b"] = {attention + "kv_b_proj.weight", {of_vector, kv_latent_}};
  if (!has_indexer) return;
  const std::string indexer = attention + "indexer.";
  of["index_q"] = {indexer + "wq_b.weight", {times(index_heads_, index_dim_), query_latent_}};
  of["index_k"] = {indexer + "wk.weight", {index_dim_, hidden_}};
  of["index_k_norm"] = {indexer + "k_norm.weight", {index_dim_}};
  of["index_k_norm_bias"] = {indexer + "k_norm.bias", {index_dim_}};
  of["index_weights"] = {indexer + "weights_proj.weight", {index_heads_, hidden_}};
}

void Model::add_latent_queries() {
  const Int queries = times(heads_, head_dim_);
  if (query_latent_ == 0)
    return add_product("q", Place::block, queries, hidden_,
                       {"normed1", "queries", "d_queries", "d_keys>d_normed1"});
  add_product("q_a", Place::block, query_latent_, hidden_,
              {"normed1", "q vector", "d_q vector", "d_keys>d_normed1"});
  add_product("q_b", Place::block, queries, query_latent_,
              {"normed q vector", "queries", "d_queries", "d_normed q vector"});
  const Shape rows{rows_, query_latent_};
  const Int partial_rows = std::min(rows_, Int{256});
  const Flow scale = weight("q_a_norm", {query_latent_});
  add({.kernel = "rms_norm_forward",
       .attributes = {{"cols", query_latent_}, {"epsilon", latent_epsilon()}, {"rows", rows_}},
       .flows = {reads("residual", compute_, rows, "q vector"),
                 makes("normed", compute_, rows, "normed q vector"),
                 makes("rstd", statistic, {rows_}, "rstd of q vector"), scale}});
  add({.kernel = "rms_norm_backward",
       .attributes = {{"beta", 0}, {"cols", query_latent_}, {"rows", rows_}},
       .flows = {turns("d_normed", compute_, rows, "d_normed q vector", "normed q vector", "may"),
                 reads("input", compute_, rows, "q vector"),
                 reads("rstd", statistic, {rows_}, "rstd of q vector"),
                 makes("d_residual", compute_, rows, "d_q vector"),
                 makes("partials", statistic, {partial_rows, query_latent_}, "q partials"),
                 scale}});
  add_weight_gradient("q_a_norm", Place::block, "q partials", query_latent_, 0);
}

void Model::add_latent_keys() {
  const Int of_vector = times(heads_, head_dim_ - turned_ + value_dim_);
  const Int width = kv_latent_ + turned_;
  add_product("kv_a", Place::block, width, hidden_,
              {"normed1", "kv vector", "d_kv vector", "d_keys"});
  add_product("kv_b", Place::block, of_vector, kv_latent_,
              {"normed kv vector", "keys and values", "d_keys and values", "d_normed kv vector"});
  const Shape whole{rows_, width};
  const Shape normed{rows_, kv_latent_};
  const Int partial_rows = std::min(rows_, Int{256});
  const Flow scale = weight("kv_a_norm", {kv_latent_});
  std::map<std::string, Json> sizes{{"cols", kv_latent_}, {"latent_width", width}, {"rows", rows_}};
  sizes["epsilon"] = latent_epsilon();
  add({.kernel = "latent_norm_forward",
       .attributes = sizes,
       .flows = {reads("input", compute_, whole, "kv vector"), scale,
                 makes("normed", compute_, normed, "normed kv vector"),
                 makes("rstd", statistic, {rows_}, "rstd of kv vector")}});
  sizes.erase("epsilon");
  sizes["rotated_dim"] = turned_;
  add({.kernel = "latent_norm_backward",
       .attributes = sizes,
       .flows = {
           turns("d_normed", compute_, normed, "d_normed kv vector", "normed kv vector", "may"),
           reads("input", compute_, whole, "kv vector"),
           reads("rstd", statistic, {rows_}, "rstd of kv vector"), scale,
           reads("d_turned", compute_, {rows_, turned_}, "d_turned"),
           makes("d_input", compute_, whole, "d_kv vector"),
           makes("partials", statistic, {partial_rows, kv_latent_}, "kv partials")}});
  add_weight_gradient("kv_a_norm", Place::block, "kv partials", kv_latent_, 0);
}

void Model::add_latent() {
  add_latent_queries();
  add_latent_keys();
  const Int of_head = head_dim_ - turned_ + value_dim_;
  const Int of_row = 2 * head_dim_ + value_dim_;
  const Shape queries{tokens, times(heads_, head_dim_)};
  const Shape key_values{tokens, times(heads_, of_head)};
  const Shape all{tokens, times(heads_, of_row)};
  const Flow table = reads("rope_table", "fp32", {seq_, turned_}, "rope_table");
  std::map<std::string, Json> sizes{{"head_dim", head_dim_},
                                    {"heads", heads_},
                                    {"key_value_dim", of_head},
                                    {"qkv_dim", of_row},
                                    {"rows", tokens}};
  add({.kernel = "latent_heads_backward",
       .attributes = sizes,
       .flows = in_documents(
           {reads("d_output", compute_, all, "d_qkv"), table,
            makes("d_query", compute_, queries, "d_queries"),
            makes("d_key_value", compute_, key_values, "d_keys and values"),
            makes("d_turned", compute_, {tokens, turned_}, in_terms("kv_b", 0, "d_turned"))})});
  sizes["latent_width"] = kv_latent_ + turned_;
  add({.kernel = "latent_heads_forward",
       .attributes = sizes,
       .flows = in_documents({reads("query", compute_, queries, "queries"),
                              reads("key_value", compute_, key_values, "keys and values"),
                              reads("latent", compute_, {tokens, kv_latent_ + turned_},
                                    of_all_rows("kv_b", 0, "kv vector")),
                              table, makes("output", compute_, all, "qkv")})});
}

}  // namespace mfsdp::checker
