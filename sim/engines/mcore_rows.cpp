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
      state_(whole.state / (parallel.sequence ? parallel.tp : 1)) {
  constexpr std::int64_t kNamedGemms = 10;
  if (!in_pieces()) return;
  step_.add_outside(kNamedGemms * whole_);
  step_.leave_sms();
}

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
  Beside beside{.rows = whole_rows(all)};
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

std::optional<Tensor> McoreRows::whole_rows(std::string_view name) {
  if (in_pieces()) return std::nullopt;
  return step_.allocate(name, whole_, Category::activation);
}

void McoreRows::gather_beside(std::string_view name, const Gemm& gemm) {
  const std::string all = with(name, "_ring");
  const std::int64_t others = ranks() - 1;
  // A step of the ring moves one rank's rows, of which a gather moves all others' at once.
  const std::int64_t elements = own_elements() / others;
  Mark came = step_.collective_beside(CollectiveKind::all_gather, all, elements, DType::bf16,
                                      RankGroup::tensor);
  gemm(tokens_);
  for (std::int64_t i = 1; i <= others; ++i) {
    step_.wait(compute, came);
    if (i < others)
      came = step_.collective_beside(CollectiveKind::all_gather, all, elements, DType::bf16,
                                     RankGroup::tensor);
    gemm(tokens_);
  }
}

Tensor McoreRows::reduce_beside(std::string_view name, const Gemm& gemm) {
  constexpr std::int64_t kPieces = 4;
  const std::string sum = with(name, "_sum");
  const Tensor own = step_.allocate(sum, state_, Category::activation);
  std::optional<Mark> reduced;
  for (std::int64_t i = 0; i < kPieces; ++i) {
    gemm(tokens_ * ranks() / kPieces);
    reduced = step_.collective_beside(CollectiveKind::reduce_scatter, sum, own_elements() / kPieces,
                                      DType::bf16, RankGroup::tensor);
  }
  step_.wait(compute, *reduced);
  return own;
}

void McoreRows::wait(const Beside& beside) {
  if (beside.ended) step_.wait(compute, *beside.ended);
}

}  // namespace mfsdp
