#include "verify/proof/values/fp8_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/plan/fp8.hpp"
#include "core/plan/fp8_blocks.hpp"
#include "verify/proof/ledger/kernel_roles.hpp"

namespace mfsdp::fp8 {
namespace {

Flow reads_form(std::string_view role, Value value, ValueForm form) {
  return {.role = role, .reads = {.value = value, .form = form}};
}

Flow makes_form(std::string_view role, ValueForm form) {
  return {.role = role, .writes = {.value = Value::excused, .form = form}};
}

/// Where an operand begins in the history of delayed scaling: its row, and the column.
struct HistoryPlace {
  std::int64_t row = 0;
  std::int64_t column = 0;
};
std::optional<HistoryPlace> place_in_history(const Operand* operand, const Program& program,
                                             const ProgramIndex& index) {
  if (operand == nullptr || program.config.fp8 != Fp8Recipe::delayed) return std::nullopt;
  const Buffer& buffer = program.buffers[index.buffers[operand->buffer]];
  if (!buffer.holds || buffer.holds->port != Port::amax_history) return std::nullopt;
  const std::int64_t element = operand->offset / size_of(DType::fp32);
  const std::int64_t tensors = amax_history::tensors(program.config);
  return HistoryPlace{.row = element / tensors, .column = element % tensors};
}

}  // namespace

std::optional<Value> weight_of(ParameterRole role) {
  switch (role) {
    case ParameterRole::qkv: return Value::qkv_weight;
    case ParameterRole::attention_out: return Value::attention_out_weight;
    case ParameterRole::gate_up: return Value::gate_up_weight;
    case ParameterRole::down: return Value::down_weight;
    default: return std::nullopt;
  }
}

std::array<Flow, kMostFlows> cast_flows(const Kernel& kernel, Fp8Recipe recipe, bool of_shard) {
  using enum ValueForm;
  const Flow input = reads_form("input", Value::excused, whole);
  if (kernel.kind == KernelKind::amax)
    return {input, makes_form("amax", of_shard ? amax_of_shard : amax)};
  std::array<Flow, kMostFlows> flows{input};
  std::size_t count = 1;
  const auto has = [&](std::string_view role) { return operand_of(kernel, role) != nullptr; };
  const auto makes = [&](std::string_view role, ValueForm form) {
    if (has(role)) flows.at(count++) = makes_form(role, form);
  };
  if (kernel.kind == KernelKind::cast_blocks) {
    if (has("amax")) flows.at(count++) = reads_form("amax", Value::excused, amax);
    makes("output", codes);
    makes("output_scale", block_scales);
    makes("output_t", codes_t);
    makes("output_t_scale", block_scales_t);
    makes("tensor_scale", tensor_scale);
    return flows;
  }
  const bool delayed = recipe == Fp8Recipe::delayed;
  flows.at(count++) = reads_form("amax", Value::excused, delayed ? kept_amax : amax);
  const Operand* row = operand_of(kernel, "output");
  const Operand* any = row != nullptr ? row : operand_of(kernel, "output_t");
  const bool wide = any != nullptr && any->dtype == DType::fp8_e5m2;
  makes("output_scale", wide ? e5m2_scale : e4m3_scale);
  makes("output", wide ? e5m2 : e4m3);
  makes("output_t", wide ? e5m2_t : e4m3_t);
  if (has("next_amax")) {
    flows.at(count) = makes_form("next_amax", next_amax);
    flows.at(count).reads = {.value = Value::excused, .form = next_amax};
  }
  return flows;
}

std::optional<Flow> amax_flow(KernelKind kind, const ModelStep& step) {
  std::string_view role;
  switch (kind) {
    case KernelKind::rms_norm_forward: role = "normed"; break;
    case KernelKind::rms_norm_backward: role = "d_residual"; break;
    case KernelKind::geglu_forward:
    case KernelKind::swiglu_forward: role = "product"; break;
    case KernelKind::geglu_backward:
    case KernelKind::swiglu_backward: role = "gate_up"; break;
    default: return std::nullopt;
  }
  const auto made = std::ranges::find(step.flows, role, &Flow::role);
  if (made == step.flows.end() || made->writes.value == Value::unknown) return std::nullopt;
  Flow flow{.role = "amax", .writes = made->writes};
  flow.writes.form = ValueForm::amax;
  return flow;
}

std::optional<ModelStep> product_cast_step(const ModelShape& model, const Kernel& kernel) {
  const ModelStep* swiglu = find_step(model, KernelKind::swiglu_forward, 0, std::nullopt);
  if (swiglu == nullptr) return std::nullopt;
  const auto flow_of = [&](std::string_view role) {
    return *std::ranges::find(swiglu->flows, role, &Flow::role);
  };
  const Value product = flow_of("product").writes.value;
  ModelStep step{.kind = kernel.kind};
  step.flows[0] = flow_of("gate_up");
  const auto forms = cast_flows(kernel, Fp8Recipe::current, false);
  for (std::size_t i = 1; i < forms.size(); ++i) {
    Flow& flow = step.flows[i] = forms[i];
    (flow.reads.form == ValueForm::amax ? flow.reads : flow.writes).value = product;
    if (flow.role.empty()) flow = {};
  }
  return step;
}

bool may_be_in_parts(const Kernel& kernel, const PlanConfig& config,
                     std::optional<ParameterRole> parameter) {
  if (config.fp8 != Fp8Recipe::current) return false;
  if (kernel.kind == KernelKind::swiglu_backward) return operand_of(kernel, "amax") == nullptr;
  return kernel.kind == KernelKind::gemm_fp8 && parameter == ParameterRole::down &&
         gemm_kind(kernel) == GemmKind::input_gradient;
}

KernelKind product_kind(Fp8Recipe recipe) {
  return block_format(recipe) ? KernelKind::gemm_blocks : KernelKind::gemm_fp8;
}

std::optional<ModelStep> product_step(const ModelShape& model, Fp8Recipe recipe,
                                      std::int64_t variant,
                                      std::optional<ParameterRole> parameter) {
  using enum ValueForm;
  if (!parameter) return std::nullopt;
  const std::optional<Value> weight = weight_of(*parameter);
  const ModelStep* product = find_step(model, KernelKind::gemm, variant, parameter);
  if (!weight || product == nullptr) return std::nullopt;
  const auto flow_of = [&](std::string_view role) {
    const auto found = std::ranges::find(product->flows, role, &Flow::role);
    return found == product->flows.end() ? Flow{} : *found;
  };
  const auto cast = [](std::string_view role, const Flow& of, ValueForm form) {
    Flow flow{.role = role, .reads = of.reads};
    flow.reads.form = form;
    return flow;
  };
  const Flow input = flow_of("input");
  const Flow d_output = flow_of("d_output");
  const Flow matrix = reads_form("weight", *weight, whole);
  ModelStep step{.kind = product_kind(recipe), .variant = variant, .parameter = parameter};
  if (const auto format = block_format(recipe)) {
    struct Side {
      std::string_view role, scale, tensor;
      const Flow& of;
      bool transposed;
    };
    const auto add = [&](const Side& a, const Side& b, const Flow& made) {
      std::size_t count = 0;
      for (const Side& side : {a, b}) {
        step.flows.at(count++) = cast(side.role, side.of, side.transposed ? codes_t : codes);
        step.flows.at(count++) =
            cast(side.scale, side.of, side.transposed ? block_scales_t : block_scales);
        if (format->has_tensor_scale)
          step.flows.at(count++) = cast(side.tensor, side.of, tensor_scale);
      }
      step.flows.at(count) = made;
    };
    switch (static_cast<GemmKind>(variant)) {
      case GemmKind::forward:
        add({"input", "input_scale", "input_tensor_scale", input, false},
            {"weight", "weight_scale", "weight_tensor_scale", matrix, false}, flow_of("output"));
        break;
      case GemmKind::input_gradient:
        add({"d_output", "d_output_scale", "d_output_tensor_scale", d_output, false},
            {"weight_t", "weight_t_scale", "weight_tensor_scale", matrix, true},
            flow_of("d_input"));
        break;
      case GemmKind::weight_gradient:
        add({"d_output_t", "d_output_t_scale", "d_output_tensor_scale", d_output, true},
            {"input_t", "input_t_scale", "input_tensor_scale", input, true}, {});
        break;
    }
    return step;
  }
  switch (static_cast<GemmKind>(variant)) {
    case GemmKind::forward:
      step.flows = {cast("input", input, e4m3), cast("input_scale", input, e4m3_scale),
                    reads_form("weight", *weight, e4m3),
                    reads_form("weight_scale", *weight, e4m3_scale), flow_of("output")};
      break;
    case GemmKind::input_gradient:
      step.flows = {cast("d_output", d_output, e5m2), cast("d_output_scale", d_output, e5m2_scale),
                    reads_form("weight_t", *weight, e4m3_t),
                    reads_form("weight_scale", *weight, e4m3_scale), flow_of("d_input")};
      break;
    case GemmKind::weight_gradient:
      step.flows = {cast("d_output_t", d_output, e5m2_t),
                    cast("d_output_scale", d_output, e5m2_scale), cast("input_t", input, e4m3_t),
                    cast("input_scale", input, e4m3_scale)};
      break;
  }
  return step;
}

std::optional<std::string> wrong_blocks(const Kernel& kernel, Fp8Recipe recipe, bool of_weight) {
  const bool casts = kernel.kind == KernelKind::cast_blocks;
  if (!casts && kernel.kind != KernelKind::gemm_blocks) return std::nullopt;
  const auto format = block_format(recipe);
  if (!format) return fmt::format("has scales of blocks, but --fp8 {} has none", to_string(recipe));
  const auto unlike = [&](std::string_view name, std::int64_t wanted) {
    return fmt::format("has attribute '{}' {}; expected {}", name, kernel.attribute(name), wanted);
  };
  const auto differs = [&](std::string_view name, std::int64_t wanted) {
    return kernel.attribute(name, -1) != wanted;
  };
  if (differs("block", format->block)) return unlike("block", format->block);
  if (differs("codes", format->codes_of)) return unlike("codes", format->codes_of);
  std::optional<std::int64_t> lines;
  if (casts) lines = format->lines(of_weight);
  if (!casts) {
    const std::optional<GemmKind> kind = gemm_kind(kernel);
    const std::int64_t n = kernel.attribute("n");
    const std::int64_t k = kernel.attribute("k");
    const std::int64_t inner = kind == GemmKind::forward          ? k
                               : kind == GemmKind::input_gradient ? n
                                                                  : kernel.attribute("m");
    if (differs("blocks", inner / format->block) || inner % format->block != 0)
      return unlike("blocks", inner / format->block);
    if (kind != GemmKind::weight_gradient)
      lines = (kind == GemmKind::forward ? n : k) / format->weight_rows;
  }
  if (lines && differs("lines", *lines)) return unlike("lines", *lines);
  // The scale of a tensor is fp32, which the form states.
  for (const Operand& operand : kernel.operands) {
    const std::string_view role = operand.role;
    const bool whole = role.ends_with("tensor_scale") || role == "amax";
    if (whole && !format->has_tensor_scale)
      return fmt::format("has operand '{}', but --fp8 {} has no scales of tensors", role,
                         to_string(recipe));
    if (whole) continue;
    const bool scales = role.ends_with("_scale");
    const DType wanted = scales ? format->scales : format->codes;
    const bool is_cast = scales || (casts ? role.starts_with("output")
                                          : role == "input" || role == "weight" ||
                                                role == "d_output" || role.ends_with("_t"));
    if (is_cast && operand.dtype != wanted)
      return fmt::format("has operand '{}' in {}; expected {}", role, to_string(operand.dtype),
                         to_string(wanted));
  }
  if (casts && format->has_tensor_scale && operand_of(kernel, "amax") == nullptr)
    return "has no operand 'amax', which gives the tensor's scale";
  return std::nullopt;
}

std::optional<std::string> wrong_rows(const Kernel& kernel, const Program& program,
                                      const ProgramIndex& index) {
  std::int64_t row = 0;
  for (const char* role : {"next_amax", "amax", "history"}) {
    const auto place = place_in_history(operand_of(kernel, role), program, index);
    if (!place || place->row != row || place->column != 0)
      return fmt::format("has operand '{}' elsewhere than in row {} of the history", role, row);
    ++row;
  }
  return std::nullopt;
}

std::optional<std::string> wrong_history(const Kernel& kernel, const Program& program,
                                         const ProgramIndex& index, const Plan& plan) {
  const Operand* next = operand_of(kernel, "next_amax");
  if (program.config.fp8 != Fp8Recipe::delayed || kernel.kind != KernelKind::cast_scaled) {
    if (next == nullptr) return std::nullopt;
    return "keeps a largest magnitude for later steps, which nothing reads";
  }
  const auto amax = place_in_history(operand_of(kernel, "amax"), program, index);
  if (!amax || amax->row != 1) return "has operand 'amax' elsewhere than in row 1 of the history";
  if (next == nullptr) return std::nullopt;
  if (plan.role() != PlanRole::train)
    return "keeps a largest magnitude, in a plan that does not train";
  const auto kept = place_in_history(next, program, index);
  if (!kept || kept->row != 0 || kept->column != amax->column)
    return "has operand 'next_amax' in another column of the history than 'amax', or not in row 0";
  return std::nullopt;
}

}  // namespace mfsdp::fp8
