#include "verify/proof/kernel_forms.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/plan/exact_sums.hpp"
#include "verify/proof/model_binding.hpp"
#include "verify/proof/overlap.hpp"
#include "verify/proof/roles.hpp"

namespace mfsdp {
namespace {

using enum KernelKind;

[[nodiscard]] bool is_floating(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::fp16 || dtype == DType::fp32 ||
         dtype == DType::fp64;
}

/// Kernels whose operands have any shape.
[[nodiscard]] bool is_element_wise(const Kernel& kernel) {
  const KernelSpec* spec = spec_of(kernel);
  return spec != nullptr && spec->operands.empty();
}

/// Where in a row an operand has to begin, in bytes.
struct ColumnOf {
  std::size_t operand = 0;
  std::int64_t row = 0;
  std::int64_t begin = 0;

  [[nodiscard]] bool fits(const Kernel& kernel) const {
    return kernel.operands[operand].offset % row == begin;
  }
};

/// One kernel against its form.
class FormCheck {
 public:
  /// `of_model`: the plan is one of the configured model; one by hand may have kernels for any.
  FormCheck(const Kernel& kernel, const PlanConfig& config, bool of_model)
      : kernel_(kernel), config_(config), of_model_(of_model) {
    if (of_model && kernel.kind != newton_schulz) compute_ = config.param_dtype;
    for (const Attribute& attribute : kernel.attributes)
      if (attribute.value.den == 1) names_.emplace_back(attribute.name, attribute.value.num);
    names_.emplace_back("seq", config.seq_len);
    names_.emplace_back("data_ranks", data_ranks(config.mesh));
    names_.emplace_back("token_rows", config.token_rows());
    if (kernel.kind == permute_rows || kernel.kind == combine_rows)
      names_.emplace_back("room", room_of(kernel));
    const auto head_dim = value("head_dim");
    if (const auto all = value("heads"), keys = value("kv_heads"); all && keys && head_dim) {
      const std::int64_t columns = value("value_dim").value_or(*head_dim);
      if (!value("value_dim")) names_.emplace_back("value_dim", columns);
      names_.emplace_back("qkv_width", checked_add(checked_mul(checked_add(*all, *keys), *head_dim),
                                                   checked_mul(*keys, columns)));
    }
  }

  /// What does not fit, or nothing.
  std::optional<std::string> run() {
    if (auto wrong = check_names()) return wrong;
    const KernelSpec* form = spec_of(kernel_);
    if (form == nullptr) return "is no product of its kind's three";
    if (is_element_wise(kernel_)) return check_element_wise(*form);
    for (std::size_t i = 0; i < form->operands.size(); ++i) {
      const std::string_view role = form->operands[i].role;
      const auto nth = std::ranges::count(form->operands.begin(),
                                          form->operands.begin() + static_cast<std::ptrdiff_t>(i),
                                          role, &OperandSpec::role);
      if (const Operand* found = nth_of(role, nth)) {
        if (auto wrong = check(*found, form->operands[i])) return wrong;
      } else if (!form->operands[i].optional) {
        return fmt::format("lacks operand '{}'", role);
      }
    }
    for (const std::string_view name : form->attributes)
      if (kernel_.find_attribute(name) == nullptr) return fmt::format("lacks attribute '{}'", name);
    if (auto wrong = check_attributes(*form)) return wrong;
    if (auto wrong = check_roles(*form)) return wrong;
    if (kernel_.kind == norm_partial && operand_of(kernel_, "input") == nullptr)
      return "lacks operand 'input'";
    return check_relations();
  }

  /// What `run` asks of operands' offsets.
  [[nodiscard]] std::vector<ColumnOf> columns() const {
    std::vector<ColumnOf> columns;
    if (is_element_wise(kernel_) || spec_of(kernel_) == nullptr) return columns;
    for (std::size_t i = 0; i < kernel_.operands.size(); ++i)
      if (const auto column = column_of(i)) columns.push_back(*column);
    return columns;
  }

 private:
  [[nodiscard]] const Operand* nth_of(std::string_view role, std::ptrdiff_t nth) const {
    for (const Operand& operand : kernel_.operands)
      if (operand.role == role && nth-- == 0) return &operand;
    return nullptr;
  }

  [[nodiscard]] std::optional<std::int64_t> value(std::string_view name) const {
    const auto found =
        std::ranges::find(names_, name, &std::pair<std::string_view, std::int64_t>::first);
    return found == names_.end() ? std::nullopt : std::optional(found->second);
  }

  /// What a dim has to be, where it is `got`. A name that is not known yet stands for what is
  /// left; nothing where `got` is no multiple of what is known.
  std::optional<std::int64_t> expected(const Dim& dim, std::int64_t got) {
    std::int64_t product = dim.times;
    std::string_view unknown;
    for (const std::string_view name : {dim.first, dim.second}) {
      if (name.empty()) continue;
      if (const auto known = value(name))
        product = checked_mul(product, *known);
      else
        unknown = name;
    }
    if (unknown.empty()) return product;
    if (product == 0 || got % product != 0) return std::nullopt;
    names_.emplace_back(unknown, got / product);
    return got;
  }

