#include "core/recipe/parts.hpp"

#include <algorithm>

namespace mfsdp::recipe {
namespace {

constexpr std::int64_t kNormPartialRows = 256;

/// m, n, k in one convention for all three kinds: m tokens, n output features, k input features.
std::vector<Attribute> gemm_attributes(std::int64_t beta, std::int64_t kind, std::int64_t m,
                                       std::int64_t n, std::int64_t k) {
  return {{"beta", beta}, {"k", k}, {"kind", kind}, {"m", m}, {"n", n}};
}

std::int64_t gemm_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
  return product_of(2, m, n, k);
}

RecipeOperand operand(std::string role, Access access, std::string tensor, DType dtype,
                      Shape shape) {
  RecipeOperand made;
  made.role = std::move(role);
  made.access = access;
  made.name = std::move(tensor);
  made.dtype = dtype;
  made.shape = std::move(shape);
  return made;
}

}  // namespace

Sizes::Sizes(const PlanConfig& config)
    : tokens(config.tokens_per_microbatch()),
      hidden(config.model.hidden),
      intermediate(config.model.intermediate),
      qkv(config.model.qkv_width()),
      attention(config.model.attention_width()),
      vocab(config.model.vocab),
      norm_rows(std::min(tokens, kNormPartialRows)),
      compute(config.param_dtype),
      statistic(config.statistic_dtype()) {}

RecipeOperand read(std::string role, std::string tensor, DType dtype, Shape shape) {
  return operand(std::move(role), Access::read, std::move(tensor), dtype, std::move(shape));
}
RecipeOperand write(std::string role, std::string tensor, DType dtype, Shape shape) {
  return operand(std::move(role), Access::write, std::move(tensor), dtype, std::move(shape));
}
RecipeOperand update(std::string role, std::string tensor, DType dtype, Shape shape) {
  return operand(std::move(role), Access::read_write, std::move(tensor), dtype, std::move(shape));
}
RecipeOperand scratch(std::string role, std::string tensor, DType dtype, Shape shape) {
  return operand(std::move(role), Access::scratch, std::move(tensor), dtype, std::move(shape));
}
RecipeOperand weight(ParameterRole parameter, DType dtype, Shape shape) {
  RecipeOperand made = read("weight", "", dtype, std::move(shape));
  made.source = Source::weight;
  made.parameter = parameter;
  return made;
}
RecipeOperand weight_grad(ParameterRole parameter, Shape shape, bool add) {
  RecipeOperand made = operand("weight_grad", add ? Access::read_write : Access::write, "",
                               DType::fp32, std::move(shape));
  made.source = Source::weight_grad;
  made.parameter = parameter;
  return made;
}
RecipeOperand stream_workspace() {
  return from(Source::global, scratch("workspace", std::string(global::gemm_workspace),
                                      DType::uint8, {kGemmWorkspaceBytes}));
}
RecipeOperand from(Source source, RecipeOperand operand) {
  operand.source = source;
  return operand;
}

void Builder::tensor(std::string name, DType dtype, std::int64_t elements, Category category,
                     Source source, std::string slot_class) {
  if (slot_class.empty()) slot_class = name;
  recipe.tensors.push_back({.name = std::move(name),
                            .source = source,
                            .dtype = dtype,
                            .elements = elements,
                            .category = category,
                            .slot_class = std::move(slot_class)});
}

void Builder::gemm_forward(const std::string& name, ParameterRole role, std::int64_t n,
                           std::int64_t k, RecipeOperand in, RecipeOperand out) {
  const std::int64_t m = in.shape[0];
  add({.name = name,
       .phase = phase,
       .kind = KernelKind::gemm,
       .operands = {std::move(in), weight(role, sizes.compute, {n, k}), std::move(out),
                    stream_workspace()},
       .attributes = gemm_attributes(0, 0, m, n, k),
       .flops = gemm_flops(m, n, k),
       .gradient_of = {}});
}

void Builder::gemm_dgrad(const std::string& name, ParameterRole role, std::int64_t n,
                         std::int64_t k, RecipeOperand d_out, RecipeOperand d_in) {
  const std::int64_t m = d_out.shape[0];
  add({.name = name,
       .phase = phase,
       .kind = KernelKind::gemm,
       .operands = {std::move(d_out), weight(role, sizes.compute, {n, k}), std::move(d_in),
                    stream_workspace()},
       .attributes = gemm_attributes(0, 1, m, n, k),
       .flops = gemm_flops(m, n, k),
       .gradient_of = {}});
}

void Builder::gemm_wgrad(const std::string& name, ParameterRole role, RecipeOperand d_out,
                         RecipeOperand in, RecipeOperand d_weight) {
  const std::int64_t m = d_out.shape[0];
  const std::int64_t n = d_weight.shape[0];
  const std::int64_t k = d_weight.shape[1];
  const std::int64_t beta = d_weight.access == Access::read_write ? 1 : 0;
  add({.name = name,
       .phase = phase,
       .kind = KernelKind::gemm,
       .operands = {std::move(d_out), std::move(in), std::move(d_weight), stream_workspace()},
       .attributes = gemm_attributes(beta, 2, m, n, k),
       .flops = gemm_flops(m, n, k),
       .gradient_of = role});
}

void Builder::norm_forward(const std::string& name, ParameterRole role,
                           std::vector<RecipeOperand> inputs, std::vector<RecipeOperand> outputs) {
  std::vector<RecipeOperand> operands = std::move(inputs);
  operands.push_back(weight(role, sizes.compute, {sizes.hidden}));
  for (RecipeOperand& output : outputs) operands.push_back(std::move(output));
  add({.name = name,
       .phase = phase,
       .kind = KernelKind::rms_norm_forward,
       .operands = std::move(operands),
       .attributes = {{"cols", sizes.hidden},
                      {"epsilon", config.model.rms_norm_eps},
                      {"rows", sizes.tokens}},
       .flops = 0,
       .gradient_of = {}});
}

void Builder::norm_backward(NormBackward norm) {
  const std::string partials = norm.name + ".partials";
  const Shape partial_shape{sizes.norm_rows, sizes.hidden};
  tensor(partials, sizes.statistic, sizes.norm_rows * sizes.hidden, Category::workspace,
         Source::tensor, "partials");
  const bool adds = norm.d_residual.access == Access::read_write;
  add({.name = norm.name,
       .phase = phase,
       .kind = KernelKind::rms_norm_backward,
       .operands = {std::move(norm.d_normed), std::move(norm.input), std::move(norm.rstd),
                    weight(norm.role, sizes.compute, {sizes.hidden}), std::move(norm.d_residual),
                    write("partials", partials, sizes.statistic, partial_shape)},
       .attributes = {{"beta", adds ? 1 : 0}, {"cols", sizes.hidden}, {"rows", sizes.tokens}},
       .flops = 0,
       .gradient_of = {}});
  add({.name = norm.name + ".weight_grad",
       .phase = phase,
       .kind = KernelKind::norm_weight_grad,
       .operands = {read("partials", partials, sizes.statistic, partial_shape),
                    weight_grad(norm.role, {sizes.hidden})},
       .attributes = {{"beta", 0}, {"cols", sizes.hidden}, {"rows", sizes.norm_rows}},
       .flops = 0,
       .gradient_of = norm.role});
}

}  // namespace mfsdp::recipe
