// A plan whose activation goes to the host's memory and back computes what it did before, whatever
// the streams' delays are, and is predicted.
#include "tests/support/offload.hpp"

#include <gtest/gtest.h>

#include "sim/hardware/catalogue.hpp"
#include "sim/predict/predict.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/verify/mutation/llama_run.hpp"
#include "verify/oracle/run_bits.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

TEST(Offload, ChangesNoBit) {
  const test::ScratchFolder folder;
  const RunBitsSettings settings{.deadline = std::chrono::seconds(30), .folder = folder.path()};
  const Program usual = test::built(test::llama_nano(2));
  const Program moved = test::with_offload(usual, "layers.0.gate_up");
  const auto proof = prove(moved);
  ASSERT_TRUE(proof);
  for (const Finding& finding : proof->findings)
    EXPECT_FALSE(is_error(finding.rule)) << finding.rule << ": " << finding.message;
  const auto expected = plain_run_bits(usual, settings);
  const auto shaken = shaken_run_bits(moved, settings);
  ASSERT_TRUE(expected) << expected.error().message();
  ASSERT_TRUE(shaken) << shaken.error().message();
  for (const auto& [name, bits] : *expected)
    for (const char* run : {"delays 0: ", "delays 3: "})
      EXPECT_EQ(shaken->at(run + name), bits) << run << name;
}

/// The copies take the links between device and host: as many ops and nanoseconds more.
TEST(Offload, IsPredicted) {
  const auto gpu = load_gpu("h200", test::kGpus);
  ASSERT_TRUE(gpu);
  const auto costs = make_cost_model(make_cluster(*gpu, 2, 8).value());
  ASSERT_TRUE(costs);
  const Program usual = test::built(test::llama_nano(2));
  const auto before = predict(usual, *costs);
  const auto after = predict(test::with_offload(usual, "layers.0.gate_up"), *costs);
  ASSERT_TRUE(before && after);
  EXPECT_GE(after->run.time.step, before->run.time.step);
}

}  // namespace
}  // namespace mfsdp
