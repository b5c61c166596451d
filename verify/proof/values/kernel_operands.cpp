#include "verify/proof/values/kernel_operands.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "core/plan/exact_sums.hpp"
#include "core/plan/kernel_spec.hpp"
#include "verify/proof/ledger/kernel_roles.hpp"
#include "verify/proof/order/overlap.hpp"
#include "verify/proof/values/kernel_settings.hpp"

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

/// Elements from one token's row to the next; 0 where the operand is no rows of tokens.
[[nodiscard]] std::int64_t row_elements(const Operand& operand) {
  if (operand.shape.size() == 4 && operand.strides.size() == 4) return operand.strides[2];
  if (operand.shape.size() == 3 && operand.strides.size() == 3) return operand.strides[0];
  if (operand.shape.size() == 3) return checked_mul(operand.shape[1], operand.shape[2]);
  return operand.shape.size() == 2 ? operand.shape[1] : 0;
}

/// layouts.hpp knows the places of parameters and their gradients.
[[nodiscard]] std::optional<std::int64_t> first_column(const Kernel& kernel,
                                                       const Operand& operand) {
  if (operand.role == "weight" || operand.role == "weight_grad") return std::nullopt;
  if (kernel.kind == newton_schulz) return std::nullopt;  // directions.cpp knows theirs
  // A value, or a weight: model_binding.cpp knows the place of both.
  if (casts_to_fp8(kernel.kind) && operand.role == "input") return std::nullopt;
  // A transposed cast in E4M3 is a weight.
  if (kernel.kind == transpose && operand.role == "input" && operand.dtype == DType::fp8_e4m3)
    return std::nullopt;
  const bool attends = kernel.kind == attention_forward || kernel.kind == attention_backward;
  if (!attends || operand.role == "query") return 0;
  const std::int64_t head_dim = kernel.attribute("head_dim");
  // Gathered rows have keys and values alone.
  const bool gathered = kernel.find_attribute("parts") != nullptr;
  const std::int64_t query = gathered ? 0 : checked_mul(kernel.attribute("heads"), head_dim);
  if (operand.role == "key") return query;
  if (operand.role == "value")
    return checked_add(query, checked_mul(kernel.attribute("kv_heads"), head_dim));
  return 0;
}

[[nodiscard]] std::optional<ColumnOf> column_of(const Kernel& kernel, std::size_t i) {
  const Operand& operand = kernel.operands[i];
  if (operand.shape.size() == 2 && !operand.strides.empty()) return std::nullopt;
  const auto begin = first_column(kernel, operand);
  const std::int64_t row = row_elements(operand);
  if (!begin || row == 0) return std::nullopt;
  const std::int64_t size = size_of(operand.dtype);
  return ColumnOf{.operand = i, .row = checked_mul(row, size), .begin = checked_mul(*begin, size)};
}

/// One kernel against its form.
class OperandCheck {
 public:
  /// `of_model`: the plan is one of the configured model; one by hand may have kernels for any.
  OperandCheck(const Kernel& kernel, const PlanConfig& config, bool of_model)
      : kernel_(kernel), config_(config), of_model_(of_model) {
    if (of_model && kernel.kind != newton_schulz) compute_ = config.param_dtype;
    // Weights whose casts are gathered are the main ones; model_binding.cpp looks which are cast.
    const Operand* input = operand_of(kernel, "input");
    if (of_model && casts_to_fp8(kernel.kind) && config.fp8_gather && input != nullptr &&
        input->dtype == config.main_dtype)
      compute_ = config.main_dtype;
    for (const Attribute& attribute : kernel.attributes)
      if (attribute.value.den == 1) sizes_.emplace_back(attribute.name, attribute.value.num);
    sizes_.emplace_back("seq", config.seq_len);
    sizes_.emplace_back("data_ranks", loss_ranks(config.mesh));
    sizes_.emplace_back("token_rows", config.token_rows());
    if (kernel.kind == permute_rows || kernel.kind == combine_rows)
      sizes_.emplace_back("room", room_of(kernel));
    const std::int64_t parts = std::max<std::int64_t>(value("parts").value_or(1), 1);
    sizes_.emplace_back("queries", value("seq").value_or(0) / parts);
    sizes_.emplace_back("keys", value("seq").value_or(0) / (value("key_parts") ? parts : 1));
    if (const auto rows = value("rows")) sizes_.emplace_back("places", checked_mul(*rows, parts));
    const auto head_dim = value("head_dim");
    if (const auto all = value("heads"), keys = value("kv_heads"); all && keys && head_dim) {
      const std::int64_t columns = value("value_dim").value_or(*head_dim);
      if (!value("value_dim")) sizes_.emplace_back("value_dim", columns);
      sizes_.emplace_back("key_value_width", checked_mul(*keys, checked_add(*head_dim, columns)));
      sizes_.emplace_back("qkv_width", checked_add(checked_mul(checked_add(*all, *keys), *head_dim),
                                                   checked_mul(*keys, columns)));
    }
  }

