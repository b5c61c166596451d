#include "gpu_backend/weights/hf_weights.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/gpu_backend/weights/hf_files.hpp"

namespace mfsdp {
namespace {

using test::FileTensor;

struct SmallProgram {
  Program program = build_program(test::small_model(), {}).value();
  std::vector<FileTensor> tensors = test::tensors_of(program, DType::bf16);

  [[nodiscard]] const PlacedParameter& parameter(const std::string& name) const {
    for (const Group& group : program.groups)
      for (const PlacedParameter& parameter : group.parameters)
        if (parameter.name == name) return parameter;
    throw std::out_of_range(name);
  }
  [[nodiscard]] FileTensor& tensor(const std::string& name) {
    for (FileTensor& tensor : tensors)
      if (tensor.shape.name == name) return tensor;
    throw std::out_of_range(name);
  }
};

std::vector<double> read(const HfWeights& weights, const PlacedParameter& parameter,
                         std::int64_t begin, std::int64_t end) {
  std::vector<double> values(static_cast<std::size_t>(end - begin));
  EXPECT_TRUE(weights.read(parameter, begin, values));
  return values;
}

TEST(HfWeights, FusedParametersAreTheTensorsOneBelowTheOther) {
  const test::ScratchFolder folder;
  SmallProgram small;
  // query [16, 12], key and value [8, 12] each.
  small.tensor("model.layers.1.self_attn.q_proj.weight").bytes =
      test::encode(DType::bf16, std::vector<double>(192, 1));
  small.tensor("model.layers.1.self_attn.k_proj.weight").bytes =
      test::encode(DType::bf16, std::vector<double>(96, 2));
  small.tensor("model.layers.1.self_attn.v_proj.weight").bytes =
      test::encode(DType::bf16, std::vector<double>(96, 3));
  test::write_checkpoint(folder.path(), small.program, small.tensors);
  const auto weights = HfWeights::open(folder.path(), small.program);
  ASSERT_TRUE(weights) << weights.error().message();
  const auto& qkv = small.parameter("model.layers.1.self_attn.qkv_proj.weight");
  EXPECT_EQ(qkv.shape, (std::vector<std::int64_t>{32, 12}));
  EXPECT_EQ(read(*weights, qkv, 190, 194), (std::vector<double>{1, 1, 2, 2}));
  EXPECT_EQ(read(*weights, qkv, 287, 290), (std::vector<double>{2, 3, 3}));
  EXPECT_EQ(read(*weights, qkv, 383, 384), (std::vector<double>{3}));
}

/// GPT-2's checkpoints hold matrices of blocks as [inputs, outputs]. The hub's have no word for the
/// model before their names, and causal masks.
TEST(HfWeights, OfGpt2AreTransposedAndMayLackTheirFirstWord) {
  const Program program = build_program(test::small_gpt2(), {}).value();
  std::vector<FileTensor> tensors = test::tensors_of(program, DType::fp32);
  const auto stored = std::ranges::find(tensors, "transformer.h.1.mlp.c_fc.weight",
                                        [](const FileTensor& t) { return t.shape.name; });
  ASSERT_NE(stored, tensors.end());
  EXPECT_EQ(stored->shape.shape, (std::vector<std::int64_t>{12, 20}));
  std::vector<double> values(240);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  stored->bytes = test::encode(DType::fp32, values);
  for (const bool whole_names : {true, false}) {
    const test::ScratchFolder folder;
    if (!whole_names) {
      for (FileTensor& tensor : tensors)
        tensor.shape.name = tensor.shape.name.substr(std::string("transformer.").size());
      tensors.push_back({.shape = {.name = "h.1.attn.bias", .dtype = DType::fp32, .shape = {1}},
                         .bytes = test::encode(DType::fp32, {1})});
    }
    test::write_checkpoint(folder.path(), program, tensors);
    const auto weights = HfWeights::open(folder.path(), program);
    ASSERT_TRUE(weights) << weights.error().message();
    for (const Group& group : program.groups)
      for (const PlacedParameter& parameter : group.parameters)
        if (parameter.name == "transformer.h.1.mlp.c_fc.weight") {
          // Ours is [20, 12]: output 1 is column 1, elements 1, 21, 41, ... of the file.
          EXPECT_EQ(read(*weights, parameter, 11, 15), (std::vector<double>{220, 1, 21, 41}));
          EXPECT_EQ(read(*weights, parameter, 239, 240), (std::vector<double>{239}));
        }
  }
}

/// transformers 5 joins all experts of a block and calls Mixtral's block mlp; its published files
/// have neither. Where a model is saved as it lies in memory, both are in files.
TEST(HfWeights, OfMixtralMayHaveTheNamesOfItsClass) {
  PlanConfig config = test::small_model();
  test::make_family(config.model, Family::mixtral);
  config.model.normalised_routing = true;
  const Program program = build_program(config, {}).value();
  const HfTensors joined =
      HfTensors::of(program, [](const std::string& name) {
        return name.ends_with("experts.gate_up_proj") || name.ends_with("experts.down_proj");
      }).value();
  std::vector<FileTensor> tensors;
  for (std::size_t t = 0; t < joined.all().size(); ++t) {
    const HfTensor& tensor = joined.all()[t];
    std::string name = tensor.name;
    if (const std::size_t at = name.find("block_sparse_moe."); at != std::string::npos)
      name.replace(at, std::string("block_sparse_moe.").size(), "mlp.");
    std::vector<double> values;
    for (std::int64_t i = 0; i < tensor.elements.size(); ++i)
      values.push_back(test::value_of(t, i));
    tensors.push_back({.shape = {.name = name, .dtype = DType::fp32, .shape = tensor.shape},
                       .bytes = test::encode(DType::fp32, values)});
  }
  const test::ScratchFolder folder;
  test::write_checkpoint(folder.path(), program, tensors);
  const auto weights = HfWeights::open(folder.path(), program);
  ASSERT_TRUE(weights) << weights.error().message();
  int read_back = 0;
  for (const Group& group : program.groups)
    for (const PlacedParameter& parameter : group.parameters)
      for (std::size_t t = 0; t < joined.all().size(); ++t)
        if (joined.all()[t].parameter == parameter.name &&
            parameter.name.find("block_sparse_moe") != std::string::npos) {
          EXPECT_EQ(read(*weights, parameter, 0, 2),
                    (std::vector<double>{test::value_of(t, 0), test::value_of(t, 1)}));
          ++read_back;
        }
  EXPECT_EQ(read_back, 2 * 3);  // of two blocks: a router, gate and up, down
}

TEST(HfWeights, AnyIntervalOfAnyDtypeIsRead) {
  const SmallProgram small;
  const HfTensors tensors = HfTensors::of(small.program).value();
  std::map<std::string, std::vector<double>> expected;
  for (std::size_t t = 0; t < tensors.all().size(); ++t)
    for (std::int64_t i = 0; i < tensors.all()[t].elements.size(); ++i)
      expected[tensors.all()[t].parameter].push_back(test::value_of(t, i));
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32, DType::fp64}) {
    const test::ScratchFolder folder;
    test::write_checkpoint(folder.path(), small.program, test::tensors_of(small.program, dtype));
    const auto weights = HfWeights::open(folder.path(), small.program).value();
    const bool held = rc::check("elements are the tensors'", [&] {
      const Group& group =
          small.program.groups[*rc::gen::inRange<std::size_t>(0, small.program.groups.size())];
      const PlacedParameter& parameter =
          group.parameters[*rc::gen::inRange<std::size_t>(0, group.parameters.size())];
      const std::vector<double>& all = expected.at(parameter.name);
      RC_ASSERT(std::ssize(all) == parameter.elements());
      const auto begin = *rc::gen::inRange<std::int64_t>(0, parameter.elements());
      const auto end = *rc::gen::inRange<std::int64_t>(begin, parameter.elements() + 1);
      RC_ASSERT(read(weights, parameter, begin, end) ==
                std::vector<double>(all.begin() + begin, all.begin() + end));
    });
    EXPECT_TRUE(held) << to_string(dtype);
  }
}

