#include "sim/engines/mcore_rows.hpp"

#include <vector>

namespace mfsdp {
namespace {

using enum StreamRole;

constexpr std::int64_t kReductionPieces = 4;  // Transformer Engine's num_splits of pipelines

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

void McoreRows::run(CollectiveKind kind, std::string_view name, std::int64_t elements, DType type,
                    StreamRole stream) {
  step_.collective_on(stream, kind, name, elements, type, RankGroup::tensor);
}

void McoreRows::keep_static(std::string_view name) {
  if (static_.insert(std::string(name)).second)
    step_.keep(with(name, "_static"), whole_, Category::workspace);
}

void McoreRows::sum(std::string_view name, std::int64_t elements, DType type) {
  run(CollectiveKind::all_reduce, name, elements, type, compute);
}

void McoreRows::gather_elements(std::string_view name, std::int64_t elements, DType type) {
  run(CollectiveKind::all_gather, name, elements, type, compute);
}

Tensor McoreRows::gathered(std::string_view name) {
  const std::string all = with(name, "_all");
  const Tensor rows = step_.allocate(all, whole_, Category::activation);
  run(CollectiveKind::all_gather, all, own_elements(), DType::bf16, compute);
  return rows;
}

Tensor McoreRows::reduced(std::string_view name, Tensor whole) {
  if (!shares()) return whole;
  const std::string sum = with(name, "_sum");
  if (!cuts()) {
    run(CollectiveKind::all_reduce, sum, whole_ / kHalf, DType::bf16, compute);
    return whole;
  }
  const Tensor own = step_.allocate(sum, state_, Category::activation);
  run(CollectiveKind::reduce_scatter, sum, own_elements(), DType::bf16, compute);
  step_.free(whole);
  return own;
}

std::optional<Tensor> McoreRows::after_gather(std::string_view name,
                                              const std::function<void()>& output,
                                              const Product& product, bool keep) {
  if (!cuts()) {
    output();
    product(1);
    return std::nullopt;
  }
  if (!parallel_.overlaps) {
    const Tensor rows = gathered(name);
    output();
    product(1);
    if (keep) return rows;
    step_.free(rows);
    return std::nullopt;
  }
  // Each piece goes from neighbour to neighbour while the one before is multiplied.
  keep_static(name);
  step_.wait(outer, step_.record(compute));
  output();
  std::vector<Mark> arrived;
  for (std::int64_t piece = 1; piece < parallel_.tp; ++piece) {
    step_.collective_on(outer, CollectiveKind::all_gather, with(name, "_piece"),
                        ceil_div(own_elements(), parallel_.tp - 1), DType::bf16,
                        RankGroup::tensor_by_copies);
    arrived.push_back(step_.record(outer));
  }
  product(parallel_.tp);
  for (const Mark& mark : arrived) {
    step_.wait(compute, mark);
    product(parallel_.tp);
  }
  return std::nullopt;
}

Tensor McoreRows::before_reduction(std::string_view name, Tensor whole, const Product& product) {
  if (!cuts() || !parallel_.overlaps) {
    product(1);
    return reduced(name, whole);
  }
  keep_static(name);
  const std::string sum = with(name, "_sum");
  const Tensor own = step_.allocate(sum, state_, Category::activation);
  for (std::int64_t piece = 0; piece < kReductionPieces; ++piece) {
    product(kReductionPieces);
    step_.wait(outer, step_.record(compute));
    run(CollectiveKind::reduce_scatter, sum, ceil_div(own_elements(), kReductionPieces),
        DType::bf16, outer);
  }
  step_.wait(compute, step_.record(outer));
  step_.free(whole);
  return own;
}

McoreRows::Beside McoreRows::begin_gather(std::string_view name) {
  if (!cuts()) return {};
  const std::string all = with(name, "_all");
  Beside beside{.rows = step_.allocate(all, whole_, Category::activation)};
  step_.wait(outer, step_.record(compute));
  run(CollectiveKind::all_gather, all, own_elements(), DType::bf16, outer);
  beside.ended = step_.record(outer);
  return beside;
}

McoreRows::Beside McoreRows::begin_reduction(std::string_view name, Tensor /*whole*/) {
  if (!shares()) return {};
  const std::string sum = with(name, "_sum");
  Beside beside;
  if (cuts()) beside.rows = step_.allocate(sum, state_, Category::activation);
  step_.wait(outer, step_.record(compute));
  if (cuts())
    run(CollectiveKind::reduce_scatter, sum, own_elements(), DType::bf16, outer);
  else
    run(CollectiveKind::all_reduce, sum, whole_ / kHalf, DType::bf16, outer);
  beside.ended = step_.record(outer);
  return beside;
}

void McoreRows::wait(const Beside& beside) {
  if (beside.ended) step_.wait(compute, *beside.ended);
}

}  // namespace mfsdp
