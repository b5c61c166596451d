#include "core/recipe/builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "core/plan/fp8_blocks.hpp"
#include "core/plan/tensor_parallel.hpp"
#include "core/plan/work.hpp"

namespace mfsdp::recipe {
namespace {

constexpr std::int64_t kNormPartialRows = 256;

std::vector<Attribute> gemm_attributes(GemmKind kind, const Linear& layer, std::int64_t rows,
                                       bool adds) {
  return {{"beta", adds ? 1 : 0},
          {"k", layer.inputs},
          {"kind", number_of(kind)},
          {"m", rows},
          {"n", layer.outputs}};
}

DType dtype_of(Element element, const Sizes& sizes) {
  switch (element) {
    case Element::compute: return sizes.compute;
    case Element::statistic:
    case Element::gradient: return sizes.statistic;
    case Element::partial:
    case Element::fp32: return DType::fp32;
    case Element::int32: return DType::int32;
    case Element::fp8:
    case Element::codes: return DType::fp8_e4m3;
    case Element::scales: return DType::fp32;
    case Element::bytes: break;
  }
  return DType::uint8;
}

}  // namespace

Sizes::Sizes(const PlanConfig& config)
    : tokens(config.tokens_per_microbatch()),
      tensor_ranks(config.mesh.size(Axis::tp)),
      rows(tokens / tensor_ranks),
      head_groups(config.has_chunks() ? 1 : sequence_parts(config.mesh)),
      attended(config.has_chunks() ? tokens : config.sequence_tokens()),
      keyed(config.sequence_tokens()),
      gathers_keys(config.gathers_keys()),
      passes_keys(config.passes_keys()),
      hidden(config.model.hidden),
      intermediate(config.model.intermediate / tensor_ranks),
      qkv(config.model.qkv_width() / tensor_ranks),
      attention(config.model.attention_width() / tensor_ranks),
      vocab(config.model.vocab / tensor_ranks),
      norm_rows(std::min(rows, kNormPartialRows)),
      heads(config.model.heads / tensor_ranks / head_groups),
      key_holders(mfsdp::key_holders(config.model, tensor_ranks)),
      kv_heads(config.model.kv_heads * key_holders / tensor_ranks / head_groups),
      rotated(heads + kv_heads),
      qkv_row(key_holders == 1 ? qkv / head_groups
                               : (heads + 2 * kv_heads) * config.model.head_dim),
      head_dim(config.model.head_dim),
      rotated_dim(config.model.rotated_dim()),
      compute(config.param_dtype),
      statistic(config.statistic_dtype()),
      seq_(config.seq_len),
      value_dim_(config.model.value_head_dim()),
      positions_(config.model.max_seq_len),
      sequences_(config.micro_batch) {}

std::int64_t Sizes::named(std::string_view dim) const {
  if (dim == "seq") return seq_;
  if (dim == "head_dim") return head_dim;
  if (dim == "rotated") return rotated;
  if (dim == "rotated_dim") return rotated_dim;
  if (dim == "value_dim") return value_dim_;
  if (dim == "qkv_width") return qkv_row;
  if (dim == "key_value_width") return kv_heads * (head_dim + value_dim_);
  if (dim == "queries") return attended / sequences_;
  if (dim == "keys") return passes_keys ? attended / sequences_ : seq_;
  if (dim == "places") return keyed;
  if (dim == "partial_rows") return norm_rows;
  if (dim == "vocab") return vocab;
  if (dim == "positions") return positions_;
  if (dim == "sequences") return sequences_;
  throw std::logic_error("no recipe has a size " + std::string(dim));
}

RecipeOperand on(std::string role, std::string tensor) {
  RecipeOperand made;
  made.name = tensor.empty() ? role : std::move(tensor);
  made.role = std::move(role);
  return made;
}
RecipeOperand weight(ParameterRole parameter) {
  RecipeOperand made = from(Source::weight, on("weight"));
  made.parameter = parameter;
  return made;
}
RecipeOperand weight_grad(ParameterRole parameter) {
  RecipeOperand made = from(Source::weight_grad, on("weight_grad"));
  made.parameter = parameter;
  made.adds = true;
  return made;
}
RecipeOperand document_positions(const Sizes& sizes) {
  RecipeOperand made = from(Source::global, on("positions", std::string(global::tokens)));
  made.offset = 2 * sizes.tokens;
  return made;
}
RecipeOperand stream_workspace() {
  return from(Source::global, shaped(on("workspace", std::string(global::gemm_workspace)),
                                     Access::scratch, DType::uint8, {kGemmWorkspaceBytes}));
}
RecipeOperand from(Source source, RecipeOperand operand) {
  operand.source = source;
  return operand;
}
RecipeOperand as(std::string role, RecipeOperand operand) {
  operand.role = std::move(role);
  return operand;
}

RecipeOperand of_dtype(RecipeOperand operand, DType dtype) {
  operand.dtype = dtype;
  return operand;
}

RecipeOperand weight_input(const Linear& layer) { return as("input", weight(layer.weight)); }

std::string layer_of(const std::string& name) {
  for (const std::string_view suffix : {".again", ".dgrad", ".wgrad"})
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  return name;
}

RecipeOperand rewritten(RecipeOperand operand) {
  operand.rewritten = true;
  return operand;
}
RecipeOperand strided(RecipeOperand operand, Shape strides, std::int64_t offset) {
  operand.strides = std::move(strides);
  operand.offset = offset;
  return operand;
}
RecipeOperand shaped(RecipeOperand operand, Access access, DType dtype, Shape shape) {
  operand.access = access;
  operand.dtype = dtype;
  operand.shape = std::move(shape);
  return operand;
}

std::optional<ParameterRole> norm_bias(const ModelShape& model, ParameterRole weight) {
  if (!model.traits().layer_norms) return std::nullopt;
  switch (weight) {
    case ParameterRole::input_norm: return ParameterRole::input_norm_bias;
    case ParameterRole::post_norm: return ParameterRole::post_norm_bias;
    case ParameterRole::final_norm: return ParameterRole::final_norm_bias;
    default: return std::nullopt;
  }
}

std::string stream_name(const ModelShape& model) {
  return model.traits().input_norms ? "mid" : "out";
}

void Builder::tensor(RecipeTensor tensor) {
  if (tensor.slot_class.empty()) tensor.slot_class = tensor.name;
  recipe.tensors.push_back(std::move(tensor));
}

void Builder::declare(const RecipeOperand& operand) {
  if (operand.source != Source::tensor) return;
  if (std::ranges::find(recipe.tensors, operand.name, &RecipeTensor::name) != recipe.tensors.end())
    return;
  tensor(
      {.name = operand.name,
       .dtype = operand.dtype,
       .elements = product_of(operand.shape),
       .category = operand.access == Access::scratch ? Category::workspace : Category::activation,
       .slot_class = slot_class});
}

void Builder::fill(RecipeOperand& operand, const OperandSpec& spec, const Kernel& kernel) const {
  const auto size = [&](std::string_view dim) {
    if (dim.empty()) return std::int64_t{1};
    if (dim == "room") return room_of(kernel);
    const Attribute* attribute = kernel.find_attribute(dim);
    return attribute != nullptr ? attribute->value.num : sizes.named(dim);
  };
  for (std::size_t i = 0; i < spec.dims; ++i) {
    const Dim& dim = spec.shape.at(i);
    operand.shape.push_back(product_of(dim.times, size(dim.first), size(dim.second)));
  }
  if (!is_one_of(spec.element, operand.dtype)) operand.dtype = dtype_of(spec.element, sizes);
  operand.adds = spec.use == OperandUse::adds;
  operand.access = access_of(spec.use, kernel.attribute("beta") != 0);
  if (operand.rewritten) operand.access = Access::read_write;
}

void Builder::kernel(std::string name, KernelKind kind, std::vector<Attribute> attributes,
                     std::vector<RecipeOperand> operands,
                     std::optional<ParameterRole> gradient_of) {
  const Kernel stated{
      .kind = kind, .operands = {}, .attributes = std::move(attributes), .flops = 0};
  const KernelSpec& spec = *spec_of(stated);
  std::vector<bool> taken(spec.operands.size());
  for (RecipeOperand& operand : operands) {
    std::size_t i = 0;
    while (i < taken.size() && (taken[i] || spec.operands[i].role != operand.role)) ++i;
    if (i < taken.size()) {
      taken[i] = true;
      fill(operand, spec.operands[i], stated);
    } else if (operand.shape.empty()) {
      throw std::logic_error(
          fmt::format("a {} takes no operand '{}'", to_string(kind), operand.role));
    }
    declare(operand);
  }
  target->push_back(
      {.name = std::move(name),
       .phase = phase,
       .operands = std::move(operands),
       .gradient_of = gradient_of,
       .body = RecipeKernel{.kind = kind,
                            .attributes = stated.attributes,
                            .flops = spec.flops == nullptr ? 0 : spec.flops(stated)}});
}

void Builder::collective(const std::string& name, RecipeCollective body, RecipeOperand input,
                         RecipeOperand output, std::optional<ParameterRole> gradient_of) {
  for (const RecipeOperand* operand : {&input, &output}) declare(*operand);
  target->push_back({.name = name,
                     .phase = phase,
                     .operands = {std::move(input), std::move(output)},
                     .gradient_of = gradient_of,
                     .body = body});
}

void Builder::exchange(std::string name, Axis axis, RecipeOperand input, RecipeOperand output,
                       std::optional<ParameterRole> gradient_of) {
  const RecipeCollective body{.kind = CollectiveKind::all_to_all,
                              .axis = axis,
                              .reduction = Reduction::none,
                              .count = product_of(input.shape) / config.mesh.size(axis)};
  collective(name, body, std::move(input), std::move(output), gradient_of);
}

void Builder::gather_parts(const std::string& name, Axis axis, RecipeOperand part,
                           RecipeOperand all) {
  const RecipeCollective body{.kind = CollectiveKind::all_gather,
                              .axis = axis,
                              .reduction = Reduction::none,
                              .count = product_of(part.shape)};
  collective(name, body, std::move(part), std::move(all));
}

void Builder::pass_on(const std::string& name, Axis axis, RecipeOperand input,
                      RecipeOperand output) {
  const RecipeCollective body{.kind = CollectiveKind::shift,
                              .axis = axis,
                              .reduction = Reduction::none,
                              .count = product_of(input.shape)};
  collective(name, body, std::move(input), std::move(output));
}

void Builder::sum_counts(const std::string& name, Axis axis, RecipeOperand part,
                         RecipeOperand all) {
  const RecipeCollective body{.kind = CollectiveKind::all_reduce,
                              .axis = axis,
                              .reduction = Reduction::sum,
                              .count = product_of(part.shape)};
  collective(name, body, std::move(part), std::move(all));
}

void Builder::sum_parts(const std::string& name, Axis axis, RecipeOperand all, RecipeOperand part) {
  const RecipeCollective body{.kind = CollectiveKind::reduce_scatter,
                              .axis = axis,
                              .reduction = Reduction::sum,
                              .count = product_of(part.shape)};
  collective(name, body, std::move(all), std::move(part));
}

void Builder::whole_rows(const std::string& name, RecipeOperand rows, const std::string& whole) {
  rows.role = "input";
  gather_parts(
      name, Axis::tp,
      shaped(std::move(rows), Access::read, sizes.compute, {sizes.rows, sizes.hidden}),
      shaped(on("output", whole), Access::write, sizes.compute, {sizes.tokens, sizes.hidden}));
}

void Builder::row_sums(const std::string& name, const std::string& terms, RecipeOperand rows) {
  rows.role = "output";
  sum_parts(name, Axis::tp,
            shaped(on("input", terms), Access::read, sizes.compute, {sizes.tokens, sizes.hidden}),
            shaped(std::move(rows), Access::write, sizes.compute, {sizes.rows, sizes.hidden}));
}

Linear Builder::with_adapters(Linear layer) const {
  if (!config.has_lora()) return layer;
  for (LoraTarget adapter : lora_targets(config.model, config.lora_targets)) {
    if (adapter.matrix != layer.weight) continue;
    if (tensor_dim(adapter.b)) {
      adapter.begin /= sizes.tensor_ranks;
      adapter.outputs /= sizes.tensor_ranks;
    }
    if (tensor_dim(adapter.a)) adapter.inputs /= sizes.tensor_ranks;
    layer.adapters.push_back(adapter);
  }
  return layer;
}

RecipeOperand Builder::columns_of(const LoraTarget& adapter, const Linear& layer,
                                  RecipeOperand rows) {
  if (adapter.outputs == layer.outputs) return rows;
  const std::int64_t begin = rows.offset + adapter.begin;
  return strided(std::move(rows), {layer.outputs, 1}, begin);
}

std::vector<Attribute> Builder::layer_attributes(GemmKind kind, const Linear& layer,
                                                 std::int64_t rows, bool adds) const {
  std::vector<Attribute> attributes = gemm_attributes(kind, layer, rows, adds);
  if (const Rational factor = gemm_multiplier(config.model, layer.weight); factor.num != 0)
    attributes.emplace_back("scale", factor);
  return attributes;
}

std::vector<Attribute> Builder::b_attributes(GemmKind kind, const LoraTarget& adapter,
                                             std::int64_t rows, bool adds) const {
  std::vector<Attribute> attributes = gemm_attributes(
      kind, {.weight = adapter.b, .outputs = adapter.outputs, .inputs = config.lora_rank}, rows,
      adds);
  if (const Rational scale = config.lora_scale(); scale != Rational{.num = 1})
    attributes.emplace_back("scale", scale);
  return attributes;
}

Linear Builder::layer_a(const LoraTarget& adapter) const {
  return {.weight = adapter.a, .outputs = config.lora_rank, .inputs = adapter.inputs};
}

/// "q_proj.lora", the prefix of its tensors and kernels.
std::string Builder::lora_name(const LoraTarget& adapter) {
  return std::string(adapter.name) + ".lora";
}

void Builder::gemm_forward(const std::string& name, const Linear& layer, std::int64_t rows,
                           RecipeOperand in, RecipeOperand out, std::optional<ParameterRole> bias) {
  if (fp8 && block_format(config.fp8))
    return blocks_forward(name, layer, rows, std::move(in), std::move(out));
  if (fp8) return fp8_forward(name, layer, rows, std::move(in), std::move(out));
  std::vector<RecipeOperand> operands{in, weight(layer.weight), out, stream_workspace()};
  if (bias) operands.push_back(weight(*bias));
  kernel(name, KernelKind::gemm, layer_attributes(GemmKind::forward, layer, rows, false),
         std::move(operands));
  const std::string again = name.ends_with(".again") ? ".again" : "";
  for (const LoraTarget& adapter : layer.adapters) {
    const std::string hidden = lora_name(adapter) + again;
    hidden_[adapter.a] = hidden;
    gemm_forward(lora_name(adapter) + "_a" + again, layer_a(adapter), rows, in,
                 on("output", hidden));
    kernel(lora_name(adapter) + "_b" + again, KernelKind::gemm,
           b_attributes(GemmKind::forward, adapter, rows, true),
           {on("input", hidden), weight(adapter.b), columns_of(adapter, layer, out),
            stream_workspace()});
  }
}

void Builder::gemm_dgrad(const std::string& name, const Linear& layer, std::int64_t rows,
                         RecipeOperand d_out, RecipeOperand d_in, bool adds) {
  if (fp8 && block_format(config.fp8))
    return blocks_dgrad(name, layer, rows, std::move(d_out), std::move(d_in), adds);
  if (fp8) return fp8_dgrad(name, layer, rows, std::move(d_out), std::move(d_in), adds);
  kernel(name, KernelKind::gemm, layer_attributes(GemmKind::input_gradient, layer, rows, adds),
         {d_out, weight(layer.weight), d_in, stream_workspace()});
  for (const LoraTarget& adapter : layer.adapters) {
    const std::string d_hidden = "d_" + lora_name(adapter);
    kernel(lora_name(adapter) + "_b.dgrad", KernelKind::gemm,
           b_attributes(GemmKind::input_gradient, adapter, rows, false),
           {columns_of(adapter, layer, d_out), weight(adapter.b), on("d_input", d_hidden),
            stream_workspace()});
    kernel(lora_name(adapter) + "_a.dgrad", KernelKind::gemm,
           gemm_attributes(GemmKind::input_gradient, layer_a(adapter), rows, true),
           {on("d_output", d_hidden), weight(adapter.a), d_in, stream_workspace()});
  }
}

void Builder::gemm_wgrad(const std::string& name, const Linear& layer, std::int64_t rows,
                         RecipeOperand d_out, RecipeOperand in, RecipeOperand d_weight, bool adds) {
  if (fp8 && block_format(config.fp8))
    return blocks_wgrad(name, layer, rows, std::move(d_out), std::move(in), std::move(d_weight),
                        adds);
  if (fp8)
    return fp8_wgrad(name, layer, rows, std::move(d_out), std::move(in), std::move(d_weight), adds);
  kernel(name, KernelKind::gemm, layer_attributes(GemmKind::weight_gradient, layer, rows, adds),
         {d_out, in, std::move(d_weight), stream_workspace()}, layer.weight);
  for (const LoraTarget& adapter : layer.adapters) {
    kernel(lora_name(adapter) + "_b.wgrad", KernelKind::gemm,
           b_attributes(GemmKind::weight_gradient, adapter, rows, false),
           {columns_of(adapter, layer, d_out), on("input", hidden_.at(adapter.a)),
            weight_grad(adapter.b), stream_workspace()},
           adapter.b);
    gemm_wgrad(lora_name(adapter) + "_a.wgrad", layer_a(adapter), rows,
               on("d_output", "d_" + lora_name(adapter)), in, weight_grad(adapter.a));
  }
}

void Builder::norm_forward(const std::string& name, ParameterRole role,
                           std::vector<RecipeOperand> inputs, std::vector<RecipeOperand> outputs,
                           std::int64_t cols) {
  const std::optional<ParameterRole> bias = norm_bias(config.model, role);
  std::vector<RecipeOperand> operands = std::move(inputs);
  operands.push_back(weight(role));
  if (bias) operands.push_back(weight(*bias));
  for (RecipeOperand& output : outputs) {
    if (bias && output.role == "rstd") operands.push_back(on("mean", output.name + ".mean"));
    operands.push_back(std::move(output));
  }
  kernel(name, bias ? KernelKind::layer_norm_forward : KernelKind::rms_norm_forward,
         norm_attributes({{"cols", cols != 0 ? cols : sizes.hidden},
                          {"epsilon", role == ParameterRole::q_a_norm ? config.model.latent_eps()
                                                                      : config.model.rms_norm_eps},
                          {"rows", sizes.rows}}),
         std::move(operands));
}

std::vector<Attribute> Builder::norm_attributes(std::vector<Attribute> attributes) const {
  if (config.model.zero_centered_norms) attributes.emplace_back("zero_centered", 1);
  return attributes;
}

void Builder::declare_partials(std::string name, std::int64_t elements) {
  tensor({.name = std::move(name),
          .dtype = sizes.statistic,
          .elements = elements,
          .category = Category::workspace,
          .slot_class = "partials"});
}

void Builder::norm_backward(NormBackward norm) {
  const std::optional<ParameterRole> bias = norm_bias(config.model, norm.role);
  const std::string partials = norm.name + ".partials";
  const std::int64_t cols = norm.cols != 0 ? norm.cols : sizes.hidden;
  const std::int64_t elements = sizes.norm_rows * cols;
  declare_partials(partials, bias ? 2 * elements : elements);
  std::vector<RecipeOperand> operands{std::move(norm.d_normed), std::move(norm.input)};
  if (bias) operands.push_back(on("mean", norm.rstd.name + ".mean"));
  operands.push_back(std::move(norm.rstd));
  operands.push_back(weight(norm.role));
  if (bias) operands.push_back(weight(*bias));
  if (norm.takes_amax) operands.push_back(amax_of(norm.d_residual));
  operands.push_back(std::move(norm.d_residual));
  operands.push_back(on("partials", partials));
  kernel(norm.name, bias ? KernelKind::layer_norm_backward : KernelKind::rms_norm_backward,
         norm_attributes({{"beta", norm.adds ? 1 : 0}, {"cols", cols}, {"rows", sizes.rows}}),
         std::move(operands));
  norm_weight_grad(norm.name + ".weight_grad", norm.role, partials, cols);
  if (bias) norm_weight_grad(norm.name + ".bias_grad", *bias, partials, cols, elements);
}

void Builder::norm_weight_grad(const std::string& name, ParameterRole role,
                               const std::string& partials, std::int64_t cols, std::int64_t begin) {
  RecipeOperand from_partials = on("partials", partials);
  from_partials.offset = begin;
  kernel(name, KernelKind::norm_weight_grad,
         {{"beta", 0}, {"cols", cols}, {"rows", sizes.norm_rows}},
         {std::move(from_partials), weight_grad(role)}, role);
}

void Builder::bias_grad(const std::string& name, ParameterRole role, RecipeOperand d_output,
                        std::int64_t rows, std::int64_t cols, const std::string& partials) {
  declare_partials(partials, sizes.norm_rows * cols);
  kernel(name, KernelKind::bias_grad, {{"beta", 0}, {"cols", cols}, {"rows", rows}},
         {std::move(d_output), on("partials", partials), weight_grad(role)}, role);
}

}  // namespace mfsdp::recipe
