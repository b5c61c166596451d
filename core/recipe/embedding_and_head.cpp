// Embedding and head: the first and last unit of a microbatch.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/recipe/builder.hpp"
#include "core/shard/groups.hpp"

namespace mfsdp {
namespace {

using namespace recipe;

/// Row 0 holds ids, row 1 labels.
RecipeOperand token_ids(const Sizes& s, std::int64_t row, std::int64_t begin) {
  RecipeOperand ids =
      from(Source::global, on(row == 0 ? "tokens" : "labels", std::string(global::tokens)));
  ids.offset = row * s.tokens + begin;
  return ids;
}

/// The first id of a rank's part of the vocabulary.
Attribute vocabulary_begin(const Sizes& s) {
  Attribute begin("vocab_begin", std::int64_t{0});
  begin.per = {{.axis = Axis::tp, .step = s.vocab}};
  return begin;
}

/// Elements from one row of logits to the next. Libraries need rows that begin on multiples of 16
/// bytes: without them, GEMMs of GPT-2's 50257 columns take five to seven times as long on an H200.
/// Chunks of several lengths have no unused ends, so that each fills its part of the buffer.
std::int64_t row_of_logits(const Sizes& s, std::int64_t chunk) {
  constexpr std::int64_t kRowBytes = 16;
  return s.tokens % chunk == 0 ? round_up(s.vocab, kRowBytes / size_of(s.compute)) : s.vocab;
}

class HeadRecipe {
 public:
  explicit HeadRecipe(const PlanConfig& config)
      : b_(config),
        s_(b_.sizes),
        chunk_(std::min(config.logits_chunk, s_.tokens)),
        head_{
            .weight = config.model.tied_embeddings ? ParameterRole::embedding : ParameterRole::head,
            .outputs = s_.vocab,
            .inputs = s_.hidden},
        row_(row_of_logits(s_, chunk_)),
        // Chunks are summed in fp32; a narrower gradient is cast from the sum at the end.
        wide_sum_(weight_gradient_dtype(config) != s_.statistic && chunk_ < s_.tokens) {}

  UnitRecipe build() && {
    final_norm();
    if (b_.shares_blocks()) b_.whole_rows("normed.rows", on("input", "normed"), whole_);
    b_.phase = Phase::backward;
    b_.target = &b_.recipe.backward;
    b_.tensor({.name = "logits",
               .dtype = s_.compute,
               .elements = chunk_ * row_,
               .category = Category::logits});
    if (wide_sum_)
      b_.tensor({.name = "head_grad_sum",
                 .dtype = s_.statistic,
                 .elements = s_.vocab * s_.hidden,
                 .category = Category::workspace});
    for (std::int64_t begin = 0; begin < s_.tokens; begin += chunk_)
      train_chunk(begin, std::min(chunk_, s_.tokens - begin));
    if (wide_sum_) narrow_sum();
    b_.tensor({.name = "d_residual",
               .source = Source::microbatch,
               .dtype = s_.compute,
               .elements = s_.rows * s_.hidden});
    if (b_.shares_blocks()) b_.row_sums("d_normed.sums", whole_, on("output", "d_normed"));
    b_.norm_backward({.name = "final_norm.backward",
                      .role = ParameterRole::final_norm,
                      .d_normed = on("d_normed", b_.shares_blocks() ? "d_normed" : whole_),
                      .input = input_rows("input"),
                      .rstd = on("rstd"),
                      .d_residual = from(Source::microbatch, on("d_residual")),
                      .adds = false,
                      .takes_amax = casts_residual_gradient(
                          b_.config.model, takes_amaxes(b_.config, b_.config.model.layers - 1))});
    b_.phase = Phase::forward;
    b_.target = &b_.recipe.eval;
    for (std::int64_t begin = 0; begin < s_.tokens; begin += chunk_)
      eval_chunk(begin, std::min(chunk_, s_.tokens - begin));
    return std::move(b_.recipe);
  }

 private:
  void final_norm() {
    if (!b_.config.model.traits().input_norms)
      return b_.norm_forward("final_norm", ParameterRole::final_norm, {input_rows("residual")},
                             {on("normed"), on("rstd")});
    b_.norm_forward("final_norm", ParameterRole::final_norm,
                    {from(Source::previous, on("residual", "mid")),
                     from(Source::previous, on("delta", "mlp_out"))},
                    {on("residual_out", "x"), on("normed"), on("rstd")});
  }

  /// The norm's input: rows that it has added up, or the output of the last block.
  [[nodiscard]] RecipeOperand input_rows(const char* role) const {
    const ModelShape& model = b_.config.model;
    return model.traits().input_norms ? on(role, "x")
                                      : from(Source::previous, on(role, stream_name(model)));
  }

