// The embedding and the head: where a microbatch begins and ends.
#include <fmt/format.h>

#include <algorithm>

#include "core/recipe/parts.hpp"

namespace mfsdp {
namespace {

using namespace recipe;

RecipeOperand token_ids(const Sizes& s, std::int64_t row, std::int64_t begin, std::int64_t count) {
  RecipeOperand ids = from(
      Source::global,
      read(row == 0 ? "tokens" : "labels", std::string(global::tokens), DType::int32, {count}));
  ids.offset = row * s.tokens + begin;
  return ids;
}

/// Rows [begin, begin + count) of a [T, h] tensor.
RecipeOperand row_range(RecipeOperand rows, std::int64_t begin, std::int64_t count) {
  rows.offset = begin * rows.shape[1];
  rows.shape[0] = count;
  return rows;
}

class HeadRecipe {
 public:
  explicit HeadRecipe(const PlanConfig& config)
      : b_(config),
        s_(b_.sizes),
        chunk_(std::min(config.logits_chunk, s_.tokens)),
        matrix_(config.model.tied_embeddings ? ParameterRole::embedding : ParameterRole::head),
        // Chunks are summed in fp32; a narrower gradient is made from the sum at the end.
        wide_sum_(wire(config) != s_.statistic && chunk_ < s_.tokens) {}

  UnitRecipe build() && {
    final_norm();
    b_.phase = Phase::backward;
    b_.target = &b_.recipe.backward;
    b_.tensor("logits", s_.compute, chunk_ * s_.vocab, Category::logits);
    if (wide_sum_)
      b_.tensor("head_grad_sum", s_.statistic, s_.vocab * s_.hidden, Category::workspace);
    for (std::int64_t begin = 0; begin < s_.tokens; begin += chunk_)
      train_chunk(begin, std::min(chunk_, s_.tokens - begin));
    if (wide_sum_) narrow_sum();
    b_.tensor("d_residual", s_.compute, s_.tokens * s_.hidden, Category::activation,
              Source::microbatch);
    b_.norm_backward(
        {.name = "final_norm.backward",
         .role = ParameterRole::final_norm,
         .d_normed = read("d_normed", "normed", s_.compute, {s_.tokens, s_.hidden}),
         .input = read("input", "x", s_.compute, {s_.tokens, s_.hidden}),
         .rstd = read("rstd", "rstd", s_.statistic, {s_.tokens}),
         .d_residual = from(Source::microbatch, write("d_residual", "d_residual", s_.compute,
                                                      {s_.tokens, s_.hidden}))});
    b_.phase = Phase::forward;
    b_.target = &b_.recipe.eval;
    for (std::int64_t begin = 0; begin < s_.tokens; begin += chunk_)
      eval_chunk(begin, std::min(chunk_, s_.tokens - begin));
    return std::move(b_.recipe);
  }

 private:
  /// The dtype that weight gradients are written in.
  static DType wire(const PlanConfig& config) {
    const bool sharded = sharded_by(config.strategy, config.mesh.size(Axis::dp_shard)).gradient;
    return sharded ? config.reduce_dtype : config.grad_dtype;
  }

  void final_norm() {
    const Shape rows{s_.tokens, s_.hidden};
    for (const char* name : {"x", "normed"}) b_.tensor(name, s_.compute, s_.tokens * s_.hidden);
    b_.tensor("rstd", s_.statistic, s_.tokens);
    b_.norm_forward(
        "final_norm", ParameterRole::final_norm,
        {from(Source::previous, read("residual", "mid", s_.compute, rows)),
         from(Source::previous, read("delta", "mlp_out", s_.compute, rows))},
        {write("residual_out", "x", s_.compute, rows), write("normed", "normed", s_.compute, rows),
         write("rstd", "rstd", s_.statistic, {s_.tokens})});
  }

  RecipeOperand normed_rows(std::int64_t begin, std::int64_t count) const {
    return row_range(read("input", "normed", s_.compute, {s_.tokens, s_.hidden}), begin, count);
  }

  void logits(const std::string& name, std::int64_t begin, std::int64_t count) {
    b_.gemm_forward(name + ".logits", matrix_, s_.vocab, s_.hidden, normed_rows(begin, count),
                    write("output", "logits", s_.compute, {count, s_.vocab}));
  }

