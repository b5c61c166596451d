// Ranks of cp share the tokens of each sequence: each has as many consecutive ones, in the order of
// ranks. A query sees the keys of all tokens before it, so attention, and RoPE before it, work on
// whole sequences, with as many heads on each rank.
//
//   qkv, rows of a rank's tokens -> by groups of heads     all_to_all over cp: of whole sequences
//   attention of whole sequences      all_to_all: by groups of heads -> rows of a rank's tokens
//
// A group has a rank's queries, then its keys, then its values.
//
// Or the keys and values of all tokens come to each rank, whose queries are those of its own tokens.
// These are the first chunk that no rank before has taken, and the last one, so that ranks have
// equally many keys to see:
//
//   keys, values of a rank's tokens      all_gather over cp: of all tokens
//   a term of their gradients, of all tokens      reduce_scatter over cp: of a rank's tokens
//
// or one rank's at a time (ring.cpp).
#include "verify/checker/flows.hpp"
#include "verify/checker/model.hpp"

namespace mfsdp::checker {
namespace {

const std::string kGroups = " by groups of heads";
const std::string kSequences = " of whole sequences";
const std::string kKeys = "keys and values";
const std::string kKeyGradient = "d_keys and values";
const std::string kAllTokens = " of all tokens";
const std::string kTermOfKeys = "a term of d_keys and values";

}  // namespace

void Model::read_context_ranks(const PlanView& view) {
  context_ranks_ = view.ranks_on("cp");
  attended_ = places_ = tokens;
  gathers_keys_ = config_.value("cp_comm", "a2a") == "all_gather";
  passes_keys_ = config_.value("cp_comm", "a2a") == "p2p";
  if (config_.contains("cp_comm") && !has_chunks())
    refuse("config: this checker does not know cp_comm {}", config_.at("cp_comm").dump());
  if (has_chunks() && context_ranks_ == 1) refuse("config: exchanges keys on one rank of cp");
  const bool by_sequences = latent_ || !rotates_ || qk_norm_;
  piece_ = by_sequences ? seq_ : std::min(seq_, config_.at("logits_chunk").get<Int>());
  if (context_ranks_ == 1) return;
  const bool others = latent_ || !rotates_ || sinks_ || (qk_norm_ && exact_) ||
                      (qk_norm_ && whole_norms_ && !has_chunks()) ||
                      (experts_ != 0 && !balance_.is_null()) || view.classes > 1 ||
                      config_.at("optimizer") == "muon" || (batch_ != 1 && !passes_keys_);
  const bool uneven = has_chunks()
                          ? seq_ % times(2, context_ranks_) != 0 || exact_
                          : heads_ % context_ranks_ != 0 || kv_heads_ % context_ranks_ != 0 ||
                                seq_ % context_ranks_ != 0;
  if (others || uneven || (exact_ && seq_ / context_ranks_ % piece_ != 0))
    refuse("config: this checker does not know the model with {} ranks on cp", context_ranks_);
  tokens = places_ / context_ranks_;
  if (has_chunks()) attended_ = tokens;
  if (token_rows > 2) token_rows = plus(2, context_ranks_);
}

/// The name of a value as attention reads or makes it.
std::string Model::as_attended(const std::string& value) const {
  if (context_ranks_ == 1 || has_chunks()) return in_whole_heads(value);
  return value + kSequences;
}

/// The attributes of a kernel that works on a rank's part of a sequence.
std::map<std::string, Json> Model::of_part(std::map<std::string, Json> sizes) const {
  if (!has_chunks()) return sizes;
  sizes["parts"] = context_ranks_;
  sizes["part"] = {{"name", "part"}, {"per", {{{"axis", "cp"}, {"step", 1}}}}, {"value", 0}};
  return sizes;
}

/// Queries of a rank's tokens: columns of qkv, or of the rows of normed queries and keys.
Flow Model::own_query() const {
  const Shape heads{batch_, heads_, seq_ / context_ranks_, head_dim_};
  const Int rotated = (heads_ + kv_heads_) * head_dim_;
  if (qk_norm_) return in_rows(reads("query", compute_, heads, "query_key"), rotated);
  return in_rows(reads("query", compute_, heads, "rotated"), rotated + kv_heads_ * head_dim_);
}

/// Queries of a rank's tokens, and keys and values of all.
std::vector<Flow> Model::gathered_inputs() const {
  const Int keys = kv_heads_ * head_dim_;
  const auto of_all = [&](const char* role, Int column) {
    return in_rows(reads(role, compute_, {batch_, kv_heads_, seq_, head_dim_}, kKeys + kAllTokens),
                   2 * keys, column);
  };
  return {own_query(), of_all("key", 0), of_all("value", keys)};
}

/// The terms that a rank adds to the gradients of queries and of all keys.
std::vector<Flow> Model::gathered_gradients() const {
  return {makes("d_query", compute_, {attended_, heads_ * head_dim_}, "d_query"),
          makes("d_key_value", compute_, {places_, 2 * kv_heads_ * head_dim_}, kTermOfKeys)};
}

/// Keys and values leave their rows, and their gradients come back to them.
void Model::add_key_rows() {
  const Int keys = kv_heads_ * head_dim_;
  const Int queries = heads_ * head_dim_;
  const Int all = queries + 2 * keys;
  const auto columns = [&](const char* role, const char* value, Int row, Int column) {
    return in_rows(reads(role, compute_, {tokens, keys}, value, column), row, column);
  };
  const Flow key = qk_norm_ ? columns("key", "query_key", queries + keys, queries)
                            : columns("key", "rotated", all, queries);
  add({.kernel = "take_keys",
       .attributes = {{"key_cols", keys}, {"rows", tokens}},
       .flows = {
           key, columns("value", qk_norm_ ? "qkv" : "rotated", all, queries + keys),
           makes("output", compute_, {tokens, 2 * keys}, passes_keys_ ? held_keys(0) : kKeys)}});
  add({.kernel = "join_keys",
       .attributes = {{"cols", all}, {"key_cols", keys}, {"query_cols", queries}, {"rows", tokens}},
       .flows = {reads("query", compute_, {tokens, queries}, "d_query"),
                 reads("key_value", compute_, {tokens, 2 * keys}, kKeyGradient),
                 makes("output", compute_, {tokens, all}, "d_rotated")}});
}

/// An all-gather over cp makes this of a rank's keys and values; empty: it gathers no such value.
std::string Model::gathered_keys(const std::string& sent) const {
  return gathers_keys_ && sent == kKeys ? kKeys + kAllTokens : "";
}

/// A reduce-scatter over cp makes this of terms of all keys' gradients; empty: nothing.
std::string Model::summed_keys(const std::string& terms) const {
  return gathers_keys_ && terms == kTermOfKeys ? kKeyGradient : "";
}

/// Changes between rows and groups. From here on heads are those of a rank.
void Model::add_groups_of_heads() {
  if (context_ranks_ == 1) return;
  if (has_chunks()) return add_key_rows();
  const Int keys = kv_heads_ * head_dim_;
  const Int queries = heads_ * head_dim_;
  const auto changes = [&](const char* kernel, const std::string& from, const std::string& to,
                           bool with_keys) {
    const Int cols = with_keys ? queries + 2 * keys : queries;
    Step step{.kernel = kernel,
              .attributes = {{"cols", cols}, {"groups", context_ranks_}, {"rows", tokens}},
              .flows = {reads("input", compute_, {tokens, cols}, from),
                        makes("output", compute_, {tokens, cols}, to)}};
    if (with_keys) step.attributes["key_cols"] = keys;
    add(std::move(step));
  };
  // With more attributes first: what a kernel has beside those of its step is refused at once.
  changes("split_heads", "qkv", "qkv" + kGroups, true);
  changes("split_heads", "d_attention", "d_attention" + kGroups, false);
  changes("join_heads", "d_qkv" + kGroups, "d_qkv", true);
  changes("join_heads", "attention" + kGroups, "attention", false);
  heads_ /= context_ranks_;
  kv_heads_ /= context_ranks_;
}

/// The name on the receiving ranks of cp of a value that all of them send; empty: none sends it.
std::string Model::regrouped(const std::string& sent) {
  for (const char* name : {"qkv", "d_attention"})
    if (sent == name + kGroups) return name + kSequences;
  for (const char* name : {"d_qkv", "attention"})
    if (sent == name + kSequences) return name + kGroups;
  return "";
}

}  // namespace mfsdp::checker
