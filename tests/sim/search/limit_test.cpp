// How far a number goes, against trying every value.
#include "sim/search/limit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "tests/sim/search/small_job.hpp"
#include "tests/support/samples.hpp"

namespace mfsdp {
namespace {

using test::job;
using test::SmallJobs;
using ::testing::ElementsAre;

const Watch kToTheEnd = [](const Tried&) { return true; };

std::vector<std::string> flags_of(const std::vector<LimitRow>& rows) {
  std::vector<std::string> flags;
  for (const LimitRow& row : rows) flags.push_back(flags_text(row.settings));
  return flags;
}

/// Every value that a search might try, with the memory of its plan.
using Memory = std::map<std::int64_t, Bytes>;

std::vector<std::int64_t> candidates(FitLimit limit) {
  if (limit == FitLimit::gpus) return {1, 2, 4, 8, 16};
  std::vector<std::int64_t> values;
  for (std::int64_t i = 1; i <= 16; ++i) values.push_back(limit == FitLimit::seq_len ? 256 * i : i);
  return values;
}

Bytes memory_with(const JobOptions& job, FitLimit limit, std::int64_t value,
                  PredictionRequests& requests) {
  const auto request = requests.read(with_settings(job, std::array{limit_setting(limit, value)}));
  EXPECT_TRUE(request) << request.error().message();
  const auto ready = with_program(*request);
  EXPECT_TRUE(ready) << ready.error().message();
  return footprint_of(*ready).allocated;
}

Memory tried_one_by_one(const JobOptions& job, FitLimit limit, PredictionRequests& requests) {
  Memory memory;
  for (const std::int64_t value : candidates(limit))
    memory[value] = memory_with(job, limit, value, requests);
  return memory;
}

/// The largest value that fits into `capacity`; the smallest number of GPUs.
std::optional<std::int64_t> best_of(const Memory& memory, Bytes capacity, FitLimit limit) {
  std::optional<std::int64_t> best;
  for (const auto& [value, bytes] : memory)
    if (bytes <= capacity && !(best && limit == FitLimit::gpus)) best = value;
  return best;
}

/// Capacities that some of the values fill to the byte, and a byte less.
std::vector<Bytes> capacities(const std::vector<Memory>& all) {
  constexpr std::size_t kEdges = 6;
  std::vector<Bytes> edges;
  for (const Memory& memory : all)
    for (const auto& [value, taken] : memory) edges.push_back(taken);
  std::ranges::sort(edges);
  std::vector<Bytes> chosen;
  for (std::size_t i = 0; i <= kEdges; ++i) {
    const Bytes edge = edges[i * (edges.size() - 1) / kEdges];
    chosen.insert(chosen.end(), {edge, edge - Bytes(1)});
  }
  return chosen;
}

/// 16 micro-batches, 16 lengths or 16 GPUs of a small model, at many capacities.
void check_against_trying(FitLimit limit) {
  SmallJobs small;
  JobOptions asked = job(small.model(false), 16);
  if (limit != FitLimit::seq_len) asked.common.seq_len = 512;
  const Bytes capacity = small.requests().gpu(asked)->capacity;
  const std::vector<Variant> variants = memory_variants(asked);
  ASSERT_EQ(variants.size(), 3U);
  std::vector<Memory> memory;
  for (const Variant& variant : variants)
    memory.push_back(tried_one_by_one(variant.job, limit, small.requests()));
  test::Sample sample;
  for (const Bytes free : capacities(memory)) {
    if (!sample.takes_next()) continue;
    asked.reserve = capacity - free;
    const auto rows = find_limit(asked, limit, small.requests(), kToTheEnd);
    ASSERT_TRUE(rows) << rows.error().message();
    std::size_t variant = 0;
    for (const LimitRow& row : *rows) {
      const std::string flags = flags_text(row.settings);
      while (flags_text(variants[variant].settings) != flags) ++variant;
      const auto expected = best_of(memory[variant], free, limit);
      // Beyond the last value tried here nothing is known of micro-batches.
      const bool is_known = limit != FitLimit::micro_batch || expected != candidates(limit).back();
      if (is_known) {
        EXPECT_EQ(row.found.value, expected) << flags << " in " << free.value;
      }
      EXPECT_EQ(row.run.has_value(), row.found.value.has_value());
    }
  }
}

TEST(FitLimit, MicroBatchesAreThoseOfTryingAll) { check_against_trying(FitLimit::micro_batch); }
TEST(FitLimit, LengthsAreThoseOfTryingAll) { check_against_trying(FitLimit::seq_len); }
TEST(FitLimit, GpusAreThoseOfTryingAll) { check_against_trying(FitLimit::gpus); }

/// Memory of the first candidate as asked; for GPUs of all eight.
Bytes of_first(const JobOptions& job, FitLimit limit, PredictionRequests& requests) {
  const std::int64_t value = limit == FitLimit::seq_len ? 256 : limit == FitLimit::gpus ? 8 : 1;
  return memory_with(job, limit, value, requests);
}

/// Reserves all but that much memory.
void leave(Bytes free, JobOptions& job, const PredictionRequests& requests) {
  job.reserve = requests.gpu(job)->capacity - free;
}

/// Whatever is given and however much memory there is, a row with more settings goes at least as
/// far.
RC_GTEST_PROP(LimitProperty, MoreMemorySettingsNeverGoLessFar, ()) {
  static test::Sample sample;
  if (!sample.takes_next()) return;
  static SmallJobs small;
  const auto limit = *rc::gen::element(FitLimit::micro_batch, FitLimit::seq_len, FitLimit::gpus);
  const bool tied = *rc::gen::arbitrary<bool>();
  JobOptions asked = job(small.model(tied));
  const auto maybe = [&](const std::vector<Setting>& choices) {
    if (*rc::gen::arbitrary<bool>())
      apply(choices[*rc::gen::inRange<std::size_t>(0, choices.size())], asked);
  };
  if (limit != FitLimit::seq_len)
    maybe(settings("--seq-len", std::array<std::int64_t, 2>{256, 1024}));
  maybe(settings("--recompute",
                 std::vector<RecomputePolicy>{{.kind = Recompute::none},
                                              {.kind = Recompute::selective},
                                              {.kind = Recompute::full},
                                              {.kind = Recompute::full, .full_blocks = 2}}));
  maybe(settings("--prefetch", std::array<std::int64_t, 2>{0, 2}));
  maybe(settings("--strategy", std::vector<NamedStrategy>{{.strategy = Strategy::no_shard},
                                                          {.strategy = Strategy::optim},
                                                          {.strategy = Strategy::optim_grads}}));
  const std::int64_t spare = *rc::gen::inRange<std::int64_t>(-(1 << 20), 40 << 20);
  leave(of_first(asked, limit, small.requests()) + Bytes(spare), asked, small.requests());
  const auto rows = find_limit(asked, limit, small.requests(), kToTheEnd);
  RC_ASSERT(rows.has_value());
  RC_ASSERT(rows->front().settings.empty());
  for (std::size_t i = 1; i < rows->size(); ++i) {
    const auto& before = (*rows)[i - 1].found.value;
    const auto& now = (*rows)[i].found.value;
    if (!before) continue;
    RC_ASSERT(now.has_value());
    const bool goes_as_far = limit == FitLimit::gpus ? *now <= *before : *now >= *before;
    RC_ASSERT(goes_as_far);
  }
  for (const LimitRow& row : *rows)
    for (const Setting& setting : row.settings)  // what is given stays
      RC_ASSERT(!contains(asked.given, setting.flag));
}

/// A row's answer is that of asking for its settings.
TEST(FitLimit, ARowIsWhatItsSettingsGive) {
  SmallJobs small;
  JobOptions asked = job(small.model(false));
  asked.common.seq_len = 512;
  leave(of_first(asked, FitLimit::micro_batch, small.requests()) + Bytes(std::int64_t{64} << 20),
        asked, small.requests());
  const auto rows = find_limit(asked, FitLimit::micro_batch, small.requests(), kToTheEnd);
  ASSERT_TRUE(rows);
  EXPECT_THAT(flags_of(*rows),
              ElementsAre("", "--recompute full", "--recompute full --prefetch 0 --grad-slots 1"));
  EXPECT_EQ(answer_row(*rows), 0U);
  for (const LimitRow& row : *rows) {
    const auto again = find_limit(with_settings(asked, row.settings), FitLimit::micro_batch,
                                  small.requests(), kToTheEnd);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->front().found.value, row.found.value) << flags_text(row.settings);
  }
}

/// Tied embeddings need two full gradients: the setting that they cannot have is left out.
TEST(FitLimit, SettingsThatAModelCannotHaveAreLeftOut) {
  SmallJobs small;
  const auto rows =
      find_limit(job(small.model(true)), FitLimit::seq_len, small.requests(), kToTheEnd);
  ASSERT_TRUE(rows);
  EXPECT_THAT(flags_of(*rows),
              ElementsAre("", "--recompute full", "--recompute full --prefetch 0"));
}

/// Other engines have neither --prefetch nor --grad-slots.
TEST(FitLimit, OtherEnginesHaveTheirOwnSettings) {
  SmallJobs small;
  JobOptions asked = job(small.model(false));
  asked.engine = EngineKind::fsdp2;
  const auto rows = find_limit(asked, FitLimit::seq_len, small.requests(), kToTheEnd);
  ASSERT_TRUE(rows);
  EXPECT_THAT(flags_of(*rows), ElementsAre("", "--recompute full"));
}

TEST(FitLimit, ErrorsAreThoseOfWhatWasAsked) {
  SmallJobs small;
  JobOptions asked = job("llama_nano");
  asked.common.seq_len = 4096;
  const auto rows = find_limit(asked, FitLimit::micro_batch, small.requests(), kToTheEnd);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().where, "--seq-len");
}

}  // namespace
}  // namespace mfsdp
