#include "verify/proof/values/kernel_settings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/plan/config_fields.hpp"
#include "core/plan/fp8.hpp"
#include "core/plan/kernel_spec.hpp"
#include "verify/proof/ledger/kernel_roles.hpp"
#include "verify/proof/values/causal_pairs.hpp"

namespace mfsdp {
namespace {

using enum KernelKind;

class SettingsCheck {
 public:
  SettingsCheck(const Kernel& kernel, const PlanConfig& config, const NamedSizes& sizes)
      : kernel_(kernel), config_(config), sizes_(sizes) {}

  [[nodiscard]] std::optional<std::string> run() const {
    if (auto wrong = check_configured()) return wrong;
    return check_positions();
  }

 private:
  /// Attributes that the model and the optimizer's settings determine.
  [[nodiscard]] std::optional<std::string> check_configured() const {
    const auto differs = [&](std::string_view name, const Rational& configured) {
      const Attribute* stated = kernel_.find_attribute(name);
      return stated == nullptr || stated->value != configured;
    };
    const ModelShape& model = config_.model;
    const bool head_norms =
        kernel_.kind == qk_norm_rope_forward || kernel_.kind == qk_row_norm_rope_forward;
    const bool head_norms_backward =
        kernel_.kind == qk_norm_rope_backward || kernel_.kind == qk_row_norm_rope_backward;
    const bool norms = kernel_.kind == rms_norm_forward || head_norms;
    if (kernel_.kind == latent_norm_forward && differs("epsilon", model.latent_eps()))
      return unlike("epsilon", model.latent_eps());
    if (auto wrong = check_latent()) return wrong;
    // A norm as wide as the latent vector of queries is a norm of that vector.
    const bool of_latent = kernel_.kind == rms_norm_forward && model.query_latent != 0 &&
                           !differs("cols", {.num = model.query_latent});
    const Rational epsilon = of_latent ? model.latent_eps() : model.rms_norm_eps;
    if ((norms || kernel_.kind == layer_norm_forward) && differs("epsilon", epsilon))
      return unlike("epsilon", epsilon);
    const bool attends = kernel_.kind == attention_forward || kernel_.kind == attention_backward;
    if (attends)
      for (const auto& [name, configured] : {std::pair{"batch", config_.micro_batch},
                                             {"seq", config_.seq_len},
                                             {"heads", model.heads},
                                             {"kv_heads", model.kv_heads},
                                             {"head_dim", model.head_dim}})
        if (differs(name, {.num = configured})) return unlike(name, {.num = configured});
    if (kernel_.kind == sink_forward || kernel_.kind == sink_backward)
      for (const auto& [name, configured] :
           {std::pair{"heads", model.heads}, {"head_dim", model.head_dim}})
        if (differs(name, {.num = configured})) return unlike(name, {.num = configured});
    if (attends && is_not("value_dim", {.num = model.value_dim}))
      return unlike("value_dim", {.num = model.value_dim});
    if (auto wrong = check_groups()) return wrong;
    if (auto wrong = check_share()) return wrong;
    if (auto wrong = check_key_columns()) return wrong;
    if (auto wrong = check_scores(attends)) return wrong;
    if (auto wrong = check_parts()) return wrong;
    if (auto wrong = check_routing()) return wrong;
    const bool embeds = kernel_.kind == embedding_forward || kernel_.kind == embedding_backward;
    if (embeds && is_not("scale", model.embedding_scale(config_.param_dtype)))
      return unlike("scale", model.embedding_scale(config_.param_dtype));
    const std::int64_t positions = model.traits().rotates ? 0 : config_.seq_len;
    if ((kernel_.kind == embedding_forward || kernel_.kind == position_embedding_backward) &&
        is_not("seq", {.num = positions}))
      return unlike("seq", {.num = positions});
    if ((norms || kernel_.kind == rms_norm_backward || head_norms_backward) &&
        is_not("zero_centered", {.num = model.zero_centered_norms ? 1 : 0}))
      return unlike("zero_centered", {.num = model.zero_centered_norms ? 1 : 0});
    if (const auto rotated = size_named(sizes_, "rotated_dim");
        rotated && *rotated != model.rotated_dim())
      return fmt::format("rotates {} elements of a head; the model rotates {}", *rotated,
                         model.rotated_dim());
    if ((head_norms || head_norms_backward) && differs("query_heads", {.num = model.heads}))
      return unlike("query_heads", {.num = model.heads});
    const bool whole =
        kernel_.kind == qk_row_norm_rope_forward || kernel_.kind == qk_row_norm_rope_backward;
    if (whole && differs("key_heads", {.num = model.kv_heads}))
      return unlike("key_heads", {.num = model.kv_heads});
    if (kernel_.kind == gemm_fp8) {
      const bool forward = gemm_kind(kernel_) == GemmKind::forward;
      const bool fast = config_.fp8_accumulate == Fp8Accumulate::fast ||
                        (forward && config_.fp8_accumulate == Fp8Accumulate::fast_forward);
      if (is_not("fast", {.num = fast ? 1 : 0})) return unlike("fast", {.num = fast ? 1 : 0});
    }
    if (kernel_.kind == KernelKind::amax_history) {
      for (const auto& [name, wanted] : {std::pair{"slots", mfsdp::amax_history::slots(config_)},
                                         {"tensors", mfsdp::amax_history::tensors(config_)}})
        if (differs(name, {.num = wanted})) return unlike(name, {.num = wanted});
      const bool recent = config_.fp8_amax == Fp8Amax::most_recent;
      if (is_not("recent", {.num = recent ? 1 : 0})) return unlike("recent", {.num = recent});
    }
    if (kernel_.kind == norm_finish && differs("limit", config_.clip))
      return unlike("limit", config_.clip);
    if (kernel_.kind == norm_finish && is_not("scale_window", {.num = config_.loss_scale_window}))
      return unlike("scale_window", {.num = config_.loss_scale_window});
    return std::nullopt;
  }