  /// Whoever runs a kernel finds attributes by name: there is one of each.
  [[nodiscard]] std::optional<std::string> check_names() const {
    for (std::size_t i = 1; i < kernel_.attributes.size(); ++i)
      if (kernel_.attributes[i - 1].name >= kernel_.attributes[i].name)
        return fmt::format("attribute '{}' stands after '{}': expected each once, by name",
                           kernel_.attributes[i].name, kernel_.attributes[i - 1].name);
    const Attribute* beta = kernel_.find_attribute("beta");
    if (beta != nullptr && beta->value != Rational{.num = 0} && beta->value != Rational{.num = 1})
      return "attribute 'beta' is neither 0 nor 1";
    return std::nullopt;
  }

  /// No attributes but those of its form, and those that exact sums need.
  [[nodiscard]] std::optional<std::string> check_attributes(const KernelSpec& form) const {
    std::vector<Attribute> exact;
    if (config_.exact_sums) exact = exact_attributes(kernel_, exact_sums(config_));
    for (const Attribute& made : exact) {
      const Attribute* stated = kernel_.find_attribute(made.name);
      if (stated == nullptr || stated->value != made.value)
        return fmt::format("attribute '{}' is not {}, as exact sums need it", made.name,
                           made.value.num);
    }
    for (const Attribute& attribute : kernel_.attributes)
      if (std::ranges::find(form.attributes, attribute.name) == form.attributes.end() &&
          std::ranges::find(form.optional_attributes, attribute.name) ==
              form.optional_attributes.end() &&
          std::ranges::find(exact, attribute.name, &Attribute::name) == exact.end())
        return fmt::format("has no attribute '{}'", attribute.name);
    return std::nullopt;
  }

  /// The operands of its form and no others, none given twice: of two, prover and machine could
  /// take different ones.
  [[nodiscard]] std::optional<std::string> check_roles(const KernelSpec& form) const {
    for (const Operand& operand : kernel_.operands) {
      if (kernel_.kind == update && operand.role == "loss") continue;  // twice: MF308
      const auto given = std::ranges::count(kernel_.operands, operand.role, &Operand::role);
      const auto taken = std::ranges::count(form.operands, operand.role, &OperandSpec::role);
      const std::optional<OperandUse> beside = use_beside_form(operand.role);
      if (given > std::max(taken, std::ptrdiff_t{beside ? 1 : 0}))
        return fmt::format("operand '{}' stands there {} times, expected {}", operand.role, given,
                           beside ? 1 : taken);
      if (!beside) continue;
      if (auto wrong = check_access(operand, *beside)) return wrong;
    }
    return std::nullopt;
  }

  /// What the table leaves to others: workspaces, and the slices of updates and norms.
  [[nodiscard]] std::optional<OperandUse> use_beside_form(std::string_view role) const {
    if (role == "workspace") return OperandUse::scratch;
    if (kernel_.kind == norm_partial && role == "input") return OperandUse::reads;
    if (kernel_.kind != update && kernel_.kind != momentum) return std::nullopt;
    if (role == "grad") return OperandUse::reads;
    if (role == "direction")
      return kernel_.kind == momentum ? OperandUse::writes : OperandUse::reads;
    if (kernel_.kind == momentum && !is_optimizer_state(role)) return std::nullopt;
    if (role == "main_weight") return OperandUse::updates;
    if (role == "weight")
      return operand_of(kernel_, "main_weight") == nullptr ? OperandUse::updates
                                                           : OperandUse::writes;
    return is_optimizer_state(role) ? std::optional(OperandUse::updates) : std::nullopt;
  }

  /// What a kernel does to an operand is fixed by what it is, and by attribute "beta" where it may
  /// add.
  [[nodiscard]] std::optional<std::string> check_access(const Operand& operand,
                                                        OperandUse use) const {
    const Access expected = access_of(use, kernel_.attribute("beta") != 0);
    const bool may_be_both = use == OperandUse::yields && operand.access == Access::read_write;
    if (operand.access == expected || may_be_both) return std::nullopt;
    return fmt::format("operand '{}' is {} where {} is expected", operand.role,
                       to_string(operand.access), to_string(expected));
  }

