// Records without their first events: their initial state is derived from the final state.
#include "sim/allocator/earlier_state.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fstream>
#include <string>
#include <unordered_map>

#include "sim/allocator/replay.hpp"
#include "tests/support/scenarios.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kMebibyte = AllocatorSettings::kMebibyte;

/// Writes the record of an allocator with these settings, in PyTorch's form.
class Recorder {
 public:
  explicit Recorder(const std::string& settings)
      : settings_(settings), allocator_(parse_allocator_settings(settings, "x").value()) {
    allocator_.watch([this](const MemoryEvent& event) { events_.push_back(event); });
  }

  /// Returns the number of the block.
  std::size_t allocate(std::int64_t size, std::int64_t stream) {
    const std::int64_t address = *allocator_.allocate(size, stream);
    blocks_.push_back({.address = address, .size = size, .stream = stream});
    events_.push_back(blocks_.back());
    return blocks_.size() - 1;
  }
  void free(std::size_t block) {
    allocator_.free(blocks_[block].address);
    events_.push_back(blocks_[block]);
    events_.back().action = MemoryAction::free;
  }
  void empty() { allocator_.release_cached(); }

  [[nodiscard]] std::size_t events() const { return events_.size(); }
  [[nodiscard]] const CachingAllocator& allocator() const { return allocator_; }

  /// The snapshot of device 0, without the first `cut` events.
  [[nodiscard]] RecordedSnapshot snapshot(std::size_t cut) const {
    RecordedSnapshot snapshot;
    snapshot.settings = settings_;
    snapshot.traces.emplace_back(events_.begin() + static_cast<std::ptrdiff_t>(cut), events_.end());
    for (const CachingAllocator::Segment& held : allocator_.segments()) {
      SnapshotSegment& segment = snapshot.segments.emplace_back();
      segment.address = held.address;
      segment.size = held.size;
      segment.stream = held.stream;
      segment.is_small = held.is_small;
      segment.is_expandable = held.is_expandable;
      for (const auto& part : held.parts)
        if (part.is_used)
          segment.live.push_back(
              {.address = part.address, .size = part.size, .stream = held.stream});
    }
    return snapshot;
  }

 private:
  std::string settings_;
  CachingAllocator allocator_;
  std::vector<MemoryEvent> events_;
  std::vector<MemoryEvent> blocks_;
};

/// Steps of a recorded run of FSDP2 (scenarios/memory).
void run_fsdp2(Recorder& recorder) {
  std::ifstream file(test::kScenarios / "memory/fsdp2_llama3_1b.txt");
  EXPECT_TRUE(file);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    if (line.starts_with('-'))
      recorder.free(std::stoul(line.substr(1)));
    else
      recorder.allocate(std::stoll(line), std::stoll(line.substr(line.find(' '))));
  }
}

MemoryReplay replay_of(const RecordedSnapshot& snapshot) {
  const auto record = memory_record(snapshot, "m.pickle");
  EXPECT_TRUE(record) << record.error().message();
  EXPECT_EQ(record->contradiction, "");
  return replay_memory(*record, record->settings);
}

TEST(EarlierState, ARecordThatBeginsMidRunGetsEveryAddressAndReservesWhatTheRunDid) {
  for (const char* settings :
       {"", "expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:8"}) {
    Recorder run(settings);
    run_fsdp2(run);
    const std::int64_t reserved = run.allocator().counters().reserved;
    for (const std::size_t part : {1, 2, 3}) {
      const RecordedSnapshot snapshot = run.snapshot(run.events() * part / 4);
      const MemoryReplay replay = replay_of(snapshot);
      EXPECT_TRUE(replay.is_restored) << settings;
      EXPECT_GT(replay.allocations, 100) << settings;
      EXPECT_EQ(replay.same_address, replay.allocations) << settings << ", cut at " << part;
      EXPECT_EQ(replay.counters.reserved, reserved) << settings << ", cut at " << part;
    }
  }
}

/// The same without a restored state: blocks are packed into an empty allocator.
TEST(EarlierState, PackedBlocksWouldNot) {
  Recorder run("");
  run_fsdp2(run);
  MemoryRecord record = memory_record(run.snapshot(run.events() / 2), "m.pickle").value();
  record.at_begin.reset();
  const MemoryReplay packed = replay_memory(record, record.settings);
  EXPECT_FALSE(packed.is_restored);
  EXPECT_LT(packed.same_address, packed.allocations / 2);
}

TEST(EarlierState, OtherSettingsPackWhatWasThere) {
  Recorder run("");
  run_fsdp2(run);
  const MemoryRecord record = memory_record(run.snapshot(run.events() / 2), "m.pickle").value();
  AllocatorSettings settings = record.settings;
  settings.limit = std::int64_t{100} << 30;
  EXPECT_TRUE(replay_memory(record, settings).is_restored);  // the limit alone
  settings.expandable_segments = true;
  EXPECT_FALSE(replay_memory(record, settings).is_restored);
}

