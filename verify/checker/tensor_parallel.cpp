// Ranks of tp divide the weights of each block: of qkv and gate_up each has other outputs, so other
// heads and features, of attention_out and down the inputs that these are. They may divide the rows
// of the embedding. Norms and head are whole.
//
//   a GEMM of other inputs on each rank makes a term of its output      attention_out, mlp_out
//   one of other outputs makes a term of its input's gradient           d_normed1, d_normed2
//   a lookup finds the rows of some ids, and 0 for others               input of the first block
//
// A term has a name of its own, which no kernel reads: an all-reduce over tp turns it into the sum.
#include "verify/checker/model.hpp"

namespace mfsdp::checker {
namespace {

const std::string kTerm = "a term of ";

}  // namespace

void Model::read_tensor_ranks(const PlanView& view) {
  lookup_rows_ = vocab_;
  tensor_ranks_ = view.ranks_on("tp");
  if (tensor_ranks_ == 1) return;
  const Json& model = config_.at("model");
  static const Names plain{"family",       "head_dim",     "heads",      "hidden",
                           "intermediate", "kv_heads",     "layers",     "max_seq_len",
                           "rms_norm_eps", "rope_scaling", "rope_theta", "tied_embeddings",
                           "vocab"};
  for (const auto& [key, value] : model.items())
    if (!plain.contains(key)) refuse("config: this checker does not know {} with ranks on tp", key);
  if (model.at("family") != "llama" || exact_ || config_.contains("lora_rank") ||
      !view.expert_grid.empty() || view.classes > 1 || config_.at("optimizer") == "muon" ||
      heads_ % tensor_ranks_ != 0 || kv_heads_ % tensor_ranks_ != 0 || inner_ % tensor_ranks_ != 0)
    refuse("config: this checker does not know the model with {} ranks on tp", tensor_ranks_);
  static const std::map<std::string, Int> wanted{
      {"attention_out", 1}, {"down", 1}, {"gate_up", 0}, {"qkv", 0}};
  for (const Group& group : view.groups)
    for (const auto& [begin, parameter] : group.parameters) {
      const auto found = wanted.find(parameter.role);
      const bool may = parameter.role == "embedding" && !tied_ && group.tp_dim == 0;
      if (may) cut_["embedding"] = 0;
      if (!may &&
          group.tp_dim != (found == wanted.end() ? std::nullopt : std::optional(found->second)))
        refuse("groups: ranks of tp do not divide {} as this checker knows it", parameter.role);
    }
  cut_.insert(wanted.begin(), wanted.end());
  if (cut_.contains("embedding") && vocab_ % tensor_ranks_ != 0)
    refuse("config: {} ranks on tp do not divide the vocabulary", tensor_ranks_);
}

/// From here on sizes are those of a rank.
void Model::take_part_of_rank() {
  for (Int* size : {&heads_, &kv_heads_, &inner_, &first_width_}) *size /= tensor_ranks_;
  if (cut_.contains("embedding")) lookup_rows_ /= tensor_ranks_;
}

/// The value, or a term of it where ranks divide the parameter along that dim.
std::string Model::in_terms(const std::string& parameter, Int dim, const std::string& value) const {
  const auto found = cut_.find(parameter);
  if (found == cut_.end() || found->second != dim) return value;
  return value.starts_with('+') ? "+" + kTerm + value.substr(1) : kTerm + value;
}

std::string Model::summed(const std::string& terms) {
  return terms.starts_with(kTerm) ? terms.substr(kTerm.size()) : "";
}

}  // namespace mfsdp::checker