  std::optional<std::string> check(const Operand& operand, const OperandSpec& form) {
    if (auto wrong = check_access(operand, form.use)) return wrong;
    if (!fits(operand.dtype, form.element))
      return fmt::format("operand '{}' may not be {} here", operand.role, to_string(operand.dtype));
    std::vector<std::int64_t> shape;
    for (std::size_t i = 0; i < form.dims; ++i) {
      const std::int64_t got = i < operand.shape.size() ? operand.shape[i] : 0;
      const auto wanted = expected(form.shape[i], got);
      if (!wanted)
        return fmt::format("operand '{}' has a dim of {}, which is no multiple of what it counts",
                           operand.role, got);
      shape.push_back(*wanted);
    }
    if (operand.shape != shape)
      return fmt::format("operand '{}' is [{}] where [{}] is expected", operand.role,
                         fmt::join(operand.shape, ", "), fmt::join(shape, ", "));
    if (form.strided) return check_heads(operand);
    if (form.columns && !is_contiguous(operand)) return check_wider_rows(operand);
    if (!is_contiguous(operand)) return fmt::format("operand '{}' is not contiguous", operand.role);
    return std::nullopt;
  }

  /// Heads stand side by side in rows of tokens, and a row has the query and key heads of a token,
  /// mostly its value heads too: [tokens, heads, head_dim] or [batch, heads, seq, head_dim].
  [[nodiscard]] std::optional<std::string> check_heads(const Operand& operand) const {
    const ModelShape& model = config_.model;
    const std::int64_t head_dim = operand.shape.back();
    const std::int64_t row = row_elements(operand);
    const std::int64_t rotated =
        checked_mul(checked_add(model.heads, model.kv_heads), model.head_dim);
    const bool values = operand.role == "value";
    const std::int64_t all = model.qkv_width();
    const std::int64_t columns = values ? model.value_head_dim() : model.head_dim;
    std::vector<std::int64_t> strides{row, head_dim, 1};
    if (operand.shape.size() == 4) strides = {checked_mul(operand.shape[2], row), head_dim, row, 1};
    const bool in_rows =
        operand.strides == strides || (operand.strides.empty() && operand.shape.size() == 3);
    if (head_dim == columns && in_rows && (row == all || row == rotated)) return std::nullopt;
    return fmt::format(
        "operand '{}' is [{}] with strides [{}], which are no heads in rows of {} or {}",
        operand.role, fmt::join(operand.shape, ", "), fmt::join(operand.strides, ", "), rotated,
        all);
  }

  /// Some columns of wider rows. Which ones values tell (model_values.cpp).
  [[nodiscard]] static std::optional<std::string> check_wider_rows(const Operand& operand) {
    const bool wider = operand.strides.size() == 2 && operand.strides[1] == 1 &&
                       operand.strides[0] > operand.shape[1];
    if (wider) return std::nullopt;
    return fmt::format("operand '{}' is [{}] with strides [{}], which are no columns of wider rows",
                       operand.role, fmt::join(operand.shape, ", "),
                       fmt::join(operand.strides, ", "));
  }

  bool fits(DType dtype, Element element) {
    switch (element) {
      case Element::compute:
        if (!compute_) compute_ = dtype;
        return is_floating(dtype) && dtype == *compute_;
      case Element::statistic: return is_wide(dtype);
      case Element::gradient:
        if (dtype == DType::fp64) return is_wide(dtype);
        return is_floating(dtype) && compute_ != DType::fp64;
      case Element::partial: return dtype == DType::fp32 || dtype == DType::int64;
      case Element::fp32: return dtype == DType::fp32;
      case Element::int32: return dtype == DType::int32;
      case Element::bytes: return dtype == DType::uint8;
    }
    return false;
  }
  /// fp64 is for runs that are fp64 throughout.
  [[nodiscard]] bool is_wide(DType dtype) const {
    if (compute_) return dtype == (compute_ == DType::fp64 ? DType::fp64 : DType::fp32);
    return dtype == DType::fp32 || dtype == DType::fp64;
  }

  /// One element of the input for each of the output, in any shape. In plans by hand one on other
  /// than floating types stands for a kernel that this proof does not know.
  std::optional<std::string> check_element_wise(const KernelSpec& form) {
    if (kernel_.kind == zero_padding) return of_model_ ? check_padding(form) : std::nullopt;
    const Operand* input = operand_of(kernel_, "input");
    const Operand* output = operand_of(kernel_, "output");
    if (output == nullptr) output = operand_of(kernel_, "weight_grad");
    if (input == nullptr || output == nullptr || !is_floating(input->dtype) ||
        !is_floating(output->dtype))
      return of_model_ ? std::optional<std::string>(
                             "expected 'input' and 'output' or 'weight_grad' of floating types")
                       : std::nullopt;
    if (of_model_ && kernel_.operands.size() != 2)
      return fmt::format("has {} operands, expected 2", kernel_.operands.size());
    if (of_model_ && (input->dtype == DType::fp64) != (output->dtype == DType::fp64))
      return fmt::format("goes from {} to {}: expected fp64 only beside fp64",
                         to_string(input->dtype), to_string(output->dtype));
    if (auto wrong = check_attributes(form)) return wrong;
    for (const std::string_view name : form.attributes)
      if (of_model_ && kernel_.find_attribute(name) == nullptr)
        return fmt::format("lacks attribute '{}'", name);
    if (auto wrong = check_access(*input, OperandUse::reads)) return wrong;
    if (auto wrong = check_access(*output, OperandUse::adds)) return wrong;
    for (const Operand* operand : {input, output})
      if (of_model_ && !is_contiguous(*operand))
        return fmt::format("operand '{}' is not contiguous", operand->role);
    if (input->elements() == output->elements()) return std::nullopt;
    return fmt::format("{} elements go to {}", input->elements(), output->elements());
  }

