#include "sim/calibrate/trust.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "sim/calibrate/fidelity.hpp"
#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// 80 ms of compute, 10 of them contention, 10 exposed: a step of 90.
TimeSummary step_of_90_ms() {
  TimeSummary time;
  time.step = Nanos(90'000'000);
  time.compute = Nanos(80'000'000);
  time.exposed_communication = Nanos(10'000'000);
  time.contention = Nanos(10'000'000);
  return time;
}

constexpr PriceErrors kErrors{
    .kernel = 0.01, .collective = 0.05, .contention = 0.25, .network = 0.14};

PriceErrors errors_of(const CostTables& tables, const Cluster& cluster) {
  return price_errors(tables, cluster, kernel_error(tables, cluster.gpu));
}

Trust checked(Trust trust) {
  EXPECT_LE(trust.text.size(), 175u) << trust.text;
  return trust;
}

/// Evidence without a measured run of the kind.
StepEvidence none_of(const std::string& gpu) {
  return {.kind = {.engine = "mfsdp", .family = "llama", .training = "adamw", .gpu = gpu},
          .error = {}};
}

/// 12 runs on two GPUs, 2.9 % off on average.
StepEvidence twelve_of(const std::string& gpu) {
  StepEvidence evidence = none_of(gpu);
  evidence.error =
      OwnError{.runs = 12, .mean = 0.029, .worst = 0.069, .least_gpus = 2, .most_gpus = 2};
  return evidence;
}

Trust of(const std::string& gpu, std::int64_t gpus, const std::optional<Anchor>& anchor = {}) {
  return checked(
      trust_of(testing_cost::model_of(gpu, gpus), kErrors, step_of_90_ms(), none_of(gpu), anchor));
}

Trust with_runs(const std::string& gpu, std::int64_t gpus) {
  return checked(
      trust_of(testing_cost::model_of(gpu, gpus), kErrors, step_of_90_ms(), twelve_of(gpu)));
}

/// An H200 cluster whose network was measured with these.
Trust with_network_of(const std::vector<CollectiveKind>& kinds, const std::string& gpu = "h200") {
  CostTables tables = testing_cost::h200_tables();
  for (const CollectiveKind kind : kinds)
    tables.network.push_back(
        {.kind = kind, .ranks = 16, .nodes = 2, .bytes = Bytes(1 << 20), .ns = 1e5, .place = {}});
  const CostModel costs(testing_cost::cluster_of(gpu, 64), tables);
  return checked(trust_of(costs, kErrors, step_of_90_ms(), none_of(gpu)));
}

/// The anchor of a run on `gpus` GPUs in `domains` domains.
Anchor anchor_of(std::int64_t gpus, std::int64_t domains) {
  Anchor anchor;
  anchor.run = "night-7";
  anchor.gpus = gpus;
  anchor.domains = domains;
  anchor.after = -0.01;
  anchor.waited = true;
  return anchor;
}

TEST(PriceErrorsOf, TheTableIsHeldToItsOwnRanksHoweverNarrowADomainIs) {
  const CostTables tables = testing_cost::h200_tables();
  const Cluster eight = testing_cost::cluster_of("h200", 8);
  Cluster alone = eight;
  alone.gpus = alone.gpus_per_node = alone.domain = 1;
  EXPECT_DOUBLE_EQ(errors_of(tables, alone).collective, errors_of(tables, eight).collective);
}

TEST(TrustOf, AMeasuredGpuIsCalibratedInsideItsDomain) {
  const Trust trust = of("h200", 8);
  EXPECT_EQ(trust.trust_level, TrustLevel::calibrated);
  EXPECT_EQ(trust.calibration, "measured");
  EXPECT_FALSE(trust.expected_step_error);
  // (80 * 0.01 + 10 * 0.25 + 10 * 0.05) / 90 = 3.8 / 90
  EXPECT_EQ(trust.text,
            "calibrated by micro-benchmarks; step error not known: no run of mfsdp with llama on "
            "h200 was measured; of its parts, measured alone, 4.2 % (--fidelity)");
}

TEST(TrustOf, OurOwnErrorIsThatOfRunsOfTheSameKind) {
  const Trust trust = with_runs("h200", 8);
  EXPECT_EQ(trust.expected_step_error, 0.029);
  EXPECT_EQ(trust.text,
            "calibrated by micro-benchmarks; step error 2.9 % on average, 6.9 % at worst of 12 "
            "runs (mfsdp, llama, 2 h200)");
  const Trust datasheet = with_runs("h100", 8);
  EXPECT_EQ(datasheet.expected_step_error, 0.029);
  EXPECT_EQ(
      datasheet.text,
      "priced by data sheet: GEMM, attention, collectives; step error 2.9 % on average, 6.9 % "
      "at worst of 12 runs (mfsdp, llama, 2 h100)");
}

