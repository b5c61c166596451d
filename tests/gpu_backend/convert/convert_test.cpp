#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "core/formats/safetensors.hpp"
#include "core/plan/config.hpp"
#include "gpu_backend/convert/convert_checkpoint.hpp"
#include "gpu_backend/convert/diff_checkpoints.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

const fs::path kFixtures = fs::path(MFSDP_SOURCE_DIR) / "tests/gpu_backend/convert/data";

/// Two layers, four heads in two groups; with experts where asked.
Model small_model(bool experts) {
  PlanConfig config;
  config.model.vocab = 96;
  config.model.hidden = 16;
  config.model.layers = 2;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.model.head_dim = 4;
  config.model.intermediate = 24;
  config.model.max_seq_len = 64;
  if (experts) {
    config.model.experts = 3;
    config.model.experts_per_token = 2;
    config.model.expert_intermediate = 8;
  }
  return make_model(config);
}

/// A Hugging Face model with random bf16 weights.
void write_model(const fs::path& folder, const Model& model, unsigned seed) {
  fs::create_directories(folder);
  std::mt19937 random(seed);
  std::vector<TensorShape> tensors;
  std::string data;
  for (const auto& [name, shape] : hf_shapes_of(model)) {
    tensors.push_back({.name = name, .dtype = DType::bf16, .shape = shape});
    for (std::int64_t i = 0; i < product_of(shape); ++i) {
      const auto bits = static_cast<std::uint16_t>(0x3f00U | (random() & 0x80ffU));
      data.append(reinterpret_cast<const char*>(&bits), sizeof bits);
    }
  }
  test::write_file(folder / "model.safetensors",
                   safetensors_header(tensors, {{"format", "pt"}}) + data);
}

std::string error_of(const Result<ConvertOutcome>& outcome) {
  return outcome ? "" : outcome.error().message();
}

TEST(ConvertCheckpoint, RoundTripsKeepBits) {
  const test::ScratchFolder folder;
  for (const bool experts : {false, true}) {
    const Model model = small_model(experts);
    const fs::path base = folder / (experts ? "experts" : "dense");
    write_model(base / "hf", model, 1);
    const auto start = open_checkpoint(base / "hf");
    ASSERT_TRUE(start) << start.error().message();
    int i = 0;
    for (const CheckpointFormat to : {CheckpointFormat::dcp, CheckpointFormat::torch_dist,
                                      CheckpointFormat::fsdp_dtensor, CheckpointFormat::hf})
      for (const std::int64_t ranks : {1, 3, 8}) {
        ConvertSettings settings{.to = to, .model = model, .ranks = ranks};
        if (to == CheckpointFormat::dcp && ranks != 3) settings.names = NameStyle::torchtitan;
        const fs::path there = base / fmt::format("there{}", i++);
        EXPECT_EQ(error_of(convert_checkpoint(*start, there, settings)), "");
        const auto middle = open_checkpoint(there);
        ASSERT_TRUE(middle) << middle.error().message();
        EXPECT_EQ(middle->format, to);
        const auto findings = check_checkpoint(*middle, model, true);
        ASSERT_TRUE(findings) << findings.error().message();
        for (const CheckpointFinding& one : *findings) ADD_FAILURE() << one.place << one.what;
        const fs::path back = base / fmt::format("back{}", i);
        EXPECT_EQ(error_of(convert_checkpoint(*middle, back,
                                              {.to = CheckpointFormat::hf, .model = model})),
                  "");
        const auto end = open_checkpoint(back);
        ASSERT_TRUE(end) << end.error().message();
        const auto difference = diff_checkpoints(*start, *end, std::nullopt);
        ASSERT_TRUE(difference) << difference.error().message();
        EXPECT_THAT(difference->tensors, IsEmpty());
        EXPECT_EQ(difference->compared, std::ssize(start->tensors));
      }
  }
}