  /// Bytes of any type that are cleared.
  [[nodiscard]] std::optional<std::string> check_padding(const KernelSpec& form) const {
    for (const Operand& operand : kernel_.operands) {
      if (operand.role != "padding")
        return fmt::format("has an operand '{}', expected 'padding' alone", operand.role);
      if (auto wrong = check_access(operand, OperandUse::writes)) return wrong;
      if (!is_contiguous(operand)) return "operand 'padding' is not contiguous";
    }
    return check_attributes(form);
  }

  /// What no single dim shows.
  std::optional<std::string> check_relations() const {
    const auto heads = value("rotated");
    const auto head_dim = value("head_dim");
    if (const auto cols = value("cols"); heads && head_dim && cols)
      if (*cols != checked_mul(*heads, *head_dim))
        return fmt::format("{} heads of {} are not {} columns", *heads, *head_dim, *cols);
    if (const auto chosen = value("deterministic");
        chosen && *chosen != (config_.deterministic ? 1 : 0))
      return "attribute 'deterministic' is not as configured";
    if (auto wrong = check_configured()) return wrong;
    if (auto wrong = check_positions()) return wrong;
    if (auto wrong = check_workspace()) return wrong;
    return check_columns();
  }

  /// What the model and the optimizer's settings say of a kernel.
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
    if (kernel_.kind == latent_norm_forward && differs("epsilon", model.rms_norm_eps))
      return "attribute 'epsilon' is not the model's";
    if (auto wrong = check_latent()) return wrong;
    if ((norms || kernel_.kind == layer_norm_forward) && differs("epsilon", model.rms_norm_eps))
      return "attribute 'epsilon' is not the model's";
    const bool attends = kernel_.kind == attention_forward || kernel_.kind == attention_backward;
    if (attends)
      for (const auto& [name, configured] : {std::pair{"batch", config_.micro_batch},
                                             {"seq", config_.seq_len},
                                             {"heads", model.heads},
                                             {"kv_heads", model.kv_heads},
                                             {"head_dim", model.head_dim}})
        if (differs(name, {.num = configured}))
          return fmt::format("attribute '{}' is not as configured", name);
    if (kernel_.kind == sink_forward || kernel_.kind == sink_backward)
      for (const auto& [name, configured] :
           {std::pair{"heads", model.heads}, {"head_dim", model.head_dim}})
        if (differs(name, {.num = configured}))
          return fmt::format("attribute '{}' is not as configured", name);
    if (attends && is_not("value_dim", {.num = model.value_dim}))
      return "attribute 'value_dim' is not the model's";
    if (auto wrong = check_scores(attends)) return wrong;
    if (auto wrong = check_routing()) return wrong;
    const bool embeds = kernel_.kind == embedding_forward || kernel_.kind == embedding_backward;
    if (embeds && is_not("scale", model.embedding_scale(config_.param_dtype)))
      return "attribute 'scale' is not the model's";
    const std::int64_t positions = model.traits().rotates ? 0 : config_.seq_len;
    if ((kernel_.kind == embedding_forward || kernel_.kind == position_embedding_backward) &&
        is_not("seq", {.num = positions}))
      return "attribute 'seq' is not as configured";
    if ((norms || kernel_.kind == rms_norm_backward || head_norms_backward) &&
        is_not("zero_centered", {.num = model.zero_centered_norms ? 1 : 0}))
      return "attribute 'zero_centered' is not the model's";
    if (const auto rotated = value("rotated_dim"); rotated && *rotated != model.rotated_dim())
      return fmt::format("turns {} elements of a head, the model {}", *rotated,
                         model.rotated_dim());
    if ((head_norms || head_norms_backward) && differs("query_heads", {.num = model.heads}))
      return "attribute 'query_heads' is not the model's";
    const bool whole =
        kernel_.kind == qk_row_norm_rope_forward || kernel_.kind == qk_row_norm_rope_backward;
    if (whole && differs("key_heads", {.num = model.kv_heads}))
      return "attribute 'key_heads' is not the model's";
    if (kernel_.kind == norm_finish && differs("limit", config_.clip))
      return "attribute 'limit' is not as configured";
    if (kernel_.kind == norm_finish && is_not("scale_window", {.num = config_.loss_scale_window}))
      return "attribute 'scale_window' is not as configured";
    return std::nullopt;
  }

  /// Where experts are dealt out, those that work on rows have the ones of this rank.
  [[nodiscard]] std::int64_t experts_of_kernel() const {
    switch (kernel_.kind) {
      case expert_order:
      case peer_order:
      case router_backward:
      case router_forward: return config_.model.experts;
      default:
        return config_.deals_experts() ? config_.model.experts / config_.expert_parallel
                                       : config_.model.experts;
    }
  }

