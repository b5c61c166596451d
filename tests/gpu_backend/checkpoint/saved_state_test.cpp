// Any mesh and strategy reads the save of any other.
#include "gpu_backend/checkpoint/saved_state.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <fstream>
#include <span>

#include "core/runtime/scalar.hpp"
#include "tests/gpu_backend/checkpoint/ranks_at_rest.hpp"
#include "tests/gpu_backend/train/training.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A value for each element of each kind of state: 24 random bits, so that rounding to bf16 shows.
float value_of(const std::string& parameter, std::int64_t kind, std::int64_t element) {
  std::uint64_t bits = std::hash<std::string>()(parameter) + static_cast<std::uint64_t>(kind) * 7;
  bits = (bits ^ static_cast<std::uint64_t>(element)) * 0x9e3779b97f4a7c15U;
  bits = (bits ^ (bits >> 29U)) * 0xbf58476d1ce4e5b9U;
  return static_cast<float>(bits >> 40U) * 0x1p-24F - 0.5F;
}

/// The value as memory of that type has it.
template <class T>
T stored(const std::string& parameter, std::int64_t kind, std::int64_t element, DType main) {
  float value = value_of(parameter, kind, element);
  if (kind == 0 && main == DType::bf16) value = widen(narrow<Bf16>(value));
  return narrow<T>(static_cast<Real<T>>(value));
}

/// Calls visit(value that the element should have, its place) on what the rank holds.
template <class Visit>
void for_each_element(const ParameterPlaces& places, DType main, const Visit& visit) {
  const auto look_at_bytes = [&](const HeldElements& held, std::int64_t kind) {
    for (std::int64_t e = held.elements.begin; e < held.elements.end; ++e)
      visit(static_cast<std::uint8_t>(37 * e + kind),
            reinterpret_cast<std::uint8_t*>(held.data)[e - held.elements.begin]);
  };
  const auto look = [&](const HeldElements& held, std::int64_t kind) {
    if (held.dtype == DType::uint8) return look_at_bytes(held, kind);
    with_floating(held.dtype, [&]<class T>(T) {
      for (std::int64_t e = held.elements.begin; e < held.elements.end; ++e)
        visit(stored<T>(places.parameter->name, kind, e, main),
              reinterpret_cast<T*>(held.data)[e - held.elements.begin]);
    });
  };
  look(places.weight, 0);
  look(places.own, 0);
  for (std::size_t i = 0; i < places.states.size(); ++i)
    look(places.states[i], static_cast<std::int64_t>(i) + 1);
}

void fill(test::Ranks& ranks) {
  for (const auto& parameters : ranks.parameters)
    for (const ParameterPlaces& places : parameters)
      for_each_element(places, ranks.program.config.main_dtype,
                       [](auto value, auto& place) { place = value; });
}

/// Elements that are not as fill() would have made them, bit for bit.
std::int64_t wrong_elements(const test::Ranks& ranks) {
  std::int64_t wrong = 0;
  for (const auto& parameters : ranks.parameters)
    for (const ParameterPlaces& places : parameters)
      for_each_element(places, ranks.program.config.main_dtype, [&](auto value, auto& place) {
        wrong += std::memcmp(&value, &place, sizeof value) == 0 ? 0 : 1;
      });
  return wrong;
}

PlanConfig with_mesh(PlanConfig config, Mesh mesh, Strategy strategy, Strategy outer) {
  config.mesh = mesh;
  config.strategy = strategy;
  config.outer_strategy = mesh.size(Axis::dp_outer) > 1 ? outer : Strategy::no_shard;
  return config;
}

PlanConfig random_layout(const PlanConfig& config) {
  using rc::gen::element;
  const Mesh mesh =
      data_parallel_mesh(*element<std::int64_t>(1, 1, 2, 3), *element<std::int64_t>(1, 2, 3, 5));
  const auto strategy = *element(Strategy::no_shard, Strategy::optim, Strategy::optim_grads,
                                 Strategy::optim_grads_params);
  const auto outer = *element(Strategy::no_shard, Strategy::optim);
  PlanConfig laid = with_mesh(config, mesh, strategy, outer);
  if (!validate(laid)) laid.outer_strategy = Strategy::no_shard;  // HFSDP needs sharding inside
  return laid;
}