  /// Normed rows, beginning with row `begin`.
  [[nodiscard]] RecipeOperand normed_rows(const char* role, std::int64_t begin) const {
    RecipeOperand rows = on(role, whole_);
    rows.offset = begin * s_.hidden;
    return rows;
  }

  [[nodiscard]] RecipeOperand logits(const char* role) const {
    const RecipeOperand all = on(role, "logits");
    return row_ == s_.vocab ? all : strided(all, {row_, 1});
  }

  void make_logits(const std::string& name, std::int64_t begin, std::int64_t count) {
    b_.gemm_forward(name + ".logits", head_, count, normed_rows("input", begin), logits("output"));
  }

  /// Logits, loss with gradient in place, weight gradient, then the gradient of the normed rows,
  /// which replaces the rows, as they are no longer needed.
  void train_chunk(std::int64_t begin, std::int64_t count) {
    const std::string name = fmt::format("chunk{}", begin / chunk_);
    make_logits(name, begin, count);
    cross_entropy(name, KernelKind::cross_entropy, begin, count);
    b_.gemm_wgrad(name + ".wgrad", head_, count, logits("d_output"), normed_rows("input", begin),
                  wide_sum_ ? on("weight_grad", "head_grad_sum") : weight_grad(head_.weight),
                  begin > 0);
    b_.gemm_dgrad(name + ".dgrad", head_, count, logits("d_output"), normed_rows("d_input", begin));
  }

  void eval_chunk(std::int64_t begin, std::int64_t count) {
    const std::string name = fmt::format("chunk{}", begin / chunk_);
    make_logits(name, begin, count);
    cross_entropy(name, KernelKind::cross_entropy_loss, begin, count);
  }

  /// Passes over the logits: three with gradient (maximum and sum, then read and write), one
  /// without.
  void cross_entropy(const std::string& name, KernelKind kind, std::int64_t begin,
                     std::int64_t count) {
    const std::int64_t passes = kind == KernelKind::cross_entropy ? 3 : 1;
    const bool in_parts = b_.shares_blocks();
    if (in_parts) softmax_parts(name, begin, count);
    std::vector<Attribute> attributes{
        {"beta", begin > 0 ? 1 : 0},
        {"bytes", product_of(passes, count, s_.vocab, size_of(s_.compute))},
        {"cols", s_.vocab}};
    if (const Rational cap = b_.config.model.logit_cap; cap.num != 0)
      attributes.emplace_back("logit_cap", cap);
    if (in_parts) attributes.emplace_back("peers", s_.tensor_ranks);
    attributes.emplace_back("rows", count);
    if (in_parts) attributes.push_back(vocabulary_begin(s_));
    std::vector<RecipeOperand> operands{
        logits("logits"), token_ids(s_, 1, begin),
        from(Source::global, on("loss_sums", std::string(global::loss_sums))), stream_workspace()};
    if (kind == KernelKind::cross_entropy && b_.config.scales_loss())
      operands.push_back(from(Source::global, on("loss_scale", std::string(global::loss_scale))));
    if (in_parts) operands.push_back(on("parts", "softmax.parts"));
    b_.kernel(name + ".cross_entropy", kind, std::move(attributes), std::move(operands));
  }

  /// The softmax of each row over a rank's part of the vocabulary, gathered from all ranks: three
  /// numbers a row in place of its logits.
  void softmax_parts(const std::string& name, std::int64_t begin, std::int64_t count) {
    const auto room = [&](const char* tensor, std::int64_t ranks) {
      if (begin == 0 && b_.target == &b_.recipe.backward)
        b_.tensor({.name = tensor,
                   .dtype = s_.statistic,
                   .elements = product_of(3, chunk_, ranks),
                   .category = Category::workspace});
    };
    room("softmax.part", 1);
    room("softmax.parts", s_.tensor_ranks);
    std::vector<Attribute> sizes{{"bytes", product_of(count, s_.vocab, size_of(s_.compute))},
                                 {"cols", s_.vocab}};
    if (const Rational cap = b_.config.model.logit_cap; cap.num != 0)
      sizes.emplace_back("logit_cap", cap);
    sizes.emplace_back("rows", count);
    sizes.push_back(vocabulary_begin(s_));
    b_.kernel(name + ".softmax_parts", KernelKind::softmax_parts, std::move(sizes),
              {logits("logits"), token_ids(s_, 1, begin), on("output", "softmax.part")});
    b_.gather_parts(name + ".softmax_parts.rows", Axis::tp,
                    shaped(on("input", "softmax.part"), Access::read, s_.statistic, {count, 3}),
                    shaped(on("output", "softmax.parts"), Access::write, s_.statistic,
                           {s_.tensor_ranks * count, 3}));
  }

