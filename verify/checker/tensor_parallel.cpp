// Ranks of tp divide the weights of each block: of qkv and gate_up each has other outputs, so other
// heads and features, of attention_out and down the inputs that these are. They may divide the rows
// of the embedding and of the head. Norms are whole.
//
//   a GEMM of other inputs on each rank makes a term of its output      attention_out, mlp_out
//   one of other outputs makes a term of its input's gradient           d_normed1, d_normed2, d_normed
//   a lookup finds the rows of some ids, and 0 for others               input of the first block
//
// A term has a name of its own, which no kernel reads. In some plans an all-reduce over tp turns it
// into the sum. In all others ranks have the rows of other tokens between blocks, which shows in the
// sums of norms' gradients: a reduce-scatter leaves each rank its rows of the sum, an all-gather
// makes of them the rows of all tokens, which have a name of their own too.
//
// With more ranks than heads of keys, several ranks that follow each other hold one head, each equal
// parts of its key's and its value's columns. An all-gather sends all ranks the parts of all, of which
// each takes its head's. Backward each has a term of the gradients of these, and 0 for all others; a
// reduce-scatter leaves each rank the sums of its own part.
//
// Where ranks have other columns of the logits, each knows for every row the largest logit, the sum
// of exponentials and, if it is its own, the label's logit. An all-gather of these comes before the
// loss, which each rank then has whole.
#include <numeric>

#include "verify/checker/flows.hpp"
#include "verify/checker/model.hpp"