  /// A rank of tp has the ids after those of the ranks before it, and all parts are of its ranks.
  [[nodiscard]] std::optional<std::string> check_parts() const {
    const bool merges = kernel_.kind == cross_entropy || kernel_.kind == cross_entropy_loss;
    const bool in_parts =
        kernel_.kind == softmax_parts || (merges && operand_of(kernel_, "parts") != nullptr);
    if (merges && is_not("peers", {.num = in_parts ? config_.mesh.size(Axis::tp) : 0}))
      return unlike("peers", {.num = in_parts ? config_.mesh.size(Axis::tp) : 0});
    if (!merges && !in_parts) return std::nullopt;
    const Attribute* begin = kernel_.find_attribute("vocab_begin");
    if (!in_parts)
      return begin == nullptr ? std::nullopt
                              : std::optional<std::string>(
                                    "has attribute 'vocab_begin', but its rows are whole");
    Attribute wanted("vocab_begin", std::int64_t{0});
    wanted.per = {{.axis = Axis::tp, .step = kernel_.attribute("cols")}};
    if (begin != nullptr && *begin == wanted) return std::nullopt;
    return fmt::format(
        "has another part of the vocabulary than one that begins at 'vocab_begin' "
        "of {} per index on tp",
        kernel_.attribute("cols"));
  }

  /// With expert parallelism, kernels that work on rows have the experts of this rank.
  [[nodiscard]] std::int64_t experts_of_kernel() const {
    switch (kernel_.kind) {
      case expert_order:
      case peer_order:
      case router_backward:
      case router_forward: return config_.model.experts;
      default:
        return config_.is_expert_parallel() ? config_.model.experts / config_.expert_parallel
                                            : config_.model.experts;
    }
  }

  /// Costs assume balanced routing: each rank has as many rows as its tokens need.
  [[nodiscard]] std::optional<std::string> check_balance(bool is_shared) const {
    const auto& names = spec_of(kernel_)->optional_attributes;
    if (std::ranges::find(names, "balanced_rows") == names.end()) return std::nullopt;
    const bool states = config_.is_expert_parallel() && !is_shared;
    if (!is_not("balanced_rows", {.num = states ? rows_of_tokens(config_) : 0}))
      return std::nullopt;
    return "attribute 'balanced_rows' is not the number of rows of this rank's tokens";
  }