/// The error of a checkpoint that was changed so; {} stands for the folder.
std::string error_after(
    const std::function<void(const std::filesystem::path&, SmallProgram&)>& change) {
  const test::ScratchFolder folder;
  SmallProgram small;
  test::write_config(folder.path(), small.program.config.model);
  change(folder.path(), small);
  if (!std::filesystem::exists(folder / "model.safetensors.index.json") && !small.tensors.empty())
    test::write_safetensors(folder / "model.safetensors", small.tensors);
  const auto opened = HfWeights::open(folder.path(), small.program);
  if (opened) return "none";
  std::string message = opened.error().message();
  for (std::size_t at = 0; (at = message.find(folder.path().string())) != std::string::npos;)
    message.replace(at, folder.path().string().size(), "{}");
  return message;
}

TEST(HfWeights, TensorsThatAreNotTheModelsAreNamed) {
  EXPECT_EQ(error_after([](auto&, SmallProgram&) {}), "none");
  EXPECT_EQ(error_after([](auto&, SmallProgram& s) { s.tensors.erase(s.tensors.begin()); }),
            "{}, tensor model.embed_tokens.weight: expected shape [30, 12], found no such tensor");
  EXPECT_EQ(error_after([](auto&, SmallProgram& s) {
              s.tensor("model.norm.weight").shape.shape = {1, 12};
            }),
            "{}/model.safetensors, tensor model.norm.weight: expected shape [12], got [1, 12]");
  EXPECT_EQ(error_after([](auto&, SmallProgram& s) {
              s.tensors.push_back({.shape = {.name = "extra", .shape = {0}}, .bytes = ""});
            }),
            "{}/model.safetensors, tensor extra: the plan's model has no such tensor");
  EXPECT_EQ(error_after([](auto&, SmallProgram& s) {
              s.tensors.push_back(
                  {.shape = {.name = "model.layers.0.self_attn.rotary_emb.inv_freq", .shape = {0}},
                   .bytes = ""});
            }),
            "none");
  EXPECT_EQ(error_after([](const auto& folder, SmallProgram& s) {
              test::write_safetensors(folder / "model.safetensors", s.tensors);
              std::string text = test::read_file(folder / "model.safetensors");
              const std::string norm = R"("model.norm.weight":{"dtype":")";
              text.replace(text.find(norm) + norm.size(), 4, "I16\"");
              text.replace(text.find("\"\"", text.find(norm) + norm.size()), 2, "\" ");
              test::write_file(folder / "model.safetensors", text);
              s.tensors.clear();
            }),
            "{}/model.safetensors, tensor model.norm.weight: expected dtype BF16, F16, F32 or F64, "
            "got I16");
}

