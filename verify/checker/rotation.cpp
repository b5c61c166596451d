// RoPE of queries and keys, with or without norms of them. Layers with a sliding window, or those
// without RoPE, may have a table of angles of their own.
#include "verify/checker/flows.hpp"
#include "verify/checker/model.hpp"

namespace mfsdp::checker {

bool Model::has_other_rope(Int owner) const {
  if (nope_.empty()) return two_tables_ && slides(owner);
  return std::ranges::find(nope_, owner - 1) != nope_.end();
}

void Model::add_rotation() {
  if (!two_tables_) return add_rotation_by("rope_table", {});
  add_rotation_by("rope_table", false);
  add_rotation_by("local_rope_table", true);
}

/// RoPE in place, or after the norm of each head into a tensor of its own.
void Model::add_rotation_by(const std::string& by, std::optional<bool> other_rope) {
  const Int rotated = heads_ + kv_heads_;
  const Int all = (rotated + kv_heads_) * head_dim_;
  const Shape heads{attended_, rotated, head_dim_};
  const Flow table = reads("rope_table", "fp32", {seq_, turned_}, by);
  std::map<std::string, Json> sizes = of_part({{"cols", rotated * head_dim_}, {"rows", attended_}});
  const Flow gradient =
      in_rows(turns("d_query_key", compute_, heads, "d_rotated", as_attended("d_qkv")), all);
  if (!qk_norm_) {
    add({.kernel = "rope_forward",
         .attributes = sizes,
         .flows = in_documents(
             {in_rows(turns("query_key", compute_, heads, as_attended("qkv"), "rotated"), all),
              table}),
         .other_rope = other_rope});
    return add({.kernel = "rope_backward",
                .attributes = sizes,
                .flows = in_documents({gradient, table}),
                .other_rope = other_rope});
  }
  sizes = norm_sizes(sizes);
  sizes["query_heads"] = heads_;
  if (whole_norms_) sizes["key_heads"] = kv_heads_;
  const std::string kernel = whole_norms_ ? "qk_row_norm_rope" : "qk_norm_rope";
  const Int norms = whole_norms_ ? 2 : rotated;  // of a token
  const Flow query = weight("q_norm", {whole_norms_ ? heads_ * head_dim_ : head_dim_});
  const Flow key = weight("k_norm", {whole_norms_ ? kv_heads_ * head_dim_ : head_dim_});
  const Flow columns = in_rows(reads("query_key", compute_, heads, as_attended("qkv")), all);
  const Int partial_rows = std::min(rows_, Int{256});
  const Shape partials =
      whole_norms_ ? Shape{partial_rows, rotated * head_dim_} : Shape{2 * partial_rows, head_dim_};
  add({.kernel = kernel + "_backward",
       .attributes = sizes,
       .flows = in_documents({gradient, columns, table,
                              reads("rstd", statistic, {tokens, norms}, "qk_rstd"), query, key,
                              makes("partials", statistic, partials, "qk_partials")}),
       .other_rope = other_rope});
  sizes["epsilon"] = config_.at("model").at("rms_norm_eps");
  add({.kernel = kernel + "_forward",
       .attributes = sizes,
       .flows =
           in_documents({columns, table, query, key, makes("output", compute_, heads, "query_key"),
                         makes("rstd", statistic, {tokens, norms}, "qk_rstd")}),
       .other_rope = other_rope});
}

}  // namespace mfsdp::checker
