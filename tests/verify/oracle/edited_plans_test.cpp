// Plans that were edited at random: what the proofs let pass computes what it did before, and no
// other tool refuses it.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "gpu_backend/tool/cpu_run.hpp"
#include "sim/hardware/catalogue.hpp"
#include "sim/predict/predict.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/support/random_edits.hpp"
#include "tests/support/samples.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/scratch_folder.hpp"
#include "verify/oracle/run_bits.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

bool is_clean(const Program& program) {
  const auto proof = prove(program);
  return proof && std::ranges::none_of(proof->findings, [](const Finding& finding) {
           return is_error(finding.rule);
         });
}

/// An edit can make a plan larger than plain_run_bits() takes: a buffer more, in all ranks.
bool is_too_large(const Error& error) { return error.where == "pools"; }

RC_GTEST_PROP(EditedPlans, ComputeTheSameWhereTheProofsLetThemPass, ()) {
  const auto built = build_program(*test::any_config(), {});
  RC_ASSERT(built.has_value());
  const test::ScratchFolder folder;
  const RunBitsSettings settings{.deadline = std::chrono::seconds(30), .folder = folder.path()};
  const std::string usual = to_canonical_json(*built);
  std::optional<RunBits> expected;
  for (int i = 0; i < test::cases(3); ++i) {
    Program program = *built;
    if (i % 4 == 3)
      test::add_something(program);
    else if (i % 4 == 2)
      test::edit_rightly(program);
    else
      test::edit(program);
    if (to_canonical_json(program) == usual || !is_clean(program)) continue;
    if (!expected) {
      const auto bits = plain_run_bits(*built, settings);
      if (!bits) return;  // more ranks or memory than the machine takes
      expected = *bits;
    }
    const auto bits = plain_run_bits(program, settings);
    if (!bits && is_too_large(bits.error())) continue;
    if (!bits) RC_FAIL(bits.error().message());
    RC_ASSERT(*bits == *expected);
  }
}

/// As mfsdp-sim predicts a plan on H200s of one node.
Result<void> predicts(const Program& program) {
  static const auto gpu = load_gpu("h200", test::kGpus);
  MFSDP_TRY(gpu);
  MFSDP_LET(cluster, make_cluster(*gpu, program.config.mesh.world_size(), 8));
  MFSDP_LET(costs, make_cost_model(cluster));
  MFSDP_TRY(predict(program, costs));
  return {};
}

/// As all tools read a plan.
Result<Program> read_again(const Program& program) {
  return program_from_json(to_canonical_json(program), "plan");
}

/// A plan that readers and proofs accept, executors and the simulator accept too.
RC_GTEST_PROP(EditedPlans, AreRunAndPredictedWhereTheProofsLetThemPass, ()) {
  PlanConfig config = *test::any_config();
  const auto built = build_program(config, {});
  RC_ASSERT(built.has_value());
  const test::ScratchFolder folder;
  const auto run = [&](const Program& program) {
    return plain_run_bits(program,
                          {.deadline = patience_for({&program, 1}), .folder = folder.path()});
  };
  std::optional<RunBits> expected;
  for (int i = 0; i < test::cases(3); ++i) {
    Program edited = *built;
    test::edit_labels(edited);
    const auto program = read_again(edited);
    if (!program || *program == *built || !is_clean(*program)) continue;
    if (!expected) {
      const auto bits = run(*built);
      if (!bits || !predicts(*built)) return;  // more ranks or memory than are taken
      expected = *bits;
    }
    const auto predicted = predicts(*program);
    if (!predicted) RC_FAIL(predicted.error().message());
    const auto bits = run(*program);
    if (!bits && is_too_large(bits.error())) continue;
    if (!bits) RC_FAIL(bits.error().message());
    if (program->config.clip == built->config.clip) RC_ASSERT(*bits == *expected);
  }
}

}  // namespace
}  // namespace mfsdp