TEST(HfWeights, ATiedHeadMustBeTheEmbedding) {
  const auto tied = [](const std::string& head_bytes, const std::string& name) {
    const test::ScratchFolder folder;
    PlanConfig config = test::small_model();
    config.model.tied_embeddings = true;
    const Program program = build_program(config, {}).value();
    auto tensors = test::tensors_of(program, DType::bf16);
    FileTensor head = tensors.front();
    EXPECT_EQ(head.shape.name, "model.embed_tokens.weight");
    head.shape.name = name;
    head.bytes.replace(0, head_bytes.size(), head_bytes);
    tensors.push_back(head);
    test::write_checkpoint(folder.path(), program, tensors);
    const auto opened = HfWeights::open(folder.path(), program);
    return opened ? "none" : opened.error().what;
  };
  EXPECT_EQ(tied("", "lm_head.weight"), "none");
  EXPECT_EQ(
      tied("x", "lm_head.weight"),
      "expected the bytes of model.embed_tokens.weight or no such tensor, as the plan's model "
      "has tie_word_embeddings");
  EXPECT_EQ(tied("", "head.weight"), "the plan's model has no such tensor");
}

TEST(HfWeights, WrongFoldersAreNamed) {
  EXPECT_EQ(error_after([](auto&, SmallProgram& s) { s.tensors.clear(); }),
            "{}: expected model.safetensors or model.safetensors.index.json in it, found neither");
  EXPECT_EQ(error_after([](const auto& folder, SmallProgram& s) {
              test::write_file(folder / "model.safetensors", "short");
              s.tensors.clear();
            }),
            "{}/model.safetensors: expected safetensors, got a file of 5 bytes");
  EXPECT_EQ(error_after([](const auto& folder, SmallProgram&) {
              std::filesystem::remove(folder / "config.json");
            }),
            "{}/config.json: cannot be opened: No such file or directory");
}