/// The error of its parts is not that of kernels that were not measured.
TEST(TrustOf, KindsOfKernelsThatWereNotMeasuredAreNamed) {
  StepEvidence evidence = none_of("h200");
  evidence.unmeasured = {"attention of heads of 192 (priced from heads of 128 and 256)"};
  const auto text = [&] {
    return trust_of(testing_cost::model_of("h200", 8), kErrors, step_of_90_ms(), evidence).text;
  };
  EXPECT_EQ(text(),
            "calibrated by micro-benchmarks; step error not known: no run of mfsdp with llama on "
            "h200 was measured; not measured on h200: attention of heads of 192 (priced from heads "
            "of 128 and 256)");
  evidence.error = twelve_of("h200").error;
  EXPECT_THAT(text(), HasSubstr("12 runs (mfsdp, llama, 2 h200); not measured on h200: attention"));
}

// Every measured run was inside one domain.
TEST(TrustOf, RunsInsideANodeSayNothingOfANetwork) {
  const Trust trust = with_runs("h200", 16);
  EXPECT_FALSE(trust.expected_step_error);
  EXPECT_THAT(trust.text, StartsWith("priced by data sheet: network; step error 2.9 %"));
  EXPECT_THAT(trust.text, EndsWith("(mfsdp, llama, 2 h200), none of them over a network"));
}

TEST(TrustOf, ANetworkThatWasNotMeasuredIsADatasheet) {
  const Trust trust = of("h200", 16);
  EXPECT_EQ(trust.trust_level, TrustLevel::datasheet);
  EXPECT_FALSE(trust.expected_step_error);
  EXPECT_EQ(trust.text,
            "priced by data sheet: network; step error not known: no run of mfsdp with llama on "
            "h200 was measured");
  const Trust other = of("h100", 8);
  EXPECT_FALSE(other.expected_step_error);
  EXPECT_THAT(other.text, StartsWith("priced by data sheet: GEMM, attention, collectives; "));
  EXPECT_EQ(other.calibration, "datasheet");
  EXPECT_THAT(of("h100", 1).text, Not(HasSubstr("collectives")));
}

TEST(TrustOf, ANetworkIsMeasuredByWhatShardingUses) {
  using enum CollectiveKind;
  const Trust reduced = with_network_of({all_reduce});
  EXPECT_EQ(reduced.trust_level, TrustLevel::datasheet);
  EXPECT_EQ(reduced.text,
            "priced by data sheet: network all-gather and reduce-scatter; step error not known: no "
            "run of mfsdp with llama on h200 was measured");
  EXPECT_THAT(with_network_of({all_gather}).text, HasSubstr("sheet: network reduce-scatter; "));
  EXPECT_THAT(with_network_of({all_reduce}, "h100").text,
              HasSubstr("sheet: GEMM, attention, collectives, network; "));
  const Trust both = with_network_of({all_gather, reduce_scatter});
  EXPECT_EQ(both.trust_level, TrustLevel::calibrated);
  // (80 * 0.01 + 10 * 0.25 + 10 * 0.14) / 90 = 4.7 / 90: the network's error, being larger, on all
  // exposed.
  EXPECT_THAT(both.text, EndsWith("; of its parts, measured alone, 5.2 % (--fidelity)"));
}

TEST(TrustOf, AnAnchorStandsForItsKernelsAndCollectives) {
  const Trust trust = of("h100", 8, anchor_of(8, 1));
  EXPECT_EQ(trust.trust_level, TrustLevel::anchored);
  EXPECT_EQ(trust.calibration, "anchored");
  EXPECT_NEAR(trust.expected_step_error.value(), 0.01 + 3.8 / 90, 1e-12);
  EXPECT_EQ(trust.text,
            "anchored by a measured run: expect the step to be off by about 5.2 %; kernels x 1.00, "
            "collectives x 1.00 (night-7)");
}

TEST(TrustOf, AnAnchorDoesNotStandForWiderNetworks) {
  const Trust wider = of("h100", 512, anchor_of(8, 1));
  EXPECT_EQ(wider.trust_level, TrustLevel::anchored);
  // 1 % that the anchor leaves of its own step, and 4.7 / 90 of the parts.
  EXPECT_EQ(wider.text,
            "anchored by a measured run: expect the step to be off by 6.2 % or more; not measured: "
            "network; run night-7");
  EXPECT_THAT(of("h100", 512, anchor_of(256, 32)).text, HasSubstr("6.2 % or more; not measured"));
  EXPECT_NEAR(of("h100", 512, anchor_of(512, 64)).expected_step_error.value(), 0.01 + 4.7 / 90,
              1e-12);
  Anchor far = anchor_of(8, 1);
  far.after = 0.2;
  EXPECT_NEAR(of("h100", 512, far).expected_step_error.value(), 0.2 + 4.7 / 90, 1e-12);
}

