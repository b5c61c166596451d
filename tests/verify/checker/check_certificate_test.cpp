#include "verify/checker/check_certificate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/edit_plan.hpp"
#include "tests/support/plan_builder.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/support/renamed_plan.hpp"
#include "tests/support/samples.hpp"
#include "tests/support/sealed.hpp"
#include "tests/support/tiny_program.hpp"
#include "verify/proof/certificate.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

/// The refusal, or nothing.
std::string refusal_of(const std::string& plan, const std::string& certificate) {
  const auto checked = check_certificate(plan, certificate);
  return checked ? "" : checked.error().message();
}
/// The checker's refusal of a program whose certificate has all claims.
std::string refusal_of(const Program& program) { return test::checker_refusal(program); }

/// The refusal of two steps in correct order: the tiny program's step is no step of a model.
constexpr const char* kNoModel = "refused: segment \"only\": reads tokens of 0 microbatches";

TEST(CheckCertificate, AcceptsAPlan) {
  const Program program = test::EditedPlan(test::small_config(2)).program;
  const auto certificate = certificate_of(program);
  ASSERT_TRUE(certificate) << certificate.error().message();
  const auto checked = check_certificate(to_canonical_json(program), *certificate);
  ASSERT_TRUE(checked) << checked.error().message();
  EXPECT_EQ(checked->hash, plan_hash(program));
  EXPECT_GT(checked->instances, 2 * 200);
  EXPECT_GT(checked->orderings, 100);
  EXPECT_GT(checked->accesses, 1000);
  EXPECT_GT(checked->gradients, 40);
}

// Windows are accepted as long as NCCL would go from one to the other.
TEST(CheckCertificate, LooksAtWindows) {
  PlanConfig config = test::small_config(2);
  config.gather = Transport::copy_engine;
  config.reduce = Transport::symmetric;
  config.placement = CollectivePlacement::attention;
  config.microbatches = 2;
  const Program program = test::EditedPlan(config).program;
  EXPECT_EQ(refusal_of(program), "");
  const auto edited = [&](const std::function<void(Program&)>& edit) {
    Program changed = program;
    edit(changed);
    return refusal_of(changed);
  };
  const auto transport = [](Program& p, const std::string& purpose) -> Transport& {
    return std::ranges::find(p.communicators, purpose, &Communicator::purpose)->transport;
  };
  const auto registered = [](Program& p, const std::string& name) -> auto& {
    return std::ranges::find(p.pools, name, &Pool::name)->registered;
  };
  EXPECT_THAT(edited([&](Program& p) { transport(p, "all_gather") = Transport::nccl; }),
              HasSubstr("peers may access it after a collective has ended"));
  EXPECT_THAT(
      edited([&](Program& p) { transport(p, "reduce_scatter") = Transport::copy_engine; }),
      HasSubstr("(head.reduce_scatter): cannot use symmetric memory with transport copy_engine"));
  EXPECT_THAT(
      edited([&](Program& p) { registered(p, "reduced_gradients").reset(); }),
      HasSubstr("(head.reduce_scatter): cannot use symmetric memory with transport symmetric"));
  EXPECT_THAT(edited([&](Program& p) { registered(p, "unsharded_weights").reset(); }),
              HasSubstr("(embedding.all_gather): cannot use symmetric memory"));
}

