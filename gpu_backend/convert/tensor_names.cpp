#include "gpu_backend/convert/tensor_names.hpp"

#include <algorithm>
#include <array>

namespace mfsdp {
namespace {

constexpr std::array<std::string_view, 2> kStatePrefixes{"optimizer.state.", "optim.state."};
constexpr std::array<std::string_view, 8> kStates{"exp_avg",    "exp_avg_sq",      "step",
                                                  "momentum",   "momentum_buffer", "param",
                                                  "fp32_param", "max_exp_avg_sq"};
constexpr std::array<std::string_view, 7> kOthers{"optimizer.",          "optim.", "lr_scheduler.",
                                                  "train_state.",        "train.", "rng_state.",
                                                  "opt_param_scheduler."};

/// Removes a prefix; false if the text has none.
bool drop_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Sets parameter and state of an optimizer's tensor.
bool read_state(std::string_view rest, NamedTensor& named) {
  const std::size_t first = rest.find('.');
  if (first == std::string_view::npos) return false;
  if (std::ranges::find(kStates, rest.substr(0, first)) != kStates.end()) {
    named.state = rest.substr(0, first);
    named.parameter = rest.substr(first + 1);
    return true;
  }
  const std::size_t last = rest.rfind('.');
  named.state = rest.substr(last + 1);
  named.parameter = rest.substr(0, last);
  return true;
}

NamedTensor name_of(const CheckpointTensor& tensor) {
  NamedTensor named{.tensor = &tensor, .parameter = tensor.name};
  std::string_view name = tensor.name;
  for (const std::string_view prefix : kStatePrefixes)
    if (drop_prefix(name, prefix) && read_state(name, named)) return named;
  named.is_other =
      std::ranges::any_of(
          kOthers, [&](std::string_view prefix) { return tensor.name.starts_with(prefix); }) ||
      tensor.name == "iteration" || tensor.name == "step";
  return named;
}

void drop_modules(std::string& name) {
  std::string_view rest = name;
  while (drop_prefix(rest, "module.")) {
  }
  name = rest;
}

/// Whether "model." is the writer's prefix and not Hugging Face's own module: all weights have it,
/// and what follows it begins in a way of its own.
bool has_section(const std::vector<NamedTensor>& all) {
  bool has_own = false;
  for (const NamedTensor& named : all) {
    if (!named.is_weight()) continue;
    std::string_view name = named.parameter;
    if (!drop_prefix(name, "model.")) return false;
    has_own = has_own || name.starts_with("model.") || name.starts_with("module.") ||
              name.starts_with("lm_head.");
    const auto is_its_state = [&](const NamedTensor& other) {
      return !other.state.empty() && other.parameter == name;
    };
    has_own = has_own || std::ranges::any_of(all, is_its_state);
    if (has_own) return true;
  }
  return false;
}

}  // namespace

std::vector<NamedTensor> name_tensors(const Checkpoint& checkpoint) {
  std::vector<NamedTensor> all;
  for (const CheckpointTensor& tensor : checkpoint.tensors) all.push_back(name_of(tensor));
  const bool drops_section = has_section(all);
  for (NamedTensor& named : all) {
    if (drops_section && named.is_weight()) named.parameter = named.parameter.substr(6);
    if (!named.is_other) drop_modules(named.parameter);
  }
  return all;
}

}  // namespace mfsdp