  /// Groups of heads: one for each rank of cp, of all heads of queries, or of qkv.
  [[nodiscard]] std::optional<std::string> check_groups() const {
    if (kernel_.kind != split_heads && kernel_.kind != join_heads) return std::nullopt;
    const std::int64_t ranks = config_.mesh.size(Axis::cp);
    const ModelShape& model = config_.model;
    const bool has_keys = kernel_.find_attribute("key_cols") != nullptr;
    const auto of_all = [&](std::int64_t heads) {
      return checked_mul(checked_mul(heads, ranks), model.head_dim);
    };
    const std::int64_t heads =
        has_keys ? checked_add(model.heads, checked_mul(2, model.kv_heads)) : model.heads;
    for (const auto& [name, configured] :
         {std::pair{"cols", of_all(heads)}, std::pair{"groups", ranks},
          std::pair{"key_cols", has_keys ? of_all(model.kv_heads) : 0}})
      if (is_not(name, {.num = configured})) return unlike(name, {.num = configured});
    return std::nullopt;
  }

  [[nodiscard]] static bool rotates(KernelKind kind) {
    return kind == rope_forward || kind == rope_backward || kind == qk_norm_rope_forward ||
           kind == qk_norm_rope_backward || kind == qk_row_norm_rope_forward ||
           kind == qk_row_norm_rope_backward;
  }

  /// Attention and RoPE of a rank's part of each sequence: index on cp, of as many parts as ranks.
  [[nodiscard]] std::optional<std::string> check_share() const {
    const bool attends = kernel_.kind == attention_forward || kernel_.kind == attention_backward;
    if (!attends && !rotates(kernel_.kind)) return std::nullopt;
    const std::int64_t ranks = config_.has_chunks() ? config_.mesh.size(Axis::cp) : 0;
    const Attribute* part = kernel_.find_attribute("part");
    if (is_not("parts", {.num = ranks})) return unlike("parts", {.num = ranks});
    if (ranks == 0 && part != nullptr)
      return "has attribute 'part', but it works on whole sequences";
    if (kernel_.kind == attention_backward)
      for (const auto& [role, is_of_part] :
           {std::pair{"d_qkv", false}, {"d_query", true}, {"d_key_value", true}})
        if ((operand_of(kernel_, role) != nullptr) != (is_of_part == (ranks != 0)))
          return fmt::format("{} operand '{}'",
                             operand_of(kernel_, role) == nullptr ? "lacks" : "has", role);
    const std::int64_t key_parts = attends && config_.passes_keys() ? 1 : 0;
    if (is_not("key_parts", {.num = key_parts})) return unlike("key_parts", {.num = key_parts});
    if (const std::int64_t shift = kernel_.attribute("shift");
        shift < 0 || shift >= std::max<std::int64_t>(ranks, 1))
      return fmt::format("has the keys of {} ranks before on cp, which has {}", shift, ranks);
    if (ranks == 0) return std::nullopt;
    if (part == nullptr) return "lacks attribute 'part'";
    if (attends)
      if (auto wrong = wrong_pairs(*part, config_.mesh)) return wrong;
    Attribute wanted("part", std::int64_t{0});
    wanted.per = {{.axis = Axis::cp, .step = 1}};
    if (*part == wanted) return std::nullopt;
    return "has another part of each sequence than that of its index on cp, attribute 'part'";
  }

  /// Columns of a rank's keys and values, and of its queries. Those of parts of heads are checked
  /// where steps are bound (held_key_steps.hpp).
  [[nodiscard]] std::optional<std::string> check_key_columns() const {
    if (kernel_.kind != take_keys && kernel_.kind != join_keys) return std::nullopt;
    if (!config_.gathers_keys()) return std::nullopt;
    const ModelShape& model = config_.model;
    const std::int64_t keys = checked_mul(model.kv_heads, model.head_dim);
    const std::int64_t queries = checked_mul(model.heads, model.head_dim);
    const bool joins = kernel_.kind == join_keys;
    for (const auto& [name, configured] :
         {std::pair{"key_cols", keys}, std::pair{"query_cols", joins ? queries : 0},
          std::pair{"cols", joins ? checked_add(queries, checked_mul(2, keys)) : 0}})
      if (is_not(name, {.num = configured})) return unlike(name, {.num = configured});
    return std::nullopt;
  }