// Gradients that ranks exchange in parts are sums only after the kernel that adds up all parts.
TEST(CheckCertificate, LooksAtSumsOfRanks) {
  PlanConfig config = test::small_config(2);
  config.reduce = Transport::copy_engine;
  config.reduce_dtype = DType::bf16;
  config.microbatches = 3;
  const auto refusal = [&](const std::function<void(test::EditedPlan&)>& edit) {
    test::EditedPlan plan(config);
    edit(plan);
    return refusal_of(plan.program);
  };
  const auto parts = [](test::EditedPlan& p) -> Contents& {
    return *p.buffer("layers.0.grad_parts").holds;
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_THAT(refusal([](auto& p) { p.set("middle", "layers.0.sum_ranks", "beta", 0); }),
              HasSubstr("does not have each contribution once"));
  EXPECT_THAT(refusal([](auto& p) { p.set("first", "layers.0.sum_ranks", "beta", 1); }),
              HasSubstr("does not have each contribution once"));
  EXPECT_THAT(refusal([](auto& p) { p.drop("last", "layers.0.sum_ranks"); }),
              HasSubstr("does not have each contribution once"));
  EXPECT_THAT(refusal([](auto& p) { p.set("last", "layers.0.sum_ranks", "ranks", 1); }),
              HasSubstr("does not sum each rank's contribution to a gradient"));
  EXPECT_THAT(refusal([](auto& p) {
                p.operand("last", "layers.0.sum_ranks", "input").buffer =
                    p.buffer("layers.0.grad").id;
              }),
              HasSubstr("layers.0"));
  EXPECT_THAT(refusal([&](auto& p) { parts(p).dealt.reset(); }),
              HasSubstr("does not hold the shard that it states"));
  EXPECT_THAT(refusal([&](auto& p) { parts(p).placement.clear(); }),
              HasSubstr("does not hold each rank's contribution as it states"));
  EXPECT_THAT(refusal([](auto& p) {
                std::ranges::find(p.program.communicators, "reduce_scatter", &Communicator::purpose)
                    ->transport = Transport::symmetric;
              }),
              HasSubstr("(head.all_to_all): cannot use symmetric memory with transport symmetric"));
}

// No buffer shows how gradients and states of frozen groups would be cut.
TEST(CheckCertificate, LooksAtFrozenGroups) {
  PlanConfig config = test::small_config(2);
  config.frozen = {"embed_tokens"};
  const Program right = test::EditedPlan(config).program;
  EXPECT_EQ(refusal_of(right), "");
  Program program = right;
  std::ranges::find(program.groups, false, &Group::requires_grad)->state.clear();
  EXPECT_THAT(refusal_of(program),
              HasSubstr("its state is sharded in another way than the strategy's"));
}

TEST(CheckCertificate, LooksAtWhereWorkspacesBegin) {
  test::EditedPlan plan(test::small_config(2));
  Operand& workspace = plan.operand("only", "layers.0.down", "workspace");
  workspace.shape.front() -= kWorkspaceAlignment;
  workspace.offset = kWorkspaceAlignment;
  EXPECT_EQ(refusal_of(plan.program), "");
  workspace.offset = 1;
  EXPECT_THAT(refusal_of(plan.program), HasSubstr("expected a workspace of at least"));
}

TEST(CheckCertificate, ClocksOfTheTinyProgram) {
  const Program program = test::tiny_program();
  const auto certificate = certificate_of(program);
  ASSERT_TRUE(certificate) << certificate.error().message();
  // "wait gathered" and "wait used" in both steps: the records come after 2 ops of all_gather and
  // 4 of compute. In the second step compute has 5 ops more before it, all_gather 5.
  EXPECT_EQ(Json::parse(*certificate)["claims"]["plans"][0]["clocks"].dump(),
            "[[3,1,3],[8,0,5],[13,1,8],[18,0,10]]");
  EXPECT_EQ(refusal_of(to_canonical_json(program), *certificate), kNoModel);
}

RC_GTEST_PROP(CheckCertificate, AcceptsPlannerPlans, ()) {
  PlanConfig config = *test::any_config();
  config.exact_sums = *rc::gen::inRange(0, 4) == 0;
  if (config.exact_sums) config.loss_scale_window = 0;
  auto program = build_program(config, {});
  RC_PRE(program.has_value());
  if (*rc::gen::inRange(0, 2) == 0) program = test::renamed(*program, *rc::gen::inRange(0U, 100U));
  const auto certificate = certificate_of(*program);
  if (!certificate) RC_FAIL(certificate.error().message());
  RC_ASSERT(refusal_of(to_canonical_json(*program), *certificate) == "");
}

TEST(CertificateOf, AWrongPlanIsAnError) {
  test::EditedPlan plan(test::small_config(2));
  plan.drop("only", "layers.0.reduce_scatter");
  const auto certificate = certificate_of(plan.program);
  ASSERT_FALSE(certificate);
  EXPECT_THAT(certificate.error().message(), HasSubstr("MF3"));
}

// ---- claims of a certificate -------------------------------------------------------------------

TEST(CheckCertificate, BelongsToItsPlan) {
  Program program = test::tiny_program();
  const std::string certificate = *certificate_of(program);
  test::drop_op(program, OpId(3));
  const std::string plan = to_canonical_json(program);
  EXPECT_THAT(refusal_of(plan, certificate), HasSubstr("refused: plan: the certificate states \""));
  Json sealed = Json::parse(certificate);
  sealed["claims"]["plan"] = plan_hash(program);
  EXPECT_THAT(refusal_of(plan, sealed.dump()),
              HasSubstr("refused: checksum: the certificate states \""));
  // Without the wait, its clock is that of the acquire after it, which nothing establishes.
  EXPECT_EQ(refusal_of(plan, test::sealed(sealed)),
            "refused: op 4 (activation): follows 0 of chain 1, not 3");
  sealed["claims"]["plans"][0]["clocks"] = Json::array();
  EXPECT_EQ(refusal_of(plan, test::sealed(sealed)),
            "refused: op 5 (gemm): may run before op 1 (gather) has ended");
}

TEST(CheckCertificate, ClocksAreOfInstancesInTheirOrder) {
  const Program program = test::tiny_program();
  const std::string plan = to_canonical_json(program);
  const Json certificate = Json::parse(*certificate_of(program));
  const auto with = [&](const char* clocks) {
    Json made = certificate;
    made["claims"]["plans"][0]["clocks"] = Json::parse(clocks);
    return refusal_of(plan, test::sealed(made));
  };
  EXPECT_EQ(with("[[3,1,3],[8,0,5],[13,1,8],[18,0,10]]"), kNoModel);
  EXPECT_EQ(with("[[3,1,3,1,3],[8,0,5],[13,1,8],[18,0,10]]"), kNoModel);  // chain 1 twice
  EXPECT_EQ(with("[[3,1,4],[8,0,5],[13,1,8],[18,0,10]]"),
            "refused: op 3 (gathered): follows 3 of chain 1, not 4");
  EXPECT_EQ(with("[[3,0,1],[8,0,5],[13,1,8],[18,0,10]]"),
            "refused: op 3 (gathered): follows 0 of chain 0, not 1");
  for (const char* clocks :
       {"[[8,0,5],[3,1,3]]", "[[3,1,3],[3,1,3]]", "[[3,1,3],[8,0,5],[13,1,8],[18,0,10],[20,0,1]]",
        "[[3,1]]", "[[3,0]]", "[[3,-1,1]]", "[[3]]", "[[]]", "[3]", "{}", "null", "\"\"",
        "[[3,1,1152921504606846976]]", "[[3,1,-1]]", "[[3,1.0,1]]", "[[3,77,1]]"})
    EXPECT_THAT(with(clocks), HasSubstr("refused: ")) << clocks;
}

TEST(CheckCertificate, WhatIsNoCertificateOrPlanIsRefused) {
  const Program program = test::tiny_program();
  const std::string plan = to_canonical_json(program);
  const std::string certificate = *certificate_of(program);
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"), std::string("null"),
        std::string("7"), std::string("{\"schema\":\"mfsdp.certificate/1\"}"), deep,
        std::string("\xff"), "{\"schema\":" + deep + "}"}) {
    EXPECT_THAT(refusal_of(plan, text), HasSubstr("refused: "));
    EXPECT_THAT(refusal_of(text, certificate), HasSubstr("refused: "));
  }
}