/// Two shards and this weight_map; the last tensor is in the second shard.
std::string error_of_index(const std::function<void(nlohmann::json&)>& change) {
  return error_after([&](const auto& folder, SmallProgram& s) {
    nlohmann::json index;
    for (const FileTensor& tensor : s.tensors) index["weight_map"][tensor.shape.name] = "a";
    index["weight_map"][s.tensors.back().shape.name] = "b";
    change(index);
    test::write_file(folder / "model.safetensors.index.json", index.dump());
    test::write_safetensors(folder / "b", {s.tensors.back()});
    s.tensors.pop_back();
    test::write_safetensors(folder / "a", s.tensors);
  });
}

TEST(HfWeights, ShardsAreFoundByTheirIndex) {
  const auto map = [](const char* tensor, const nlohmann::json& file) {
    return error_of_index([&](nlohmann::json& index) { index["weight_map"][tensor] = file; });
  };
  const std::string index = "{}/model.safetensors.index.json, weight_map";
  EXPECT_EQ(error_of_index([](nlohmann::json&) {}), "none");
  EXPECT_EQ(error_of_index([](nlohmann::json& all) { all.erase("weight_map"); }),
            index + ": expected an object from tensors to files, got nothing");
  EXPECT_EQ(error_of_index([](nlohmann::json& all) { all["weight_map"] = {1}; }),
            index + ": expected an object from tensors to files, got [1]");
  for (const nlohmann::json wrong : {"../a", "/etc/passwd", "..", "", "x/y"})
    EXPECT_EQ(map("model.norm.weight", wrong),
              index +
                  ", tensor model.norm.weight: expected the name of a file in the same folder, "
                  "got " +
                  wrong.dump());
  EXPECT_EQ(map("model.norm.weight", 3),
            index +
                ", tensor model.norm.weight: expected the name of a file in the same folder, "
                "got 3");
  EXPECT_EQ(map("model.norm.weight", "c"), "{}/c: cannot be opened: No such file or directory");
  EXPECT_EQ(map("model.norm.weight", "b"), index + R"(, tensor model.norm.weight: is not in "b")");
  EXPECT_EQ(map("none.weight", "b"), index + R"(, tensor none.weight: is not in "b")");
  EXPECT_EQ(
      error_of_index([](nlohmann::json& all) { all["weight_map"].erase("model.norm.weight"); }),
      "{}/a, tensor model.norm.weight: is not in the weight_map of "
      "model.safetensors.index.json");
}

TEST(HfWeights, AFileThatChangesIsNotRead) {
  const test::ScratchFolder folder;
  const SmallProgram small;
  test::write_checkpoint(folder.path(), small.program, small.tensors);
  const auto weights = HfWeights::open(folder.path(), small.program).value();
  std::filesystem::resize_file(folder / "model.safetensors", 100);
  std::vector<double> one(1);
  const auto outcome = weights.read(small.parameter("model.norm.weight"), 0, one);
  ASSERT_FALSE(outcome);
  EXPECT_TRUE(outcome.error().what.starts_with("changed while it was read"));
}

TEST(HfTensors, PlansWithOtherParametersAreRefused) {
  const Program program = build_program(test::small_model(), {}).value();
  const auto error_with = [&](auto change) {
    Program other = program;
    change(other.groups.back().parameters);
    return HfTensors::of(other).error().message();
  };
  EXPECT_EQ(error_with([](auto& parameters) { parameters.back().name = "x"; }),
            "plan, parameter x: the plan's model has no such parameter");
  EXPECT_EQ(error_with([](auto& parameters) { parameters.back().shape = {3}; }),
            "plan, parameter lm_head.weight: expected shape [30, 12], as the plan's model has, "
            "got [3]");
  EXPECT_EQ(error_with([](auto& parameters) { parameters.pop_back(); }),
            "plan: lacks parameter lm_head.weight of its model");
}

