// Large plans are proved on two threads. Here small ones are, so that ThreadSanitizer sees them.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <future>  // as prove() does: the tests of this folder start threads
#include <limits>

#include "core/schedule/build.hpp"
#include "tests/support/random_configurations.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

/// Drops or doubles an op, or spoils a number of a kernel.
void edit(Program& program) {
  auto& segments = program.plans[0].segments;
  auto& ops = segments[*rc::gen::inRange<std::size_t>(0, segments.size())].ops;
  const auto at = ops.begin() + *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(ops));
  if (auto* kernel = std::get_if<Kernel>(&at->body);
      kernel != nullptr && !kernel->attributes.empty() && *rc::gen::arbitrary<bool>()) {
    kernel->attributes[0].value.num = 1 - kernel->attributes[0].value.num;
  } else if (*rc::gen::arbitrary<bool>()) {
    ops.erase(at);
  } else {
    Op again = *at;
    again.id = OpId(1'000'000);
    ops.insert(at, std::move(again));
  }
}

RC_GTEST_PROP(TwoThreads, FindWhatOneFinds, ()) {
  auto program = build_program(*test::any_config(), {});
  RC_ASSERT(program.has_value());
  if (*rc::gen::inRange(0, 4) != 0) edit(*program);
  const auto one = prove(*program, {.expand_ranks = true, .ops_for_two_threads = kNever});
  const auto two = prove(*program, {.expand_ranks = true, .ops_for_two_threads = 0});
  RC_ASSERT(one.has_value());
  RC_CLASSIFY(!one->findings.empty(), "findings");
  RC_ASSERT(*one == *two);
}

/// The second thread's error is the caller's.
TEST(TwoThreads, AnErrorComesBack) {
  auto program = build_program(test::small_config(), {});
  for (Op& op : program->plans[0].segments[0].ops)
    if (auto* kernel = std::get_if<Kernel>(&op.body);
        kernel != nullptr && kernel->kind == KernelKind::cross_entropy)
      for (Attribute& attribute : kernel->attributes)
        if (attribute.name == "rows")
          attribute.value.num = std::numeric_limits<std::int64_t>::max();
  const auto one = prove(*program, {.ops_for_two_threads = kNever});
  const auto two = prove(*program, {.ops_for_two_threads = 0});
  ASSERT_FALSE(one.has_value());
  ASSERT_FALSE(two.has_value());
  EXPECT_EQ(one.error().message(), two.error().message());
}

}  // namespace
}  // namespace mfsdp