RC_GTEST_PROP(SavedState, AnyLayoutReadsWhatAnyOtherSaved, ()) {
  PlanConfig config = test::nano();
  config.main_dtype = *rc::gen::element(DType::fp32, DType::bf16);
  config.optimizer =
      *rc::gen::element(Optimizer::adamw, Optimizer::lion, Optimizer::sgd, Optimizer::muon);
  if (config.optimizer != Optimizer::sgd)
    config.state_dtype =
        *rc::gen::element(StateDtype::full, StateDtype::bf16, StateDtype::blockwise8);
  if (*rc::gen::inRange(0, 3) == 0) config.frozen = {"mlp", "embed_tokens"};
  const PlanConfig from = random_layout(config);
  const PlanConfig to = random_layout(config);
  RC_PRE(validate(from).has_value() && validate(to).has_value());

  const test::ScratchFolder folder;
  test::Ranks writers(from);
  fill(writers);
  Saver saver({.folder = folder / "saves"}, test::identity(from));
  const TrainPosition position = test::position(from, 3);
  const auto saved = writers.save(saver, position);
  if (!saved) RC_FAIL(saved.error().message());

  test::Ranks readers(to);
  const auto state = SavedState::open(folder / "saves");
  if (!state) RC_FAIL(state.error().message());
  RC_ASSERT(state->manifest().position == position);
  RC_ASSERT(state->manifest().run.config == from);
  const auto checked = state->check(expected_state(readers.program));
  if (!checked) RC_FAIL(checked.error().message());
  for (std::int64_t rank = 0; rank < to.mesh.world_size(); ++rank)
    RC_ASSERT(state->fill(readers.at(rank)).has_value());
  RC_ASSERT(wrong_elements(readers) == 0);
}

/// Experts are expert-parallel, and several ranks hold the same experts or the same other
/// parameters.
TEST(SavedState, WhatRanksShareIsWrittenOnce) {
  PlanConfig config = test::nano();
  test::make_family(config.model, Family::olmoe);
  const auto laid = [&](std::int64_t ranks, std::int64_t ep, Strategy strategy, Strategy experts) {
    PlanConfig made = with_mesh(config, data_parallel_mesh(1, ranks), strategy, Strategy::no_shard);
    made.expert_parallel = ep;
    made.mesh = with_expert_grid(made.mesh, ep);
    made.expert_strategy = experts;
    return made;
  };
  PlanConfig alone = laid(1, 0, Strategy::no_shard, Strategy::no_shard);
  alone.expert_strategy.reset();
  for (const PlanConfig& from : {laid(2, 2, Strategy::no_shard, Strategy::no_shard),
                                 laid(4, 2, Strategy::optim_grads_params, Strategy::no_shard),
                                 laid(4, 2, Strategy::no_shard, Strategy::no_shard)}) {
    const auto valid = validate(from);
    ASSERT_TRUE(valid) << valid.error().message();
    const test::ScratchFolder folder;
    test::Ranks writers(from);
    fill(writers);
    Saver saver({.folder = folder / "saves"}, test::identity(from));
    const auto saved = writers.save(saver, test::position(from, 3));
    ASSERT_TRUE(saved) << saved.error().message();
    const auto state = SavedState::open(folder / "saves");
    ASSERT_TRUE(state) << state.error().message();
    test::Ranks reader(alone);
    const auto checked = state->check(expected_state(reader.program));
    EXPECT_TRUE(checked) << checked.error().message();
    EXPECT_TRUE(state->fill(reader.at(0)));
    EXPECT_EQ(wrong_elements(reader), 0);
  }
}

/// A save of two ranks, to be spoilt.
class SpoiltSave : public ::testing::Test {
 protected:
  SpoiltSave() : ranks(test::nano(2)) {
    fill(ranks);
    Saver saver({.folder = folder / "saves"}, test::identity(ranks.program.config));
    const auto saved = ranks.save(saver, test::position(ranks.program.config, 3));
    EXPECT_TRUE(saved) << saved.error().message();
  }