/// Any value of a plan replaced: never a crash, and what is accepted and is a plan proves clean of
/// what the checker re-checks.
TEST(CheckCertificate, HostilePlansAreRefused) {
  const Program program = test::EditedPlan(test::small_config(2, 1)).program;
  Json plan = Json::parse(to_canonical_json(program));
  plan.erase("meta");
  const Json certificate = Json::parse(*certificate_of(program));
  const std::vector<Json> values{nullptr,
                                 0,
                                 1,
                                 7,
                                 -1,
                                 0.5,
                                 1ULL << 60,
                                 ~0ULL,
                                 "x",
                                 true,
                                 Json::array(),
                                 Json::object(),
                                 Json::array({1, 2}),
                                 (1ULL << 60) - 1};
  std::mt19937 random(3);
  int accepted = 0;
  for (int i = 0; i < (test::kOneCase ? 40 : 600); ++i) {
    Json edited = plan;
    Json* at = &edited;
    while (at->is_structured() && !at->empty() && (at == &edited || random() % 8 != 0))
      at = &*std::next(at->begin(), static_cast<std::ptrdiff_t>(random() % at->size()));
    const std::string at_what = at->dump();
    *at = values[random() % values.size()];
    Json resealed = certificate;
    resealed["claims"]["plan"] = test::hash_of_json(edited);
    if (!refusal_of(edited.dump(), test::sealed(resealed)).empty()) continue;
    ++accepted;
    if (const auto read = program_from_json(edited.dump(), "plan")) {
      EXPECT_THAT(test::rules_of(*read), testing::IsEmpty()) << at_what;
    }
  }
  EXPECT_GT(accepted, 0);  // names, flops and similar
  EXPECT_LT(accepted, 300);
}

