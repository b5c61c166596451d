#include "core/plan/peak_memory.hpp"

#include <gtest/gtest.h>

#include "tests/support/tiny_program.hpp"

namespace mfsdp {
namespace {

using test::tiny_program;

CategoryBytes peak_of(const Program& program) {
  return peak_memory(program, buffer_lifetimes(program, program.plans[0]).value());
}

Bytes of(const CategoryBytes& peak, Category category) {
  return peak.at(static_cast<std::size_t>(category));
}

TEST(PeakMemory, IsWhatPersistsAndTheFullestMomentOfEachPool) {
  const CategoryBytes peak = peak_of(tiny_program());
  EXPECT_EQ(of(peak, Category::model_weight), Bytes(128));      // 64 of bf16
  EXPECT_EQ(of(peak, Category::unsharded_weight), Bytes(256));  // 128 of bf16
  EXPECT_EQ(of(peak, Category::activation), Bytes(256));
  EXPECT_EQ(sum_of(peak), Bytes(640));
}

TEST(PeakMemory, BuffersThatMeetAddUpAndOthersDoNot) {
  Program program = tiny_program();
  auto& ops = program.plans[0].segments[0].ops;
  Buffer more = program.buffers[2];
  more.id = BufferId(3);
  more.size = Bytes(100);
  more.category = Category::workspace;
  program.buffers.push_back(more);
  Op acquire = ops[4];
  acquire.id = OpId(50);
  acquire.body = Acquire{.buffer = more.id};
  Op release = ops[6];
  release.id = OpId(51);
  release.body = Release{.buffer = more.id};

  // After the release of the activation, which is on its own stream.
  Program apart = program;
  auto& after = apart.plans[0].segments[0].ops;
  after.insert(after.begin() + 7, {acquire, release});
  EXPECT_EQ(of(peak_of(apart), Category::activation), Bytes(256));
  EXPECT_EQ(of(peak_of(apart), Category::workspace), Bytes(0));

  // Before it.
  ops.insert(ops.begin() + 5, acquire);
  ops.insert(ops.begin() + 8, release);
  const CategoryBytes peak = peak_of(program);
  EXPECT_EQ(of(peak, Category::activation), Bytes(256));
  EXPECT_EQ(of(peak, Category::workspace), Bytes(100));
}

TEST(PeakMemory, TheHostsMemoryDoesNotCount) {
  Program program = tiny_program();
  program.pools[1].space = MemorySpace::host;
  EXPECT_EQ(of(peak_of(program), Category::activation), Bytes(0));
}

}  // namespace
}  // namespace mfsdp
