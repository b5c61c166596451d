#include "sim/engines/mcore_rows.hpp"

#include <string>

namespace mfsdp {
namespace {

using enum StreamRole;

std::string with(std::string_view name, std::string_view ending) {
  return std::string(name) + std::string(ending);
}

}  // namespace

McoreRows::McoreRows(StepBuilder& step, const McoreParallel& parallel, const LlamaSizes& whole)
    : step_(step),
      parallel_(parallel),
      whole_(whole.state),
      tokens_(whole.tokens / (parallel.sequence ? parallel.tp : 1)),
      state_(whole.state / (parallel.sequence ? parallel.tp : 1)) {}

void McoreRows::run(CollectiveKind kind, std::string_view name, std::int64_t elements, DType type) {
  step_.collective_on(compute, kind, name, elements, type, RankGroup::tensor);
}

void McoreRows::sum(std::string_view name, std::int64_t elements, DType type) {
  run(CollectiveKind::all_reduce, name, elements, type);
}

void McoreRows::gather_elements(std::string_view name, std::int64_t elements, DType type) {
  run(CollectiveKind::all_gather, name, elements, type);
}

std::optional<Tensor> McoreRows::gathered(std::string_view name) {
  if (!cuts()) return std::nullopt;
  const std::string all = with(name, "_all");
  const Tensor rows = step_.allocate(all, whole_, Category::activation);
  run(CollectiveKind::all_gather, all, own_elements(), DType::bf16);
  return rows;
}

Tensor McoreRows::reduced(std::string_view name, Tensor whole) {
  if (!shares()) return whole;
  const std::string sum = with(name, "_sum");
  if (!cuts()) {
    run(CollectiveKind::all_reduce, sum, whole_ / kHalf, DType::bf16);
    return whole;
  }
  const Tensor own = step_.allocate(sum, state_, Category::activation);
  run(CollectiveKind::reduce_scatter, sum, own_elements(), DType::bf16);
  step_.free(whole);
  return own;
}

McoreRows::Beside McoreRows::begin_gather(std::string_view name) {
  if (!cuts()) return {};
  const std::string all = with(name, "_all");
  Beside beside{.rows = step_.allocate(all, whole_, Category::activation)};
  beside.ended = step_.collective_beside(CollectiveKind::all_gather, all, own_elements(),
                                         DType::bf16, RankGroup::tensor);
  return beside;
}

McoreRows::Beside McoreRows::begin_reduction(std::string_view name) {
  if (!shares()) return {};
  const std::string sum = with(name, "_sum");
  Beside beside;
  if (cuts()) beside.rows = step_.allocate(sum, state_, Category::activation);
  beside.ended = step_.collective_beside(
      cuts() ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce, sum,
      cuts() ? own_elements() : whole_ / kHalf, DType::bf16, RankGroup::tensor);
  return beside;
}

void McoreRows::wait(const Beside& beside) {
  if (beside.ended) step_.wait(compute, *beside.ended);
}

}  // namespace mfsdp