TEST(ConvertCheckpoint, FusedMatricesAreAsMegatronHasThem) {
  // Group 0 of linear_qkv: rows of heads 0 and 1, then key head 0, then value head 0.
  const auto styled = styled_tensors(small_model(false), NameStyle::megatron_fsdp);
  ASSERT_TRUE(styled) << styled.error().message();
  const StyledTensor& qkv = styled->at("decoder.layers.1.self_attention.linear_qkv.weight");
  EXPECT_EQ(qkv.shape, (std::vector<std::int64_t>{32, 16}));
  std::vector<std::string> parts;
  for (const StyledPiece& piece : qkv.pieces)
    parts.push_back(
        fmt::format("{} {} {}", piece.hf.substr(25, 1), piece.hf_begin / 16, piece.count / 16));
  EXPECT_THAT(parts, testing::ElementsAre("q 0 8", "k 0 4", "v 0 4", "q 8 8", "k 4 4", "v 4 4"));
  EXPECT_TRUE(styled->contains("decoder.layers.0.mlp.linear_fc1.weight_w"));
  const auto stacked = styled_tensors(small_model(false), NameStyle::megatron);
  ASSERT_TRUE(stacked);
  EXPECT_EQ(stacked->at("decoder.layers.mlp.linear_fc1.weight").shape,
            (std::vector<std::int64_t>{2, 48, 16}));
}

TEST(ConvertCheckpoint, MetadataIsThatOfPyTorch) {
  // PyTorch's own checkpoint, written again on two ranks: the same tensors, chunks and values.
  const test::ScratchFolder folder;
  const auto theirs = open_checkpoint(kFixtures / "dcp");
  ASSERT_TRUE(theirs);
  ASSERT_EQ(error_of(convert_checkpoint(*theirs, folder / "c",
                                        {.to = CheckpointFormat::dcp, .ranks = 2})),
            "");
  const auto ours = open_checkpoint(folder / "c");
  ASSERT_TRUE(ours) << ours.error().message();
  ASSERT_EQ(ours->tensors.size(), theirs->tensors.size());
  for (std::size_t i = 0; i < ours->tensors.size(); ++i) {
    EXPECT_EQ(ours->tensors[i].name, theirs->tensors[i].name);
    EXPECT_EQ(ours->tensors[i].shape, theirs->tensors[i].shape);
    EXPECT_EQ(ours->tensors[i].type, theirs->tensors[i].type);
  }
  EXPECT_EQ(ours->objects.size(), theirs->objects.size());
  EXPECT_EQ(ours->find("model.a.w")->boxes[1].box, theirs->find("model.a.w")->boxes[1].box);
  const auto difference = diff_checkpoints(*theirs, *ours, std::nullopt);
  ASSERT_TRUE(difference);
  EXPECT_THAT(difference->tensors, IsEmpty());
}

TEST(ConvertCheckpoint, RefusesWithOneLine) {
  const test::ScratchFolder folder;
  const Model model = small_model(false);
  write_model(folder / "hf", model, 1);
  const auto read = open_checkpoint(folder / "hf");
  ASSERT_TRUE(read);
  EXPECT_THAT(
      error_of(convert_checkpoint(*read, folder / "out", {.to = CheckpointFormat::torch_dist})),
      HasSubstr("need the model's config.json"));
  EXPECT_THAT(error_of(convert_checkpoint(*read, folder / "hf", {.to = CheckpointFormat::hf})),
              HasSubstr("exists; expected a new or an empty folder"));
  EXPECT_THAT(error_of(convert_checkpoint(*read, folder / "out", {.to = CheckpointFormat::mfsdp})),
              HasSubstr("is read, not written"));
  EXPECT_THAT(error_of(convert_checkpoint(
                  *read, folder / "out", {.to = CheckpointFormat::hf, .model = small_model(true)})),
              HasSubstr("is missing; the model has it"));
  EXPECT_EQ(folder.file_count(), 1U);  // nothing is left beside the model
}