  [[nodiscard]] std::filesystem::path file(const std::string& name) const {
    return folder / "saves" / "step-00000003" / name;
  }
  /// The message of open, check or fill, whichever fails first.
  [[nodiscard]] std::string complaint() {
    const auto state = SavedState::open(folder / "saves");
    if (!state) return state.error().message();
    if (const auto checked = state->check(expected_state(ranks.program)); !checked)
      return checked.error().message();
    for (const std::int64_t rank : {0, 1})
      if (const auto filled = state->fill(ranks.at(rank)); !filled) return filled.error().message();
    return "good";
  }
  void change_byte(const std::string& name, std::int64_t from_end) const {
    std::fstream stream(file(name), std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(-from_end, std::ios::end);
    const auto before = static_cast<char>(stream.get());
    stream.seekp(-from_end, std::ios::end);
    stream.put(static_cast<char>(before ^ 1));
  }
  /// The manifest without its checksum, which is the part after the last comma.
  [[nodiscard]] std::string manifest_body() const {
    const std::string text = test::read_file(file("manifest.json"));
    return text.substr(0, text.rfind(','));
  }
  /// With the checksum that belongs to it.
  void write_manifest(const std::string& body) const {
    const std::string checksum = checksum_text(checksum_of(std::as_bytes(std::span(body))));
    test::write_file(file("manifest.json"), body + ",\n \"checksum\": \"" + checksum + "\"\n}\n");
  }
  void replace_in_manifest(const std::string& from, const std::string& to) const {
    std::string body = manifest_body();
    const std::size_t at = body.find(from);
    ASSERT_NE(at, std::string::npos) << body;
    write_manifest(body.replace(at, from.size(), to));
  }

  test::ScratchFolder folder;
  test::Ranks ranks;
};

TEST_F(SpoiltSave, IsGoodBefore) {
  EXPECT_EQ(complaint(), "good");
  EXPECT_EQ(std::filesystem::read_symlink(folder / "saves" / "latest"), "step-00000003");
}

TEST_F(SpoiltSave, AMissingFileIsNamed) {
  std::filesystem::remove(file("rank-00001.state"));
  EXPECT_THAT(complaint(), AllOf(HasSubstr("step-00000003/rank-00001.state: cannot be read"),
                                 HasSubstr("No such file")));
}

TEST_F(SpoiltSave, ATruncatedFileIsNamed) {
  const auto size = std::filesystem::file_size(file("rank-00000.state"));
  std::filesystem::resize_file(file("rank-00000.state"), size - 1);
  EXPECT_THAT(complaint(),
              HasSubstr(fmt::format("rank-00000.state: expected {} bytes, as in the manifest, got "
                                    "{}",
                                    size, size - 1)));
}

TEST_F(SpoiltSave, AChangedByteOfTheDataIsPlaced) {
  change_byte("rank-00001.state", 1);
  // The rank's last entry is the second moment of the last parameter that it owns some of.
  EXPECT_THAT(
      complaint(),
      AllOf(HasSubstr(
                "rank-00001.state: model.layers.2.mlp.down_proj.weight, second_moment, elements "),
            HasSubstr("expected checksum ")));
}

TEST_F(SpoiltSave, AChangedByteOfTheHeaderIsPlaced) {
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(file("rank-00000.state")));
  change_byte("rank-00000.state", size - 20);
  EXPECT_THAT(complaint(), HasSubstr("rank-00000.state: header: expected checksum "));
}

/// Flips one bit in each byte: of the fields, of the checksum, of the text around them.
TEST_F(SpoiltSave, AnyChangedBitOfTheManifestIsNoticed) {
  const std::string good = test::read_file(file("manifest.json"));
  ASSERT_TRUE(manifest_from_json(good, "manifest.json"));
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string text = good;
    text[i] = static_cast<char>(static_cast<unsigned char>(text[i]) ^ (1U << i % 8));
    EXPECT_FALSE(manifest_from_json(text, "manifest.json")) << i << " in " << text;
  }
}

TEST_F(SpoiltSave, TheChecksumOfTheManifestTellsOfAnotherPosition) {
  std::string text = test::read_file(file("manifest.json"));
  const std::string samples = "\"samples\": 6";
  ASSERT_NE(text.find(samples), std::string::npos) << text;
  test::write_file(file("manifest.json"),
                   text.replace(text.find(samples), samples.size(), "\"samples\": 7"));
  EXPECT_THAT(complaint(),
              AllOf(HasSubstr("manifest.json: expected checksum \""),
                    HasSubstr("as at its end, got "), HasSubstr("not as it was written")));
}

TEST_F(SpoiltSave, BytesAfterTheManifestOrNoneAtItsEndAreNoticed) {
  const std::string text = test::read_file(file("manifest.json"));
  for (const std::string& other : {text + " ", text + "\n", manifest_body() + "\n}\n"}) {
    test::write_file(file("manifest.json"), other);
    EXPECT_THAT(complaint(), HasSubstr("manifest.json: expected its checksum and nothing else at "
                                       "the end"));
  }
}

/// 3 steps of 2 sequences of 16 tokens.
TEST_F(SpoiltSave, APositionThatTheStepsDoNotLeadToIsNotBelieved) {
  replace_in_manifest("\"samples\": 6", "\"samples\": 7");
  EXPECT_THAT(complaint(),
              HasSubstr("manifest.json.samples: expected 0 and 3 steps of 2 samples, got 7"));
  replace_in_manifest("\"samples\": 7", "\"samples\": 6");
  replace_in_manifest("\"tokens\": 96", "\"tokens\": 97");
  EXPECT_THAT(complaint(),
              HasSubstr("manifest.json.tokens: expected 0 and 3 steps of 2 x 16 tokens, got 97"));
  replace_in_manifest("\"tokens\": 97", "\"tokens\": 5");
  EXPECT_THAT(complaint(), HasSubstr("3 steps cannot have read 6 samples of 5 tokens"));
}

