// An activation that goes to the host's memory and back: proof and checker follow it there, and
// find every copy that brings something else, or comes at a wrong time.
#include "tests/support/offload.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "core/plan/check.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/configurations.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

const std::string kMoved = "layers.0.gate_up";

Program usual(std::int64_t microbatches) {
  PlanConfig config = test::small_config(2);
  config.microbatches = microbatches;
  return build_program(config, {}).value();
}

/// The first error of the proof, with its rule, or nothing.
std::string error_of(const Program& program) {
  const Proof proof = prove(program).value();
  for (const Finding& finding : proof.findings)
    if (is_error(finding.rule)) return finding.rule + ": " + finding.message;
  return {};
}

using Ops = std::vector<Op>;

/// The first op of that kind and name.
Ops::iterator find(Ops& ops, OpKind kind, const std::string& name) {
  return std::ranges::find_if(ops,
                              [&](const Op& op) { return op.kind() == kind && op.name == name; });
}
Copy& copy_of(Ops& ops, const char* direction) {
  return std::get<Copy>(find(ops, OpKind::copy, kMoved + direction)->body);
}
void drop(Ops& ops, OpKind kind, const std::string& name) { ops.erase(find(ops, kind, name)); }

/// Edits of a microbatch's segment, by the fault that they make. `last`: it is the last one.
using Edit = std::function<void(Ops& ops, bool last)>;

const std::map<std::string, Edit> kWrong{
    {"leaves before it is made", [](Ops& ops, bool) { drop(ops, OpKind::wait, kMoved + ".used"); }},
    {"is released before it is away",
     [](Ops& ops, bool) { drop(ops, OpKind::wait, kMoved + ".away"); }},
    {"comes back before there is room",
     [](Ops& ops, bool) { drop(ops, OpKind::wait, kMoved + ".room"); }},
    {"is read before it is back",
     [](Ops& ops, bool) { drop(ops, OpKind::wait, kMoved + ".back"); }},
    {"never comes back", [](Ops& ops, bool) { drop(ops, OpKind::copy, kMoved + ".h2d"); }},
    {"comes back as an earlier microbatch's",
     [](Ops& ops, bool last) {
       if (last) drop(ops, OpKind::copy, kMoved + ".d2h");
     }},
    {"leaves in part",
     [](Ops& ops, bool) {
       for (Operand* operand : {&copy_of(ops, ".d2h").input, &copy_of(ops, ".d2h").output})
         operand->shape[0] /= 2;
     }},
    {"comes back in part",
     [](Ops& ops, bool) {
       for (Operand* operand : {&copy_of(ops, ".h2d").input, &copy_of(ops, ".h2d").output})
         operand->shape[0] /= 2;
     }},
    {"comes back with its halves exchanged",
     [](Ops& ops, bool last) {
       const auto first = find(ops, OpKind::copy, kMoved + ".h2d");
       Op second = *first;
       second.id = OpId(last ? 1'000'001 : 1'000'000);
       auto& a = std::get<Copy>(first->body);
       auto& b = std::get<Copy>(second.body);
       const std::int64_t half = a.input.shape[0] / 2;
       for (Operand* operand : {&a.input, &a.output, &b.input, &b.output}) operand->shape[0] = half;
       a.input.offset = b.output.offset = half * size_of(a.input.dtype);
       ops.insert(first + 1, second);
     }},
    {"comes back in another direction's stream",
     [](Ops& ops, bool) {
       const StreamId away = find(ops, OpKind::copy, kMoved + ".d2h")->stream;
       find(ops, OpKind::copy, kMoved + ".h2d")->stream = away;
     }},
};

TEST(Offload, IsProvedAndAccepted) {
  for (const std::int64_t microbatches : {1, 2, 4}) {
    const Program program = test::with_offload(usual(microbatches), kMoved);
    ASSERT_TRUE(check_structure(program)) << check_structure(program).error().message();
    EXPECT_EQ(error_of(program), "");
    EXPECT_EQ(test::checker_refusal(program), "");
  }
}

TEST(Offload, OfTheWrongInstanceOrderOrRangeIsFound) {
  const Program right = test::with_offload(usual(2), kMoved);
  for (const auto& [what, edit] : kWrong) {
    Program program = right;
    std::vector<Segment>& segments = program.plans[0].segments;
    const auto uses = [&](Segment& segment) {
      return find(segment.ops, OpKind::copy, kMoved + ".h2d") != segment.ops.end();
    };
    ASSERT_EQ(std::ranges::count_if(segments, uses), 2);
    bool last = false;
    for (Segment& segment : segments)
      if (uses(segment)) edit(segment.ops, std::exchange(last, true));
    EXPECT_NE(error_of(program), "") << what;
    EXPECT_NE(test::checker_refusal(program), "") << what;
  }
}

/// Two layers in one place of the host: the first that leaves is gone.
TEST(Offload, OfTwoLayersNeedsTwoPlaces) {
  const std::string other = "layers.1.gate_up";
  Program program = test::with_offload(test::with_offload(usual(1), kMoved), other);
  EXPECT_EQ(error_of(program), "");
  EXPECT_EQ(test::checker_refusal(program), "");
  const auto host_of = [&](const std::string& name) {
    return std::ranges::find(program.buffers, name + ".host", &Buffer::name)->id;
  };
  for (Segment& segment : program.plans[0].segments)
    for (Op& op : segment.ops)
      if (auto* copy = std::get_if<Copy>(&op.body))
        for (Operand* operand : {&copy->input, &copy->output})
          if (operand->buffer == host_of(other)) operand->buffer = host_of(kMoved);
  EXPECT_NE(error_of(program), "");
  EXPECT_NE(test::checker_refusal(program), "");
}

}  // namespace
}  // namespace mfsdp
