// The figures of a run that are not known.
//
// The tools of mfsdp know all figures. The run of another system has the figures of its log. An
// absent figure is "-" in text, null in JSON and NULL in the store, and never a zero.
#pragma once

#include <bitset>
#include <cstddef>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// Named as the store's columns and the result's keys. `model`: the shape, beside its name;
/// `config`: what shapes the plan; `plan`: the plan's summary; `categories`: memory by category.
enum class ResultFigure {
  parameters,
  model,
  config,
  plan,
  gpus,
  nodes,
  gpus_per_node,
  capacity_bytes,
  allocated_bytes,
  peak_bytes,
  categories,
  fits,
  headroom_bytes,
  reserve_bytes,
  step_ns,
  compute_ns,
  communication_ns,
  exposed_communication_ns,
  idle_ns,
  contention_ns,
  overlap_fraction,
  median_step_ns,
  tokens_per_second_per_gpu,
  tflops_per_gpu,
  mfu,
  all_gather_bytes,
  reduce_scatter_bytes,
  all_reduce_bytes
};

constexpr auto value_names(ResultFigure) {
  return name_array("parameters", "model", "config", "plan", "gpus", "nodes", "gpus_per_node",
                    "capacity_bytes", "allocated_bytes", "peak_bytes", "categories", "fits",
                    "headroom_bytes", "reserve_bytes", "step_ns", "compute_ns", "communication_ns",
                    "exposed_communication_ns", "idle_ns", "contention_ns", "overlap_fraction",
                    "median_step_ns", "tokens_per_second_per_gpu", "tflops_per_gpu", "mfu",
                    "all_gather_bytes", "reduce_scatter_bytes", "all_reduce_bytes");
}

class FigureSet {
 public:
  static constexpr std::size_t kFigures = Names<ResultFigure>::values.size();

  void add(ResultFigure figure) { bits_.set(static_cast<std::size_t>(figure)); }
  void remove(ResultFigure figure) { bits_.reset(static_cast<std::size_t>(figure)); }
  [[nodiscard]] bool has(ResultFigure figure) const {
    return bits_.test(static_cast<std::size_t>(figure));
  }
  [[nodiscard]] bool empty() const { return bits_.none(); }
  /// Every figure there is.
  [[nodiscard]] static FigureSet all() {
    FigureSet set;
    set.bits_.set();
    return set;
  }

  friend bool operator==(const FigureSet&, const FigureSet&) = default;

 private:
  std::bitset<kFigures> bits_;
};

}  // namespace mfsdp
