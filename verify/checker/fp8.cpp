// Blocks whose linear layers multiply in FP8. Each tensor that such a GEMM reads is cast: with a
// scale that follows from its largest magnitude, so that all casts of one tensor to one type have
// one scale.
//
//   amax x = max |x|     fp8 x, fp8 x transposed, scale x: of x and amax x
//   out = (fp8 x)(fp8 W)^T     d_in = (fp8 d_out)(fp8 W)     d_W = (fp8 d_out)^T (fp8 x)
//
// Inputs and weights are E4M3, gradients of outputs E5M2. GEMMs read rows of what they sum over,
// so that gradients read transposed casts. Delayed scaling reads the largest magnitude of earlier
// steps (amaxes.hpp). Where blocks have scales, all casts are of one type, and a cast and its
// transpose are made of x, each with scales of its own.
#include "verify/checker/flows.hpp"

namespace mfsdp::checker {
namespace {

/// Recipes whose scales are of blocks: values in a row of one, elements that hold them, rows of a
/// block of weights.
struct Blocks {
  std::string type, scale_type;
  Int block, codes, weight_rows;
  bool scales_tensors;
};
const std::map<std::string, Blocks> kBlocks{
    {"blockwise", {"fp8_e4m3", "fp32", 128, 128, 128, false}},
    {"mxfp8", {"fp8_e4m3", "e8m0", 32, 32, 1, false}},
    {"nvfp4", {"fp4_e2m1x2", "fp8_e4m3", 16, 8, 1, true}}};

}  // namespace

void Model::read_fp8() {
  fp8_recipe_ = config_.value("fp8", "off");
  const std::string& recipe = fp8_recipe_;
  const bool by_blocks = kBlocks.contains(recipe);
  fp8_ = recipe == "current" || recipe == "delayed" || by_blocks;
  if (recipe == "delayed") {
    const Int slots = config_.value("fp8_history", Int{0});
    amax_slots_ = slots == 0 ? 1024 : slots;
    takes_recent_amax_ = config_.value("fp8_amax", "max") == "most_recent";
    if (slots < 0) refuse("config: the history of amaxes has no length");
  } else if (config_.contains("fp8_history") || config_.contains("fp8_amax")) {
    refuse("config: has a history that its recipe does not have");
  }
  fp8_kept_ = config_.value("fp8_keep_bf16", Int{0});
  fp8_accumulate_ = config_.value("fp8_accumulate", "fast_forward");
  fp8_gather_ = config_.value("fp8_gather", false);
  const Names ways{"fast_forward", "split", "fast"};
  const bool asks = fp8_kept_ != 0 || fp8_accumulate_ != "fast_forward" || fp8_gather_;
  if (by_blocks && fp8_accumulate_ != "fast_forward")
    refuse("config: sums of blocks are added up in one way");
  if (fp8_gather_ && recipe != "current") refuse("config: gathers casts of another recipe");
  if ((!fp8_ && (recipe != "off" || asks)) || fp8_kept_ < 0 || !ways.contains(fp8_accumulate_))
    refuse("config: this checker does not know the FP8 recipe");
  if (fp8_ && (bias_ || biases_ || latent_ || experts_ != 0 || rank_ != 0 || exact_ ||
               config_.at("param_dtype") != "bf16"))
    refuse("config: this model has no FP8 GEMMs");
}

/// Each matrix whose casts are gathered is a group, and no other parameter is in such a group.
void Model::check_fp8_groups(const PlanView& view) const {
  static const Names linear{"attention_out", "down", "gate_up", "qkv"};
  for (const Group& group : view.groups)
    for (const auto& [begin, parameter] : group.parameters) {
      const bool wanted =
          fp8_gather_ && multiplies_in_fp8(group.unit) && linear.contains(parameter.role);
      if (group.fp8 != wanted || (wanted && (group.parameters.size() != 1 || !group.trains)))
        refuse("groups: {} of unit {} is {} as FP8", parameter.role, group.unit,
               group.fp8 ? "gathered" : "not gathered");
    }
}

bool Model::multiplies_in_fp8(Int owner) const {
  return fp8_ && owner > fp8_kept_ && owner <= layers_ - fp8_kept_;
}

/// Whether the model has casts of that value.
bool Model::casts(const std::string& value) const {
  for (const char* kernel : {"cast_scaled", "cast_blocks"})
    for (const Step& known : steps(kernel))
      for (const Flow& flow : known.flows)
        if (flow.makes.name == "scale " + value) return true;
  return false;
}

/// The largest magnitude of a value, by a kernel of its own.
void Model::add_amax(const std::string& value, const Shape& shape, const Flow& source) {
  add({.kernel = "amax",
       .attributes = {{"beta", 0}, {"cols", shape[1]}, {"rows", shape[0]}},
       .flows = {source, makes("amax", "fp32", {1}, "amax " + value)},
       .fp8 = true});
}

/// A kernel that makes a value may take its largest magnitude too.
void Model::add_with_amax(Step step) {
  static const std::map<std::string, std::string> makers{
      {"rms_norm_forward", "normed"}, {"rms_norm_backward", "d_residual"},
      {"swiglu_forward", "product"},  {"swiglu_backward", "gate_up"},
      {"geglu_forward", "product"},   {"geglu_backward", "gate_up"}};
  const auto maker = makers.find(step.kernel);
  if (maker == makers.end()) return;
  const auto made = std::ranges::find(step.flows, maker->second, &Flow::role);
  Flow amax = makes("amax", "fp32", {1}, "");
  amax.makes = {"amax " + made->makes.name, made->makes.shift};
  step.flows.push_back(std::move(amax));
  steps_[step.kernel].push_back(std::move(step));
}

void Model::add_casts(const std::string& value, const char* type, const Shape& shape,
                      const Flow& source) {
  if (casts(value)) return;
  const bool delays = fp8_recipe_ == "delayed";
  const std::map<std::string, Json> sizes{{"cols", shape[1]}, {"rows", shape[0]}};
  if (!delays) add_amax(value, shape, source);
  add({.kernel = "transpose",
       .attributes = sizes,
       .flows = {reads("input", type, shape, "fp8 " + value),
                 makes("output", type, {shape[1], shape[0]}, "transposed fp8 " + value)},
       .fp8 = true});
  // Its rows, its columns, or both; with delayed scaling some casts keep the largest magnitude.
  for (const bool keeps : {true, false})
    for (const auto& [row, column] : {std::pair{true, false}, {false, true}, {true, true}}) {
      if (keeps && !delays) continue;
      Step step{
          .kernel = "cast_scaled",
          .attributes = sizes,
          .flows = {source, reads("amax", "fp32", {1}, (delays ? "kept amax " : "amax ") + value)},
          .fp8 = true,
          .delays = delays};
      if (row) step.flows.push_back(makes("output", type, shape, "fp8 " + value));
      if (column)
        step.flows.push_back(
            makes("output_t", type, {shape[1], shape[0]}, "transposed fp8 " + value));
      step.flows.push_back(makes("output_scale", "fp32", {1}, "scale " + value));
      if (keeps)
        step.flows.push_back(
            turns("next_amax", "fp32", {1}, "next amax " + value, "next amax " + value));
      add(std::move(step));
    }
}

/// A cast has scales of its blocks, which lie along its rows; its transpose has others.
void Model::add_block_casts(const std::string& value, const Shape& shape, const Flow& source) {
  if (casts(value)) return;
  const Blocks& of = kBlocks.at(fp8_recipe_);
  const bool is_weight = value.ends_with(" weight");
  const Int lines = is_weight ? of.block / of.weight_rows : of.block;
  const Int down = shape[0] / of.block;
  const Int across = shape[1] / of.block;
  if (of.scales_tensors) add_amax(value, shape, source);
  for (const auto& [row, column] : {std::pair{true, false}, {false, true}, {true, true}}) {
    Step step{.kernel = "cast_blocks",
              .attributes = {{"block", of.block},
                             {"blocks", across},
                             {"blocks_t", down},
                             {"codes", of.codes},
                             {"lines", lines}},
              .flows = {source},
              .fp8 = true};
    if (of.scales_tensors) step.flows.push_back(reads("amax", "fp32", {1}, "amax " + value));
    if (row) {
      step.flows.push_back(makes("output", of.type, {shape[0], across * of.codes}, "fp8 " + value));
      step.flows.push_back(
          makes("output_scale", of.scale_type, {across, down * lines}, "scale " + value));
    }
    if (column) {
      step.flows.push_back(
          makes("output_t", of.type, {shape[1], down * of.codes}, "transposed fp8 " + value));
      step.flows.push_back(makes("output_t_scale", of.scale_type, {down, across * lines},
                                 "transposed scale " + value));
    }
    if (of.scales_tensors)
      step.flows.push_back(makes("tensor_scale", "fp32", {1}, "tensor scale " + value));
    add(std::move(step));
  }
}

void Model::add_block_product(const std::string& parameter, Int outputs, Int inputs,
                              const std::array<const char*, 4>& values) {
  const Blocks& of = kBlocks.at(fp8_recipe_);
  const std::string in = values[0], out = values[1], d_out = values[2], d_in = values[3];
  const std::string matrix = parameter + " weight";
  const Shape rows_in{tokens, inputs};
  const Shape rows_out{tokens, outputs};
  Flow whole = weight(parameter, {outputs, inputs});
  whole.role = "input";
  add_block_casts(matrix, {outputs, inputs}, whole);
  add_block_casts(in, rows_in, reads("input", compute_, rows_in, in));
  add_block_casts(d_out, rows_out, reads("input", compute_, rows_out, d_out));
  struct Side {
    std::string role, value;
    Int rows, lines;
    bool transposed;
  };
  const Json& model = config_.at("model");
  const bool to_residual = parameter == "attention_out" || parameter == "down";
  const auto add_one = [&](Int product, Int inner, const std::array<Side, 2>& sides, Flow made) {
    Step step{.kernel = "gemm_blocks",
              .product = product,
              .attributes = {{"block", of.block},
                             {"blocks", inner / of.block},
                             {"codes", of.codes},
                             {"k", inputs},
                             {"kind", product},
                             {"m", tokens},
                             {"n", outputs}},
              .least_scratch = 1,
              .fp8 = true};
    for (const Side& side : sides) {
      const std::string before = side.transposed ? "transposed " : "";
      const std::string role = side.role + (side.transposed ? "_t" : "");
      step.flows.push_back(reads(role, of.type, {side.rows, inner / of.block * of.codes},
                                 before + "fp8 " + side.value));
      step.flows.push_back(reads(role + "_scale", of.scale_type, {inner / of.block, side.lines},
                                 before + "scale " + side.value));
      if (of.scales_tensors)
        step.flows.push_back(
            reads(side.role + "_tensor_scale", "fp32", {1}, "tensor scale " + side.value));
    }
    step.flows.push_back(std::move(made));
    if (product != 2) step.attributes["beta"] = step.flows.back().access == "read_write" ? 1 : 0;
    if (product != 2) step.attributes["lines"] = sides[1].lines;
    if (to_residual && model.contains("residual_multiplier"))
      step.attributes["scale"] = model.at("residual_multiplier");
    add(std::move(step));
  };
  add_one(0, inputs,
          {Side{"input", in, tokens, tokens, false},
           Side{"weight", matrix, outputs, outputs / of.weight_rows, false}},
          makes("output", compute_, rows_out, out));
  const std::size_t arrow = d_in.find('>');
  add_one(1, outputs,
          {Side{"d_output", d_out, tokens, tokens, false},
           Side{"weight", matrix, inputs, inputs / of.weight_rows, true}},
          arrow == std::string::npos
              ? makes("d_input", compute_, rows_in, d_in)
              : turns("d_input", compute_, rows_in, d_in.substr(0, arrow), d_in.substr(arrow + 1)));
  add_one(
      2, tokens,
      {Side{"d_output", d_out, outputs, outputs, true}, Side{"input", in, inputs, inputs, true}},
      gradient(parameter, {outputs, inputs}));
}

/// SwiGLU's output may be cast without being stored, and the gradient of it be there for some rows
/// alone: then no largest magnitude is taken on the way.
void Model::add_product_casts() {
  const std::string value = "product";
  add({.kernel = "swiglu_backward",
       .attributes = {{"cols", inner_}, {"rows", kRows}},
       .flows = {turns("gate_up", compute_, {kRows, first_width_}, "gate_up", "d_gate_up"),
                 reads("d_product", compute_, {kRows, inner_}, "d_product")},
       .chunk = true,
       .fp8 = true});
  const Shape inner{tokens, inner_};
  for (const auto& [row, column] : {std::pair{true, false}, {false, true}, {true, true}}) {
    Step step{.kernel = "swiglu_forward_cast",
              .attributes = {{"cols", inner_}, {"rows", tokens}},
              .flows = {reads("gate_up", compute_, {tokens, first_width_}, "gate_up"),
                        reads("amax", "fp32", {1}, "amax " + value),
                        makes("output_scale", "fp32", {1}, "scale " + value)},
              .fp8 = true};
    if (row) step.flows.push_back(makes("output", "fp8_e4m3", inner, "fp8 " + value));
    if (column)
      step.flows.push_back(
          makes("output_t", "fp8_e4m3", {inner_, tokens}, "transposed fp8 " + value));
    add(std::move(step));
  }
}

void Model::add_fp8_product(const std::string& parameter, Int outputs, Int inputs,
                            const std::array<const char*, 4>& values) {
  if (kBlocks.contains(fp8_recipe_)) return add_block_product(parameter, outputs, inputs, values);
  const std::string in = values[0], out = values[1], d_out = values[2], d_in = values[3];
  const std::string matrix = parameter + " weight";
  const Shape rows_in{tokens, inputs};
  const Shape rows_out{tokens, outputs};
  Flow whole = weight(parameter, {outputs, inputs});
  Flow multiplied = reads("weight", "fp8_e4m3", {outputs, inputs}, "fp8 " + matrix);
  if (fp8_gather_) {
    multiplied = whole;
    multiplied.dtype = whole.dtype = "fp8_e4m3";
    whole.role = "input";
    add({.kernel = "transpose",
         .attributes = {{"cols", inputs}, {"rows", outputs}},
         .flows = {whole,
                   makes("output", "fp8_e4m3", {inputs, outputs}, "transposed fp8 " + matrix)},
         .fp8 = true});
  } else {
    whole.role = "input";
    add_casts(matrix, "fp8_e4m3", {outputs, inputs}, whole);
  }
  add_casts(in, "fp8_e4m3", rows_in, reads("input", compute_, rows_in, in));
  add_casts(d_out, "fp8_e5m2", rows_out, reads("input", compute_, rows_out, d_out));
  const auto scale = [](const char* role, const std::string& value) {
    return reads(role, "fp32", {1}, "scale " + value);
  };
  const Json& model = config_.at("model");
  const bool to_residual = parameter == "attention_out" || parameter == "down";
  const auto add_one = [&](Int product, std::vector<Flow> flows, Int rows) {
    Step step{.kernel = "gemm_fp8",
              .product = product,
              .attributes = {{"k", inputs}, {"kind", product}, {"m", rows}, {"n", outputs}},
              .flows = std::move(flows),
              .chunk = rows == kRows,
              .least_scratch = 1,
              .fp8 = true};
    if (product != 2) step.attributes["beta"] = step.flows.back().access == "read_write" ? 1 : 0;
    if (fp8_accumulate_ == "fast" || (fp8_accumulate_ == "fast_forward" && product == 0))
      step.attributes["fast"] = 1;
    if (to_residual && model.contains("residual_multiplier"))
      step.attributes["scale"] = model.at("residual_multiplier");
    add(std::move(step));
  };
  add_one(0,
          {reads("input", "fp8_e4m3", rows_in, "fp8 " + in), scale("input_scale", in), multiplied,
           scale("weight_scale", matrix), makes("output", compute_, rows_out, out)},
          tokens);
  const std::size_t arrow = d_in.find('>');
  add_one(1,
          {reads("d_output", "fp8_e5m2", rows_out, "fp8 " + d_out), scale("d_output_scale", d_out),
           reads("weight_t", "fp8_e4m3", {inputs, outputs}, "transposed fp8 " + matrix),
           scale("weight_scale", matrix),
           arrow == std::string::npos ? makes("d_input", compute_, rows_in, d_in)
                                      : turns("d_input", compute_, rows_in, d_in.substr(0, arrow),
                                              d_in.substr(arrow + 1))},
          tokens);
  if (parameter == "down" && fp8_recipe_ == "current" && arrow == std::string::npos)
    add_one(1,
            {reads("d_output", "fp8_e5m2", {kRows, outputs}, "fp8 " + d_out),
             scale("d_output_scale", d_out),
             reads("weight_t", "fp8_e4m3", {inputs, outputs}, "transposed fp8 " + matrix),
             scale("weight_scale", matrix), makes("d_input", compute_, {kRows, inputs}, d_in)},
            kRows);
  add_one(2,
          {reads("d_output_t", "fp8_e5m2", {outputs, tokens}, "transposed fp8 " + d_out),
           scale("d_output_scale", d_out),
           reads("input_t", "fp8_e4m3", {inputs, tokens}, "transposed fp8 " + in),
           scale("input_scale", in), gradient(parameter, {outputs, inputs})},
          tokens);
}

}  // namespace mfsdp::checker