namespace mfsdp::checker {
namespace {

const std::string kTerm = "a term of ";
const std::string kAllRows = " of all rows";
const std::string kShortOfBias = " short of its bias";
const std::string kKeyPart = "part of a key and a value";
const std::string kKeyParts = "parts of keys and values";
const std::string kKeyPartGradient = "d_part of a key and a value";
const std::string kWholeHeads = " of whole heads";

}  // namespace

void Model::read_tensor_ranks(const PlanView& view) {
  vocab_here_ = lookup_rows_ = vocab_;
  rows_ = tokens;
  tensor_ranks_ = view.ranks_on("tp");
  if (tensor_ranks_ == 1) return;
  const bool has_mlp = experts_ == 0 || !dense_.empty();
  const bool others = (latent_ && query_latent_ == 0) || !rotates_ || !input_norms_ ||
                      (qk_norm_ && whole_norms_) || (!balance_.is_null() && batch_ != 1) ||
                      exact_ || fp8_ || config_.contains("base_dtype") || view.classes > 1 ||
                      config_.at("optimizer") == "muon";
  const Int heads_apart = times(tensor_ranks_, has_chunks() ? 1 : context_ranks_);
  if (tensor_ranks_ > kv_heads_ && tensor_ranks_ % kv_heads_ == 0)
    key_holders_ = tensor_ranks_ / kv_heads_;
  const bool holds = key_holders_ > 1;
  const bool odd =
      holds && (context_ranks_ > 1 || rank_ != 0 || sinks_ || head_dim_ % key_holders_ != 0);
  if (others || odd || heads_ % heads_apart != 0 || (!holds && kv_heads_ % heads_apart != 0) ||
      (has_mlp && inner_ % tensor_ranks_ != 0) || tokens % tensor_ranks_ != 0)
    refuse("config: this checker does not know the model with {} ranks on tp", tensor_ranks_);
  for (const Group& group : view.groups)
    if (!group.tp_dim && group.reduce.contains("tp")) splits_rows_ = true;
  if (experts_ != 0 && !splits_rows_)
    refuse("groups: ranks of tp would all send the same rows to experts");
  if (latent_ && !splits_rows_)
    refuse("groups: this checker does not know latent vectors of rows that each rank has");
  if (biases_ && !splits_rows_)
    refuse("groups: this checker does not know biases of sums that each rank has whole");
  std::map<std::string, Int> wanted{{"attention_out", 1}, {"down", 1}, {"gate_up", 0},
                                    {"kv_b", 0},          {"q_b", 0},  {"qkv", 0},
                                    {"qkv_bias", 0},      {"sinks", 0}};
  // Ranks divide an adapter's outputs as those of its matrix, or else the inputs that it reads.
  for (const Adapter& adapter : adapters_) {
    const Int dim = wanted.at(adapter.matrix);
    wanted[adapter.role + (dim == 0 ? "_lora_b" : "_lora_a")] = dim;
  }
  if (splits_rows_) {
    rows_ = tokens / tensor_ranks_;
    wanted.insert({{"embedding", 0}, {"head", 0}});
  }
  for (const Group& group : view.groups) {
    if (!group.tp_dim && !group.of_experts && group.reduce.contains("tp") != splits_rows_)
      refuse("groups: some sum over ranks of tp, and others do not");
    for (const auto& [begin, parameter] : group.parameters) {
      const auto found = wanted.find(parameter.role);
      const bool may =
          !splits_rows_ && parameter.role == "embedding" && !tied_ && group.tp_dim == 0;
      if (may) cut_["embedding"] = 0;
      if (!may &&
          group.tp_dim != (found == wanted.end() ? std::nullopt : std::optional(found->second)))
        refuse("groups: ranks of tp do not divide {} as this checker knows it", parameter.role);
    }
  }
  cut_.insert(wanted.begin(), wanted.end());
  if (cut_.contains("embedding") && vocab_ % tensor_ranks_ != 0)
    refuse("config: {} ranks on tp do not divide the vocabulary", tensor_ranks_);
}

/// From here on sizes are those of a rank.
void Model::take_part_of_rank() {
  if (tensor_ranks_ == 1) return;
  heads_ /= tensor_ranks_;
  kv_heads_ = key_holders_ > 1 ? 1 : kv_heads_ / tensor_ranks_;
  if (experts_ == 0 || !dense_.empty())
    for (Int* size : {&inner_, &first_width_}) *size /= tensor_ranks_;
  for (Adapter& adapter : adapters_)
    if (cut_.at(adapter.matrix) == 0) {
      adapter.begin /= tensor_ranks_;
      adapter.outputs /= tensor_ranks_;
    } else {
      adapter.inputs /= tensor_ranks_;
    }
  if (cut_.contains("embedding")) lookup_rows_ /= tensor_ranks_;
  if (cut_.contains("head")) vocab_here_ /= tensor_ranks_;
}

/// The value, or a term of it where ranks divide the parameter along that dim.
std::string Model::in_terms(const std::string& parameter, Int dim, const std::string& value) const {
  const auto found = cut_.find(parameter);
  if (found == cut_.end() || found->second != dim) return value;
  return value.starts_with('+') ? "+" + kTerm + value.substr(1) : kTerm + value;
}

/// The value, or its rows of all tokens where ranks divide the parameter along that dim and each has
/// the rows of some.
std::string Model::of_all_rows(const std::string& parameter, Int dim,
                               const std::string& value) const {
  const auto found = cut_.find(parameter);
  const bool is_cut = splits_rows_ && found != cut_.end() && found->second == dim;
  return is_cut ? value + kAllRows : value;
}

/// The value of whose terms each rank has one; empty: that collective makes none.
std::string Model::summed(const std::string& terms, bool scatters) const {
  if (!terms.starts_with(kTerm)) return "";
  const std::string sum = terms.substr(kTerm.size());
  const bool has_rows = splits_rows_ && sum != "counts of experts";
  return scatters == has_rows ? sum : "";
}

/// Where ranks make terms of a projection, its bias is added to each rank's rows of the sum.
void Model::add_bias_of_sum(const std::string& parameter, const std::string& value) {
  add({.kernel = "add_bias",
       .attributes = {{"cols", hidden_}, {"rows", rows_}},
       .flows = {weight(parameter + "_bias", {hidden_}),
                 turns("output", compute_, {rows_, hidden_}, value + kShortOfBias, value)}});
}

bool Model::has_terms(const std::string& parameter) const {
  const auto found = cut_.find(parameter);
  return found != cut_.end() && found->second == 1;
}

std::string Model::short_of_bias(const std::string& value) { return value + kShortOfBias; }

/// The rows of all ranks that an all-gather makes; empty: there are no rows of it.
std::string Model::gathered_rows(const std::string& rows) const {
  if (rows == kKeyPart) return kKeyParts;
  static const Names moved{
      "normed", "normed1",  "normed2",       "kv vector",           "normed kv vector",
      "d_mid",  "d_output", "d_raw_mlp_out", "d_raw_attention_out", "normed q vector"};
  return splits_rows_ && moved.contains(rows) ? rows + kAllRows : "";
}

/// Where several ranks hold a head of keys, attention's rows are others than the projection's.
std::string Model::in_whole_heads(const std::string& value) const {
  return key_holders_ > 1 && (value == "qkv" || value == "d_qkv") ? value + kWholeHeads : value;
}

/// The projection makes queries, and columns of a key and a value.
Int Model::projected_cols() const {
  return heads_ * head_dim_ + 2 * kv_heads_ * head_dim_ / key_holders_;
}

void Model::add_key_parts() {
  if (key_holders_ == 1) return;
  const Int part = head_dim_ / key_holders_;
  const Int queries = heads_ * head_dim_;
  const Int all = queries + 2 * head_dim_;
  const Int cols = projected_cols();
  const Shape parts{times(tensor_ranks_, tokens), 2 * part};
  const Json rank{{"name", "rank"}, {"per", {{{"axis", "tp"}, {"step", 1}}}}, {"value", 0}};
  const std::map<std::string, Json> sizes{{"cols", all},      {"holders", key_holders_},
                                          {"key_cols", part}, {"peers", tensor_ranks_},
                                          {"rank", rank},     {"rows", tokens}};
  const auto columns = [&](const char* role, Int width, const std::string& of, Int row,
                           Int column) {
    return in_rows(reads(role, compute_, {tokens, width}, of, column), row, column);
  };
  add({.kernel = "take_keys",
       .attributes = {{"key_cols", part}, {"rows", tokens}},
       .flows = {columns("key", part, "qkv", cols, queries),
                 columns("value", part, "qkv", cols, queries + part),
                 makes("output", compute_, {tokens, 2 * part}, kKeyPart)}});
  Step joins{.kernel = "join_key_parts",
             .attributes = sizes,
             .flows = {columns("query", queries, "qkv", cols, 0),
                       reads("parts", compute_, parts, kKeyParts),
                       makes("output", compute_, {tokens, all}, in_whole_heads("qkv"))}};
  joins.attributes["query_cols"] = queries;
  add(std::move(joins));
  add({.kernel = "split_key_parts",
       .attributes = sizes,
       .flows = {reads("input", compute_, {tokens, all}, in_whole_heads("d_qkv")),
                 makes("parts", compute_, parts, kTerm + kKeyPartGradient)}});
  add({.kernel = "join_keys",
       .attributes =
           {{"cols", cols}, {"key_cols", part}, {"query_cols", queries}, {"rows", tokens}},
       .flows = {columns("query", queries, in_whole_heads("d_qkv"), all, 0),
                 reads("key_value", compute_, {tokens, 2 * part}, kKeyPartGradient),
                 makes("output", compute_, {tokens, cols}, "d_qkv")}});
}

/// As a rank makes them of its rows.
std::string Model::counts_here() const {
  return tensor_ranks_ == 1 ? "counts of experts" : kTerm + "counts of experts";
}

/// The balance of a sequence is a sum over its tokens of counts * probability / its length. A rank has
/// a part of the tokens: to the same term belong that part's length and a coefficient as much smaller.
Json Model::balance_here() const {
  const bool whole = !balance_.is_object();
  const Int num = whole ? balance_.get<Int>() : balance_.at("num").get<Int>();
  const Int den = times(whole ? 1 : balance_.at("den").get<Int>(), tensor_ranks_);
  const Int common = std::gcd(num, den);
  if (common == den) return num / common;
  return {{"num", num / common}, {"den", den / common}};
}

Json Model::vocabulary_begin(Int ids) {
  return {{"name", "vocab_begin"}, {"per", {{{"axis", "tp"}, {"step", ids}}}}, {"value", 0}};
}

/// The loss of rows of which a rank has some columns.
void Model::add_parts(Step loss) {
  const Shape part{kRows, 3};
  const Flow logits = reads("logits", compute_, {kRows, vocab_here_}, "logits");
  if (loss.kernel == "cross_entropy")
    add({.kernel = "softmax_parts",
         .place = Place::head,
         .attributes = loss.attributes,
         .flows = {in_rows_of(Place::head, logits),
                   reads("labels", "int32", {kRows}, "tokens", tokens),
                   makes("output", statistic, part, "part of a softmax")},
         .chunk = true});
  loss.attributes["peers"] = tensor_ranks_;
  loss.flows.push_back(reads("parts", statistic, {tensor_ranks_ * kRows, 3}, "parts of a softmax"));
  add(std::move(loss));
}

bool Model::is_part(const std::string& value) { return value == "part of a softmax"; }

}  // namespace mfsdp::checker
