// An operand of any op that reads, moved to bytes that nothing writes: both proofs refuse the plan.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/support/random_edits.hpp"
#include "tests/support/samples.hpp"
#include "verify/checker/check_certificate.hpp"
#include "verify/proof/certificate.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

/// The position of an operand in a plan.
struct Place {
  std::size_t plan = 0;
  std::size_t segment = 0;
  std::size_t op = 0;
  std::size_t operand = 0;
};

std::vector<Op>& ops_of(Program& program, const Place& at) {
  return program.plans[at.plan].segments[at.segment].ops;
}

/// Operands whose bytes an op reads, whatever it does with them.
std::vector<Place> reading_operands(Program program) {
  std::vector<Place> places;
  for (std::size_t p = 0; p < program.plans.size(); ++p)
    for (std::size_t s = 0; s < program.plans[p].segments.size(); ++s)
      for (std::size_t o = 0; o < program.plans[p].segments[s].ops.size(); ++o) {
        const auto operands = test::operands_of(program.plans[p].segments[s].ops[o]);
        for (std::size_t i = 0; i < operands.size(); ++i) {
          const Operand& operand = *operands[i];
          const bool reads = operand.access == Access::read || operand.access == Access::read_write;
          if (operand.stated() && reads && operand.span_bytes() > 0) places.push_back({p, s, o, i});
        }
      }
  return places;
}

enum class Unwritten {
  behind_its_buffer,  ///< which is made twice as large
  kept_buffer,        ///< of its own, which lives for the whole run and holds nothing
  acquired_buffer     ///< of its own, which lives for this op alone
};
constexpr std::array kWays{Unwritten::behind_its_buffer, Unwritten::kept_buffer,
                           Unwritten::acquired_buffer};

std::int64_t aligned(std::int64_t bytes, const Pool& pool) {
  const std::int64_t unit = std::max<std::int64_t>(pool.alignment, 1);
  return (bytes + unit - 1) / unit * unit;
}

/// The buffer lies at the end of its pool from now on.
void move_to_end(Buffer& buffer, Pool& pool) {
  buffer.offset.value = aligned(pool.height.value, pool);
  pool.height.value = buffer.offset.value + aligned(buffer.size.value, pool);
}

void move_to_unwritten(Program& program, const Place& at, Unwritten way) {
  Op& op = ops_of(program, at)[at.op];
  Operand& operand = *test::operands_of(op)[at.operand];
  Buffer& old = program.buffers[operand.buffer.value];
  if (way == Unwritten::behind_its_buffer) {
    operand.offset += old.size.value;
    old.size.value *= 2;
    return move_to_end(old, program.pools[old.pool.value]);
  }
  Buffer made = old;
  made.id = BufferId(static_cast<std::uint32_t>(program.buffers.size()));
  made.name += ".unwritten";
  made.holds.reset();
  made.slot_class.reset();
  made.persistent = way == Unwritten::kept_buffer;
  operand.buffer = made.id;
  if (made.persistent) {
    move_to_end(made, program.pools[made.pool.value]);
    program.buffers.push_back(made);
    return;
  }
  Pool pool = program.pools[made.pool.value];
  pool.id = PoolId(static_cast<std::uint32_t>(program.pools.size()));
  pool.name += ".unwritten";
  pool.height.value = aligned(made.size.value, pool);
  pool.lower_bound = pool.height;
  made.pool = pool.id;
  made.offset.value = 0;
  program.pools.push_back(pool);
  program.buffers.push_back(made);
  Op acquire = op;
  acquire.id = OpId(1'000'000);
  acquire.body = Acquire{.buffer = made.id};
  Op release = acquire;
  release.id = OpId(1'000'001);
  release.body = Release{.buffer = made.id};
  std::vector<Op>& ops = ops_of(program, at);
  const auto before = ops.begin() + static_cast<std::ptrdiff_t>(at.op);
  ops.insert(before + 1, release);
  ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(at.op), acquire);
}

/// Positions of operands by kind of op, role and phase.
std::map<std::string, std::vector<Place>> by_kind(Program program) {
  std::map<std::string, std::vector<Place>> kinds;
  for (const Place& at : reading_operands(program)) {
    Op& op = ops_of(program, at)[at.op];
    const auto* kernel = std::get_if<Kernel>(&op.body);
    const std::string_view what =
        kernel == nullptr ? to_string(op.kind()) : to_string(kernel->kind);
    const std::string& role = test::operands_of(op)[at.operand]->role;
    kinds[fmt::format("{} {} {} of {}", what, static_cast<int>(op.phase), role, at.plan)].push_back(
        at);
  }
  return kinds;
}

std::string in_words(Program program, const Place& at, Unwritten way) {
  const Op& op = ops_of(program, at)[at.op];
  Op named = op;
  return fmt::format("{}, operand '{}', way {}", op.name,
                     test::operands_of(named)[at.operand]->role, static_cast<int>(way));
}

/// The name of what accepts the plan, prover or checker; empty if both refuse it.
std::string passes(const Program& program) {
  const auto proof = prove(program);
  std::string who;
  if (proof && std::ranges::none_of(proof->findings,
                                    [](const Finding& finding) { return is_error(finding.rule); }))
    who += "the proof ";
  if (check_certificate(to_canonical_json(program), unproved_certificate(program).value()))
    who += "the checker ";
  return who;
}

/// Operands of every kind of a plan of two ranks, in every way: among them the parts of the norm,
/// of which a replica's would begin after those that were gathered.
TEST(UnwrittenBytes, NoOperandOfAPlanIsReadFromThem) {
  const Program built = build_program(test::small_config(2, 1), {}).value();
  const auto kinds = by_kind(built);
  EXPECT_GT(kinds.size(), 40);
  test::Sample sample;
  for (const auto& [kind, places] : kinds)
    for (const Unwritten way : kWays) {
      if (!sample.takes_next()) continue;
      Program program = built;
      move_to_unwritten(program, places.front(), way);
      EXPECT_EQ(passes(program), "") << in_words(built, places.front(), way);
    }
}

/// The report brings its evaluation's loss alone: the norm beside it is another plan's.
TEST(UnwrittenBytes, OnlyTheReportMayBePartlyAnotherPlans) {
  Program program = build_program(test::small_config(2), {}).value();
  EXPECT_EQ(passes(program), "the proof the checker ");
  std::ranges::find(program.buffers, std::optional(Port::report), [](const Buffer& buffer) {
    return buffer.holds ? buffer.holds->port : std::optional<Port>();
  })->holds.reset();
  EXPECT_EQ(passes(program), "");
}

RC_GTEST_PROP(UnwrittenBytes, AreNeverRead, ()) {
  const auto built = build_program(*test::any_config(), {});
  RC_ASSERT(built.has_value());
  std::vector<std::vector<Place>> kinds;
  for (auto& [kind, places] : by_kind(*built)) kinds.push_back(std::move(places));
  for (int i = 0; i < test::cases(2); ++i) {
    const Place at = test::any_of(test::any_of(kinds));
    const Unwritten way = *rc::gen::elementOf(kWays);
    Program program = *built;
    move_to_unwritten(program, at, way);
    const std::string who = passes(program);
    if (!who.empty()) RC_FAIL(who + "lets pass: " + in_words(*built, at, way));
  }
}

}  // namespace
}  // namespace mfsdp