  /// A message where the kernel is wrong; else nothing.
  std::optional<std::string> run() {
    if (auto wrong = check_names()) return wrong;
    const KernelSpec* form = spec_of(kernel_);
    if (form == nullptr)
      return "is a GEMM of an unknown kind; expected forward, input gradient or weight gradient";
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

 private:
  [[nodiscard]] const Operand* nth_of(std::string_view role, std::ptrdiff_t nth) const {
    for (const Operand& operand : kernel_.operands)
      if (operand.role == role && nth-- == 0) return &operand;
    return nullptr;
  }

  [[nodiscard]] std::optional<std::int64_t> value(std::string_view name) const {
    return size_named(sizes_, name);
  }

  /// The expected size of a dimension that is `got`. A name that is not known yet stands for the
  /// remaining factor; nothing where `got` is no multiple of what is known.
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
    sizes_.emplace_back(unknown, got / product);
    return got;
  }

  /// Backends look attributes up by name: there is one of each.
  [[nodiscard]] std::optional<std::string> check_names() const {
    for (std::size_t i = 1; i < kernel_.attributes.size(); ++i)
      if (kernel_.attributes[i - 1].name >= kernel_.attributes[i].name)
        return fmt::format("has attribute '{}' after '{}'; expected each once, sorted by name",
                           kernel_.attributes[i].name, kernel_.attributes[i - 1].name);
    const Attribute* beta = kernel_.find_attribute("beta");
    if (beta != nullptr && beta->value != Rational{.num = 0} && beta->value != Rational{.num = 1})
      return "has attribute 'beta' of neither 0 nor 1";
    return std::nullopt;
  }

