// A linear layer whose casts have a scale for each block (core/plan/fp8_blocks.hpp):
//
//   forward   in --cast--> in8 (in8_t)   W --cast--> W8       out = in8 * W8^T
//   dgrad     d_out --cast--> d8, d8_t   W --cast--> W8_t     d_in = d8 * W8_t^T
//   wgrad     in --cast--> in8_t, unless it was kept          d_W = d8_t * in8_t^T
//
// A cast is of the values themselves: blocks of a transposed matrix are other blocks. Where tensors
// have scales too, amax is taken before, once.
#include "core/plan/fp8_blocks.hpp"

#include <algorithm>
#include <utility>

#include "core/recipe/builder.hpp"

namespace mfsdp::recipe {
/// NAME.fp8 and NAME.fp8_t, with NAME.scale and NAME.scale_t. `first`: whose amax it reads, of
/// formats that have one.
Builder::BlockCasts Builder::cast_blocks_of(const std::string& name, const std::string& first,
                                            RecipeOperand input, std::int64_t rows,
                                            std::int64_t cols, bool row, bool transposed) {
  const BlockFormat format = *block_format(config.fp8);
  BlockCasts made;
  std::vector<RecipeOperand> operands{as("input", std::move(input))};
  const bool of_weight = operands.front().source == Source::weight;
  const std::int64_t blocks = cols / format.block;
  const std::int64_t blocks_t = rows / format.block;
  const std::int64_t lines = format.lines(of_weight);
  if (format.has_tensor_scale) operands.push_back(amax_operand(first));
  const auto add = [&](const char* role, std::string& as_name, const std::string& suffix,
                       DType dtype, std::int64_t elements) {
    as_name = name + suffix;
    tensor({.name = as_name,
            .dtype = dtype,
            .elements = elements,
            .category = of_weight ? Category::workspace : Category::activation,
            .slot_class = slot_class});
    operands.push_back(of_dtype(on(role, as_name), dtype));
  };
  if (row) {
    add("output", made.row, ".fp8", format.codes, product_of(rows, blocks, format.codes_of));
    add("output_scale", made.row_scale, ".scale", format.scales,
        product_of(blocks, blocks_t, lines));
  }
  if (transposed) {
    add("output_t", made.transposed, ".fp8_t", format.codes,
        product_of(cols, blocks_t, format.codes_of));
    add("output_t_scale", made.transposed_scale, ".scale_t", format.scales,
        product_of(blocks_t, blocks, lines));
  }
  if (format.has_tensor_scale) {
    made.tensor_scale = name + ".tensor_scale";
    operands.push_back(on("tensor_scale", made.tensor_scale));
  }
  kernel(name + ".cast", KernelKind::cast_blocks,
         {{"block", format.block},
          {"blocks", blocks},
          {"blocks_t", blocks_t},
          {"codes", format.codes_of},
          {"lines", lines}},
         std::move(operands));
  return made;
}

Builder::BlockCasts Builder::block_cast_of_d_output(const std::string& layer_name,
                                                    const Linear& layer, std::int64_t rows,
                                                    RecipeOperand d_output) {
  const std::string name = layer_name + ".d_output";
  if (const auto found = block_casts_.find(name); found != block_casts_.end()) return found->second;
  if (block_format(config.fp8)->has_tensor_scale) largest_of(name, d_output, rows, layer.outputs);
  return block_casts_[name] =
             cast_blocks_of(name, name, std::move(d_output), rows, layer.outputs, true, true);
}

std::vector<Attribute> Builder::block_attributes(GemmKind kind, const Linear& layer,
                                                 std::int64_t rows, bool adds) const {
  const BlockFormat format = *block_format(config.fp8);
  std::vector<Attribute> attributes = layer_attributes(kind, layer, rows, adds);
  const bool forward = kind == GemmKind::forward;
  const std::int64_t inner = forward                            ? layer.inputs
                             : kind == GemmKind::input_gradient ? layer.outputs
                                                                : rows;
  attributes.emplace_back("block", format.block);
  attributes.emplace_back("blocks", inner / format.block);
  attributes.emplace_back("codes", format.codes_of);
  if (kind != GemmKind::weight_gradient)
    attributes.emplace_back("lines", (forward ? layer.outputs : layer.inputs) / format.weight_rows);
  std::ranges::sort(attributes, {}, &Attribute::name);
  return attributes;
}

void Builder::multiply_blocks(const std::string& name, GemmKind kind, const Linear& layer,
                              std::int64_t rows, bool adds,
                              const std::array<BlockOperand, 2>& multiplied, RecipeOperand result) {
  const BlockFormat format = *block_format(config.fp8);
  std::vector<RecipeOperand> operands;
  for (const auto& [role, casts, transposed] : multiplied) {
    const std::string codes = role + (transposed ? "_t" : "");
    operands.push_back(
        of_dtype(on(codes, transposed ? casts.transposed : casts.row), format.codes));
    operands.push_back(
        of_dtype(on(codes + "_scale", transposed ? casts.transposed_scale : casts.row_scale),
                 format.scales));
  }
  if (format.has_tensor_scale)
    for (const BlockOperand& one : multiplied)
      operands.push_back(on(one.role + "_tensor_scale", one.casts.tensor_scale));
  operands.push_back(std::move(result));
  operands.push_back(stream_workspace());
  const bool of_weight = kind == GemmKind::weight_gradient;
  kernel(name, KernelKind::gemm_blocks, block_attributes(kind, layer, rows, adds),
         std::move(operands), of_weight ? std::optional(layer.weight) : std::nullopt);
}

void Builder::blocks_forward(const std::string& name, const Linear& layer, std::int64_t rows,
                             RecipeOperand in, RecipeOperand out) {
  const std::string first = layer_of(name);
  const bool again = first != name;
  if (!again && block_format(config.fp8)->has_tensor_scale) {
    largest_of(name + ".input", in, rows, layer.inputs);
    largest_of(name + ".weight", weight_input(layer), layer.outputs, layer.inputs);
  }
  const BlockCasts input = cast_blocks_of(name + ".input", first + ".input", std::move(in), rows,
                                          layer.inputs, true, keeps_transposed && !again);
  if (!input.transposed.empty()) block_casts_[name + ".input"] = input;
  const BlockCasts weights =
      cast_blocks_of(name + ".weight", first + ".weight", weight_input(layer), layer.outputs,
                     layer.inputs, true, false);
  multiply_blocks(name, GemmKind::forward, layer, rows, false,
                  {{{.role = "input", .casts = input}, {.role = "weight", .casts = weights}}},
                  std::move(out));
}

void Builder::blocks_dgrad(const std::string& name, const Linear& layer, std::int64_t rows,
                           RecipeOperand d_out, RecipeOperand d_in, bool adds) {
  const std::string first = layer_of(name);
  const BlockCasts gradient = block_cast_of_d_output(first, layer, rows, std::move(d_out));
  const BlockCasts weights =
      cast_blocks_of(name + ".weight", first + ".weight", weight_input(layer), layer.outputs,
                     layer.inputs, false, true);
  multiply_blocks(name, GemmKind::input_gradient, layer, rows, adds,
                  {{{.role = "d_output", .casts = gradient},
                    {.role = "weight", .casts = weights, .transposed = true}}},
                  std::move(d_in));
}

void Builder::blocks_wgrad(const std::string& name, const Linear& layer, std::int64_t rows,
                           RecipeOperand d_out, RecipeOperand in, RecipeOperand d_weight,
                           bool adds) {
  const std::string first = layer_of(name);
  const BlockCasts gradient = block_cast_of_d_output(first, layer, rows, std::move(d_out));
  const auto kept = block_casts_.find(first + ".input");
  const BlockCasts input = kept != block_casts_.end()
                               ? kept->second
                               : cast_blocks_of(name + ".input", first + ".input", std::move(in),
                                                rows, layer.inputs, false, true);
  multiply_blocks(name, GemmKind::weight_gradient, layer, rows, adds,
                  {{{.role = "d_output", .casts = gradient, .transposed = true},
                    {.role = "input", .casts = input, .transposed = true}}},
                  std::move(d_weight));
}

}  // namespace mfsdp::recipe