TEST(HfTensors, BiasesAndNormsOfHeadsHaveTheirNames) {
  const auto names = [](bool bias, bool norm) {
    PlanConfig config = test::small_model();
    config.model.qkv_bias = bias;
    config.model.qk_norm = norm;
    const HfTensors tensors = HfTensors::of(build_program(config, {}).value()).value();
    std::vector<std::string> all;
    for (const HfTensor& tensor : tensors.all())
      if (tensor.name.starts_with("model.layers.1.self_attn"))
        all.push_back(tensor.name.substr(25) + " " + shown_shape(tensor.shape));
    return all;
  };
  EXPECT_EQ(names(true, false), (std::vector<std::string>{
                                    "q_proj.weight [16, 12]", "k_proj.weight [8, 12]",
                                    "v_proj.weight [8, 12]", "q_proj.bias [16]", "k_proj.bias [8]",
                                    "v_proj.bias [8]", "o_proj.weight [12, 16]"}));
  EXPECT_EQ(names(false, true),
            (std::vector<std::string>{"q_proj.weight [16, 12]", "k_proj.weight [8, 12]",
                                      "v_proj.weight [8, 12]", "q_norm.weight [4]",
                                      "k_norm.weight [4]", "o_proj.weight [12, 16]"}));
}

/// As modules of transformers hold them: one tensor of all experts, gate rows, then up rows of
/// each.
TEST(HfTensors, ExpertsMayBeOneTensor) {
  PlanConfig config = test::small_model();
  test::add_experts(config.model, 3, 2);
  const Program program = build_program(config, {}).value();
  const auto is_whole = [](const std::string& name) {
    return name.ends_with("experts.gate_up_proj") || name.ends_with("experts.down_proj");
  };
  const HfTensors tensors = HfTensors::of(program, is_whole).value();
  const auto shape_of = [&](const std::string& name) {
    const auto found = std::ranges::find(tensors.all(), name, &HfTensor::name);
    return found == tensors.all().end() ? std::vector<std::int64_t>{} : found->shape;
  };
  const std::string experts = "model.layers.1.mlp.experts.";
  EXPECT_EQ(shape_of(experts + "gate_up_proj"), (std::vector<std::int64_t>{3, 2 * 5, 12}));
  EXPECT_EQ(shape_of(experts + "down_proj"), (std::vector<std::int64_t>{3, 12, 5}));
  EXPECT_EQ(shape_of(experts + "0.gate_proj.weight"), std::vector<std::int64_t>{});
  const HfTensors apart = HfTensors::of(program).value();
  EXPECT_EQ(apart.all().size(), tensors.all().size() + 2 * (3 * 3 - 2));  // of two blocks
}

/// Phi-3's checkpoints have query, key and value as one tensor, and gate and up.
TEST(HfTensors, FusedParametersMayBeOneTensor) {
  const Program program = build_program(test::small_model(), {}).value();
  const auto is_whole = [](const std::string& name) { return name.ends_with("qkv_proj.weight"); };
  const HfTensors tensors = HfTensors::of(program, is_whole).value();
  std::vector<std::string> block;
  for (const HfTensor& tensor : tensors.all())
    if (tensor.name.starts_with("model.layers.1.") && tensor.name.ends_with("_proj.weight"))
      block.push_back(tensor.name.substr(15) + " " + shown_shape(tensor.shape));
  EXPECT_EQ(block, (std::vector<std::string>{
                       "self_attn.qkv_proj.weight [32, 12]", "self_attn.o_proj.weight [12, 16]",
                       "mlp.gate_proj.weight [20, 12]", "mlp.up_proj.weight [20, 12]",
                       "mlp.down_proj.weight [12, 20]"}));
}

}  // namespace
}  // namespace mfsdp
