#include "core/plan/check.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/tiny_program.hpp"

namespace mfsdp {
namespace {

/// The error of check_structure for the tiny program after an edit.
std::string complaint(const std::function<void(Program&)>& edit) {
  Program program = test::tiny_program();
  edit(program);
  const auto checked = check_structure(program);
  return checked ? "" : checked.error().message();
}

std::vector<Op>& ops(Program& program) { return program.plans[0].segments[0].ops; }

TEST(CheckStructure, AcceptsAGoodProgram) {
  EXPECT_EQ(complaint([](Program&) {}), "");
}

TEST(CheckStructure, AcceptsIdsWithGaps) {
  EXPECT_EQ(complaint([](Program& p) { ops(p).back().id = OpId(900); }), "");
}

TEST(CheckStructure, RefusesIdsThatAppearTwice) {
  EXPECT_EQ(complaint([](Program& p) { p.buffers[1].id = BufferId(0); }),
            "buffers[1].id: id 0 appears twice");
  EXPECT_EQ(complaint([](Program& p) { ops(p)[3].id = OpId(0); }),
            "plans[0].segments[0].ops[3].id: id 0 appears twice");
}

TEST(CheckStructure, RefusesReferencesToNothing) {
  EXPECT_EQ(complaint([](Program& p) { std::get<Acquire>(ops(p)[0].body).buffer = BufferId(9); }),
            "plans[0].segments[0].ops[0].body.acquire.buffer: there is no buffer with id 9");
  EXPECT_EQ(complaint([](Program& p) { ops(p)[0].unit = UnitId(5); }),
            "plans[0].segments[0].ops[0].unit: there is no unit with id 5");
  EXPECT_EQ(complaint([](Program& p) { p.buffers[0].pool = PoolId(7); }),
            "buffers[0].pool: there is no pool with id 7");
  EXPECT_EQ(
      complaint([](Program& p) {
        std::get<Collective>(ops(p)[1].body).communicator = CommunicatorId(3);
      }),
      "plans[0].segments[0].ops[1].body.collective.communicator: there is no communicator with "
      "id 3");
}

TEST(CheckStructure, RefusesWhatTheConfigurationDenies) {
  EXPECT_EQ(complaint([](Program& p) { p.communicators[0].size = 1000000; }),
            "communicators[0].size: expected 2 as config.mesh has on its axes, got 1000000");
  EXPECT_EQ(complaint([](Program& p) { p.classes[0].ranks = 5; }),
            "classes: hold 5 ranks where config.mesh has 2");
  EXPECT_EQ(complaint([](Program& p) { p.config.microbatches = 5; }),
            "config.microbatches: expected 1 as the segments of plan \"train\" have, got 5");
  // Vocabulary 24 -> 25: one more row of 8 in the embedding and in the head.
  EXPECT_EQ(complaint([](Program& p) { p.config.model.vocab = 25; }),
            "groups: hold 1384 parameters where config.model has 1400");
}

TEST(CheckStructure, RefusesMemoryOutOfBounds) {
  // 768 + 256 bytes end at 1024, the pool's height; 1024 + 256 do not.
  EXPECT_EQ(complaint([](Program& p) { p.buffers[2].offset = Bytes(768); }), "");
  EXPECT_EQ(complaint([](Program& p) { p.buffers[2].offset = Bytes(1024); }),
            "buffers[2]: ends at byte 1280 of pool 'memory', which has 1024 bytes");
  EXPECT_EQ(complaint([](Program& p) { p.buffers[2].offset = Bytes(8); }),
            "buffers[2].offset: expected a multiple of 256");
}

TEST(CheckStructure, RefusesOperandsOutOfBoundsOnAnyRank) {
  EXPECT_EQ(complaint([](Program& p) { std::get<Kernel>(ops(p)[5].body).operands[0].offset = 2; }),
            "plans[0].segments[0].ops[5].body.kernel.operands[0]: ends at byte 258 of buffer "
            "'weights', which has 256 bytes");
  // Rank 1 of 2 reads 64 elements from byte 130 on: 130 + 128 = 258.
  EXPECT_EQ(complaint([](Program& p) {
              Operand& input = std::get<Kernel>(ops(p)[5].body).operands[0];
              input.shape = {64};
              input.rank_strides = {{.axis = Axis::dp_shard, .bytes = 130}};
            }),
            "plans[0].segments[0].ops[5].body.kernel.operands[0]: ends at byte 258 of buffer "
            "'weights', which has 256 bytes");
}

TEST(CheckStructure, RefusesWaitsThatBindToTheWrongOp) {
  EXPECT_EQ(
      complaint([](Program& p) { std::get<Wait>(ops(p)[3].body).bindings[0].record = OpId(7); }),
      "plans[0].segments[0].ops[3].body.wait.bindings[0].record: op 7 does not record event "
      "0 in this plan");
  EXPECT_EQ(complaint([](Program& p) { std::get<Wait>(ops(p)[3].body).bindings.clear(); }),
            "plans[0].segments[0].ops[3].body.wait.bindings: expected at least one record");
}

TEST(CheckStructure, RefusesGroupsThatDoNotNest) {
  EXPECT_EQ(complaint([](Program& p) {
              ops(p).back().body = GroupBegin{.communicator = CommunicatorId(0)};
            }),
            "plans[0].segments[0]: op 9 (group_begin) has no group_end in its segment");
  EXPECT_EQ(
      complaint([](Program& p) { ops(p)[0].body = GroupEnd{.communicator = CommunicatorId(0)}; }),
      "plans[0].segments[0].ops[0]: group_end without a group_begin before it");
}

TEST(CheckStructure, RefusesSegmentsThatDoNotMeet) {
  EXPECT_EQ(complaint([](Program& p) { p.plans[0].segments[0].live_out = {BufferId(1)}; }),
            "plans[0].segments[0].live_out: differs from live_in of segment 'only'");
}

TEST(CheckStructure, RefusesWhatCannotLiveAcrossABoundary) {
  const auto live = [](std::size_t buffer) {
    return complaint([buffer](Program& p) {
      Segment& segment = p.plans[0].segments[0];
      segment.live_in = segment.live_out = {BufferId(buffer)};
    });
  };
  EXPECT_EQ(live(1), "");
  EXPECT_EQ(live(0),
            "plans[0].segments[0].live_in[0]: buffer 0 is persistent; expected a transient one");
  EXPECT_EQ(live(9), "plans[0].segments[0].live_in[0]: there is no buffer with id 9");
}

TEST(CheckStructure, RefusesGroupsWithMoreThanTheyHold) {
  const auto with = [](std::vector<std::int64_t> offsets) {
    return complaint([&](Program& p) {
      Group group;
      group.elements = 16;
      group.optimizer = Optimizer::adamw;
      group.cut = {Axis::dp_shard};
      group.weight = group.gradient = group.state = {{.axis = Axis::dp_shard}};
      for (const std::int64_t offset : offsets) {
        group.parameters.emplace_back();
        group.parameters.back().shape = {2, 4};
        group.parameters.back().offset = offset;
      }
      p.groups = {group};
    });
  };
  // 8 + 2 * 4 = 16: they fit, and are found to be another model's.
  EXPECT_EQ(with({0, 8}), "groups: hold 16 parameters where config.model has 1384");
  EXPECT_EQ(with({0, 9}), "groups[0].parameters[1]: ends outside its group");
  EXPECT_EQ(with({0, 4, 8}), "groups[0].parameters: hold more elements than their group");
}

TEST(CheckStructure, RefusesCommunicatorsWithAnAxisTwice) {
  EXPECT_EQ(complaint([](Program& p) {
              p.communicators[0].axes = {Axis::dp_shard, Axis::dp_shard};
              p.communicators[0].size = 4;
            }),
            "communicators[0].axes[0]: dp_shard is repeated");
  // An axis of one rank counts for nothing.
  EXPECT_EQ(
      complaint([](Program& p) { p.communicators[0].axes = {Axis::dp_outer, Axis::dp_shard}; }),
      "");
}

/// The error for the first parameter of the tiny program, the embedding's, after an edit.
std::string complaint_of_parameter(const std::function<void(PlacedParameter&)>& edit) {
  return complaint([&](Program& p) { edit(p.groups[0].parameters[0]); });
}

TEST(CheckStructure, RefusesParametersThatAreNotTheModels) {
  const std::string name = test::tiny_program().groups[0].parameters[0].name;
  EXPECT_EQ(complaint_of_parameter([](PlacedParameter& p) { p.name = "other"; }),
            "groups[0].parameters[0].name: config.model has no (other) parameter 'other'");
  EXPECT_EQ(complaint_of_parameter([](PlacedParameter& p) { p.role = ParameterRole::final_norm; }),
            "groups[0].parameters[0].role: expected embedding, as config.model has '" + name +
                "', got final_norm");
  EXPECT_EQ(complaint_of_parameter([](PlacedParameter& p) { p.shape = {8, 24}; }),
            "groups[0].parameters[0].shape: expected [24, 8], as config.model has '" + name +
                "', got [8, 24]");
  EXPECT_EQ(complaint_of_parameter([](PlacedParameter& p) { p.decay = !p.decay; }),
            "groups[0].parameters[0].decay: expected true of '" + name + "', got false");
}

/// Names of its own do not make another model of it.
TEST(CheckStructure, RefusesRenamedParametersThatAreNotTrainedAsConfigured) {
  const auto renamed = [](const std::function<void(Program&)>& edit) {
    return complaint([&](Program& program) {
      for (Group& group : program.groups)
        for (PlacedParameter& parameter : group.parameters) parameter.name.insert(0, "my.");
      edit(program);
    });
  };
  EXPECT_EQ(renamed([](Program&) {}), "");
  const std::string name = test::tiny_program().groups[0].parameters[0].name;
  EXPECT_EQ(
      renamed([&](Program& program) { program.config.frozen = {name}; }),
      "groups[0].requires_grad: expected false of 'my." + name + "', as config.freeze has it");
  EXPECT_EQ(renamed([](Program& program) { program.groups[0].parameters[0].decay ^= true; }),
            "groups[0].parameters[0].decay: expected true of 'my." + name + "', got false");
  // With other roles it is another model, of which nothing is configured.
  EXPECT_EQ(renamed([&](Program& program) {
              program.groups[0].parameters[0].role = ParameterRole::router;
              program.config.frozen = {name};
            }),
            "");
}

TEST(CheckStructure, RefusesUnitsThatAreNotTheModels) {
  EXPECT_EQ(complaint([](Program& p) { p.units[1].position = INT64_MAX; }),
            "units[1].position: expected 0 to 3, as config.model has, got 9223372036854775807");
  EXPECT_EQ(complaint([](Program& p) { p.units[1].position = 0; }),
            "units[1].position: 0 appears twice");
  EXPECT_EQ(complaint([](Program& p) { std::swap(p.units[0].position, p.units[3].position); }),
            "units[0].kind: expected head, as config.model has at position 3, got embedding");
  EXPECT_EQ(complaint([](Program& p) { std::swap(p.units[0], p.units[2]); }), "");
  EXPECT_EQ(complaint([](Program& p) { std::swap(p.groups[0].unit, p.groups[2].unit); }),
            "groups[0].unit: expected the unit of position 0, as config.model has "
            "'model.embed_tokens.weight', got that of 2");
}

TEST(CheckStructure, RefusesTwoPlansOfOneName) {
  EXPECT_EQ(complaint([](Program& p) { p.plans.push_back({.name = "train", .segments = {}}); }),
            "plans[1].name: 'train' appears twice");
}

TEST(CheckStructure, RefusesAParameterTwiceAndGroupsThatAreFrozenOtherwise) {
  // The two norms of a block have one shape: the elements stay as many.
  const std::string input_norm = "model.layers.0.input_layernorm.weight";
  const std::string said = complaint([&](Program& p) {
    for (PlacedParameter& parameter : p.groups[1].parameters)
      if (parameter.role == ParameterRole::post_norm) {
        parameter.name = input_norm;
        parameter.role = ParameterRole::input_norm;
      }
  });
  EXPECT_TRUE(said.ends_with("].name: config.model has no (other) parameter '" + input_norm + "'"))
      << said;
  EXPECT_EQ(complaint([](Program& p) {
              p.groups[0].requires_grad = false;
              p.groups[0].optimizer.reset();
            }),
            "groups[0].requires_grad: expected true of '" +
                test::tiny_program().groups[0].parameters[0].name + "', as config.freeze has it");
}

TEST(CheckStructure, RefusesAnOptimizerWithoutGradientsAndGradientsWithoutOne) {
  const auto with = [](bool requires_grad, std::optional<Optimizer> optimizer) {
    return complaint([&](Program& p) {
      Group group;
      group.requires_grad = requires_grad;
      group.optimizer = optimizer;
      p.groups = {group};
    });
  };
  EXPECT_EQ(with(true, {}), "groups[0].optimizer: missing");
  EXPECT_EQ(with(true, Optimizer::sgd),
            "groups[0].optimizer: expected adamw, as config.optimizer has, got sgd");
  EXPECT_EQ(with(false, Optimizer::sgd),
            "groups[0].optimizer: expected none where requires_grad is false");
}

TEST(CheckStructure, RefusesHordesOfStreamsAndSegments) {
  EXPECT_EQ(complaint([](Program& p) {
              for (std::size_t id = 2; id < 64; ++id) p.streams.push_back({.id = StreamId(id)});
            }),
            "streams: expected at most 63, got 64");
  const auto segments = [](std::size_t count) {
    return complaint([count](Program& p) {
      Segment empty;
      empty.name = "empty";
      empty.microbatches = 1;
      p.plans[0].segments.resize(count, empty);
      p.config.microbatches = static_cast<std::int64_t>(count);
    });
  };
  EXPECT_EQ(segments(64), "");
  EXPECT_EQ(segments(65), "plans[0].segments: expected at most 64, got 65");
}

TEST(CheckStructure, RefusesPoolsThatAreTooHighInAll) {
  const std::string said = complaint([](Program& p) {
    p.pools[0].height = Bytes(std::int64_t{1} << 59);
    Pool more = p.pools[0];
    more.id = PoolId(77);
    more.height = Bytes((std::int64_t{1} << 59) + 1);
    p.pools.push_back(more);
  });
  EXPECT_NE(said.find("].height: expected at most 2^60 bytes in all pools, got "), said.npos)
      << said;
}

TEST(CheckStructure, RefusesAnEvaluationOfSeveralMicrobatches) {
  EXPECT_EQ(complaint([](Program& p) {
              Segment evaluates;
              evaluates.repeat = 3;
              evaluates.microbatches = 1;
              p.plans.push_back({.name = "eval", .segments = {evaluates}});
            }),
            "plans: the segments of plan \"eval\" have 3 microbatches, expected one");
}

TEST(CheckStructure, RefusesStatesThatTheOptimizerDoesNotKeep) {
  EXPECT_EQ(complaint([](Program& p) {
              p.buffers[0].holds = Contents{.kind = ContentKind::optimizer_state,
                                            .groups = {{.group = GroupId(0)}},
                                            .state = "momentum"};
            }),
            "buffers[0].holds.state: adamw keeps no state 'momentum'");
}

TEST(CheckStructure, RefusesSizesThatOverflow) {
  const std::string said = complaint([](Program& p) {
    std::get<Kernel>(ops(p)[5].body).operands[0].shape = {std::int64_t{1} << 62, 8};
  });
  EXPECT_EQ(
      said,
      "plans[0].segments[0].ops[5].body.kernel.operands[0]: a size or an offset needs more than 63 "
      "bits");
}

/// Plans that no tool computes are refused, even if only a label differs.
TEST(CheckStructure, RefusesAxesThatHaveNoMeaning) {
  const auto renamed = [](Axis axis) {
    return complaint([axis](Program& p) {
      p.config.mesh.dense[0].axis = axis;
      p.communicators[0].axes = {axis};
      for (Group& group : p.groups) {
        group.cut = group.reduce = {axis};
        group.weight = group.gradient = group.state = {{.axis = axis}};
      }
    });
  };
  EXPECT_EQ(renamed(Axis::tp), "config.mesh: has ranks on tp, but no group is cut along tp");
  EXPECT_EQ(renamed(Axis::pp),
            "classes: expected one for each of the 2 stages on pp of config.mesh, at its index, "
            "with a plan of its own");
}

TEST(CheckStructure, RefusesClassesThatShareRanks) {
  const auto with_classes = [](std::vector<RankClass> classes) {
    return complaint([&](Program& p) { p.classes = classes; });
  };
  const auto at = [](std::int64_t index) {
    return RankClass{.role = "half", .ranks = 1, .at = {{.axis = Axis::dp_shard, .index = index}}};
  };
  EXPECT_EQ(with_classes({at(0), at(1)}), "");
  EXPECT_EQ(with_classes({at(0), at(0)}), "classes[1].at: shares ranks with class 0");
  EXPECT_EQ(with_classes({at(0)}), "classes: hold 1 ranks where config.mesh has 2");
  // Without a place each of them would be all of the mesh.
  EXPECT_EQ(with_classes({{.role = "a", .ranks = 1}, {.role = "b", .ranks = 1}}),
            "classes[0].ranks: expected 2 by its place in the mesh, got 1");
  EXPECT_EQ(with_classes({{.role = "a", .ranks = 2}, {.role = "b", .ranks = 2}}),
            "classes[1].at: shares ranks with class 0");
}

TEST(CheckStructure, RefusesAPoolThatIsAcquiredOnTwoStreams) {
  const auto in_one_pool = [](StreamId other) {
    return complaint([other](Program& p) {
      p.buffers[2].pool = PoolId(0);
      p.buffers[2].offset = Bytes(512);
      ops(p)[4].stream = other;
    });
  };
  EXPECT_EQ(in_one_pool(StreamId(1)), "");
  EXPECT_EQ(in_one_pool(StreamId(0)),
            "plans[0].segments[0].ops[4].stream: buffer 'activation' is acquired on stream 0, "
            "others of pool 'memory' on stream 1: expected one stream for all of a pool");
}

TEST(CheckStructure, RefusesCostsThatAKernelDoesNotHave) {
  const auto with_flops = [](std::int64_t flops) {
    return complaint([flops](Program& p) { std::get<Kernel>(ops(p)[5].body).flops = flops; });
  };
  EXPECT_EQ(with_flops(0), "");  // a cast
  EXPECT_EQ(
      with_flops(INT64_MAX),
      "plans[0].segments[0].ops[5].body.kernel.flops: expected 0 or the 0 of its attributes, got "
      "9223372036854775807");
  const auto with_bytes = [](std::int64_t bytes) {
    return complaint(
        [bytes](Program& p) { std::get<Kernel>(ops(p)[5].body).attributes = {{"bytes", bytes}}; });
  };
  EXPECT_EQ(with_bytes(std::int64_t{1} << 50), "");
  EXPECT_EQ(with_bytes((std::int64_t{1} << 50) + 1),
            "plans[0].segments[0].ops[5].body.kernel.attributes: expected bytes of at most 2^50, "
            "got 1125899906842625");
}

/// Empty runs count too: a host would go round for ever.
TEST(CheckStructure, RefusesStepsOfHordesOfOps) {
  const auto with_runs = [](std::int64_t repeat) {
    return complaint([repeat](Program& p) { p.plans[0].segments.emplace_back().repeat = repeat; });
  };
  EXPECT_EQ(with_runs(1 << 20), "");
  EXPECT_EQ(with_runs(std::int64_t{1} << 40),
            "plans[0].segments[1].repeat: expected steps of at most 134217728 ops, got more");
}

TEST(CheckStructure, RefusesALimitOfTheNormThatNoFlagCanSay) {
  const auto with_clip = [](Rational clip) {
    return complaint([clip](Program& p) { p.config.clip = clip; });
  };
  EXPECT_EQ(with_clip({1, 4}), "");
  EXPECT_EQ(with_clip({1'000'000'000'000'000'000, 1}), "");
  EXPECT_EQ(with_clip({INT64_MAX, INT64_MAX - 1}),
            "config.clip: expected a number of at least 0 (0 switches clipping off) with "
            "at most 18 digits, got 9223372036854775807/9223372036854775806");
}

/// Rows are placed in a group by config.layout.
TEST(CheckStructure, RefusesGroupsThatAreLaidOutOtherwise) {
  for (const LayoutRule made : {LayoutRule::packed, LayoutRule::megatron_fsdp}) {
    Program program = test::tiny_program();
    program.config.layout = made;
    program.groups = make_groups(make_model(program.config), program.config);
    EXPECT_TRUE(check_structure(program));
    program.config.layout =
        made == LayoutRule::packed ? LayoutRule::megatron_fsdp : LayoutRule::packed;
    const auto checked = check_structure(program);
    ASSERT_FALSE(checked);
    EXPECT_NE(checked.error().message().find("config.layout"), std::string::npos)
        << checked.error().message();
  }
}

}  // namespace
}  // namespace mfsdp
