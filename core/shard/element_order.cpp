#include "core/shard/element_order.hpp"

#include <stdexcept>

#include "core/plan/work.hpp"

namespace mfsdp {
namespace {

/// Rows of the matrices that a fused parameter has, each of which is cut by itself.
std::vector<std::int64_t> sections_of(const PlacedParameter& parameter, const ModelShape& model) {
  switch (parameter.role) {
    case ParameterRole::qkv:
    case ParameterRole::qkv_bias:
    case ParameterRole::qkv_lora_b:
      return {model.heads * model.head_dim, model.kv_heads * model.head_dim,
              model.kv_heads * model.value_head_dim()};
    case ParameterRole::gate_up:
    case ParameterRole::gate_up_lora_b:
      if (model.traits().gated) return {model.intermediate, model.intermediate};
      break;
    default: break;
  }
  return {parameter.shape.at(0)};
}

}  // namespace

ElementOrder::ElementOrder(const PlacedParameter& parameter, const ModelShape& model,
                           std::int64_t ranks)
    : elements_(parameter.elements()) {
  const auto dim = tensor_dim(parameter.role);
  if (ranks == 1 || !dim) return;
  ranks_ = ranks;
  dim_ = *dim;
  cols_ = elements_ / parameter.shape.at(0);
  sections_ = sections_of(parameter, model);
}

ElementOrder::Run ElementOrder::run_at(std::int64_t element) const {
  if (ranks_ == 1) return {.place = element, .count = elements_ - element};
  const std::int64_t of_rank = elements_ / ranks_;
  const std::int64_t rank = element / of_rank;
  const std::int64_t within = element % of_rank;
  if (dim_ == 1) {
    const std::int64_t width = cols_ / ranks_;
    const std::int64_t col = within % width;
    return {.place = within / width * cols_ + rank * width + col, .count = width - col};
  }
  std::int64_t own = 0;    // elements of the rank's sections before
  std::int64_t whole = 0;  // of the parameter's
  for (const std::int64_t rows : sections_) {
    const std::int64_t part = rows / ranks_ * cols_;
    if (within < own + part)
      return {.place = whole + rank * part + within - own, .count = own + part - within};
    own += part;
    whole += rows * cols_;
  }
  throw std::logic_error("an element beyond its parameter");
}

ElementOrder::Run ElementOrder::run_of(std::int64_t element) const {
  if (ranks_ == 1) return {.place = element, .count = elements_ - element};
  const std::int64_t of_rank = elements_ / ranks_;
  if (dim_ == 1) {
    const std::int64_t width = cols_ / ranks_;
    const std::int64_t col = element % cols_;
    return {.place = col / width * of_rank + element / cols_ * width + col % width,
            .count = width - col % width};
  }
  std::int64_t own = 0;
  std::int64_t whole = 0;
  for (const std::int64_t rows : sections_) {
    const std::int64_t part = rows / ranks_ * cols_;
    if (element < whole + rows * cols_) {
      const std::int64_t within = element - whole;
      return {.place = within / part * of_rank + own + within % part,
              .count = part - within % part};
    }
    own += part;
    whole += rows * cols_;
  }
  throw std::logic_error("an element beyond its parameter");
}

}  // namespace mfsdp