/// Their samples may be those of runs with other batches, so that no field contradicts another.
TEST_F(SpoiltSave, AManifestOfTheOldSchemaIsReadWithoutAChecksum) {
  std::string body = manifest_body();
  const std::string schema = "mfsdp.checkpoint/2";
  body.replace(body.find(schema), schema.size(), "mfsdp.checkpoint/1");
  const std::size_t began = body.find(" \"began\"");
  body.erase(began, body.find("},\n", began) + 3 - began);
  test::write_file(file("manifest.json"), body + "\n}\n");
  EXPECT_EQ(complaint(), "good");
  const auto state = SavedState::open(folder / "saves");
  EXPECT_FALSE(state->manifest().has_checksum);
  EXPECT_EQ(state->manifest().position.samples, 6);
}

TEST_F(SpoiltSave, TheSaveBeforeItIsNamed) {
  Saver saver({.folder = folder / "saves"}, test::identity(ranks.program.config));
  for (const std::int64_t step : {1, 2, 4})
    ASSERT_TRUE(ranks.save(saver, test::position(ranks.program.config, step)));
  const auto newest = folder / "saves" / "step-00000004";
  const auto hint = [&](int step) {
    return fmt::format("; the save before it can be read: --resume {}",
                       (folder / "saves" / step_folder_name(step)).string());
  };
  ASSERT_EQ(complaint(), "good");
  // A piece of the data, which nothing looks at before it is needed.
  const std::string state = test::read_file(newest / "rank-00000.state");
  std::string changed = state;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  test::write_file(newest / "rank-00000.state", changed);
  EXPECT_THAT(complaint(), ::testing::EndsWith(hint(3)));
  test::write_file(newest / "rank-00000.state", state);
  std::filesystem::remove(newest / "manifest.json");
  EXPECT_THAT(complaint(),
              AllOf(HasSubstr("step-00000004/manifest.json"), ::testing::EndsWith(hint(3))));
  replace_in_manifest("\"step\": 3", "\"step\": 5");  // step 3 is spoilt too
  EXPECT_THAT(complaint(), ::testing::EndsWith(hint(2)));
  EXPECT_EQ(SavedState::open(folder / "saves" / "step-00000002")->manifest().position.step, 2);
}

TEST_F(SpoiltSave, AFileThatTheManifestDoesNotNameIsMissed) {
  const std::string text = manifest_body();
  const std::size_t begin = text.find("  {\n   \"name\": \"rank-00001.state\"");
  ASSERT_NE(begin, std::string::npos) << text;
  const std::size_t comma = text.rfind(',', begin);
  const std::size_t end = text.find('}', begin) + 1;
  write_manifest(text.substr(0, comma) + text.substr(end));
  EXPECT_THAT(complaint(), AllOf(HasSubstr("step-00000003: "), HasSubstr(" are in no file")));
}

TEST_F(SpoiltSave, AFileThatIsNamedTwiceOverlapsItself) {
  const std::string text = manifest_body();
  const std::size_t begin = text.find("  {\n   \"name\": \"rank-00000.state\"");
  ASSERT_NE(begin, std::string::npos) << text;
  const std::size_t end = text.find('}', begin) + 1;
  const std::string entry = text.substr(begin, end - begin);
  write_manifest(text.substr(0, begin) + entry + ",\n" + text.substr(begin));
  EXPECT_THAT(complaint(), AllOf(HasSubstr("rank-00000.state: "), HasSubstr("elements 0 to "),
                                 HasSubstr(" are in rank-00000.state too")));
}

TEST_F(SpoiltSave, AnotherSchemaIsNotRead) {
  replace_in_manifest("mfsdp.checkpoint/2", "mfsdp.checkpoint/3");
  EXPECT_THAT(complaint(), HasSubstr("manifest.json.schema: expected \"mfsdp.checkpoint/2\", got "
                                     "\"mfsdp.checkpoint/3\""));
}

TEST_F(SpoiltSave, AFileOfAnotherFolderIsNotRead) {
  replace_in_manifest("rank-00001.state", "../rank-00001.state");
  EXPECT_THAT(complaint(), HasSubstr("manifest.json.files[1].name: expected the name of a file"));
}

TEST_F(SpoiltSave, AnotherModelHasOtherState) {
  PlanConfig larger = test::nano(2);
  larger.model.layers += 1;
  const Program program = build_program(larger, {}).value();
  const auto state = SavedState::open(folder / "saves");
  ASSERT_TRUE(state);
  const auto checked = state->check(expected_state(program));
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message(), HasSubstr(" are in no file"));
}

TEST(FindSave, SaysWhatIsMissing) {
  const test::ScratchFolder folder;
  EXPECT_THAT(find_save(folder / "nowhere").error().message(), HasSubstr("nowhere: is no folder"));
  EXPECT_THAT(find_save(folder.path()).error().message(), HasSubstr("expected a save of a run"));
}

}  // namespace
}  // namespace mfsdp
