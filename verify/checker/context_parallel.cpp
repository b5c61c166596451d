// Ranks of cp share the tokens of each sequence: each has as many consecutive ones, in the order of
// ranks. A query sees the keys of all tokens before it, so attention, and RoPE before it, work on
// whole sequences, with as many heads on each rank.
//
//   qkv, rows of a rank's tokens -> by groups of heads     all_to_all over cp: of whole sequences
//   attention of whole sequences      all_to_all: by groups of heads -> rows of a rank's tokens
//
// A group has a rank's queries, then its keys, then its values.
#include "verify/checker/flows.hpp"
#include "verify/checker/model.hpp"

namespace mfsdp::checker {
namespace {

const std::string kGroups = " by groups of heads";
const std::string kSequences = " of whole sequences";

}  // namespace

void Model::read_context_ranks(const PlanView& view) {
  context_ranks_ = view.ranks_on("cp");
  attended_ = tokens;
  const bool by_sequences = latent_ || !rotates_ || qk_norm_;
  piece_ = by_sequences ? seq_ : std::min(seq_, config_.at("logits_chunk").get<Int>());
  if (context_ranks_ == 1) return;
  const bool others = latent_ || !rotates_ || sinks_ || qk_norm_ || experts_ != 0 ||
                      config_.contains("lora_rank") || view.classes > 1 ||
                      config_.at("optimizer") == "muon" || batch_ != 1;
  if (others || heads_ % context_ranks_ != 0 || kv_heads_ % context_ranks_ != 0 ||
      seq_ % context_ranks_ != 0 || (exact_ && seq_ / context_ranks_ % piece_ != 0))
    refuse("config: this checker does not know the model with {} ranks on cp", context_ranks_);
  tokens = attended_ / context_ranks_;
  if (token_rows > 2) token_rows = plus(2, context_ranks_);
}

/// The name of a value as attention reads or makes it.
std::string Model::as_attended(const std::string& value) const {
  return context_ranks_ == 1 ? value : value + kSequences;
}

/// Changes between rows and groups. From here on heads are those of a rank.
void Model::add_groups_of_heads() {
  if (context_ranks_ == 1) return;
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