// ---- what the checker derives ------------------------------------------------------------------

TEST(CheckCertificate, LifetimesAndPlaces) {
  test::PlanBuilder b;
  const BufferId w = b.buffer("w");
  b.kernel(b.compute, "use", {}, {w});
  EXPECT_THAT(refusal_of(b.finish()), HasSubstr("op 0 (use): on bytes of buffer 0, none is live"));
  test::PlanBuilder c;
  const BufferId x = c.buffer("x");
  const BufferId y = c.buffer("y", false, 0);
  c.acquire(c.compute, x);
  c.acquire(c.compute, y);
  EXPECT_THAT(refusal_of(c.finish()), HasSubstr("op 1 (y): on bytes of buffer 1, 0 is live"));
  test::PlanBuilder d;
  d.buffer("x", true);
  d.buffer("y", true, 0);
  d.record(d.compute, "e");
  EXPECT_THAT(refusal_of(d.finish()), HasSubstr("buffer 1: shares bytes with a persistent one"));
}

TEST(CheckCertificate, CollectivesFitTheirOperands) {
  test::EditedPlan plan(test::small_config(2));
  plan.collective("only", "layers.0.reduce_scatter").count += 1;
  EXPECT_THAT(refusal_of(plan.program), HasSubstr("does not fit its operands"));
}

TEST(CheckCertificate, GradientsHoldWhatTheyShould) {
  PlanConfig config = test::small_config(2);
  config.microbatches = 3;
  config.reduce_dtype = DType::bf16;  // each microbatch is accumulated
  const auto refusal = [&](const std::function<void(test::EditedPlan&)>& edit) {
    test::EditedPlan plan(config);
    edit(plan);
    return refusal_of(plan.program);
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  // Overwritten by the second microbatch; never begun anew; a part left out.
  EXPECT_THAT(refusal([](auto& p) { p.set("middle", "layers.0.accumulate", "beta", 0); }),
              HasSubstr("does not have each contribution once"));
  EXPECT_THAT(refusal([](auto& p) { p.set("first", "layers.0.accumulate", "beta", 1); }),
              HasSubstr("does not have each contribution once"));
  EXPECT_THAT(refusal([](auto& p) { p.drop("last", "layers.1.qkv.wgrad"); }),
              HasSubstr("does not have each contribution once"));
  EXPECT_THAT(refusal([](auto& p) { p.drop("optimizer", "layers.0.adamw"); }),
              HasSubstr("is updated 0 times in a step"));
}

/// A sum over an axis of slices that are cut on it adds up what belongs to different elements.
TEST(CheckCertificate, SlicesAreNotSummedOverTheirOwnAxis) {
  test::EditedPlan plan(test::small_config(2));
  plan.sum_slices("only", "layers.0.reduce_scatter");
  EXPECT_THAT(refusal_of(plan.program), HasSubstr("moves a gradient to other elements"));
}

}  // namespace
}  // namespace mfsdp
