// Replays of recorded runs. Predictions for other settings must equal the memory that runs with
// these settings reserved: docs/lab/2026-11-24-allocator.md.
#include "sim/allocator/replay.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/scenarios.hpp"

namespace mfsdp {
namespace {

/// A record of scenarios/memory.
MemoryRecord recorded(const std::string& name) {
  std::ifstream file(test::kScenarios / "memory" / name);
  EXPECT_TRUE(file) << name;
  MemoryRecord record;
  std::vector<MemoryEvent> allocations;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    const std::size_t blank = line.find(' ');
    if (line.starts_with('-')) {
      MemoryEvent freed = allocations.at(std::stoul(line.substr(1)));
      freed.action = MemoryAction::free;
      record.events.push_back(freed);
    } else {
      // Any unused address is valid.
      allocations.push_back({.address = static_cast<std::int64_t>(allocations.size()),
                             .size = std::stoll(line.substr(0, blank)),
                             .stream = std::stoll(line.substr(blank))});
      record.events.push_back(allocations.back());
    }
  }
  return record;
}

MemoryReplay replayed(const std::string& settings,
                      std::optional<std::int64_t> limit = std::nullopt) {
  AllocatorSettings parsed = parse_allocator_settings(settings, "x").value();
  parsed.limit = limit;
  return replay_memory(recorded("fsdp2_llama3_1b.txt"), parsed);
}

TEST(MemoryReplay, ReservesWhatRunsReserved) {
  EXPECT_EQ(replayed("").counters.peak_reserved, 39'338'377'216);
  EXPECT_EQ(replayed("expandable_segments:True").counters.peak_reserved, 39'084'621'824);
  EXPECT_EQ(replayed("max_split_size_mb:128").counters.peak_reserved, 42'981'130'240);
  EXPECT_EQ(replayed("roundup_power2_divisions:8").counters.peak_reserved, 39'810'236'416);
  constexpr std::int64_t kH200 = 150'109'880'320;
  EXPECT_EQ(replayed("garbage_collection_threshold:0.6", kH200 * 2 / 5).counters.peak_reserved,
            37'237'030'912);
  const MemoryReplay pressed = replayed("", kH200 / 4);
  EXPECT_EQ(pressed.counters.peak_reserved, 37'237'030'912);
  EXPECT_FALSE(pressed.out_of_memory);
}

/// Segments that had one address in succession may be live at once with other settings.
TEST(MemoryReplay, OfARecordWhosePlacesOverlap) {
  MemoryRecord record = recorded("fsdp2_llama3_1b.txt");
  std::vector<MemoryEvent> events;
  for (const MemoryEvent& event : record.events) {
    if (event.action == MemoryAction::allocate)
      events.push_back({.action = MemoryAction::segment,
                        .address = std::int64_t{1} << 40,
                        .size = (event.size + (2 << 20) - 1) / (2 << 20) * (2 << 20),
                        .stream = event.stream});
    events.push_back(event);
  }
  record.events = std::move(events);
  for (const std::string settings : {"", "max_split_size_mb:512", "expandable_segments:True"}) {
    AllocatorSettings parsed = parse_allocator_settings(settings, "x").value();
    parsed.limit = std::int64_t{35} << 30;
    EXPECT_EQ(replay_memory(record, parsed).allocations, 2928) << settings;
  }
}

TEST(MemoryReplay, EndsWhereMemoryIsOut) {
  const MemoryReplay ended = replayed("", std::int64_t{24} << 30);
  ASSERT_TRUE(ended.out_of_memory);
  EXPECT_GT(ended.out_of_memory->size, 0);
  EXPECT_LE(ended.counters.peak_reserved, std::int64_t{24} << 30);
  EXPECT_GE(ended.counters.retries, 1);
}

TEST(MemoryReplay, TellsWhereBytesLieUnused) {
  const MemoryReplay done = replayed("");
  ASSERT_EQ(done.free_at_peak.size(), 2U);
  std::int64_t unused = 0;
  for (const auto& bytes : done.free_at_peak) unused += bytes.whole + bytes.parts;
  EXPECT_EQ(done.counters.peak_reserved, done.allocated_at_peak + unused);
}

TEST(MemoryReplay, FreesOfWhatIsNotKnownArePassedOver) {
  MemoryRecord record;
  record.events = {{.action = MemoryAction::free, .address = 7, .size = 512},
                   {.action = MemoryAction::allocate, .address = 7, .size = 0}};
  const MemoryReplay done = replay_memory(record, {});
  EXPECT_EQ(done.allocations, 1);
  EXPECT_EQ(done.counters.allocated, 512);
}

}  // namespace
}  // namespace mfsdp
