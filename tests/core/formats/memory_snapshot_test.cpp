#include "core/formats/memory_snapshot.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/formats/json_values.hpp"

namespace mfsdp {
namespace {

Result<RecordedSnapshot> snapshot_of(const std::string& json) {
  MFSDP_LET(document, read_json_values(json, "m.json"));
  return parse_memory_snapshot(*document.root, "m.json");
}

std::string snapshot_error(const std::string& json) {
  const auto snapshot = snapshot_of(json);
  return snapshot ? "" : snapshot.error().message();
}

/// With these events on device 1.
std::string traced(const std::string& events) {
  return R"({"segments": [], "device_traces": [[], [)" + events + "]]}";
}

std::string event_text(std::string_view action, std::int64_t address, std::int64_t size) {
  return fmt::format(R"({{"action": "{}", "addr": {}, "size": {}, "stream": 0}})", action, address,
                     size);
}

/// With one segment of 2048 bytes and these blocks.
std::string holding(const std::string& blocks) {
  return R"({"segments": [{"device": 3, "address": 4096, "total_size": 2048, "stream": 7,
             "blocks": [)" +
         blocks + "]}]}";
}

TEST(RecordedSnapshot, SegmentsEventsAndSettings) {
  const auto held = snapshot_of(holding(R"({"size": 512, "state": "inactive"},
      {"size": 1024, "state": "active_pending_free"}, {"size": 512, "state": "active_allocated"})"));
  ASSERT_TRUE(held) << held.error().message();
  ASSERT_EQ(held->segments.size(), 1U);
  EXPECT_EQ(held->segments[0].device, 3U);
  EXPECT_EQ(held->segments[0].size, 2048);
  ASSERT_EQ(held->segments[0].live.size(), 2U);
  EXPECT_EQ(held->segments[0].live[0].address, 4096 + 512);
  EXPECT_EQ(held->segments[0].live[1].address, 4096 + 1536);
  EXPECT_EQ(held->segments[0].live[1].stream, 7);

  const auto traces = snapshot_of(
      traced(event_text("segment_map", 0, 2048) + "," + event_text("alloc", 512, 100) + "," +
             event_text("free_requested", 512, 100) + "," + event_text("free_completed", 512, 100) +
             "," + event_text("user_defined", 0, 0) + "," + event_text("defragment", 0, 0) + "," +
             event_text("segment_unmap", 0, 2048)));
  ASSERT_TRUE(traces) << traces.error().message();
  ASSERT_EQ(traces->traces.size(), 2U);
  EXPECT_TRUE(traces->traces[0].empty());
  ASSERT_EQ(traces->traces[1].size(), 4U);
  EXPECT_EQ(traces->traces[1][0].action, MemoryAction::segment);
  EXPECT_TRUE(traces->traces[1][0].is_piece);
  EXPECT_EQ(traces->traces[1][2].action, MemoryAction::free);
  EXPECT_EQ(traces->unknown_actions, 1);

  const auto settings = snapshot_of(
      R"({"segments": [], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}})");
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->settings, "backend:native");
}

// A block with an address need not follow the one before it.
TEST(RecordedSnapshot, BlocksLieWhereTheySay) {
  const auto held = snapshot_of(holding(R"({"size": 512, "state": "active_allocated"},
      {"size": 512, "state": "active_allocated", "address": 9216},
      {"size": 512, "state": "active_allocated"})"));
  ASSERT_TRUE(held) << held.error().message();
  ASSERT_EQ(held->segments[0].live.size(), 3U);
  EXPECT_EQ(held->segments[0].live[0].address, 4096);
  EXPECT_EQ(held->segments[0].live[1].address, 9216);
  EXPECT_EQ(held->segments[0].live[2].address, 9216 + 512);
  EXPECT_EQ(snapshot_error(
                holding(R"({"size": 512, "state": "inactive", "address": 4611686018427387905})")),
            "m.json: segments[0].blocks[0].address: expected an address of at most 2^62");
}

TEST(RecordedSnapshot, WhatNoAllocatorDidIsAnError) {
  const std::string first = event_text("alloc", 512, 100) + ",";
  EXPECT_EQ(snapshot_error(traced(first + event_text("alloc", 512, 8))),
            "m.json: device_traces[1][1]: allocates 8 bytes at address 512, some of which are in "
            "use");
  EXPECT_FALSE(snapshot_of(traced(first + event_text("alloc", 611, 8))));
  EXPECT_FALSE(snapshot_of(traced(first + event_text("alloc", 500, 13))));
  EXPECT_TRUE(snapshot_of(
      traced(first + event_text("alloc", 500, 12) + "," + event_text("alloc", 612, 8))));
  const std::string freed = event_text("free_completed", 512, 100);
  EXPECT_EQ(snapshot_error(traced(first + freed + "," + freed)),
            "m.json: device_traces[1][2]: frees address 512, which is free");
  EXPECT_FALSE(snapshot_of(traced(freed + "," + freed)));
  EXPECT_TRUE(snapshot_of(traced(freed + "," + first + freed)));
}

TEST(RecordedSnapshot, WhatIsOfAnotherTypeIsAnError) {
  EXPECT_EQ(snapshot_error("{}"),
            "m.json: is a pickle but no memory snapshot: expected a dict with \"segments\" and "
            "\"device_traces\"");
  EXPECT_EQ(snapshot_error(R"({"segments": 3})"), "m.json: segments: expected a list");
  EXPECT_EQ(snapshot_error(R"({"segments": [3]})"),
            "m.json: segments[0].total_size: expected an integer of at least 0");
  EXPECT_EQ(snapshot_error(R"({"segments": [{"device": 1024}]})"),
            "m.json: segments[0].device: expected a device below 1024");
  EXPECT_EQ(snapshot_error(R"({"segments": [{"total_size": 4611686018427387904}]})"),
            "m.json: segments[0].total_size: expected at most 2^50 bytes");
  EXPECT_EQ(snapshot_error(R"({"segments": [{"total_size": 1, "address": 0}]})"),
            "m.json: segments[0].blocks: expected a list");
  EXPECT_EQ(snapshot_error(holding(R"({"size": 1})")),
            "m.json: segments[0].blocks[0].state: expected a block's state");
  EXPECT_EQ(
      snapshot_error(holding(R"({"size": 2048, "state": "inactive"}, {"size": 1, "state": ""})")),
      "m.json: segments[0].blocks[1].size: expected at most the segment's 2048 bytes");
  EXPECT_EQ(snapshot_error(R"({"device_traces": [4]})"),
            "m.json: device_traces[0]: expected a list");
  EXPECT_EQ(snapshot_error(traced(event_text("alloc", -1, 1))),
            "m.json: device_traces[1][0].addr: expected an integer of at least 0");
  EXPECT_EQ(snapshot_error(R"({"segments": [], "allocator_settings": 3})"),
            "m.json: allocator_settings: expected a dict");
  EXPECT_EQ(snapshot_error(
                R"({"segments": [], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": true}})"),
            "m.json: allocator_settings.PYTORCH_CUDA_ALLOC_CONF: expected a text");
}

}  // namespace
}  // namespace mfsdp