// ---- damages -----------------------------------------------------------------------------------

struct Damage {
  const char* name;
  CheckpointFlaw flaw;
  void (*apply)(Checkpoint& read);
};

CheckpointTensor& tensor_of(Checkpoint& read, std::string_view name) {
  return *std::ranges::find(read.tensors, name, &CheckpointTensor::name);
}

void erase_matching(Checkpoint& read, std::string_view part) {
  std::erase_if(read.tensors, [&](const CheckpointTensor& tensor) {
    return tensor.name.find(part) != std::string::npos;
  });
}

constexpr const char* kUp = "model.layers.1.mlp.experts.2.up_proj.weight";
constexpr const char* kMoment = "optimizer.state.model.norm.weight.exp_avg";
constexpr std::array kDamages{
    Damage{"a rank's rows are not there", CheckpointFlaw::hole,
           [](Checkpoint& read) { tensor_of(read, kUp).boxes.pop_back(); }},
    Damage{"all rows are not there", CheckpointFlaw::hole,
           [](Checkpoint& read) { tensor_of(read, kUp).boxes.clear(); }},
    Damage{"rows are there twice", CheckpointFlaw::overlap,
           [](Checkpoint& read) {
             auto& boxes = tensor_of(read, kUp).boxes;
             boxes.push_back(boxes.front());
           }},
    Damage{"rows at a wrong offset", CheckpointFlaw::overlap,
           [](Checkpoint& read) { --tensor_of(read, kUp).boxes.back().box.offsets.front(); }},
    Damage{
        "bytes of another tensor", CheckpointFlaw::overlap,
        [](Checkpoint& read) {
          tensor_of(read, kUp).boxes.front().offset =
              tensor_of(read, "model.layers.1.mlp.experts.1.up_proj.weight").boxes.front().offset;
        }},
    Damage{"a missing file", CheckpointFlaw::file,
           [](Checkpoint& read) {
             read.problems.push_back({.where = "__1_0.distcp", .what = "is missing"});
           }},
    Damage{"a missing layer", CheckpointFlaw::layers,
           [](Checkpoint& read) { erase_matching(read, "layers.0."); }},
    Damage{"a missing expert", CheckpointFlaw::layers,
           [](Checkpoint& read) { erase_matching(read, "experts.1."); }},
    Damage{"all experts dropped", CheckpointFlaw::model,
           [](Checkpoint& read) { erase_matching(read, "experts."); }},
    Damage{"no head", CheckpointFlaw::model,
           [](Checkpoint& read) { erase_matching(read, "lm_head"); }},
    Damage{"a name of a wrapper", CheckpointFlaw::model,
           [](Checkpoint& read) {
             tensor_of(read, kUp).name = "model.layers.1.mlp.experts.2.up_proj.base_layer.weight";
           }},
    Damage{"a vocabulary with padding", CheckpointFlaw::model,
           [](Checkpoint& read) { tensor_of(read, "lm_head.weight").shape.front() = 128; }},
    Damage{"moments of local size", CheckpointFlaw::moments,
           [](Checkpoint& read) { tensor_of(read, kMoment).shape.front() = 8; }},
    Damage{"a parameter without moments", CheckpointFlaw::moments,
           [](Checkpoint& read) { erase_matching(read, "state.model.norm.weight"); }},
    Damage{"one moment only", CheckpointFlaw::moments,
           [](Checkpoint& read) { erase_matching(read, "norm.weight.exp_avg_sq"); }},
    Damage{"a state of no weight", CheckpointFlaw::moments,
           [](Checkpoint& read) {
             std::erase_if(read.tensors, [](const CheckpointTensor& tensor) {
               return tensor.name == "model.norm.weight";
             });
           }},
    Damage{"moments dropped to zero", CheckpointFlaw::moments,
           [](Checkpoint& read) {
             for (CheckpointTensor& tensor : read.tensors)
               if (tensor.name.find(".exp_avg") != std::string::npos) tensor.boxes.clear();
           }},
    Damage{"a step that is lost", CheckpointFlaw::step,
           [](Checkpoint& read) {
             tensor_of(read, "optimizer.state.model.norm.weight.step").boxes.clear();
           }},
    Damage{"weights of another step", CheckpointFlaw::step,
           [](Checkpoint& read) { read.step = 200; }},
};

