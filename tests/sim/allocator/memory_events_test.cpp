#include "sim/allocator/memory_events.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/allocator/replay.hpp"
#include "tests/support/foreign_files.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

std::string record_error(const std::string& bytes) {
  const auto record = read_memory_events(bytes, "m.pickle");
  return record ? "" : record.error().message();
}

/// pickle.dumps() of a snapshot by hand: two allocations of 700 and 4 bytes, one free, and a free
/// of an earlier block; nothing on device 0.
constexpr std::string_view kRecord =
    "8004959c010000000000007d94288c087365676d656e7473945d948c0d6465766963655f747261636573945d9428"
    "5d945d94287d94288c06616374696f6e948c0d7365676d656e745f616c6c6f63948c0461646472948a0600000000"
    "00018c0473697a65944a000020008c0673747265616d944b008c0774696d655f7573944b01757d942868088c0561"
    "6c6c6f6394680a8a06000000000001680b4dbc02680c4b00680d4b02757d942868088c08736e617073686f749468"
    "0a4b00680b4b00680c4b00680d4b03757d94286808680f680a8a06000400000001680b4b04680c4b00680d4b0375"
    "7d942868088c0e667265655f72657175657374656494680a8a06000000000001680b4dbc02680c4b00680d4b0475"
    "7d942868088c0e667265655f636f6d706c6574656494680a8a06000000000001680b4dbc02680c4b00680d4b0475"
    "7d942868086816680a4b05680b4b09680c4b00680d4b047565658c12616c6c6f6361746f725f73657474696e6773"
    "947d948c175059544f5243485f435544415f414c4c4f435f434f4e46948c146d61785f73706c69745f73697a655f"
    "6d623a36349473752e";

TEST(MemoryEvents, OfTheDeviceWithMostEvents) {
  const auto record = read_memory_events(test::from_hex(kRecord), "m.pickle");
  ASSERT_TRUE(record) << record.error().message();
  ASSERT_EQ(record->events.size(), 6U);
  ASSERT_EQ(record->earlier, 1);
  EXPECT_EQ(record->events[0].action, MemoryAction::allocate);
  EXPECT_EQ(record->events[0].address, 5);
  EXPECT_EQ(record->events[0].size, 9);
  EXPECT_EQ(record->events[2].action, MemoryAction::allocate);
  EXPECT_EQ(record->events[2].address, std::int64_t{1} << 40);
  EXPECT_EQ(record->events[2].size, 700);
  EXPECT_EQ(record->peak_requested, Bytes(713));
  EXPECT_EQ(record->peak_reserved, Bytes(2 * AllocatorSettings::kMebibyte));
  EXPECT_EQ(record->unknown_frees, 1);
  EXPECT_EQ(record->settings_text, "max_split_size_mb:64");
  EXPECT_EQ(record->settings.max_split_size, 64 * AllocatorSettings::kMebibyte);
}

/// pickle.dumps() of one whose record begins late: of what its segment holds in the end, 512 bytes
/// at 4096 were never allocated by an event, nor were 1024 at 4608, which one frees.
constexpr std::string_view kLate =
    "80027d71002858080000007365676d656e747371015d7102287d710328580600000064657669636571044b005807"
    "0000006164647265737371054d0010580a000000746f74616c5f73697a6571064a00002000580600000073747265"
    "616d71074b005806000000626c6f636b7371085d7109287d710a28580400000073697a65710b4d00025805000000"
    "7374617465710c58100000006163746976655f616c6c6f6361746564710d757d710e28680b4d0004680c58080000"
    "00696e616374697665710f757d711028680b4d0002680c680d757d711128680b4a00f81f00680c680f7565757d71"
    "122868044b0168054b0168064b0768085d71137565580d0000006465766963655f74726163657371145d71155d71"
    "16287d7117285806000000616374696f6e71185805000000616c6c6f637119580400000061646472711a4d001668"
    "0b4d000268074b00757d711b286818580e000000667265655f636f6d706c65746564711c681a4d0012680b4d0004"
    "68074b00756561752e";