TEST(TrustOf, AnAnchorThatWaitedForNothingSaysNothingOfCollectives) {
  Anchor hidden = anchor_of(8, 1);
  hidden.waited = false;
  const Trust trust = of("h100", 8, hidden);
  EXPECT_EQ(trust.text,
            "anchored by a measured run: expect the step to be off by 5.2 % or more; not measured: "
            "collectives; run night-7");
  EXPECT_NEAR(of("h200", 8, hidden).expected_step_error.value(), 0.01 + 3.8 / 90, 1e-12);
  // Where this step waits for none either, it is as the run was.
  TimeSummary time = step_of_90_ms();
  time.exposed_communication = Nanos(0);
  const CostModel costs = testing_cost::model_of("h100", 8);
  EXPECT_THAT(trust_of(costs, kErrors, time, none_of("h100"), hidden).text,
              HasSubstr("off by about"));
  hidden.gpus = 1;
  EXPECT_THAT(trust_of(costs, kErrors, time, none_of("h100"), hidden).text,
              HasSubstr("not measured: collectives"));
}

TEST(PriceErrors, AreFidelitys) {
  CostTables tables = testing_cost::h200_tables();
  const PriceErrors errors = errors_of(tables, testing_cost::cluster_of("h200", 8));
  EXPECT_EQ(errors.network, 0);
  EXPECT_GT(errors.collective, 0.01);
  EXPECT_LT(errors.collective, 0.10);
  double attention = 0;
  double attention_rows = 0;
  const auto rows = fidelity(testing_cost::kGpus.parent_path()).value();
  double contention = 0;
  double contention_rows = 0;
  double worst = 0;
  double largest = 0;
  for (const FidelityRow& row : rows) {
    const bool left_out = row.evaluation == Evaluation::leave_one_out;
    if (row.group == "GEMM" && row.what == "all" && left_out)
      largest = std::max(largest, row.error.mean);
    // Attention with a mask is other engines' alone.
    const bool own = (row.what.starts_with("forward") || row.what.starts_with("backward")) &&
                     !row.what.ends_with("with a mask");
    if (row.group == "attention" && own && left_out) {
      attention += row.error.mean * static_cast<double>(row.error.rows);
      attention_rows += static_cast<double>(row.error.rows);
    }
    if (row.group != "contention" || row.evaluation != Evaluation::unseen) continue;
    contention += row.error.mean;
    contention_rows += 1;
    worst = std::max(worst, row.error.worst);
  }
  largest = std::max(largest, attention / attention_rows);
  EXPECT_NEAR(errors.kernel, largest, 1e-9);
  EXPECT_NEAR(errors.contention, contention / contention_rows, 0.0005);
  EXPECT_NEAR(worst, 0.209, 0.0005);
}

TEST(PriceErrors, KnowTheNetworksOwn) {
  using enum CollectiveKind;
  CostTables tables = testing_cost::h200_tables();
  const Cluster cluster = testing_cost::cluster_of("h200", 64);
  const CollectiveModel model(tables.collective, cluster);
  // Times the law. All-reduce and what is below 1 MiB do not count, though the latter predicts.
  for (const auto& [kind, kibibytes, off] :
       {std::tuple(all_gather, 1024, 1.0), std::tuple(all_gather, 2048, 1.5),
        std::tuple(all_gather, 4096, 1.0), std::tuple(all_gather, 512, 1.5),
        std::tuple(all_reduce, 1024, 9.0)}) {
    const Bytes bytes(kibibytes * 1024);
    const CollectiveCost law = model.cost(kind, bytes, {.ranks = 16});
    tables.network.push_back({.kind = kind,
                              .ranks = 16,
                              .nodes = 2,
                              .bytes = bytes,
                              .ns = static_cast<double>(law.duration.value) * off,
                              .place = {}});
  }
  // 1 MiB lies between 512 KiB and 2 MiB, both 1.5: 0.5. 2 MiB: 1/3. 4 MiB from 2 MiB: 0.5.
  EXPECT_NEAR(errors_of(tables, cluster).network, (0.5 + 1.0 / 3 + 0.5) / 3, 1e-3);
  const std::vector<CollectiveSample> once = tables.network;
  tables.network.insert(tables.network.end(), once.begin(), once.end());
  EXPECT_NEAR(errors_of(tables, cluster).network, (0.5 + 1.0 / 3 + 0.5) / 3, 1e-3);
}

}  // namespace
}  // namespace mfsdp
