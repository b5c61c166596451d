// Blocks whose linear layers multiply in FP8. Each tensor that such a GEMM reads is cast: with a
// scale that follows from its largest magnitude, so that all casts of one tensor to one type have
// one scale.
//
//   amax x = max |x|     fp8 x, fp8 x transposed, scale x: of x and amax x
//   out = (fp8 x)(fp8 W)^T     d_in = (fp8 d_out)(fp8 W)     d_W = (fp8 d_out)^T (fp8 x)
//
// Inputs and weights are E4M3, gradients of outputs E5M2. GEMMs read rows of what they sum over,
// so that gradients read transposed casts.
#include "verify/checker/flows.hpp"

namespace mfsdp::checker {

void Model::read_fp8() {
  const std::string recipe = config_.value("fp8", "off");
  fp8_ = recipe == "current";
  fp8_kept_ = config_.value("fp8_keep_bf16", Int{0});
  fp8_accumulate_ = config_.value("fp8_accumulate", "fast_forward");
  fp8_gather_ = config_.value("fp8_gather", false);
  const Names ways{"fast_forward", "split", "fast"};
  const bool asks = fp8_kept_ != 0 || fp8_accumulate_ != "fast_forward" || fp8_gather_;
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
  for (const Step& known : steps("amax"))
    if (known.flows.back().makes.name == "amax " + value) return;
  const std::map<std::string, Json> sizes{{"cols", shape[1]}, {"rows", shape[0]}};
  std::map<std::string, Json> overwrites = sizes;
  overwrites["beta"] = 0;
  add({.kernel = "amax",
       .attributes = overwrites,
       .flows = {source, makes("amax", "fp32", {1}, "amax " + value)},
       .fp8 = true});
  add({.kernel = "transpose",
       .attributes = sizes,
       .flows = {reads("input", type, shape, "fp8 " + value),
                 makes("output", type, {shape[1], shape[0]}, "transposed fp8 " + value)},
       .fp8 = true});
  // Its rows, its columns, or both.
  for (const auto& [row, column] : {std::pair{true, false}, {false, true}, {true, true}}) {
    Step step{.kernel = "cast_scaled",
              .attributes = sizes,
              .flows = {source, reads("amax", "fp32", {1}, "amax " + value)},
              .fp8 = true};
    if (row) step.flows.push_back(makes("output", type, shape, "fp8 " + value));
    if (column)
      step.flows.push_back(
          makes("output_t", type, {shape[1], shape[0]}, "transposed fp8 " + value));
    step.flows.push_back(makes("output_scale", "fp32", {1}, "scale " + value));
    add(std::move(step));
  }
}

/// SwiGLU's output may be cast without being stored.
void Model::add_product_casts() {
  const std::string value = "product";
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
  const auto add_one = [&](Int product, std::vector<Flow> flows) {
    Step step{.kernel = "gemm_fp8",
              .product = product,
              .attributes = {{"k", inputs}, {"kind", product}, {"m", tokens}, {"n", outputs}},
              .flows = std::move(flows),
              .least_scratch = 1,
              .fp8 = true};
    if (product != 2) step.attributes["beta"] = step.flows.back().access == "read_write" ? 1 : 0;
    if (fp8_accumulate_ == "fast" || (fp8_accumulate_ == "fast_forward" && product == 0))
      step.attributes["fast"] = 1;
    if (to_residual && model.contains("residual_multiplier"))
      step.attributes["scale"] = model.at("residual_multiplier");
    add(std::move(step));
  };
  add_one(0, {reads("input", "fp8_e4m3", rows_in, "fp8 " + in), scale("input_scale", in),
              multiplied, scale("weight_scale", matrix), makes("output", compute_, rows_out, out)});
  const std::size_t arrow = d_in.find('>');
  add_one(1,
          {reads("d_output", "fp8_e5m2", rows_out, "fp8 " + d_out), scale("d_output_scale", d_out),
           reads("weight_t", "fp8_e4m3", {inputs, outputs}, "transposed fp8 " + matrix),
           scale("weight_scale", matrix),
           arrow == std::string::npos ? makes("d_input", compute_, rows_in, d_in)
                                      : turns("d_input", compute_, rows_in, d_in.substr(0, arrow),
                                              d_in.substr(arrow + 1))});
  add_one(2, {reads("d_output_t", "fp8_e5m2", {outputs, tokens}, "transposed fp8 " + d_out),
              scale("d_output_scale", d_out),
              reads("input_t", "fp8_e4m3", {inputs, tokens}, "transposed fp8 " + in),
              scale("input_scale", in), gradient(parameter, {outputs, inputs})});
}

}  // namespace mfsdp::checker
