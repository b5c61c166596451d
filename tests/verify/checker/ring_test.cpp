// Plans of ranks that have the keys of one rank at a time: each pair of a query and a key is
// computed once, and proof and checker refuse plans where a step is left out, twice or of other
// keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/rank_numbers.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/configurations.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

Program ring_of(std::int64_t ranks) {
  PlanConfig config = test::small_config(1);
  config.mesh.resize(Axis::cp, ranks);
  config.cp_comm = ContextExchange::p2p;
  config.seq_len = 4 * ranks;
  config.model.max_seq_len = config.seq_len;
  return build_program(config, {}).value();
}

std::vector<Op>& train_ops(Program& program) { return program.plans[0].segments[0].ops; }

/// Chunks of a sequence: a rank's queries are of chunks i and 2 N - 1 - i, and so are keys.
TEST(Ring, ComputesEachPairOnce) {
  for (const std::int64_t ranks : {2, 3, 8}) {
    Program program = ring_of(ranks);
    for (const auto kind : {KernelKind::attention_forward, KernelKind::attention_backward}) {
      std::map<std::pair<std::int64_t, std::int64_t>, int> computed;
      for (const Op& op : train_ops(program)) {
        const auto* kernel = std::get_if<Kernel>(&op.body);
        if (kernel == nullptr || kernel->kind != kind || !op.name.starts_with("layers.0."))
          continue;
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          const std::int64_t queries =
              value_on(*kernel->find_attribute("part"), program.config.mesh, rank).num;
          const std::int64_t keys = (queries + ranks - kernel->attribute("shift")) % ranks;
          for (const std::int64_t query : {queries, 2 * ranks - 1 - queries})
            for (const std::int64_t key : {keys, 2 * ranks - 1 - keys})
              if (key <= query) ++computed[{query, key}];
        }
      }
      EXPECT_EQ(computed.size(), static_cast<std::size_t>(ranks * (2 * ranks + 1)));
      for (const auto& [pair, times] : computed) EXPECT_EQ(times, 1) << to_string(kind);
    }
  }
}

/// N ranks send keys N - 1 times, and terms of their gradients as often.
TEST(Ring, SendsKeysAndTermsOnceLessThanThereAreRanks) {
  for (const std::int64_t ranks : {2, 4}) {
    Program program = ring_of(ranks);
    std::map<Phase, std::int64_t> sent;
    for (const Op& op : train_ops(program))
      if (const auto* collective = std::get_if<Collective>(&op.body);
          collective != nullptr && collective->kind == CollectiveKind::shift) {
        ++sent[op.phase];
        EXPECT_EQ(collective->count, collective->input.elements());
      }
    const auto layers = program.config.model.layers;
    EXPECT_EQ(sent[Phase::forward], layers * (ranks - 1));
    EXPECT_EQ(sent[Phase::backward], layers * 2 * (ranks - 1));
  }
}

std::string first_error(const std::function<void(Program&)>& edit) {
  Program program = ring_of(3);
  edit(program);
  EXPECT_NE(test::checker_refusal(program), "");
  return test::first_proof_error(program);
}

bool does_work(const Op& op) {
  return op.kind() == OpKind::kernel || op.kind() == OpKind::collective;
}
Op& op_named(Program& program, std::string_view name) {
  return *std::ranges::find_if(train_ops(program),
                               [&](const Op& op) { return op.name == name && does_work(op); });
}
auto without(std::string_view name) {
  return [name](Program& p) {
    std::erase_if(train_ops(p), [&](const Op& op) { return op.name == name && does_work(op); });
  };
}

TEST(RingProof, StepsAreOfTheKeysThatCame) {
  EXPECT_THAT(
      first_error([](Program& p) {
        auto& attributes =
            std::get<Kernel>(op_named(p, "layers.0.attention.step1").body).attributes;
        std::ranges::find(attributes, "shift", &Attribute::name)->value.num = 2;
      }),
      HasSubstr("of 1 ranks before as operand 'key'; expected 'keys and values of one rank's "
                "tokens' of layers.0, microbatch 1, of 2 ranks before"));
  EXPECT_THAT(first_error([](Program& p) {
                auto& send = std::get<Collective>(op_named(p, "layers.0.keys.send.step1").body);
                send.input.buffer =
                    std::get<Collective>(op_named(p, "layers.0.keys.send.step0").body).input.buffer;
              }),
              testing::Ne(""));
}

/// Only with all steps a sum is what the model has.
TEST(RingProof, AllStepsAreIn) {
  EXPECT_THAT(first_error(without("layers.0.attention.merge.step2")),
              HasSubstr("reads 'part of attention' of layers.0, microbatch 1, of steps 0, 1"));
  EXPECT_THAT(first_error(without("layers.1.d_query.add.step3")),
              HasSubstr("'part of the gradient of queries' of layers.1, microbatch 1, of steps 1, "
                        "2; expected 'gradient of queries'"));
  EXPECT_THAT(first_error(without("layers.1.d_keys.add.step2")),
              HasSubstr("'terms of the gradient of keys and values of one rank's tokens'"));
  EXPECT_THAT(
      first_error([](Program& p) {  // the first one is added once more
        Op again = op_named(p, "layers.0.attention.merge.step1");
        again.id = OpId(100'000);
        const auto at = std::ranges::find_if(train_ops(p), [](const Op& op) {
          return op.name == "layers.0.attention.merge.step1" && does_work(op);
        });
        train_ops(p).insert(at, again);
      }),
      HasSubstr("of steps 1 to 'part of attention' of layers.0, microbatch 1, of steps 0, 1; "
                "expected a part of the same value, of steps that the sum does not contain"));
  for (const char* exchange : {"layers.0.keys.send.step0", "layers.0.keys.send.step1.back"})
    EXPECT_THAT(first_error(without(exchange)), HasSubstr("no op has written it")) << exchange;
  EXPECT_THAT(first_error(without("layers.0.d_keys.send.step2")),
              HasSubstr("of 2 ranks before, of steps 1 to"));
}

/// Sums of exponentials are those of the outputs.
TEST(RingProof, OutputsAndTheirWeightsAreOfTheSameSteps) {
  EXPECT_THAT(first_error([](Program& p) {
                auto& operands =
                    std::get<Kernel>(op_named(p, "layers.0.attention.merge.step1").body).operands;
                const auto of = [&](const char* role) {
                  return std::ranges::find(operands, role, &Operand::role);
                };
                of("other_log_sum_exp")->buffer = of("log_sum_exp")->buffer;
              }),
              testing::Ne(""));
}

}  // namespace
}  // namespace mfsdp
