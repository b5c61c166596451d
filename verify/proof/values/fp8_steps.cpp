#include "verify/proof/values/fp8_steps.hpp"

#include <algorithm>
#include <string_view>

#include "verify/proof/ledger/kernel_roles.hpp"

namespace mfsdp::fp8 {
namespace {

Flow reads_form(std::string_view role, Value value, ValueForm form) {
  return {.role = role, .reads = {.value = value, .form = form}};
}

Flow makes_form(std::string_view role, ValueForm form) {
  return {.role = role, .writes = {.value = Value::excused, .form = form}};
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

std::array<Flow, 5> cast_flows(const Kernel& kernel, bool of_shard) {
  using enum ValueForm;
  const Flow input = reads_form("input", Value::excused, whole);
  if (kernel.kind == KernelKind::amax)
    return {input, makes_form("amax", of_shard ? amax_of_shard : amax)};
  std::array<Flow, 5> flows{input, reads_form("amax", Value::excused, amax)};
  const Operand* row = operand_of(kernel, "output");
  const Operand* transposed = operand_of(kernel, "output_t");
  const Operand* any = row != nullptr ? row : transposed;
  const bool wide = any != nullptr && any->dtype == DType::fp8_e5m2;
  flows[2] = makes_form("output_scale", wide ? e5m2_scale : e4m3_scale);
  if (row != nullptr) flows[3] = makes_form("output", wide ? e5m2 : e4m3);
  if (transposed != nullptr) flows[4] = makes_form("output_t", wide ? e5m2_t : e4m3_t);
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
  const auto forms = cast_flows(kernel, false);
  for (std::size_t i = 1; i < forms.size(); ++i) {
    Flow& flow = step.flows[i] = forms[i];
    (flow.reads.form == ValueForm::amax ? flow.reads : flow.writes).value = product;
    if (flow.role.empty()) flow = {};
  }
  return step;
}

std::optional<ModelStep> product_step(const ModelShape& model, std::int64_t variant,
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
  ModelStep step{.kind = KernelKind::gemm_fp8, .variant = variant, .parameter = parameter};
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

}  // namespace mfsdp::fp8
