#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/model/foreign_fields.hpp"
#include "core/model/foreign_types.hpp"
#include "core/model/hf_parts.hpp"

namespace mfsdp {
namespace {

/// Norms of queries and keys under other names than the model_type's own.
constexpr std::array<std::string_view, 5> kNormFields{"qk_norm", "use_qk_norm", "qk_layernorm",
                                                      "query_key_norm", "use_query_key_norm"};
constexpr std::array<std::string_view, 3> kGroupFields{"scoring_func", "n_group",
                                                       "routed_scaling_factor"};
constexpr std::array<std::string_view, 2> kSigmoidFields{"scoring_func", "use_routing_bias"};
constexpr std::array<std::string_view, 2> kNopeFields{"no_rope_layers", "no_rope_layer_interval"};
constexpr std::array<std::string_view, 3> kMultiplierFields{
    "embedding_multiplier", "residual_multiplier", "logits_scaling"};
constexpr std::array<std::string_view, 3> kIndexerFields{"index_topk", "index_n_heads",
                                                         "index_head_dim"};

constexpr std::array<std::string_view, 2> kChunkFields{"attention_chunk_size", "use_qk_norm"};

/// Fields that a family's own readers read.
bool is_of_family(const HfFamily& family, std::string_view field) {
  const auto is_one_of = [&](const auto& names) {
    return std::ranges::find(names, field) != names.end();
  };
  for (const char* name : {family.names.experts, family.names.newer_experts})
    if (name != nullptr && name == field) return true;
  if (family.names.experts != nullptr && field == "clip_qkv") return true;
  if (family.groups_experts && is_one_of(kGroupFields)) return true;
  if (family.sigmoid_routing && is_one_of(kSigmoidFields)) return true;
  if (family.sparse_attention && is_one_of(kIndexerFields)) return true;
  if (family.chunked_attention && is_one_of(kChunkFields)) return true;
  if (family.has_multipliers && is_one_of(kMultiplierFields)) return true;
  if (family.nope_interval != 0 && is_one_of(kNopeFields)) return true;
  if ((family.qk_norm || family.states_biases_and_norms) && is_one_of(kNormFields)) return true;
  return traits_of(family.family).latent_attention && field == "kv_lora_rank";
}

/// A note about layers that predict further tokens: transformers' classes leave them out too.
void add_prediction_note(const std::vector<std::string>& left_out,
                         std::vector<std::string>& notes) {
  if (!left_out.empty())
    notes.push_back(fmt::format("the layers of multi-token prediction are left out ({})",
                                fmt::join(left_out, ", ")));
}

}  // namespace

Result<void> check_foreign_fields(const HfFields& fields, const HfFamily& family,
                                  std::vector<std::string>& notes) {
  std::vector<std::string> left_out;
  std::vector<std::string> more;
  std::optional<tl::unexpected<Error>> first;
  for (const auto& [name, value] : fields.raw().items()) {
    const ForeignField* row = find_foreign_field(name);
    if (row == nullptr || row->to == ForeignTo::unknown_types) continue;
    fields.know({name.c_str()});
    if (is_of_family(family, name) || !row->counts(value)) continue;
    if (row->to == ForeignTo::left_out)
      left_out.push_back(field_with_value(name, value));
    else if (first)
      more.push_back(fmt::format("{} ({})", field_with_value(name, value), row->what));
    else
      first = fields.wrong(
          name, fmt::format("none (not modelled: {}; docs/reference/limits.md)", row->what));
  }
  add_prediction_note(left_out, notes);
  if (!first) {
    const nlohmann::json* causal = fields.find("is_causal");
    if (causal == nullptr || *causal != false) return {};
    return fields.wrong("is_causal", "true (bidirectional attention is not modelled)");
  }
  if (more.empty()) return *first;
  return fail(first->value().where,
              fmt::format("{}; nor {}", first->value().what, fmt::join(more, ", ")));
}

}  // namespace mfsdp