  /// No attributes but those of its form, and those that exact sums need.
  [[nodiscard]] std::optional<std::string> check_attributes(const KernelSpec& form) const {
    std::vector<Attribute> exact;
    if (config_.exact_sums) exact = exact_attributes(kernel_, exact_sums(config_));
    for (const Attribute& made : exact) {
      const Attribute* stated = kernel_.find_attribute(made.name);
      if (stated == nullptr || stated->value != made.value)
        return fmt::format("needs attribute '{}' of {} for exact sums", made.name, made.value.num);
    }
    for (const Attribute& attribute : kernel_.attributes)
      if (std::ranges::find(form.attributes, attribute.name) == form.attributes.end() &&
          std::ranges::find(form.optional_attributes, attribute.name) ==
              form.optional_attributes.end() &&
          std::ranges::find(exact, attribute.name, &Attribute::name) == exact.end())
        return fmt::format("has attribute '{}', which its kind does not have", attribute.name);
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
        return fmt::format("has operand '{}' {} times; expected {}", operand.role, given,
                           beside ? 1 : taken);
      if (!beside) continue;
      if (auto wrong = check_access(operand, *beside)) return wrong;
    }
    return std::nullopt;
  }

  /// Operands that the table of kernels does not have: workspaces, and shards of updates and norms.
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

  /// The kind of kernel determines the access, with attribute "beta" where it may add.
  [[nodiscard]] std::optional<std::string> check_access(const Operand& operand,
                                                        OperandUse use) const {
    const Access expected = access_of(use, kernel_.attribute("beta") != 0);
    const bool may_be_both = use == OperandUse::yields && operand.access == Access::read_write;
    if (operand.access == expected || may_be_both) return std::nullopt;
    return fmt::format("operand '{}' has access {}; expected {}", operand.role,
                       to_string(operand.access), to_string(expected));
  }

  std::optional<std::string> check(const Operand& operand, const OperandSpec& form) {
    if (auto wrong = check_access(operand, form.use)) return wrong;
    if (!fits(operand.dtype, form.element))
      return fmt::format("operand '{}' may not have dtype {} here", operand.role,
                         to_string(operand.dtype));
    std::vector<std::int64_t> shape;
    for (std::size_t i = 0; i < form.dims; ++i) {
      const std::int64_t got = i < operand.shape.size() ? operand.shape[i] : 0;
      const auto wanted = expected(form.shape[i], got);
      if (!wanted)
        return fmt::format(
            "operand '{}' has a dimension of {}, which does not fit the other operands",
            operand.role, got);
      shape.push_back(*wanted);
    }
    if (operand.shape != shape)
      return fmt::format("operand '{}' has shape [{}]; expected [{}]", operand.role,
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
    const bool gathered = config_.has_chunks() && (operand.role == "key" || values);
    const std::int64_t all =
        gathered ? checked_mul(model.kv_heads, checked_mul(2, model.head_dim)) : model.qkv_width();
    const std::int64_t columns = values ? model.value_head_dim() : model.head_dim;
    std::vector<std::int64_t> strides{row, head_dim, 1};
    if (operand.shape.size() == 4) strides = {checked_mul(operand.shape[2], row), head_dim, row, 1};
    const bool in_rows =
        operand.strides == strides || (operand.strides.empty() && operand.shape.size() == 3);
    if (head_dim == columns && in_rows && (row == all || (row == rotated && !gathered)))
      return std::nullopt;
    return fmt::format(
        "operand '{}' has shape [{}] and strides [{}]; expected heads in rows of {} or {}",
        operand.role, fmt::join(operand.shape, ", "), fmt::join(operand.strides, ", "), rotated,
        all);
  }

  /// Some columns of wider rows; model_values.cpp checks which.
  [[nodiscard]] static std::optional<std::string> check_wider_rows(const Operand& operand) {
    const bool wider = operand.strides.size() == 2 && operand.strides[1] == 1 &&
                       operand.strides[0] > operand.shape[1];
    if (wider) return std::nullopt;
    return fmt::format(
        "operand '{}' has shape [{}] and strides [{}]; expected columns of wider rows",
        operand.role, fmt::join(operand.shape, ", "), fmt::join(operand.strides, ", "));
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
      case Element::fp8:
      case Element::codes:
      case Element::scales: return is_one_of(element, dtype);
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
      return fmt::format("has {} operands; expected 2", kernel_.operands.size());
    if (of_model_ && (input->dtype == DType::fp64) != (output->dtype == DType::fp64))
      return fmt::format("converts {} to {}; expected fp64 for both or for neither",
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
    return fmt::format("has an input of {} and an output of {} elements", input->elements(),
                       output->elements());
  }

  /// Bytes of any type that are cleared.
  [[nodiscard]] std::optional<std::string> check_padding(const KernelSpec& form) const {
    for (const Operand& operand : kernel_.operands) {
      if (operand.role != "padding")
        return fmt::format("has an operand '{}'; expected only 'padding'", operand.role);
      if (auto wrong = check_access(operand, OperandUse::writes)) return wrong;
      if (!is_contiguous(operand)) return "operand 'padding' is not contiguous";
    }
    return check_attributes(form);
  }

  /// Relations between several dimensions.
  std::optional<std::string> check_relations() const {
    const auto heads = value("rotated");
    const auto head_dim = value("head_dim");
    if (const auto cols = value("cols"); heads && head_dim && cols)
      if (*cols != checked_mul(*heads, *head_dim))
        return fmt::format("has {} heads of {} elements, which are not {} columns", *heads,
                           *head_dim, *cols);
    if (const auto chosen = value("deterministic");
        chosen && *chosen != (config_.deterministic ? 1 : 0))
      return "has another attribute 'deterministic' than configured";
    if (auto wrong = settings_fault(kernel_, config_, sizes_)) return wrong;
    if (auto wrong = check_workspace()) return wrong;
    return check_columns();
  }

  [[nodiscard]] std::optional<std::string> check_workspace() const {
    const std::int64_t least = least_workspace(kernel_);
    const Operand* workspace = operand_of(kernel_, "workspace");
    if (workspace == nullptr && least == 0) return std::nullopt;
    if (workspace == nullptr)
      return fmt::format("lacks operand 'workspace' of at least {} bytes", least);
    if (workspace->dtype != DType::uint8 || workspace->shape.size() != 1 ||
        !workspace->strides.empty() || workspace->shape.front() < std::max<std::int64_t>(least, 1))
      return fmt::format("operand 'workspace' is {} [{}]; expected at least {} bytes",
                         to_string(workspace->dtype), fmt::join(workspace->shape, ", "), least);
    if (workspace->offset % kWorkspaceAlignment != 0)
      return fmt::format(
          "operand 'workspace' begins at byte {} of its buffer; expected a multiple of {}",
          workspace->offset, kWorkspaceAlignment);
    return std::nullopt;
  }

  /// Rows lie where rows begin, and heads at their columns: query, key, value.
  [[nodiscard]] std::optional<std::string> check_columns() const {
    for (std::size_t i = 0; i < kernel_.operands.size(); ++i) {
      const Operand& operand = kernel_.operands[i];
      const auto column = column_of(kernel_, i);
      if (column && !column->fits(kernel_))
        return fmt::format("operand '{}' begins at byte {} of a row of {} bytes; expected byte {}",
                           operand.role, operand.offset % column->row, column->row, column->begin);
    }
    return std::nullopt;
  }

  const Kernel& kernel_;
  const PlanConfig& config_;
  bool of_model_;
  NamedSizes sizes_;
  std::optional<DType> compute_;
};

}  // namespace

std::optional<std::string> kernel_fault(const Kernel& kernel, const PlanConfig& config,
                                        bool of_model) {
  return OperandCheck(kernel, config, of_model).run();
}

std::vector<ColumnOf> columns_of(const Kernel& kernel) {
  std::vector<ColumnOf> columns;
  if (spec_of(kernel) == nullptr || is_element_wise(kernel)) return columns;
  for (std::size_t i = 0; i < kernel.operands.size(); ++i)
    if (const auto column = column_of(kernel, i)) columns.push_back(*column);
  return columns;
}

}  // namespace mfsdp