  /// Sizes of latent attention, of kernels that have them.
  [[nodiscard]] std::optional<std::string> check_latent() const {
    const ModelShape& model = config_.model;
    const bool heads =
        kernel_.kind == latent_heads_forward || kernel_.kind == latent_heads_backward;
    const bool norms = kernel_.kind == latent_norm_forward || kernel_.kind == latent_norm_backward;
    if (!heads && !norms) return std::nullopt;
    const std::int64_t qkv_dim =
        checked_add(checked_mul(2, model.head_dim), model.value_head_dim());
    for (const auto& [name, configured] :
         {std::pair{"heads", model.heads},
          {"head_dim", model.head_dim},
          {"key_value_dim", model.key_value_dim()},
          {"qkv_dim", qkv_dim},
          {"rotated_dim", model.rotary_dim},
          {"latent_width", checked_add(model.kv_latent, model.rotary_dim)},
          {"cols", model.kv_latent}})
      if (const Attribute* stated = kernel_.find_attribute(name);
          stated != nullptr && stated->value != Rational{.num = configured})
        return unlike(name, {.num = configured});
    return std::nullopt;
  }

  /// Its peers are ranks of tp.
  [[nodiscard]] bool has_key_parts() const {
    return kernel_.kind == join_key_parts || kernel_.kind == split_key_parts;
  }

  /// Attributes of experts and routing, for all kernels that have them.
  [[nodiscard]] std::optional<std::string> check_routing() const {
    const ModelShape& model = config_.model;
    const bool backward = kernel_.kind == router_backward;
    const bool routes = backward || kernel_.kind == router_forward;
    const bool balances = model.router_aux_loss.num != 0;
    const auto takes = [&](std::string_view name) {
      const auto& names = spec_of(kernel_)->attributes;
      return !has_key_parts() && std::ranges::find(names, name) != names.end();
    };
    // Ranks of cp have parts of each sequence, those of tp of the one. The loss of a part is that of a
    // sequence as short, by the counts of the whole one, times its share.
    const std::int64_t tensor_ranks = config_.mesh.size(Axis::tp);
    const std::int64_t parts = checked_mul(config_.mesh.size(Axis::cp), tensor_ranks);
    const std::int64_t seq = balances ? config_.seq_len / parts : 0;
    Rational aux_loss = model.router_aux_loss;
    if (parts > 1 && balances)
      aux_loss = make_rational(aux_loss.num, checked_mul(aux_loss.den, parts)).value();
    if (tensor_ranks > 1 && balances && routes && config_.micro_batch != 1)
      return "counts experts of sequences of which ranks on tp have other parts";
    // The activation of the expert that all tokens share is of all rows.
    const bool activates =
        kernel_.kind == weighted_swiglu_forward || kernel_.kind == weighted_swiglu_backward;
    const bool is_shared = activates && operand_of(kernel_, "ends") == nullptr;
    const bool moves = kernel_.kind == permute_rows || kernel_.kind == combine_rows;
    const bool makes_room = moves || kernel_.kind == peer_order || kernel_.kind == arrival_order;
    // Received rows have one expert each.
    const bool is_arrived =
        kernel_.kind == permute_rows && kernel_.find_attribute("peers") != nullptr;
    if (auto wrong = check_balance(is_shared)) return wrong;
    struct Stated {
      std::string_view name;
      bool applies;
      Rational configured;
    };
    for (const Stated& attribute :
         {Stated{"experts", takes("experts"), {.num = is_shared ? 1 : experts_of_kernel()}},
          Stated{"top_k", takes("top_k"), {.num = is_arrived ? 1 : model.experts_per_token}},
          Stated{"peers", takes("peers") || is_arrived, {.num = config_.expert_parallel}},
          Stated{"m",
                 makes_room,
                 {.num = config_.is_expert_parallel() ? rows_of_experts(config_) : 0}},
          Stated{"normalised", routes, {.num = model.normalised_routing ? 1 : 0}},
          Stated{"chosen_groups", routes && !backward, {.num = model.chosen_groups}},
          Stated{"groups", routes && !backward, {.num = model.router_groups}},
          Stated{"scale", routes, model.routed_scale},
          Stated{"sigmoid", routes, {.num = model.sigmoid_routing ? 1 : 0}},
          Stated{"seq", routes, {.num = seq}}, Stated{"aux_loss", backward, aux_loss},
          Stated{"z_loss", backward, model.router_z_loss},
          Stated{"interleaved",
                 activates && !is_shared,
                 {.num = model.traits().interleaved_experts ? 1 : 0}},
          Stated{"alpha", activates, model.swiglu_alpha},
          Stated{"limit", activates, model.swiglu_limit}})
      if (attribute.applies && is_not(attribute.name, attribute.configured))
        return unlike(attribute.name, attribute.configured);
    // That one may have no weight either.
    const bool weighs = !is_shared || model.has_gated_shared();
    if (activates && (operand_of(kernel_, "row_weights") != nullptr) != weighs)
      return weighs ? "lacks operand 'row_weights'" : "has operand 'row_weights'";
    if (kernel_.kind == weighted_swiglu_backward &&
        (operand_of(kernel_, "d_row_weights") != nullptr) != weighs)
      return weighs ? "lacks operand 'd_row_weights'" : "has operand 'd_row_weights'";
    if (!routes) return check_row_weights();
    if ((operand_of(kernel_, "counts") != nullptr) != balances)
      return balances ? "lacks operand 'counts', from which the balance loss is computed"
                      : "has operand 'counts', though no loss balances experts";
    if (const auto sequences = size_named(sizes_, "sequences");
        balances && sequences && *sequences != config_.micro_batch)
      return fmt::format("counts experts of {} sequences; expected {}", *sequences,
                         config_.micro_batch);
    return std::nullopt;
  }

