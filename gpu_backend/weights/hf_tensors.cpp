#include "gpu_backend/weights/hf_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/formats/safetensors.hpp"
#include "core/model/lora.hpp"
#include "core/shard/groups.hpp"

namespace mfsdp {
namespace {

bool is_of_experts(const Parameter& parameter) {
  return parameter.role == ParameterRole::experts_gate_up ||
         parameter.role == ParameterRole::experts_down;
}

bool is_bias_of_experts(const Parameter& parameter) {
  return parameter.role == ParameterRole::experts_gate_up_bias ||
         parameter.role == ParameterRole::experts_down_bias;
}

/// A checkpoint's name of a fused parameter. The parameter of experts is a tensor itself, not a
/// module's weight or bias.
std::string whole_name(const Parameter& parameter) {
  std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
  if (is_of_experts(parameter)) return module;
  return is_bias_of_experts(parameter) ? module + "_bias" : parameter.name;
}

/// The tensors of one parameter. A parameter that is not fused is one tensor of the same name.
std::vector<HfTensor> tensors_of(const Parameter& parameter, std::int64_t experts, bool is_whole) {
  std::vector<ParameterPart> parts;
  if (!is_whole) parts = parameter.parts;
  if (parts.empty()) parts = {{.name = whole_name(parameter), .rows = parameter.shape.front()}};
  std::vector<HfTensor> tensors;
  std::int64_t begin = 0;
  for (const ParameterPart& part : parts) {
    const std::int64_t end = begin + part.rows * parameter.row_elements();
    HfTensor& tensor = tensors.emplace_back(HfTensor{.name = part.name,
                                                     .shape = parameter.shape,
                                                     .parameter = parameter.name,
                                                     .elements = {.begin = begin, .end = end},
                                                     .transposed = parameter.transposed});
    tensor.shape.front() = part.rows;
    if (tensor.transposed) std::swap(tensor.shape.at(0), tensor.shape.at(1));
    begin = end;
  }
  // [experts, rows, inputs], in the order of the parameter's elements.
  std::vector<std::int64_t>& shape = tensors.front().shape;
  if (is_bias_of_experts(parameter)) shape = {experts, parameter.shape[0] / experts};
  if (is_whole && is_of_experts(parameter)) {
    shape = {experts, parameter.shape[0] / experts, parameter.shape[1]};
    if (parameter.transposed) std::swap(shape[1], shape[2]);
  }
  return tensors;
}

/// Checkpoints that store experts' matrices transposed have no other form.
bool always_whole(const Parameter& parameter) {
  return is_of_experts(parameter) && parameter.transposed;
}

/// Checks the parameters: a plan from a file may have any.
Result<void> check_parameters(const Program& program, const Model& model) {
  std::map<std::string, const Parameter*> missing;
  for (const Parameter& parameter : model.parameters) missing[parameter.name] = &parameter;
  for (const Group& group : program.groups)
    for (const PlacedParameter& part : group.parameters) {
      const PlacedParameter placed = whole_parameter(part, group, program.config.mesh);
      const auto found = missing.find(placed.name);
      if (found == missing.end())
        return fail("plan, parameter " + shown_name(placed.name),
                    "the plan's model has no such parameter");
      if (found->second->shape != placed.shape)
        return fail("plan, parameter " + shown_name(placed.name),
                    fmt::format("expected shape {}, as the plan's model has, got {}",
                                shown_shape(found->second->shape), shown_shape(placed.shape)));
      missing.erase(found);
    }
  if (missing.empty()) return {};
  return fail("plan", fmt::format("lacks parameter {} of its model", missing.begin()->first));
}

}  // namespace

std::string peft_name(const std::string& parameter) { return "base_model.model." + parameter; }

Result<HfTensors> HfTensors::of(const Program& program,
                                const std::function<bool(const std::string& name)>& is_whole) {
  const Model model = make_model(program.config);
  MFSDP_TRY(check_parameters(program, model));
  HfTensors made;
  for (const Parameter& parameter : model.parameters) {
    if (is_lora(parameter.role)) continue;
    for (HfTensor& tensor : tensors_of(
             parameter, model.shape.experts,
             always_whole(parameter) || (is_whole != nullptr && is_whole(whole_name(parameter))))) {
      made.by_parameter_[parameter.name].push_back(made.tensors_.size());
      made.tensors_.push_back(std::move(tensor));
    }
  }
  return made;
}

Result<HfTensors> HfTensors::of_adapters(const Program& program) {
  const Model model = make_model(program.config);
  MFSDP_TRY(check_parameters(program, model));
  HfTensors made;
  for (const Parameter& parameter : model.parameters) {
    if (!is_lora(parameter.role)) continue;
    HfTensor tensor = tensors_of(parameter, model.shape.experts, true).front();
    tensor.name = peft_name(tensor.name);
    made.by_parameter_[parameter.name].push_back(made.tensors_.size());
    made.tensors_.push_back(std::move(tensor));
  }
  return made;
}

std::vector<HfPart> HfTensors::parts(const PlacedParameter& parameter,
                                     const Interval& elements) const {
  std::vector<HfPart> parts;
  const auto known = by_parameter_.find(parameter.name);
  if (known == by_parameter_.end()) return parts;
  for (const std::size_t index : known->second) {
    const Interval& held = tensors_[index].elements;
    const Interval part = common_part(held, elements);
    if (!part.empty())
      parts.push_back(
          {.tensor = index,
           .elements = {.begin = part.begin - held.begin, .end = part.end - held.begin}});
  }
  return parts;
}

}  // namespace mfsdp