  void narrow_sum() {
    const Shape shape{s_.vocab, s_.hidden};
    RecipeOperand gradient = shaped(weight_grad(head_.weight), Access::write, s_.statistic, shape);
    b_.kernel("head_grad.cast", KernelKind::cast, {{"beta", 0}},
              {shaped(on("input", "head_grad_sum"), Access::read, s_.statistic, shape),
               std::move(gradient)},
              head_.weight);
  }

  Builder b_;
  const Sizes& s_;
  std::int64_t chunk_;
  Linear head_;
  std::int64_t row_;  ///< elements from one row of logits to the next
  bool wide_sum_;
  /// Normed rows of all tokens, then their gradient.
  std::string whole_ = b_.shares_blocks() ? "normed.whole" : "normed";
};

}  // namespace

UnitRecipe embedding_recipe(const PlanConfig& config) {
  Builder b(config);
  const Sizes& s = b.sizes;
  const auto scaled = [&](std::vector<Attribute> attributes) {
    const Rational scale = config.model.embedding_scale(config.param_dtype);
    if (scale.num != 0) attributes.emplace_back("scale", scale);
    return attributes;
  };
  const ModelShape& model = config.model;
  const bool adds_positions = !model.traits().rotates;
  const std::int64_t row_bytes = product_of(s.tokens, s.hidden, size_of(s.compute));
  std::vector<Attribute> sizes =
      scaled({{"bytes", adds_positions ? checked_mul(3, row_bytes) : checked_mul(2, row_bytes)},
              {"cols", s.hidden},
              {"rows", s.tokens}});
  std::vector<RecipeOperand> operands{token_ids(s, 0, 0), weight(ParameterRole::embedding)};
  if (adds_positions) {
    sizes.emplace_back("seq", config.seq_len);
    operands.push_back(weight(ParameterRole::position_embedding));
  }
  // A rank of tp has the rows of some ids, and 0 for all others.
  const std::string looked_up = stream_name(model) + (b.shares_blocks() ? ".terms" : "");
  if (b.shares_blocks()) sizes.push_back(vocabulary_begin(s));
  operands.push_back(on("output", looked_up));
  if (adds_positions && config.document_mask) operands.push_back(document_positions(s));
  b.kernel("lookup", KernelKind::embedding_forward, std::move(sizes), std::move(operands));
  if (b.shares_blocks()) b.row_sums("lookup.sums", looked_up, on("output", stream_name(model)));

  // Rows are grouped by token first, so that each is summed once and in order. Every row of the
  // gradient is written. With tied weights used rows are added to the gradient of the head.
  const bool tied = model.tied_embeddings;
  const std::int64_t grad_rows = tied ? 2 * std::min(s.tokens, s.vocab) : s.vocab;
  b.target = &b.recipe.backward;
  b.phase = Phase::backward;
  RecipeOperand d_output = from(Source::microbatch, on("d_output", "d_residual"));
  if (b.shares_blocks()) {
    b.whole_rows("d_output.rows", d_output, "d_output.whole");
    d_output = on("d_output", "d_output.whole");
  }
  std::vector<Attribute> backward =
      scaled({{"beta", tied ? 1 : 0},
              {"bytes", checked_add(row_bytes, product_of(grad_rows, s.hidden, 4))},
              {"cols", s.hidden},
              {"rows", s.tokens}});
  if (b.shares_blocks()) backward.push_back(vocabulary_begin(s));
  b.kernel("lookup.backward", KernelKind::embedding_backward, std::move(backward),
           {token_ids(s, 0, 0), std::move(d_output), on("token_order"),
            weight_grad(ParameterRole::embedding)},
           ParameterRole::embedding);
  if (adds_positions) {
    std::vector<RecipeOperand> rows{from(Source::microbatch, on("d_output", "d_residual")),
                                    weight_grad(ParameterRole::position_embedding)};
    if (config.document_mask) rows.push_back(document_positions(s));
    b.kernel("positions.backward", KernelKind::position_embedding_backward,
             {{"beta", 0}, {"cols", s.hidden}, {"rows", s.tokens}, {"seq", config.seq_len}},
             std::move(rows), ParameterRole::position_embedding);
  }
  return std::move(b.recipe);
}

UnitRecipe head_recipe(const PlanConfig& config) { return HeadRecipe(config).build(); }

}  // namespace mfsdp
