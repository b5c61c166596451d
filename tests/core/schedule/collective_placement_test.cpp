// When collectives begin, as --placement asks; that nothing else changes, the trainings of
// tests/gpu_backend/train/equality_test.cpp and the proofs of random plans show.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

using enum CollectivePlacement;

Program placed(CollectivePlacement placement, std::int64_t layers = 3) {
  PlanConfig config = test::small_config(4, layers);
  config.placement = placement;
  auto program = build_program(config, {});
  if (!program) throw std::runtime_error(program.error().message());
  return std::move(*program);
}

/// Names of the one microbatch's ops in host order: those of kernels, collectives, and of records
/// that stand at attention.
std::vector<std::string> order(const Program& program) {
  std::vector<std::string> names;
  for (const Op& op : program.plans[0].segments[0].ops) {
    const bool marks = op.kind() == OpKind::record &&
                       (op.name.ends_with(".begins") || op.name.ends_with(".ended"));
    if (op.kind() == OpKind::kernel || op.kind() == OpKind::collective || marks)
      names.push_back(op.name);
  }
  return names;
}

std::ptrdiff_t at(const std::vector<std::string>& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  EXPECT_NE(found, names.end()) << name;
  return found - names.begin();
}

/// The ops of each stream but records and waits, in order, with what they touch.
std::map<std::size_t, std::vector<std::string>> by_stream(const Program& program) {
  std::map<std::size_t, std::vector<std::string>> streams;
  for (const Plan& plan : program.plans)
    for (const Segment& segment : plan.segments)
      for (const Op& op : segment.ops)
        if (op.kind() != OpKind::record && op.kind() != OpKind::wait)
          streams[op.stream.value].push_back(std::string(to_string(op.kind())) + " " + op.name);
  return streams;
}

TEST(CollectivePlacement, ChangesNoStreamsOwnOrder) {
  const Program early = placed(earliest);
  for (const CollectivePlacement placement : {attention, after_attention, gathers}) {
    const Program late = placed(placement);
    EXPECT_EQ(by_stream(late), by_stream(early)) << to_string(placement);
    EXPECT_NE(order(late), order(early)) << to_string(placement);
    std::set<OpId> ids;
    for (const Plan& plan : late.plans)
      for (const Segment& segment : plan.segments)
        for (const Op& op : segment.ops) EXPECT_TRUE(ids.insert(op.id).second) << op.id.value;
    EXPECT_EQ(late.pools, early.pools)
        << to_string(placement);  // one order of acquires: one memory
  }
}

/// The next unit's gather and the last one's reduction stand between the record and the kernel,
/// the gather first.
TEST(CollectivePlacement, BeginsWithTheNextAttention) {
  const auto names = order(placed(attention));
  // Forward: block 2 is gathered when block 1's attention begins (layers count from 0).
  const auto forward = at(names, "layers.1.attention.begins");
  EXPECT_EQ(names.at(static_cast<std::size_t>(forward) + 1), "layers.2.all_gather");
  EXPECT_EQ(names.at(static_cast<std::size_t>(forward) + 2), "layers.1.attention");
  // Backward of block 1: block 0 is gathered, block 2 was done with before.
  const auto backward = at(names, "layers.1.attention.backward.begins");
  EXPECT_EQ(names.at(static_cast<std::size_t>(backward) + 1), "layers.0.all_gather");
  EXPECT_EQ(names.at(static_cast<std::size_t>(backward) + 2), "layers.2.reduce_scatter");
}

}  // namespace
}  // namespace mfsdp