  /// What costs are of: of rows of ranks, as many as tokens here have, where all have equally many.
  [[nodiscard]] std::optional<std::string> check_balance(bool is_shared) const {
    const auto& names = spec_of(kernel_)->optional_attributes;
    if (std::ranges::find(names, "balanced_rows") == names.end()) return std::nullopt;
    const bool states = config_.deals_experts() && !is_shared;
    if (!is_not("balanced_rows", {.num = states ? rows_of_tokens(config_) : 0}))
      return std::nullopt;
    return "attribute 'balanced_rows' is not what tokens of this rank have";
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
        return fmt::format("attribute '{}' is not the model's", name);
    return std::nullopt;
  }

  /// What the model says of experts, to every kernel that has to do with them.
  [[nodiscard]] std::optional<std::string> check_routing() const {
    const ModelShape& model = config_.model;
    const bool backward = kernel_.kind == router_backward;
    const bool routes = backward || kernel_.kind == router_forward;
    const bool balances = model.router_aux_loss.num != 0;
    const auto takes = [&](std::string_view name) {
      const auto& names = spec_of(kernel_)->attributes;
      return std::ranges::find(names, name) != names.end();
    };
    const std::int64_t seq = balances ? config_.seq_len : 0;
    // The activation of the expert that all tokens share is of all rows.
    const bool activates =
        kernel_.kind == weighted_swiglu_forward || kernel_.kind == weighted_swiglu_backward;
    const bool is_shared = activates && operand_of(kernel_, "ends") == nullptr;
    const bool moves = kernel_.kind == permute_rows || kernel_.kind == combine_rows;
    const bool makes_room = moves || kernel_.kind == peer_order || kernel_.kind == arrival_order;
    // What ranks have sent has one choice of each row.
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
          Stated{"m", makes_room, {.num = config_.deals_experts() ? rows_of_experts(config_) : 0}},
          Stated{"normalised", routes, {.num = model.normalised_routing ? 1 : 0}},
          Stated{"chosen_groups", routes && !backward, {.num = model.chosen_groups}},
          Stated{"groups", routes && !backward, {.num = model.router_groups}},
          Stated{"scale", routes, model.routed_scale},
          Stated{"sigmoid", routes, {.num = model.sigmoid_routing ? 1 : 0}},
          Stated{"seq", routes, {.num = seq}}, Stated{"aux_loss", backward, model.router_aux_loss},
          Stated{"z_loss", backward, model.router_z_loss},
          Stated{"interleaved",
                 activates && !is_shared,
                 {.num = model.traits().interleaved_experts ? 1 : 0}},
          Stated{"alpha", activates, model.swiglu_alpha},
          Stated{"limit", activates, model.swiglu_limit}})
      if (attribute.applies && is_not(attribute.name, attribute.configured))
        return fmt::format("attribute '{}' is not the model's", attribute.name);
    // That one may have no weight either.
    const bool weighs = !is_shared || model.has_gated_shared();
    if (activates && (operand_of(kernel_, "row_weights") != nullptr) != weighs)
      return weighs ? "lacks operand 'row_weights'" : "has operand 'row_weights'";
    if (kernel_.kind == weighted_swiglu_backward &&
        (operand_of(kernel_, "d_row_weights") != nullptr) != weighs)
      return weighs ? "lacks operand 'd_row_weights'" : "has operand 'd_row_weights'";
    if (!routes) return check_row_weights();
    if ((operand_of(kernel_, "counts") != nullptr) != balances)
      return balances ? "lacks operand 'counts', of which the balance loss is"
                      : "has operand 'counts', though no loss balances experts";
    if (const auto sequences = value("sequences");
        balances && sequences && *sequences != config_.micro_batch)
      return fmt::format("counts experts of {} sequences of {}", *sequences, config_.micro_batch);
    return std::nullopt;
  }

  /// Rows have their weights, or their weights' gradients, of both sides or of none.
  [[nodiscard]] std::optional<std::string> check_row_weights() const {
    if (kernel_.kind != permute_rows && kernel_.kind != combine_rows) return std::nullopt;
    if ((operand_of(kernel_, "weights") == nullptr) ==
        (operand_of(kernel_, "row_weights") == nullptr))
      return std::nullopt;
    return "has one of 'weights' and 'row_weights', expected both or none";
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

  /// Of an attribute that is left out where it would be 0.
  [[nodiscard]] bool is_not(std::string_view name, const Rational& configured) const {
    const Attribute* stated = kernel_.find_attribute(name);
    return configured.num == 0 ? stated != nullptr
                               : stated == nullptr || stated->value != configured;
  }

  /// Attributes that are left out where the model has nothing of the kind. Which layers have the
  /// window is not told by a kernel: model_values.cpp asks.
  [[nodiscard]] std::optional<std::string> check_scores(bool attends) const {
    const ModelShape& model = config_.model;
    const bool loses = kernel_.kind == cross_entropy || kernel_.kind == cross_entropy_loss;
    if (loses && is_not("logit_cap", model.logit_cap))
      return "attribute 'logit_cap' is not the model's";
    if (!attends) return std::nullopt;
    if (is_not("query_scalar", model.query_scalar))
      return "attribute 'query_scalar' is not the model's";
    if (is_not("score_cap", model.score_cap)) return "attribute 'score_cap' is not the model's";
    const Attribute* window = kernel_.find_attribute("window");
    const std::int64_t sliding = model.window_of(true, config_.seq_len);
    if (window != nullptr && (sliding == 0 || window->value != Rational{.num = sliding}))
      return "attribute 'window' is not the model's";
    return std::nullopt;
  }

  [[nodiscard]] std::optional<std::string> check_workspace() const {
    const std::int64_t least = least_workspace(kernel_);
    const Operand* workspace = operand_of(kernel_, "workspace");
    if (workspace == nullptr && least == 0) return std::nullopt;
    if (workspace == nullptr)
      return fmt::format("lacks operand 'workspace' of at least {} bytes", least);
    if (workspace->dtype != DType::uint8 || workspace->shape.size() != 1 ||
        !workspace->strides.empty() || workspace->shape.front() < std::max<std::int64_t>(least, 1))
      return fmt::format("operand 'workspace' is {} [{}] where at least {} bytes are expected",
                         to_string(workspace->dtype), fmt::join(workspace->shape, ", "), least);
    if (workspace->offset % kWorkspaceAlignment != 0)
      return fmt::format("operand 'workspace' begins at byte {} of its buffer, no multiple of {}",
                         workspace->offset, kWorkspaceAlignment);
    return std::nullopt;
  }

  /// Rows lie where rows begin, and heads at their columns: query, key, value.
  [[nodiscard]] std::optional<std::string> check_columns() const {
    for (std::size_t i = 0; i < kernel_.operands.size(); ++i) {
      const Operand& operand = kernel_.operands[i];
      const auto column = column_of(i);
      if (column && !column->fits(kernel_))
        return fmt::format("operand '{}' begins at byte {} of a row of {}, where {} is expected",
                           operand.role, operand.offset % column->row, column->row, column->begin);
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<ColumnOf> column_of(std::size_t i) const {
    const Operand& operand = kernel_.operands[i];
    if (operand.shape.size() == 2 && !operand.strides.empty()) return std::nullopt;
    const auto begin = first_column(operand);
    const std::int64_t row = row_elements(operand);
    if (!begin || row == 0) return std::nullopt;
    const std::int64_t size = size_of(operand.dtype);
    return ColumnOf{
        .operand = i, .row = checked_mul(row, size), .begin = checked_mul(*begin, size)};
  }

  /// Elements from one token's row to the next; 0 where the operand is no rows of tokens.
  static std::int64_t row_elements(const Operand& operand) {
    if (operand.shape.size() == 4 && operand.strides.size() == 4) return operand.strides[2];
    if (operand.shape.size() == 3 && operand.strides.size() == 3) return operand.strides[0];
    if (operand.shape.size() == 3) return checked_mul(operand.shape[1], operand.shape[2]);
    return operand.shape.size() == 2 ? operand.shape[1] : 0;
  }

  /// Of parameters and their gradients layouts.hpp knows the place.
  [[nodiscard]] std::optional<std::int64_t> first_column(const Operand& operand) const {
    if (operand.role == "weight" || operand.role == "weight_grad") return std::nullopt;
    if (kernel_.kind == newton_schulz) return std::nullopt;  // directions.hpp knows theirs
    const bool attends = kernel_.kind == attention_forward || kernel_.kind == attention_backward;
    if (!attends || operand.role == "query") return 0;
    const std::int64_t head_dim = kernel_.attribute("head_dim");
    const std::int64_t query = checked_mul(kernel_.attribute("heads"), head_dim);
    if (operand.role == "key") return query;
    if (operand.role == "value")
      return checked_add(query, checked_mul(kernel_.attribute("kv_heads"), head_dim));
    return 0;
  }

  const Kernel& kernel_;
  const PlanConfig& config_;
  bool of_model_;
  std::vector<std::pair<std::string_view, std::int64_t>> names_;
  std::optional<DType> compute_;
};

/// The forms that fit. Most kernels of a plan are like one before, with other buffers: those need
/// a comparison and no proof of their own.
class FittingForms {
 public:
  /// Whether a kernel differs from one that fits in nothing that counts.
  [[nodiscard]] bool has(const Kernel& kernel, std::size_t hash) const {
    const auto found = forms_.find(hash);
    return found != forms_.end() && alike(*found->second.kernel, kernel) &&
           std::ranges::all_of(found->second.columns,
                               [&](const ColumnOf& column) { return column.fits(kernel); });
  }

  void add(const Kernel& kernel, std::size_t hash, std::vector<ColumnOf> columns) {
    if (forms_.size() < kMostForms) forms_.try_emplace(hash, &kernel, std::move(columns));
  }

  /// Equal for kernels that are alike, and mostly for no others.
  [[nodiscard]] static std::size_t hash_of(const Kernel& kernel) {
    auto hash = static_cast<std::uint64_t>(kernel.kind);
    const auto mix = [&](std::uint64_t value) {
      hash = (hash ^ value) * 0x9e3779b97f4a7c15U;  // 2^64 / golden ratio, odd
      hash ^= hash >> 29U;
    };
    mix(kernel.operands.size());
    for (const Attribute& attribute : kernel.attributes)
      mix(static_cast<std::uint64_t>(attribute.value.num) ^
          static_cast<std::uint64_t>(attribute.value.den - 1) << 32U);
    if (!kernel.operands.empty())
      for (const std::int64_t dim : kernel.operands.front().shape)
        mix(static_cast<std::uint64_t>(dim));
    return hash;
  }

 private:
  struct Form {
    const Kernel* kernel = nullptr;
    std::vector<ColumnOf> columns;
  };

  /// Buffers and offsets may differ, and what says nothing of the form: flops.
  static bool alike(const Kernel& a, const Kernel& b) {
    return a.kind == b.kind && a.attributes == b.attributes &&
           std::ranges::equal(a.operands, b.operands, [](const Operand& x, const Operand& y) {
             return x.access == y.access && x.dtype == y.dtype && x.role == y.role &&
                    x.shape == y.shape && x.strides == y.strides;
           });
  }

  static constexpr std::size_t kMostForms = 1024;

  std::unordered_map<std::size_t, Form> forms_;
};

class ProgramForms {
 public:
  ProgramForms(const Program& program, const ProgramIndex& index, FindingList& findings)
      : program_(program),
        index_(index),
        findings_(findings),
        of_model_(computes_model(program, index)) {}

  void run() {
    for (const Plan& plan : program_.plans)
      for (const Segment& segment : plan.segments) {
        for (const Op& op : segment.ops) {
          where_ = {&plan, &segment, &op};
          check(op);
        }
        check_recomputed(plan, segment);
      }
  }

 private:
  /// A forward kernel, by the parameter and the rows that it works on.
  struct Computed {
    KernelKind kind = KernelKind::gemm;
    std::uint32_t group = 0;
    std::int64_t weight = 0;  ///< bytes into the group
    std::int64_t input = 0;   ///< bytes into its buffer

    friend auto operator<=>(const Computed&, const Computed&) = default;
  };

  /// Nothing where the op has no parameter.
  [[nodiscard]] std::optional<Computed> computed_by(const Op& op) const {
    const auto* kernel = std::get_if<Kernel>(&op.body);
    if (kernel == nullptr || !is_forward(*kernel)) return std::nullopt;
    const Operand* weight = operand_of(*kernel, "weight");
    if (weight == nullptr || kernel->operands.empty()) return std::nullopt;
    const Buffer& buffer = program_.buffers[*index_.buffers.find(weight->buffer)];
    if (!buffer.holds) return std::nullopt;
    const HeldGroup* held = nullptr;  // the last that begins at or before the weight
    for (const HeldGroup& other : buffer.holds->groups)
      if (other.offset <= weight->offset && (held == nullptr || other.offset > held->offset))
        held = &other;
    if (held == nullptr) return std::nullopt;
    return Computed{.kind = kernel->kind,
                    .group = held->group.value,
                    .weight = weight->offset - held->offset,
                    .input = kernel->operands.front().offset};
  }

  /// Uses of parameters that are said to be computed again get no gradient: in this microbatch each
  /// was computed once before. Segments of several microbatches are left to what follows those.
  void check_recomputed(const Plan& plan, const Segment& segment) {
    const bool again_at_all =
        std::ranges::find(segment.ops, Phase::recompute, &Op::phase) != segment.ops.end();
    const bool of_several =
        std::ranges::any_of(segment.ops, [](const Op& op) { return op.lag != 0; });
    if (!again_at_all || of_several) return;
    std::vector<Computed> first;
    for (const Op& op : segment.ops) {
      if (op.phase == Phase::recompute) continue;
      if (const auto computed = computed_by(op)) first.push_back(*computed);
    }
    std::ranges::sort(first);
    for (const Op& op : segment.ops) {
      if (op.phase != Phase::recompute) continue;
      const auto again = computed_by(op);
      if (!again || std::ranges::binary_search(first, *again)) continue;
      where_ = {&plan, &segment, &op};
      report("is said to be computed again, but nothing of its microbatch computes it first");
    }
  }

  void check(const Op& op) {
    if (const auto* kernel = std::get_if<Kernel>(&op.body)) {
      for (const Operand& operand : kernel->operands)
        check(operand, MemorySpace::device, is_update(*kernel) || is_momentum(*kernel));
      check_form(*kernel);
    }
    using enum MemorySpace;
    if (const auto* collective = std::get_if<Collective>(&op.body)) {
      if (collective->kind != CollectiveKind::recv)
        check_end(collective->input, "input", Access::read, device);
      if (collective->kind != CollectiveKind::send)
        check_end(collective->output, "output", Access::write, device);
    }
    if (const auto* copy = std::get_if<Copy>(&op.body)) {
      check_end(copy->input, "input", Access::read, copy->kind == CopyKind::h2d ? host : device);
      check_end(copy->output, "output", Access::write, copy->kind == CopyKind::d2h ? host : device);
    }
  }

  void check_form(const Kernel& kernel) {
    const std::size_t hash = FittingForms::hash_of(kernel);
    if (fitting_.has(kernel, hash)) return;
    FormCheck form(kernel, program_.config, of_model_);
    if (const auto wrong = form.run())
      report(fmt::format("{}: {}", to_string(kernel.kind), *wrong));
    else
      fitting_.add(kernel, hash, form.columns());
  }

  /// Of a collective or a copy.
  void check_end(const Operand& operand, std::string_view role, Access access, MemorySpace space) {
    if (operand.role != role || operand.access != access)
      report(fmt::format("{} '{}' where {} '{}' is expected", to_string(operand.access),
                         operand.role, to_string(access), role));
    if (operand.stated()) check(operand, space, false);
  }

  /// What optimizers keep, updates alone write, and nobody takes for scratch.
  void check_kept(const Operand& operand, const Buffer& buffer) {
    const bool kept = buffer.holds && (buffer.holds->kind == ContentKind::main_parameter ||
                                       buffer.holds->kind == ContentKind::optimizer_state);
    if (kept && operand.access != Access::read)
      report(fmt::format("operand '{}' is {} in buffer '{}', which updates alone write",
                         operand.role, to_string(operand.access), buffer.name));
  }

  /// Only slices lie elsewhere on other ranks: values are followed on one rank for all.
  void check_ranks(const Operand& operand, const Buffer& buffer) {
    const bool of_slices = buffer.holds && buffer.holds->kind != ContentKind::port;
    const bool moves = std::ranges::any_of(operand.rank_strides, [&](const RankStride& stride) {
      return stride.bytes != 0 && program_.config.mesh.size(stride.axis) > 1;
    });
    if (moves && !of_slices)
      report(
          fmt::format("operand '{}' lies elsewhere on other ranks, in buffer '{}', which holds "
                      "no slices",
                      operand.role, buffer.name));
  }

  void check(const Operand& operand, MemorySpace space, bool of_update) {
    const Buffer& buffer = program_.buffers[*index_.buffers.find(operand.buffer)];
    const Pool& pool = program_.pools[*index_.pools.find(buffer.pool)];
    if (pool.space != space)
      report(fmt::format("operand '{}' lies in pool '{}' of the {}, expected of the {}",
                         operand.role, pool.name, to_string(pool.space), to_string(space)));
    if (operand.dtype != buffer.dtype)
      report(fmt::format("operand '{}' is {} in buffer '{}', which is {}", operand.role,
                         to_string(operand.dtype), buffer.name, to_string(buffer.dtype)));
    if (!of_update) check_kept(operand, buffer);
    if (of_model_) check_ranks(operand, buffer);
    // Heads, and columns: the rows that an operand has are those of its buffer, be they wide or
    // narrow.
    const bool columns = operand.shape.size() == 2 && operand.strides.size() == 2;
    if (operand.shape.size() != 3 && !columns) return;
    const std::int64_t row = operand.strides.empty()
                                 ? checked_mul(operand.shape[1], operand.shape[2])
                                 : operand.strides.front();
    const std::int64_t rows =
        checked_mul(checked_mul(operand.shape[0], row), size_of(operand.dtype));
    if (rows != buffer.size.value)
      report(fmt::format("operand '{}' has rows of {} bytes in all, buffer '{}' {} bytes",
                         operand.role, rows, buffer.name, buffer.size.value));
  }

  void report(const std::string& what) {
    if (!findings_.wants("MF007")) return;
    const auto& [plan, segment, op] = where_;
    findings_.add({.rule = "MF007",
                   .message = fmt::format("{}/{} op {} ({}): {}", plan->name, segment->name,
                                          op->id.value, op->name, what)});
  }

  struct Where {
    const Plan* plan = nullptr;
    const Segment* segment = nullptr;
    const Op* op = nullptr;
  };

  const Program& program_;
  const ProgramIndex& index_;
  FindingList& findings_;
  bool of_model_;
  FittingForms fitting_;
  Where where_;
};

}  // namespace

void check_kernel_forms(const Program& program, const ProgramIndex& index, FindingList& findings) {
  ProgramForms(program, index, findings).run();
}

}  // namespace mfsdp
