// How far a number goes, against trying every value.
#include "sim/tool/limit_search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "sim/tool/savers.hpp"
#include "tests/sim/tool/asking.hpp"

namespace mfsdp {
namespace {

using test::Asking;
using ::testing::ElementsAre;

const Watch kToTheEnd = [](const Tried&) { return true; };

std::vector<std::string> flags_of(const std::vector<LimitRow>& rows) {
  std::vector<std::string> flags;
  for (const LimitRow& row : rows) flags.push_back(row.flags);
  return flags;
}

/// Every value that a search might try, with what its plan takes.
using Memory = std::map<std::int64_t, Bytes>;

std::vector<std::int64_t> candidates(Find what) {
  if (what == Find::min_gpus) return {1, 2, 4, 8, 16};
  std::vector<std::int64_t> values;
  for (std::int64_t i = 1; i <= 16; ++i) values.push_back(what == Find::max_seq_len ? 256 * i : i);
  return values;
}

Memory tried_one_by_one(const SimOptions& options, Asker& asker) {
  Memory memory;
  for (const std::int64_t value : candidates(*options.find)) {
    const auto question = asker.question(with_value(options, value));
    EXPECT_TRUE(question) << question.error().message();
    const auto ready = built(*question);
    EXPECT_TRUE(ready) << ready.error().message();
    memory[value] = footprint_of(*ready).allocated;
  }
  return memory;
}

/// The largest value that fits in so much, of GPUs the smallest.
std::optional<std::int64_t> best_of(const Memory& memory, Bytes room, Find what) {
  std::optional<std::int64_t> best;
  for (const auto& [value, bytes] : memory)
    if (bytes <= room && !(best && what == Find::min_gpus)) best = value;
  return best;
}

/// Rooms at the very edge of what some of them take, and a byte below.
std::vector<Bytes> rooms(const std::vector<Memory>& all) {
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

/// 16 micro-batches, 16 lengths or 16 GPUs of a small model, in rooms of every size.
void check_against_trying(Find what) {
  Asking asking;
  const std::string model = asking.small_model(false);
  std::vector<std::string> arguments{"--model", model, "--find", std::string(to_string(what)),
                                     "--gpus",  "16"};
  if (what != Find::max_seq_len) arguments.insert(arguments.end(), {"--seq-len", "512"});
  SimOptions options = Asking::options(arguments);
  const Bytes capacity = asking.asker().gpu(options)->capacity;
  const std::vector<Variant> variants = saving_variants(options);
  ASSERT_EQ(variants.size(), 3U);
  std::vector<Memory> memory;
  for (const Variant& variant : variants)
    memory.push_back(tried_one_by_one(variant.options, asking.asker()));
  for (const Bytes room : rooms(memory)) {
    options.reserve = capacity - room;
    const auto rows = limit_rows(options, asking.asker(), kToTheEnd);
    ASSERT_TRUE(rows) << rows.error().message();
    std::size_t variant = 0;
    for (const LimitRow& row : *rows) {
      while (variants[variant].flags != row.flags) ++variant;
      const auto expected = best_of(memory[variant], room, what);
      // Beyond the last value tried here nothing is known of micro-batches.
      const bool is_known = what != Find::max_micro_batch || expected != candidates(what).back();
      if (is_known) {
        EXPECT_EQ(row.found.value, expected) << row.flags << " in " << room.value;
      }
      EXPECT_EQ(row.run.has_value(), row.found.value.has_value());
    }
  }
}

TEST(LimitSearch, MicroBatchesAreThoseOfTryingAll) { check_against_trying(Find::max_micro_batch); }
TEST(LimitSearch, LengthsAreThoseOfTryingAll) { check_against_trying(Find::max_seq_len); }
TEST(LimitSearch, GpusAreThoseOfTryingAll) { check_against_trying(Find::min_gpus); }

/// What a plan of the first candidate takes as asked; of GPUs all eight.
Bytes of_first(const SimOptions& options, Asker& asker) {
  const std::int64_t value = options.find == Find::max_seq_len ? 256
                             : options.find == Find::min_gpus  ? 8
                                                               : 1;
  return footprint_of(*built(*asker.question(with_value(options, value)))).allocated;
}

/// Keeps all but that much room.
void leave(Bytes room, SimOptions& options, const Asker& asker) {
  options.reserve = asker.gpu(options)->capacity - room;
}

/// Whatever is given and however much room there is, a row with more savers goes at least as far.
RC_GTEST_PROP(LimitSearchProperty, MoreSaversNeverGoLessFar, ()) {
  static Asking asking;
  const auto what = *rc::gen::element(Find::max_micro_batch, Find::max_seq_len, Find::min_gpus);
  const bool tied = *rc::gen::arbitrary<bool>();
  std::vector<std::string> arguments{
      "--model", asking.small_model(tied), "--find", std::string(to_string(what)), "--gpus", "8"};
  const auto maybe = [&](const char* flag, std::vector<std::string> values) {
    if (!*rc::gen::arbitrary<bool>()) return;
    arguments.insert(arguments.end(), {flag, *rc::gen::elementOf(values)});
  };
  if (what != Find::max_seq_len) maybe("--seq-len", {"256", "1024"});
  maybe("--recompute", {"none", "selective", "full", "full:2"});
  maybe("--prefetch", {"0", "2"});
  maybe("--strategy", {"no_shard", "optim", "optim_grads"});
  SimOptions options = Asking::options(arguments);
  const std::int64_t spare = *rc::gen::inRange<std::int64_t>(-(1 << 20), 40 << 20);
  leave(of_first(options, asking.asker()) + Bytes(spare), options, asking.asker());
  const auto rows = limit_rows(options, asking.asker(), kToTheEnd);
  RC_ASSERT(rows.has_value());
  RC_ASSERT(rows->front().flags.empty());
  for (std::size_t i = 1; i < rows->size(); ++i) {
    const auto& before = (*rows)[i - 1].found.value;
    const auto& now = (*rows)[i].found.value;
    if (!before) continue;
    RC_ASSERT(now.has_value());
    const bool goes_as_far = what == Find::min_gpus ? *now <= *before : *now >= *before;
    RC_ASSERT(goes_as_far);
  }
  for (const LimitRow& row : *rows) {
    for (const char* flag : {"--recompute", "--prefetch"}) {  // what is given stays
      const bool is_changed =
          contains(options.given, flag) && row.flags.find(flag) != std::string::npos;
      RC_ASSERT(!is_changed);
    }
  }
}

/// A setting's answer is that of asking for the setting.
TEST(LimitSearch, ARowIsWhatItsFlagsGive) {
  Asking asking;
  const std::string model = asking.small_model(false);
  const std::vector<std::string> arguments{"--model",   model, "--find", "max-micro-batch",
                                           "--seq-len", "512", "--gpus", "8"};
  SimOptions options = Asking::options(arguments);
  leave(of_first(options, asking.asker()) + Bytes(std::int64_t{64} << 20), options, asking.asker());
  const auto rows = limit_rows(options, asking.asker(), kToTheEnd);
  ASSERT_TRUE(rows);
  EXPECT_THAT(flags_of(*rows),
              ElementsAre("", "--recompute full", "--recompute full --prefetch 0 --grad-slots 1"));
  EXPECT_EQ(shown_row(*rows), 0U);
  for (const LimitRow& row : *rows) {
    std::vector<std::string> with_flags = arguments;
    std::istringstream words(row.flags);
    for (std::string word; words >> word;) with_flags.push_back(word);
    SimOptions given = Asking::options(with_flags);
    given.reserve = options.reserve;
    const auto again = limit_rows(given, asking.asker(), kToTheEnd);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->front().found.value, row.found.value) << row.flags;
  }
}

/// Tied embeddings need two full gradients: the saver that they cannot have is left out.
TEST(LimitSearch, WhatAModelCannotHaveIsLeftOut) {
  Asking asking;
  const SimOptions options = Asking::options(
      {"--model", asking.small_model(true), "--find", "max-seq-len", "--gpus", "8"});
  const auto rows = limit_rows(options, asking.asker(), kToTheEnd);
  ASSERT_TRUE(rows);
  EXPECT_THAT(flags_of(*rows),
              ElementsAre("", "--recompute full", "--recompute full --prefetch 0"));
}

/// Other engines have neither --prefetch nor --grad-slots.
TEST(LimitSearch, OtherEnginesHaveWhatTheyOffer) {
  Asking asking;
  const SimOptions options = Asking::options({"--model", asking.small_model(false), "--find",
                                              "max-seq-len", "--gpus", "8", "--engine", "fsdp2"});
  const auto rows = limit_rows(options, asking.asker(), kToTheEnd);
  ASSERT_TRUE(rows);
  EXPECT_THAT(flags_of(*rows), ElementsAre("", "--recompute full"));
}

TEST(LimitSearch, ErrorsAreThoseOfWhatWasAsked) {
  Asking asking;
  const SimOptions options =
      Asking::options({"--model", "llama_nano", "--find", "max-micro-batch", "--seq-len", "4096"});
  const auto rows = limit_rows(options, asking.asker(), kToTheEnd);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().where, "--seq-len");
}

}  // namespace
}  // namespace mfsdp