RC_GTEST_PROP(EarlierState, GivesTheSegmentsThatThereWere, ()) {
  const std::string settings = *rc::gen::element<std::string>(
      "", "expandable_segments:True", "max_split_size_mb:21", "roundup_power2_divisions:4");
  Recorder run(settings);
  std::vector<std::size_t> live;
  std::vector<CachingAllocator::Segment> then;
  std::size_t cut = 0;
  const int steps = *rc::gen::inRange(10, 80);
  const int cut_step = *rc::gen::inRange(0, steps);
  for (int step = 0; step < steps; ++step) {
    if (step == cut_step) {
      cut = run.events();
      then = run.allocator().segments();
    }
    const int choice = *rc::gen::inRange(0, 10);
    if (choice < 5 || live.empty()) {
      const std::int64_t unit =
          *rc::gen::element<std::int64_t>(300, 40'000, kMebibyte / 2, kMebibyte);
      live.push_back(run.allocate(unit * *rc::gen::inRange(1, 40), *rc::gen::inRange(0, 2)));
    } else if (choice < 9) {
      const auto at = static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(live.size())));
      run.free(live[at]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      run.empty();
    }
  }
  const RecordedSnapshot snapshot = run.snapshot(cut);
  const auto parsed = parse_allocator_settings(settings, "x").value();
  const auto state = state_before(snapshot.traces[0], snapshot.segments, parsed);
  RC_ASSERT(state.has_value());
  RC_ASSERT(state->size() == then.size());
  for (std::size_t i = 0; i < then.size(); ++i) {
    RC_ASSERT((*state)[i].address == then[i].address);
    RC_ASSERT((*state)[i].size == then[i].size);
    RC_ASSERT((*state)[i].stream == then[i].stream);
    RC_ASSERT((*state)[i].is_small == then[i].is_small);
    // Where an unsplit rest ends is only known of blocks beside which something was allocated:
    // which bytes begin a block in use is always known.
    std::vector<std::int64_t> used;
    std::vector<std::int64_t> found;
    for (const auto& part : then[i].parts)
      if (part.is_used) used.push_back(part.address);
    for (const auto& part : (*state)[i].parts)
      if (part.is_used) found.push_back(part.address);
    RC_ASSERT(found == used);
  }
}

/// 19.5 MiB in a segment of 20 MiB: the rest of 0.5 MiB is too small for a block and stays with it.
TEST(EarlierState, AnUnsplitRestStaysWithItsBlock) {
  Recorder run("");
  const std::size_t first = run.allocate(9 * kMebibyte, 0);
  const std::size_t second = run.allocate(10 * kMebibyte + kMebibyte / 2, 0);
  const std::size_t cut = run.events();
  const auto then = run.allocator().segments();
  run.free(second);
  run.free(first);
  const RecordedSnapshot snapshot = run.snapshot(cut);
  const auto state = state_before(snapshot.traces[0], snapshot.segments, {});
  ASSERT_TRUE(state) << state.error().message();
  ASSERT_EQ(state->size(), then.size());
  for (std::size_t i = 0; i < then.size(); ++i) {
    ASSERT_EQ((*state)[i].parts.size(), then[i].parts.size());
    for (std::size_t part = 0; part < then[i].parts.size(); ++part)
      EXPECT_EQ((*state)[i].parts[part].size, then[i].parts[part].size);
  }
}

TEST(EarlierState, SegmentsOfAnotherTimeContradictTheEvents) {
  Recorder run("");
  const std::size_t block = run.allocate(kMebibyte, 0);
  RecordedSnapshot snapshot = run.snapshot(0);
  snapshot.segments.clear();
  const auto none = state_before(snapshot.traces[0], snapshot.segments, {});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message(), "event 1: allocates a block that is not there after it");
  run.free(block);
  const RecordedSnapshot later = run.snapshot(0);
  snapshot = later;
  snapshot.traces[0].pop_back();
  EXPECT_FALSE(state_before(snapshot.traces[0], snapshot.segments, {}));
  EXPECT_TRUE(state_before(later.traces[0], later.segments, {}));
  // The replay then packs the blocks, and reports the reason.
  const auto record = memory_record(snapshot, "m.pickle");
  ASSERT_TRUE(record) << record.error().message();
  EXPECT_FALSE(record->at_begin);
  EXPECT_NE(record->contradiction, "");
  EXPECT_FALSE(replay_memory(*record, record->settings).is_restored);
}

}  // namespace
}  // namespace mfsdp