TEST(MemoryEvents, WhatIsThereBeforeTheRecordComesFirst) {
  const auto record = read_memory_events(test::from_hex(kLate), "m.pickle");
  ASSERT_TRUE(record) << record.error().message();
  ASSERT_EQ(record->events.size(), 4U);
  ASSERT_EQ(record->earlier, 2);
  EXPECT_EQ(record->events[0].address, 4096);
  EXPECT_EQ(record->events[0].size, 512);
  EXPECT_EQ(record->events[1].address, 4608);
  EXPECT_EQ(record->events[1].size, 1024);
  EXPECT_EQ(record->unknown_frees, 1);
  EXPECT_EQ(record->peak_requested, Bytes(512 + 1024 + 512));
  EXPECT_EQ(record->peak_reserved, Bytes(2 * AllocatorSettings::kMebibyte));
  const MemoryReplay replay = replay_memory(*record, {});
  EXPECT_EQ(replay.allocations, 1);
  EXPECT_EQ(replay.counters.peak_allocated, 512 + 1024 + 512);
  EXPECT_EQ(replay.counters.peak_reserved, 2 * AllocatorSettings::kMebibyte);
}

/// The record of a pickle in protocol 0, with a letter for each event of 20 MiB.
Result<MemoryRecord> record_of(std::string_view letters) {
  std::string pickle = "(dVdevice_traces\n(l(l";
  for (const char letter : letters) {
    const bool comes = letter >= 'A' && letter <= 'Z';
    const int number = letter - (comes ? 'A' : 'a');
    const bool is_segment = number % 2 == 1;
    const std::string action = letter == '!' ? "oom"
                               : is_segment  ? (comes ? "segment_alloc" : "segment_free")
                                             : (comes ? "alloc" : "free_completed");
    pickle +=
        fmt::format("(dVaction\nV{}\nsVsize\nI{}\ns", action, 20 * AllocatorSettings::kMebibyte);
    if (letter != '!') pickle += fmt::format("Vaddr\nI{}\ns", (number / 2 + 1) << 28);
    pickle += "a";
  }
  return read_memory_events(pickle + "as.", "m.pickle");
}

/// B and b: a segment is reserved and released; A and a: an allocation in it; D, d, C, c: another
/// one.
TEST(MemoryEvents, WhereACacheIsEmptied) {
  EXPECT_EQ(record_of("BAabDC")->emptied, std::vector<std::size_t>{});  // at the peak: a retry
  EXPECT_EQ(record_of("BAab")->emptied, std::vector<std::size_t>{});    // nothing follows
  // No allocation follows, or enough memory was left: torch.cuda.empty_cache().
  EXPECT_EQ(record_of("BADCabcdBA")->emptied, (std::vector<std::size_t>{5, 7}));
  EXPECT_EQ(record_of("BAabDCBAacbd")->emptied, (std::vector<std::size_t>{3}));
}

TEST(MemoryEvents, AReplayEmptiesItsCacheWhereTheRecordDoes) {
  const auto record = record_of("BAabDCBAacbd");
  ASSERT_TRUE(record) << record.error().message();
  const MemoryReplay replay = replay_memory(*record, {});
  EXPECT_EQ(replay.counters.released, 1);
  EXPECT_EQ(replay.counters.peak_reserved, 40 * AllocatorSettings::kMebibyte);
}

TEST(MemoryEvents, WhatFailedInTheRecordFailsUnderItsLimit) {
  const auto record = record_of("BA!");
  ASSERT_TRUE(record) << record.error().message();
  AllocatorSettings settings;
  settings.limit = 20 * AllocatorSettings::kMebibyte;
  const MemoryReplay limited = replay_memory(*record, settings);
  ASSERT_TRUE(limited.out_of_memory);
  EXPECT_EQ(limited.out_of_memory->event, 2);
  const MemoryReplay free = replay_memory(*record, {});
  EXPECT_FALSE(free.out_of_memory);
  EXPECT_EQ(free.counters.peak_reserved, 40 * AllocatorSettings::kMebibyte);
  EXPECT_EQ(free.counters.allocated, 20 * AllocatorSettings::kMebibyte);
}

TEST(MemoryEvents, WhatIsNoSnapshotIsAnError) {
  EXPECT_THAT(record_error("}."), HasSubstr("m.pickle: is a pickle but no memory snapshot"));
  const std::string traces = std::string("}X\x0d\0\0\0", 6) + "device_traces";
  EXPECT_THAT(record_error(traces + "]s."), HasSubstr("has no events"));
  EXPECT_THAT(record_error(traces + "]]as."), HasSubstr("has no events"));
  EXPECT_THAT(record_error(traces + "]K\1as."), HasSubstr("device_traces[0]: expected a list"));
  EXPECT_THAT(record_error(traces + "]]}aas."), HasSubstr("device_traces[0][0].action: expected"));
}

}  // namespace
}  // namespace mfsdp