  /// Rows have their weights, or their weights' gradients, of both sides or of none.
  [[nodiscard]] std::optional<std::string> check_row_weights() const {
    if (kernel_.kind != permute_rows && kernel_.kind != combine_rows) return std::nullopt;
    if ((operand_of(kernel_, "weights") == nullptr) ==
        (operand_of(kernel_, "row_weights") == nullptr))
      return std::nullopt;
    return "has one of 'weights' and 'row_weights'; expected both or none";
  }

  /// Attention and rotation go by positions in documents where these are masked, and only there.
  [[nodiscard]] std::optional<std::string> check_positions() const {
    const std::vector<OperandSpec>& operands = spec_of(kernel_)->operands;
    const bool may = std::ranges::find(operands, "positions", &OperandSpec::role) != operands.end();
    // Lookups do where positions are learned.
    const bool goes_by = kernel_.kind != embedding_forward || !config_.model.traits().rotates;
    const bool wanted = goes_by && config_.document_mask;
    if (!may || (operand_of(kernel_, "positions") != nullptr) == wanted) return std::nullopt;
    return wanted ? "lacks operand 'positions', by which attention is masked between documents"
                  : "has operand 'positions', though attention is not masked between documents";
  }

  [[nodiscard]] std::string unlike(std::string_view name, const Rational& configured) const {
    const Attribute* stated = kernel_.find_attribute(name);
    return fmt::format("attribute '{}' is {}; expected {}", name,
                       stated == nullptr ? std::string("absent") : flag_text(stated->value),
                       flag_text(configured));
  }

  /// Compares an attribute that is left out where it would be 0.
  [[nodiscard]] bool is_not(std::string_view name, const Rational& configured) const {
    const Attribute* stated = kernel_.find_attribute(name);
    return configured.num == 0 ? stated != nullptr
                               : stated == nullptr || stated->value != configured;
  }

  /// Attributes that are left out where the model has no such feature. A kernel does not state its
  /// layer: model_values.cpp checks which layers have the window.
  [[nodiscard]] std::optional<std::string> check_scores(bool attends) const {
    const ModelShape& model = config_.model;
    const bool loses = kernel_.kind == cross_entropy || kernel_.kind == cross_entropy_loss;
    if ((loses || kernel_.kind == softmax_parts) && is_not("logit_cap", model.logit_cap))
      return unlike("logit_cap", model.logit_cap);
    if (!attends) return std::nullopt;
    if (is_not("query_scalar", model.query_scalar))
      return unlike("query_scalar", model.query_scalar);
    if (is_not("score_cap", model.score_cap)) return unlike("score_cap", model.score_cap);
    const Attribute* window = kernel_.find_attribute("window");
    const std::int64_t sliding = model.window_of(true, config_.seq_len);
    if (window != nullptr && (sliding == 0 || window->value != Rational{.num = sliding}))
      return unlike("window", {.num = sliding});
    return std::nullopt;
  }

  const Kernel& kernel_;
  const PlanConfig& config_;
  const NamedSizes& sizes_;
};

}  // namespace

std::optional<std::int64_t> size_named(const NamedSizes& sizes, std::string_view name) {
  const auto found = std::ranges::find(sizes, name, &NamedSizes::value_type::first);
  return found == sizes.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> settings_fault(const Kernel& kernel, const PlanConfig& config,
                                          const NamedSizes& sizes) {
  return SettingsCheck(kernel, config, sizes).run();
}

}  // namespace mfsdp
