// FP8 in a linear layer:
//
//   forward   in --amax, cast--> in8 (in8_t)     W --amax, cast--> W8         out = in8 * W8^T
//   dgrad     d_out --amax, cast--> d8, d8_t     W --cast--> W8_t             d_in = d8 * W8_t^T
//   wgrad     in --cast--> in8_t, unless it was kept                          d_W = d8_t * in8_t^T
//
// With fp8_gather W8 is gathered (core/schedule/fp8_weights.cpp) and W8_t is its transpose.
//
// Each tensor has one amax: an output of the kernel that makes the tensor where that kernel has one,
// else of a kernel `amax`. Casts of what is computed again, and of weights that are gathered again,
// use that of forward: the values are the same.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "core/recipe/builder.hpp"

namespace mfsdp::recipe {
namespace {

constexpr DType kValues = DType::fp8_e4m3;     ///< of inputs and weights
constexpr DType kGradients = DType::fp8_e5m2;  ///< of what the output's gradient is

RecipeOperand gathered_scale(const Linear& layer) {
  return as("weight_scale", from(Source::weight_scale, weight(layer.weight)));
}

}  // namespace

RecipeOperand Builder::amax_of(const RecipeOperand& made) {
  expect_amax_of(made);
  return made_amax_.at(made.name);
}

void Builder::expect_amax_of(const RecipeOperand& made) {
  const std::string name = made.name + ".amax";
  made_amax_[made.name] = from(made.source, on("amax", name));
  if (made.source == Source::microbatch &&
      std::ranges::find(recipe.tensors, name, &RecipeTensor::name) == recipe.tensors.end())
    tensor({.name = name, .source = Source::microbatch, .dtype = DType::fp32, .elements = 1});
}

void Builder::largest_of(const std::string& name, const RecipeOperand& input, std::int64_t rows,
                         std::int64_t cols) {
  if (config.fp8 == Fp8Recipe::delayed) return;
  const auto made = made_amax_.find(input.name);
  if (input.source != Source::weight && input.source != Source::previous &&
      made != made_amax_.end()) {
    amax_[name] = made->second;
    return;
  }
  amax_[name] = on("amax", name + ".amax");
  kernel(name + ".amax", KernelKind::amax, {{"beta", 0}, {"cols", cols}, {"rows", rows}},
         {as("input", input), amax_[name]});
}

/// NAME.fp8 and NAME.fp8_t with NAME.scale.
Builder::Fp8Casts Builder::cast_of(const std::string& name, const std::string& amax,
                                   RecipeOperand input, std::int64_t rows, std::int64_t cols,
                                   DType dtype, bool row, bool transposed) {
  Fp8Casts made{.scale = name + ".scale"};
  std::vector<RecipeOperand> operands{as("input", std::move(input)), amax_operand(amax)};
  const bool of_weight = operands.front().source == Source::weight;
  const auto add = [&](const char* role, std::string& as_name, const char* suffix) {
    as_name = name + suffix;
    tensor({.name = as_name,
            .dtype = dtype,
            .elements = checked_mul(rows, cols),
            .category = of_weight ? Category::workspace : Category::activation,
            .slot_class = slot_class});
    operands.push_back(of_dtype(on(role, as_name), dtype));
  };
  if (row) add("output", made.row, ".fp8");
  if (transposed) add("output_t", made.transposed, ".fp8_t");
  operands.push_back(on("output_scale", made.scale));
  // Its first cast takes the largest magnitude for later steps.
  if (config.fp8 == Fp8Recipe::delayed && name == amax) operands.push_back(next_amax_operand(amax));
  kernel(name + ".cast", KernelKind::cast_scaled, {{"cols", cols}, {"rows", rows}},
         std::move(operands));
  return made;
}

Builder::Fp8Casts Builder::cast_of_d_output(const std::string& layer_name, const Linear& layer,
                                            std::int64_t rows, RecipeOperand d_output,
                                            bool transposed) {
  const std::string name = layer_name + ".d_output";
  const bool apart = transposes_d_output == layer.weight;
  if (!fp8_casts_.contains(name)) {
    largest_of(name, d_output, rows, layer.outputs);
    fp8_casts_[name] =
        cast_of(name, name, std::move(d_output), rows, layer.outputs, kGradients, true, !apart);
  }
  Fp8Casts& made = fp8_casts_[name];
  if (transposed && made.transposed.empty()) {
    made.transposed = transpose_of(name, of_dtype(on("input", made.row), kGradients), rows,
                                   layer.outputs, Category::activation);
  }
  return made;
}

std::string Builder::transpose_of(const std::string& name, RecipeOperand input, std::int64_t rows,
                                  std::int64_t cols, Category category) {
  std::string made = name + ".fp8_t";
  const DType dtype = input.dtype;
  tensor({.name = made,
          .dtype = dtype,
          .elements = checked_mul(rows, cols),
          .category = category,
          .slot_class = slot_class});
  kernel(name + ".transpose", KernelKind::transpose, {{"cols", cols}, {"rows", rows}},
         {std::move(input), of_dtype(on("output", made), dtype)});
  return made;
}

Builder::Fp8Casts Builder::cast_of_product(const std::string& name, const std::string& amax,
                                           const RecipeOperand& gate_up, std::int64_t rows,
                                           std::int64_t cols, bool row, bool transposed) {
  Fp8Casts made{.scale = name + ".scale"};
  std::vector<RecipeOperand> operands{as("gate_up", gate_up), amax_.at(amax)};
  const auto add = [&](const char* role, std::string& as_name, const char* suffix) {
    as_name = name + suffix;
    tensor({.name = as_name,
            .dtype = kValues,
            .elements = checked_mul(rows, cols),
            .slot_class = slot_class});
    operands.push_back(of_dtype(on(role, as_name), kValues));
  };
  if (row) add("output", made.row, ".fp8");
  if (transposed) add("output_t", made.transposed, ".fp8_t");
  operands.push_back(on("output_scale", made.scale));
  kernel(name + ".cast", KernelKind::swiglu_forward_cast, {{"cols", cols}, {"rows", rows}},
         std::move(operands));
  return made;
}

void Builder::cast_product(const std::string& layer, const RecipeOperand& gate_up,
                           std::int64_t rows, std::int64_t cols) {
  fp8_casts_[layer + ".input"] =
      cast_of_product(layer + ".wgrad.input", layer + ".input", gate_up, rows, cols, false, true);
}

void Builder::dgrad_in_parts(const std::string& name, const Linear& layer, std::int64_t rows,
                             RecipeOperand d_out, const std::string& d_in,
                             const std::function<void(std::int64_t, const std::string&)>& use) {
  constexpr std::int64_t kParts = 2;
  const std::int64_t part = rows / kParts;
  const Fp8Casts gradient = cast_of_d_output(layer_of(name), layer, rows, std::move(d_out), false);
  const Fp8Weight weights = fp8_weight_t(name, layer);
  for (std::int64_t i = 0; i < kParts; ++i) {
    const std::string suffix = ".part" + std::to_string(i);
    tensor({.name = d_in + suffix,
            .dtype = sizes.compute,
            .elements = checked_mul(part, layer.inputs),
            .slot_class = d_in});
    RecipeOperand d_output = of_dtype(on("d_output", gradient.row), kGradients);
    d_output.offset = checked_mul(i * part, layer.outputs);
    kernel(name + suffix, KernelKind::gemm_fp8,
           fp8_attributes(GemmKind::input_gradient, layer, part, false),
           {std::move(d_output), on("d_output_scale", gradient.scale), weights.cast, weights.scale,
            on("d_input", d_in + suffix), stream_workspace()});
    use(i * part, d_in + suffix);
  }
}

std::vector<Attribute> Builder::fp8_attributes(GemmKind kind, const Linear& layer,
                                               std::int64_t rows, bool adds) const {
  std::vector<Attribute> attributes = layer_attributes(kind, layer, rows, adds);
  const bool fast =
      config.fp8_accumulate == Fp8Accumulate::fast ||
      (config.fp8_accumulate == Fp8Accumulate::fast_forward && kind == GemmKind::forward);
  if (fast) attributes.insert(attributes.begin() + 1, {"fast", 1});  // after beta
  return attributes;
}

Builder::Fp8Weight Builder::fp8_weight(const std::string& name, const Linear& layer) {
  if (config.fp8_gather)
    return {.cast = of_dtype(weight(layer.weight), kValues), .scale = gathered_scale(layer)};
  const Fp8Casts made = cast_of(name + ".weight", layer_of(name) + ".weight", weight_input(layer),
                                layer.outputs, layer.inputs, kValues, true, false);
  return {.cast = of_dtype(on("weight", made.row), kValues),
          .scale = on("weight_scale", made.scale)};
}

/// A gathered cast is transposed: one byte is read and written in place of two and one.
Builder::Fp8Weight Builder::fp8_weight_t(const std::string& name, const Linear& layer) {
  if (!config.fp8_gather) {
    const Fp8Casts made = cast_of(name + ".weight", layer_of(name) + ".weight", weight_input(layer),
                                  layer.outputs, layer.inputs, kValues, false, true);
    return {.cast = of_dtype(on("weight_t", made.transposed), kValues),
            .scale = on("weight_scale", made.scale)};
  }
  const std::string transposed =
      transpose_of(name + ".weight", of_dtype(weight_input(layer), kValues), layer.outputs,
                   layer.inputs, Category::workspace);
  return {.cast = of_dtype(on("weight_t", transposed), kValues), .scale = gathered_scale(layer)};
}

void Builder::fp8_forward(const std::string& name, const Linear& layer, std::int64_t rows,
                          RecipeOperand in, RecipeOperand out) {
  const std::string first = layer_of(name);
  const bool again = first != name;
  if (!again) {
    largest_of(name + ".input", in, rows, layer.inputs);
    if (!config.fp8_gather)
      largest_of(name + ".weight", weight_input(layer), layer.outputs, layer.inputs);
  }
  const bool of_source = product_source && layer.weight == ParameterRole::down;
  const Fp8Casts input = of_source
                             ? cast_of_product(name + ".input", first + ".input", *product_source,
                                               rows, layer.inputs, true, false)
                             : cast_of(name + ".input", first + ".input", std::move(in), rows,
                                       layer.inputs, kValues, true, keeps_transposed && !again);
  if (!input.transposed.empty()) fp8_casts_[name + ".input"] = input;
  Fp8Weight weights = fp8_weight(name, layer);
  kernel(name, KernelKind::gemm_fp8, fp8_attributes(GemmKind::forward, layer, rows, false),
         {of_dtype(on("input", input.row), kValues), on("input_scale", input.scale),
          std::move(weights.cast), std::move(weights.scale), std::move(out), stream_workspace()});
}

void Builder::fp8_dgrad(const std::string& name, const Linear& layer, std::int64_t rows,
                        RecipeOperand d_out, RecipeOperand d_in, bool adds) {
  const std::string first = layer_of(name);
  const Fp8Casts gradient = cast_of_d_output(first, layer, rows, std::move(d_out), false);
  Fp8Weight weights = fp8_weight_t(name, layer);
  kernel(name, KernelKind::gemm_fp8, fp8_attributes(GemmKind::input_gradient, layer, rows, adds),
         {of_dtype(on("d_output", gradient.row), kGradients), on("d_output_scale", gradient.scale),
          std::move(weights.cast), std::move(weights.scale), std::move(d_in), stream_workspace()});
}

void Builder::fp8_wgrad(const std::string& name, const Linear& layer, std::int64_t rows,
                        RecipeOperand d_out, RecipeOperand in, RecipeOperand d_weight, bool adds) {
  const std::string first = layer_of(name);
  const Fp8Casts gradient = cast_of_d_output(first, layer, rows, std::move(d_out), true);
  const auto kept = fp8_casts_.find(first + ".input");
  const Fp8Casts input = kept != fp8_casts_.end()
                             ? kept->second
                             : cast_of(name + ".input", first + ".input", std::move(in), rows,
                                       layer.inputs, kValues, false, true);
  kernel(name, KernelKind::gemm_fp8, fp8_attributes(GemmKind::weight_gradient, layer, rows, adds),
         {of_dtype(on("d_output_t", gradient.transposed), kGradients),
          on("d_output_scale", gradient.scale), of_dtype(on("input_t", input.transposed), kValues),
          on("input_scale", input.scale), std::move(d_weight), stream_workspace()},
         layer.weight);
}

}  // namespace mfsdp::recipe
