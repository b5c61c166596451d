// A packed sequence gives the loss and the gradients that its documents give, each alone in a
// sequence of its own: in double, through whole plans, for what families have that sees positions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"
#include "tests/verify/cpu/oracle/training_step.hpp"

namespace mfsdp {
namespace {

using test::Tensors;
using test::Values;

constexpr std::size_t kSequence = 12;
constexpr std::array<std::size_t, 3> kLengths{5, 4, 3};  ///< of the documents: 12 in all
constexpr std::int32_t kVocab = 11;

/// A document's ids and labels; the last label is left out, as no token follows.
std::int32_t id_of(std::size_t document, std::size_t place) {
  return static_cast<std::int32_t>(7 * document + 3 * place * place + 2) % kVocab;
}
std::int32_t label_of(std::size_t document, std::size_t place) {
  return place + 1 < kLengths.at(document) ? id_of(document, place + 1) : -100;
}

/// All documents in one sequence, with positions where `rows` has them.
void pack(std::span<std::int32_t> rows) {
  std::size_t t = 0;
  for (std::size_t document = 0; document < kLengths.size(); ++document)
    for (std::size_t place = 0; place < kLengths.at(document); ++place, ++t) {
      rows[t] = id_of(document, place);
      rows[kSequence + t] = label_of(document, place);
      if (rows.size() > 2 * kSequence) rows[2 * kSequence + t] = static_cast<std::int32_t>(place);
    }
}

/// Each in a sequence of its own, which ends in tokens without labels.
void spread(std::span<std::int32_t> rows) {
  std::ranges::fill(rows.first(rows.size() / 2), 1);
  std::ranges::fill(rows.last(rows.size() / 2), -100);
  for (std::size_t document = 0; document < kLengths.size(); ++document)
    for (std::size_t place = 0; place < kLengths.at(document); ++place) {
      rows[document * kSequence + place] = id_of(document, place);
      rows[(kLengths.size() + document) * kSequence + place] = label_of(document, place);
    }
}

PlanConfig base() {
  PlanConfig config;
  config.param_dtype = config.main_dtype = config.grad_dtype = config.reduce_dtype = DType::fp64;
  ModelShape& model = config.model;
  model.layers = 2;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 4;
  model.hidden = 6;
  model.intermediate = 5;
  model.vocab = kVocab;
  model.max_seq_len = 64;
  config.seq_len = kSequence;
  config.logits_chunk = 7;
  return config;
}

/// Windows shorter and longer than documents, caps, norms of heads, a table of its own for layers
/// that slide: as in Gemma 2 and 3.
PlanConfig local() {
  PlanConfig config = base();
  config.model.sliding_window = 3;
  config.model.sliding_layers = {0};
  config.model.local_rope_theta = {100, 1};
  config.model.score_cap = {3, 2};
  config.model.qk_norm = true;
  config.model.output_norms = true;
  config.model.activation = Activation::gelu_tanh;
  return config;
}

test::StepOutcome train(const PlanConfig& config, void (*fill)(std::span<std::int32_t>)) {
  const Program program = build_program(config, {}).value();
  const Tensors weights = test::random_weights(program, 5);
  return test::TrainingStep(program, [fill](std::int64_t, std::int64_t,
                                            std::span<std::int32_t> rows) { fill(rows); })
      .run(weights);
}

/// The error of all parameters together.
double error_of(const Tensors& gradients, const Tensors& expected) {
  Values all;
  Values wanted;
  for (const auto& [name, values] : expected) {
    wanted.insert(wanted.end(), values.begin(), values.end());
    all.insert(all.end(), gradients.at(name).begin(), gradients.at(name).end());
  }
  return test::relative_error(all, wanted);
}

void expect_equal(PlanConfig config) {
  config.micro_batch = static_cast<std::int64_t>(kLengths.size());
  const test::StepOutcome alone = train(config, spread);
  config.micro_batch = 1;
  config.document_mask = true;
  const test::StepOutcome packed = train(config, pack);
  EXPECT_NEAR(packed.loss, alone.loss, 1e-6 * alone.loss);  // the report is fp32
  // Sums of some dozen numbers in another order: some 2^-53 each.
  for (const auto& [name, gradient] : alone.gradients)
    EXPECT_LT(test::relative_error(packed.gradients.at(name), gradient), 1e-13) << name;
  // And without the mask another model is trained.
  config.document_mask = false;
  EXPECT_GT(error_of(train(config, pack).gradients, alone.gradients), 1e-2);
}

TEST(PackedDocuments, TrainAsEachAlone) { expect_equal(base()); }

TEST(PackedDocuments, TrainAsEachAloneWithWindowsCapsAndNormsOfHeads) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    PlanConfig config = local();
    config.recompute.kind = recompute;
    SCOPED_TRACE(to_string(recompute));
    expect_equal(config);
  }
}

/// GPT-2 looks up learned positions, OLMo 2 applies RoPE after norms of all heads.
TEST(PackedDocuments, TrainAsEachAloneInOtherFamilies) {
  for (const Family family : {Family::gpt2, Family::olmo2}) {
    PlanConfig config = base();
    config.model.qkv_bias = config.model.qk_norm = true;
    test::make_family(config.model, family);
    SCOPED_TRACE(to_string(family));
    expect_equal(config);
  }
}

}  // namespace
}  // namespace mfsdp
