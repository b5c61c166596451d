#include "core/runtime/metered_backend.hpp"

#include <gtest/gtest.h>

#include <list>
#include <vector>

#include "core/runtime/interpreter.hpp"
#include "tests/support/tiny_program.hpp"

namespace mfsdp {
namespace {

/// Memory, and nothing else.
class Quiet final : public Backend {
 public:
  Result<std::byte*> allocate(const Pool& pool) override {
    if (full) return fail(pool.name, "there is no memory", Fault::environment);
    return memory.emplace_back(static_cast<std::size_t>(pool.height.value)).data();
  }
  Result<void> issue(const BoundOp&, std::int64_t) override {
    ++issued;
    return {};
  }
  Result<void> record(const BoundOp&, std::int64_t, std::int64_t) override { return {}; }
  Result<void> wait(const BoundOp&, std::int64_t, std::int64_t) override { return {}; }
  Result<void> host_wait(const BoundOp&, std::int64_t, std::size_t, std::int64_t) override {
    return {};
  }
  Result<void> synchronise() override { return {}; }
  std::vector<OpTiming> take_timings() override { return {}; }

  std::list<std::vector<std::byte>> memory;
  int issued = 0;
  bool full = false;
};

Bytes at(const MeteredMemory& memory, Category category) {
  return memory.categories.at(static_cast<std::size_t>(category));
}

/// A shard of 64 bf16 all the time; 128 gathered, then 128 of an activation beside them.
TEST(MeteredBackend, CountsWhatIsLiveAtThePeak) {
  const Program program = test::tiny_program();
  Quiet quiet;
  MeteredBackend metered(program, quiet);
  EXPECT_EQ(metered.memory().peak, Bytes(128));
  const auto interpreter = Interpreter::create(program, metered, 0).value();
  ASSERT_TRUE(interpreter->run("train", 2));
  const MeteredMemory& memory = metered.memory();
  EXPECT_EQ(memory.allocations, (std::vector<Bytes>{Bytes(1024), Bytes(1024)}));
  EXPECT_EQ(memory.allocated, Bytes(2048));
  EXPECT_EQ(memory.peak, Bytes(128 + 256 + 256));
  EXPECT_EQ(at(memory, Category::model_weight), Bytes(128));
  EXPECT_EQ(at(memory, Category::unsharded_weight), Bytes(256));
  EXPECT_EQ(at(memory, Category::activation), Bytes(256));
  EXPECT_EQ(memory.peak_buffer, "activation");
  EXPECT_EQ(quiet.issued, 2 * 6);  // acquires, releases, gather and gemm still run
}

TEST(MeteredBackend, HostMemoryIsNotTheDevices) {
  Program program = test::tiny_program();
  program.pools[1].space = MemorySpace::host;
  Quiet quiet;
  MeteredBackend metered(program, quiet);
  const auto interpreter = Interpreter::create(program, metered, 0).value();
  ASSERT_TRUE(interpreter->run("train", 1));
  EXPECT_EQ(metered.memory().allocations.size(), 2U);
  EXPECT_EQ(metered.memory().allocated, Bytes(1024));
  EXPECT_EQ(metered.memory().peak, Bytes(128 + 256));
}

TEST(MeteredBackend, WhatWasNotAllocatedDoesNotCount) {
  const Program program = test::tiny_program();
  Quiet quiet;
  quiet.full = true;
  MeteredBackend metered(program, quiet);
  EXPECT_FALSE(Interpreter::create(program, metered, 0));
  EXPECT_EQ(metered.memory().allocated, Bytes(0));
  EXPECT_TRUE(metered.memory().allocations.empty());
}

TEST(PeakResidentBytes, GrowWithWhatIsTouched) {
  const Bytes before = peak_resident_bytes().value();
  const std::vector<char> touched(static_cast<std::size_t>(before.value) + (16U << 20U), 1);
  EXPECT_GE(peak_resident_bytes().value().value, std::ssize(touched));
}

}  // namespace
}  // namespace mfsdp