/// DCP of a model with moments at step 7, whose elements are those of the weights.
Checkpoint trained_checkpoint(const fs::path& folder, const Model& model) {
  write_model(folder / "hf", model, 2);
  Checkpoint start = open_checkpoint(folder / "hf").value();
  const std::size_t weights = start.tensors.size();
  for (std::size_t i = 0; i < weights; ++i)
    for (const char* state : {"exp_avg", "exp_avg_sq"}) {
      CheckpointTensor moment = start.tensors[i];
      moment.name = fmt::format("optimizer.state.{}.{}", moment.name, state);
      start.tensors.push_back(std::move(moment));
    }
  start.format = CheckpointFormat::torch;  // where tensors may share bytes
  start.step = 7;
  std::ranges::sort(start.tensors, {}, &CheckpointTensor::name);
  const auto done = convert_checkpoint(
      start, folder / "dcp",
      {.to = CheckpointFormat::dcp, .names = NameStyle::hf, .model = model, .ranks = 2});
  EXPECT_EQ(error_of(done), "");
  return open_checkpoint(folder / "dcp").value();
}

TEST(CheckCheckpoint, FindsEachDamage) {
  const test::ScratchFolder folder;
  const Model model = small_model(true);
  const Checkpoint good = trained_checkpoint(folder.path(), model);
  EXPECT_EQ(good.step, 7);
  const auto findings_of = [&](const Checkpoint& read) {
    return check_checkpoint(read, model, true).value();
  };
  for (const CheckpointFinding& one : findings_of(good)) ADD_FAILURE() << one.place << one.what;
  for (const Damage& damage : kDamages) {
    Checkpoint bad = good;
    damage.apply(bad);
    EXPECT_THAT(findings_of(bad), Contains(Field(&CheckpointFinding::flaw, damage.flaw)))
        << damage.name;
  }
}

TEST(CheckCheckpoint, FindsNanAndDiffFindsSwappedRows) {
  const test::ScratchFolder folder;
  const Model model = small_model(false);
  write_model(folder / "a", model, 3);
  std::string bytes = test::read_file(folder / "a/model.safetensors");
  const std::uint16_t nan = 0x7fc1;
  std::string broken = bytes;
  broken.replace(broken.size() - 2, 2, reinterpret_cast<const char*>(&nan), 2);
  fs::create_directory(folder / "b");
  test::write_file(folder / "b/model.safetensors", broken);
  const auto b = open_checkpoint(folder / "b");
  ASSERT_TRUE(b);
  const auto findings = check_checkpoint(*b, model, true);
  ASSERT_TRUE(findings);
  EXPECT_THAT(*findings, Contains(Field(&CheckpointFinding::flaw, CheckpointFlaw::finite)));

  auto a = open_checkpoint(folder / "a");
  ASSERT_TRUE(a);
  Checkpoint swapped = *a;
  std::swap(tensor_of(swapped, "model.layers.0.mlp.gate_proj.weight").boxes,
            tensor_of(swapped, "model.layers.0.mlp.up_proj.weight").boxes);
  const auto difference = diff_checkpoints(*a, swapped, std::nullopt);
  ASSERT_TRUE(difference);
  ASSERT_EQ(difference->tensors.size(), 2U);
  EXPECT_EQ(difference->tensors[0].name, "model.layers.0.mlp.gate_proj.weight");
  EXPECT_GT(difference->tensors[0].largest, 0);
}

}  // namespace
}  // namespace mfsdp
