#include "sim/engines/float8_linear.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "sim/engines/llama_sizes.hpp"

namespace mfsdp {
namespace {

using NamePair = std::pair<std::string_view, std::string_view>;

constexpr std::array kCastNames{
    NamePair{"input", "input_fp8"},     NamePair{"normed1", "normed1_fp8"},
    NamePair{"attention", "mixed_fp8"}, NamePair{"sum", "sum_fp8"},
    NamePair{"normed2", "normed2_fp8"}, NamePair{"product", "product_fp8"}};

constexpr std::array kWeightNames{
    NamePair{"qkv", "qkv_weight_fp8"},   NamePair{"query", "query_weight_fp8"},
    NamePair{"key", "key_weight_fp8"},   NamePair{"value", "value_weight_fp8"},
    NamePair{"out", "out_weight_fp8"},   NamePair{"gate_up", "gate_up_weight_fp8"},
    NamePair{"gate", "gate_weight_fp8"}, NamePair{"up", "up_weight_fp8"},
    NamePair{"down", "down_weight_fp8"}};

template <class Pairs>
std::string_view second_of(const Pairs& pairs, std::string_view first) {
  const auto found = std::ranges::find(pairs, first, &NamePair::first);
  assert(found != pairs.end());
  return found->second;
}

}  // namespace

std::string_view Float8Linear::cast_name(std::string_view tensor) {
  return second_of(kCastNames, tensor);
}

std::string_view Float8Linear::weight_name(std::string_view layer) {
  return second_of(kWeightNames, layer);
}

void Float8Linear::kernel(CompiledGraph& graph, KernelKind kind, std::string_view name,
                          const Traffic& traffic) {
  graph.run([this, kind, name, traffic] { step_.memory_bound(kind, name, traffic); });
}

void Float8Linear::gemm(CompiledGraph& graph, GemmKind kind, std::string_view layer,
                        std::int64_t outputs, std::int64_t inputs) {
  graph.run([this, kind, layer, outputs, inputs] {
    step_.gemm_fp8(kind, layer, {.m = tokens_, .n = outputs, .k = inputs},
                   {.fast = kind == GemmKind::forward});
  });
}

Float8Linear::Value Float8Linear::cast(CompiledGraph& graph, std::string_view name,
                                       std::int64_t elements, Largest largest) {
  if (largest == Largest::by_a_pass) kernel(graph, KernelKind::amax, "amax", elements * kHalf);
  const Value made = graph.make(name, elements);
  kernel(graph, KernelKind::cast_scaled, name, elements * (kHalf + 1));
  return made;
}

std::optional<Float8Linear::Value> Float8Linear::weight(CompiledGraph& graph,
                                                        std::string_view layer,
                                                        std::int64_t elements) {
  if (options_.gathers_fp8) return std::nullopt;
  return cast(graph, weight_name(layer), elements, Largest::by_a_pass);
}

void Float8Linear::forward(CompiledGraph& graph, std::string_view layer, std::int64_t outputs,
                           std::int64_t inputs) {
  gemm(graph, GemmKind::forward, layer, outputs, inputs);
}

Float8Linear::Value Float8Linear::transposed(CompiledGraph& graph, std::string_view name,
                                             std::int64_t elements) {
  const Value made = graph.make(name, elements);
  kernel(graph, KernelKind::transpose, name, {2 * elements, AccessPattern::pieces});
  return made;
}

void Float8Linear::weight_gradient(CompiledGraph& graph, std::string_view layer,
                                   std::int64_t outputs, std::int64_t inputs) {
  const Value gradient = transposed(graph, "d_output_fp8_t", tokens_ * outputs);
  const Value input = transposed(graph, "input_fp8_t", tokens_ * inputs);
  gemm(graph, GemmKind::weight_gradient, layer, outputs, inputs);
  graph.drop({gradient, input});
}

void Float8Linear::input_gradient(CompiledGraph& graph, std::string_view layer,
                                  std::int64_t outputs, std::int64_t inputs, bool has_cast) {
  const std::int64_t elements = outputs * inputs;
  std::optional<Value> made;
  if (has_cast || options_.gathers_fp8) {
    made = transposed(graph, "weight_fp8_t", elements);
  } else {
    made = graph.make("weight_fp8_t", elements);
    kernel(graph, KernelKind::cast_scaled, "weight_fp8_t",
           {elements * (kHalf + 1), AccessPattern::pieces});
  }
  gemm(graph, GemmKind::input_gradient, layer, outputs, inputs);
  graph.drop(*made);
}

}  // namespace mfsdp