  /// Logits, loss with gradient in place, weight gradient, then the gradient of the normed rows
  /// over the rows themselves, which nothing needs any more.
  void train_chunk(std::int64_t begin, std::int64_t count) {
    const std::string name = fmt::format("chunk{}", begin / chunk_);
    const bool adds = begin > 0;
    const Shape shape{count, s_.vocab};
    logits(name, begin, count);
    cross_entropy(name, KernelKind::cross_entropy, update("logits", "logits", s_.compute, shape),
                  begin, count);
    RecipeOperand sum = weight_grad(matrix_, {s_.vocab, s_.hidden}, adds);
    if (wide_sum_) {
      sum = write("weight_grad", "head_grad_sum", s_.statistic, {s_.vocab, s_.hidden});
      if (adds) sum.access = Access::read_write;
    }
    b_.gemm_wgrad(name + ".wgrad", matrix_, read("d_output", "logits", s_.compute, shape),
                  normed_rows(begin, count), std::move(sum));
    RecipeOperand d_rows = normed_rows(begin, count);
    d_rows.role = "d_input";
    d_rows.access = Access::write;
    b_.gemm_dgrad(name + ".dgrad", matrix_, s_.vocab, s_.hidden,
                  read("d_output", "logits", s_.compute, shape), std::move(d_rows));
  }

  void eval_chunk(std::int64_t begin, std::int64_t count) {
    const std::string name = fmt::format("chunk{}", begin / chunk_);
    logits(name, begin, count);
    cross_entropy(name, KernelKind::cross_entropy_loss,
                  read("logits", "logits", s_.compute, {count, s_.vocab}), begin, count);
  }

  /// Three passes over the logits with gradient (maximum and sum, then read and write), one
  /// without.
  void cross_entropy(const std::string& name, KernelKind kind, RecipeOperand logits_chunk,
                     std::int64_t begin, std::int64_t count) {
    const std::int64_t passes = kind == KernelKind::cross_entropy ? 3 : 1;
    RecipeOperand sums = from(
        Source::global, update("loss_sums", std::string(global::loss_sums), s_.statistic, {2}));
    b_.add({.name = name + ".cross_entropy",
            .phase = b_.phase,
            .kind = kind,
            .operands = {std::move(logits_chunk), token_ids(s_, 1, begin, count), std::move(sums),
                         stream_workspace()},
            .attributes = {{"beta", begin > 0 ? 1 : 0},
                           {"bytes", product_of(passes, count, s_.vocab, size_of(s_.compute))},
                           {"cols", s_.vocab},
                           {"rows", count}},
            .flops = 0,
            .gradient_of = {}});
  }

  void narrow_sum() {
    const Shape shape{s_.vocab, s_.hidden};
    b_.add({.name = "head_grad.cast",
            .phase = b_.phase,
            .kind = KernelKind::cast,
            .operands = {read("input", "head_grad_sum", s_.statistic, shape),
                         weight_grad(matrix_, shape)},
            .attributes = {{"beta", 0}},
            .flops = 0,
            .gradient_of = matrix_});
  }

  Builder b_;
  const Sizes& s_;
  std::int64_t chunk_;
  ParameterRole matrix_;
  bool wide_sum_;
};

}  // namespace

UnitRecipe embedding_recipe(const PlanConfig& config) {
  Builder b(config);
  const Sizes& s = b.sizes;
  const Shape rows{s.tokens, s.hidden};
  const std::int64_t row_bytes = product_of(s.tokens, s.hidden, size_of(s.compute));
  b.tensor("mid", s.compute, s.tokens * s.hidden);
  b.add({.name = "lookup",
         .phase = Phase::forward,
         .kind = KernelKind::embedding_forward,
         .operands = {token_ids(s, 0, 0, s.tokens),
                      weight(ParameterRole::embedding, s.compute, {s.vocab, s.hidden}),
                      write("output", "mid", s.compute, rows)},
         .attributes = {{"bytes", 2 * row_bytes}, {"cols", s.hidden}, {"rows", s.tokens}},
         .flops = 0,
         .gradient_of = {}});

  // Rows are grouped by token first, so that each is summed once and in order. Every row of the
  // gradient is written; tied weights add to what the head wrote, and then only rows in use.
  const bool tied = config.model.tied_embeddings;
  const std::int64_t sort_bytes = product_of(24, s.tokens);
  b.tensor("token_order", DType::uint8, sort_bytes, Category::workspace);
  b.target = &b.recipe.backward;
  RecipeOperand gradient = weight_grad(ParameterRole::embedding, {s.vocab, s.hidden}, tied);
  const std::int64_t grad_rows = tied ? 2 * std::min(s.tokens, s.vocab) : s.vocab;
  b.add({.name = "lookup.backward",
         .phase = Phase::backward,
         .kind = KernelKind::embedding_backward,
         .operands = {token_ids(s, 0, 0, s.tokens),
                      from(Source::microbatch, read("d_output", "d_residual", s.compute, rows)),
                      scratch("token_order", "token_order", DType::uint8, {sort_bytes}),
                      std::move(gradient)},
         .attributes = {{"beta", tied ? 1 : 0},
                        {"bytes", checked_add(row_bytes, product_of(grad_rows, s.hidden, 4))},
                        {"cols", s.hidden},
                        {"rows", s.tokens}},
         .flops = 0,
         .gradient_of = ParameterRole::embedding});
  return std::move(b.recipe);
}

UnitRecipe head_recipe(const PlanConfig& config) { return HeadRecipe(config).build(); }

}  // namespace mfsdp
