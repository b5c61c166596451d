#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "core/model/hf_config.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;
using testing::StartsWith;

const fs::path kModels = fs::path(MFSDP_SOURCE_DIR) / "scenarios" / "models";

/// An empty folder of this test's own, removed afterwards.
class ModelFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("mfsdp_models_") + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void copy_config(const fs::path& to) const {
    fs::create_directories((folder_ / to).parent_path());
    fs::copy_file(kModels / "llama3_8b" / "config.json", folder_ / to);
  }

  [[nodiscard]] std::string error_of(const std::string& name) const {
    const auto model = load_model(name, kModels);
    if (model) return "no error";
    EXPECT_EQ(model.error().fault, Fault::input);
    return model.error().message();
  }

  fs::path folder_;
};

/// Parameters of every built-in model. Those of llama3_8b to qwen2.5_7b are given numbers; the
/// others are the totals of the published checkpoints; the last two follow from their shapes.
const std::map<std::string, std::int64_t> kCounts{
    {"llama3_8b", 8030261248},
    {"llama3_70b", 70553706496},
    {"llama3_405b", 405853388800},
    {"llama3_1b", 1235814400},
    {"qwen2.5_0.5b", 494032768},
    {"qwen2.5_7b", 7615616512},
    {"llama3_3b", 3212749824},
    {"llama2_7b", 6738415616},
    {"llama2_13b", 13015864320},
    {"llama2_70b", 68976648192},
    {"mistral_7b", 7248023552},
    {"mistral_7b_v0.1", 7241732096},
    {"phi3_mini", 3821079552},
    {"gemma_2b", 2506172416},
    {"gemma2_2b", 2614341888},
    {"gemma2_9b", 9241705984},
    {"gemma3_1b", 999885952},
    {"gpt2", 124439808},
    {"gpt2_xl", 1557611200},
    {"olmo2_1b", 1484916736},
    {"olmo2_7b", 7298617344},
    {"qwen2.5_72b", 72706203648},
    {"qwen3_0.6b", 596049920},
    {"qwen3_8b", 8190735360},
    {"qwen3_32b", 32762123264},
    {"mixtral_8x7b", 46702792704},
    {"qwen3_30b_a3b", 30532122624},
    // Block: attention 4*2048^2 = 16777216, biases 3*2048, norms 4096, router 60*2048 = 122880,
    // experts 60*3*2048*1408 = 519045120, the shared one 3*2048*5632 = 34603008 and its gate 2048:
    // 570560512. 24 blocks 13693452288, two tables of 151936*2048 = 311164928, final norm 2048.
    {"qwen1.5_moe_a2.7b", 14315784192},
    {"qwen3_235b_a22b", 235093634560},
    // Block: attention 4*2048^2 = 16777216, its norms 4096, the others' 4096, router 64*2048 =
    // 131072, experts 64*3*2048*1024 = 402653184: 419569664. 16 blocks 6713114624, two tables of
    // 50304*2048 = 103022592, final norm 2048.
    {"olmoe_1b_7b", 6919161856},
    // Attention: queries 1536*(7168 + 128*192) = 48758784, keys and values 576*7168 + 128*256*512 =
    // 20905984, out 7168*128*128 = 117440512, norms of both 2048, the others' 14336: 187121664. MLP
    // of 3 blocks 3*7168*18432 = 396361728. Of 58: router 256*7168 + 256 = 1835264, 257 experts of
    // 3*7168*2048 = 44040192: 11320164608. 61, 3 and 58 of these: 11414421504, 1189085184,
    // 656569547264 and, with tables 2*129280*7168 = 1853358080 and the norm 7168, as published.
    {"deepseek_v3", 671026419200},
    // Queries 2048*16*192 = 6291456, keys and values 576*2048 + 16*256*512 = 3276800, out 2048*2048
    // = 4194304, norms 512 + 4096: 13767168. MLP of the first 3*2048*10944 = 67239936. Of 26:
    // router 64*2048, 66 experts of 3*2048*1408 = 8650752: 571080704. 27 * 13767168 + 67239936 + 26
    // * 571080704 + 2*102400*2048 + 2048.
    {"deepseek_v2_lite", 15706484224},
    // Queries 1536*(5120 + 128*192) = 45613056, keys and values 576*5120 + 128*256*512 = 19726336,
    // out 5120*128*128 = 83886080, norms 2048 + 10240: 149237760. MLP of the first 3*5120*12288 =
    // 188743680. Of 59: router 160*5120, 162 experts of 3*5120*1536 = 23592960: 3822878720. 60 *
    // 149237760 + 188743680 + 59 * 3822878720 + 2*102400*5120 + 5120.
    {"deepseek_v2", 235741434880},
    // Queries 24*(32 + 4*12) = 1920, keys and values 20*32 + 4*16*16 = 1664, out 32*4*8 = 1024,
    // norms 40 + 64: 4712 a block. The first 3*32*64 = 6144; of two router 8*33 = 264, 9 experts of
    // 3*32*16 = 1536: 14088. 3*4712 + 6144 + 2*14088 + 264*32 + 32.
    {"mla_nano", 56936},
    // Block: query and out 2*4096*2880 = 23592960, key and value 2*512*2880 = 2949120, their biases
    // 4096 + 2*512 + 2880 = 8000, sinks 64, norms 5760, router 128*2881 = 368768, experts
    // 128*(3*2880^2 + 3*2880) = 3186155520: 3213080192. 36 blocks 115670886912, two tables of
    // 201088*2880 = 579133440, final norm 2880.
    {"gpt_oss_120b", 116829156672},
    // 32 experts in place of 128: router 92192, experts 796538880: 823186976. 24 blocks
    // 19756487424.
    {"gpt_oss_20b", 20914757184},
    // Attention 32*(32 + 2*16 + 32) = 3072, its biases 96, sinks 4, norms 64: 3236. Router 8*33 =
    // 264, experts 8*(3*32*24 + 2*24 + 32) = 19072: 22572 a block. With the table 8448, norm 32.
    {"gpt_oss_nano", 76196},
    // Attention 3072, its norms 16, the others' 64: 3152 a block. The first has an MLP of 3*32*96 =
    // 9216, two a router of 8*32 = 256 and 8 experts of 3*32*32 = 3072: 24832. With the table 8448
    // and the norm 32: 3*3152 + 9216 + 2*24832 + 8480.
    {"moe_nano", 76816},
    // Block: qkv (4 + 2*2)*64*256 = 131072, out 256*256 = 65536, MLP 3*256*640 = 491520, norms 512:
    // 688640. 4 blocks 2754560, two tables of 264*256 = 67584, final norm 256.
    {"llama_tiny", 2889984},
    // Block: 2048 + 1024 + 3*32*96 = 9216 + 64: 12352. 3 blocks 37056, one table 8448, norm 32.
    {"llama_nano", 45536},
};

TEST_F(ModelFiles, BuiltInModelsHaveTheirExactCounts) {
  const auto names = list_models(kModels);
  ASSERT_TRUE(names) << names.error().message();
  std::vector<std::string> expected;
  for (const auto& [name, count] : kCounts) expected.push_back(name);
  EXPECT_EQ(*names, expected);  // both sorted
  for (const auto& [name, count] : kCounts) {
    const auto model = load_model(name, kModels);
    ASSERT_TRUE(model) << model.error().message();
    EXPECT_EQ(model->name, name);
    EXPECT_EQ(make_model(model->shape, DType::bf16).parameter_count(), count) << name;
  }
}

/// All but the experts that a token does not choose: of Qwen3-30B-A3B 120 of 128 in 48 blocks, each
/// of 3*2048*768.
TEST_F(ModelFiles, ActiveParametersAreThoseOfChosenExperts) {
  const std::map<std::string, std::int64_t> active{
      {"mixtral_8x7b", 12879925248},
      {"qwen3_30b_a3b", 3353032704},  // 30532122624 - 48 * 120 * 4718592
      {"qwen3_235b_a22b", 22190763520},
      {"deepseek_v3", 37552297472},  // 671026419200 - 58 * 248 * 44040192
      // 116829156672 - 36 * 124 * (3*2880^2 + 3*2880) = 116829156672 - 4464 * 24891840
      {"gpt_oss_120b", 5711982912},
      {"llama3_8b", 8030261248}};
  for (const auto& [name, count] : active)
    EXPECT_EQ(make_model(load_model(name, kModels)->shape, DType::bf16).active_parameter_count(),
              count)
        << name;
}

TEST_F(ModelFiles, LlamaTinyAndNanoAreSmallByteModels) {
  const auto tiny = load_model("llama_tiny", kModels);
  ASSERT_TRUE(tiny);
  EXPECT_EQ(tiny->shape.max_seq_len, 512);
  EXPECT_EQ(tiny->shape.vocab, 264);  // 256 bytes, 3 special tokens, padded to a multiple of 8
  EXPECT_FALSE(tiny->shape.tied_embeddings);
  const auto nano = load_model("llama_nano", kModels);
  ASSERT_TRUE(nano);
  EXPECT_LE(make_model(nano->shape, DType::bf16).parameter_count(), 50'000);
  EXPECT_TRUE(nano->shape.tied_embeddings);
}

TEST_F(ModelFiles, NamesAndPathsGiveTheSameShape) {
  const auto by_name = load_model("llama3_8b", kModels);
  ASSERT_TRUE(by_name);
  for (const fs::path& path :
       {kModels / "llama3_8b", kModels / "llama3_8b/", kModels / "llama3_8b" / "config.json"}) {
    const auto by_path = load_model(path.string(), kModels);
    ASSERT_TRUE(by_path) << by_path.error().message();
    EXPECT_EQ(by_path->name, "llama3_8b");
    EXPECT_EQ(by_path->shape, by_name->shape);
  }
}

TEST_F(ModelFiles, PathsNameTheModel) {
  copy_config("mine/config.json");
  copy_config("small.v2.json");
  const auto folder = load_model((folder_ / "mine").string(), kModels);
  ASSERT_TRUE(folder) << folder.error().message();
  EXPECT_EQ(folder->name, "mine");
  const auto file = load_model((folder_ / "small.v2.json").string(), kModels);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->name, "small.v2");
}

TEST_F(ModelFiles, UnknownNamesGetTheClosest) {
  EXPECT_THAT(error_of("lama3_8b"), StartsWith("--model: unknown model 'lama3_8b'; closest: "
                                               "llama3_8b, "));
  EXPECT_THAT(error_of("Llama3-700B"),
              StartsWith("--model: unknown model 'Llama3-700B'; closest: llama3_70b, "));
  EXPECT_EQ(error_of("qwen3"),
            "--model: unknown model 'qwen3'; closest: qwen3_8b, qwen3_32b, qwen3_0.6b; or give "
            "the path of a config.json or of its directory");
  EXPECT_THAT(error_of(""), StartsWith("--model: unknown model ''; closest: "));
  EXPECT_THAT(error_of(std::string(100'000, 'x')), StartsWith("--model: unknown model 'xxx"));
}

TEST_F(ModelFiles, NamesOfHuggingFaceAreFound) {
  const std::map<std::string, std::string> names{
      {"Qwen/Qwen2.5-72B", "qwen2.5_72b"},
      {"Qwen/Qwen2.5-7B-Instruct", "qwen2.5_7b"},
      {"Qwen3-8B-Base", "qwen3_8b"},
      {"meta-llama/Llama-3.1-8B", "llama3_8b"},
      {"meta-llama/Meta-Llama-3-70B-Instruct", "llama3_70b"},
      {"Llama-3-8B", "llama3_8b"},
      {"LLAMA3-405B", "llama3_405b"},
      {"meta-llama/Llama-3.2-1B", "llama3_1b"},
      {"meta-llama/Llama-2-7b-chat-hf", "llama2_7b"},
      {"mistralai/Mixtral-8x7B-v0.1", "mixtral_8x7b"},
      {"Qwen/Qwen3-30B-A3B", "qwen3_30b_a3b"},
      {"allenai/OLMoE-1B-7B-0924", "olmoe_1b_7b"},
      {"mistralai/Mistral-7B-Instruct-v0.3", "mistral_7b"},
      {"mistralai/Mistral-7B-v0.1", "mistral_7b_v0.1"},
      {"deepseek-ai/DeepSeek-R1", "deepseek_v3"},
      {"deepseek-ai/DeepSeek-V2-Lite", "deepseek_v2_lite"},
      {"openai/gpt-oss-120b", "gpt_oss_120b"},
      {"microsoft/Phi-3-mini-4k-instruct", "phi3_mini"}};
  for (const auto& [asked, built_in] : names) {
    const auto model = load_model(asked, kModels);
    ASSERT_TRUE(model) << model.error().message();
    EXPECT_EQ(model->name, built_in) << asked;
  }
  // Another vocabulary, and no window: neither of the two.
  EXPECT_EQ(error_of("mistralai/Mistral-7B-v0.2"),
            "mistralai/Mistral-7B-v0.2: expected a config.json or its directory, found nothing "
            "there");
}

TEST_F(ModelFiles, WhatIsNotModelledSaysSo) {
  EXPECT_EQ(error_of("grok"),
            "--model: 'grok' is not modelled: it has experts with GELU, and scaled activations "
            "(docs/reference/limits.md)");
  for (const char* name :
       {"databricks/dbrx-base", "deepseek-moe-16b", "google/gemma-3n-E4B", "microsoft/phi-2"})
    EXPECT_THAT(error_of(name), testing::EndsWith("(docs/reference/limits.md)")) << name;
  EXPECT_THAT(error_of("dolphin"), StartsWith("--model: unknown model 'dolphin'; closest: "));
}

TEST_F(ModelFiles, WrongPathsAreNamed) {
  const std::string missing = (folder_ / "missing" / "config.json").string();
  EXPECT_EQ(error_of(missing),
            missing + ": expected a config.json or its directory, found nothing there");
  EXPECT_EQ(error_of(folder_.string()),
            folder_.string() + ": expected a directory with a config.json, found none in it");
  fs::create_directories(folder_ / "odd" / "config.json");
  EXPECT_EQ(error_of((folder_ / "odd").string()), (folder_ / "odd" / "config.json").string() +
                                                      ": expected a config.json, got a directory");
}

TEST_F(ModelFiles, WrongFilesAreNamed) {
  const std::string empty = (folder_ / "empty.json").string();
  std::ofstream(empty).close();
  EXPECT_THAT(error_of(empty), StartsWith(empty + ": expected"));
  const fs::path huge = folder_ / "weights.safetensors";
  std::ofstream(huge).close();
  fs::resize_file(huge, (std::uintmax_t{16} << 20) + 1);
  EXPECT_EQ(error_of(huge.string()),
            huge.string() + ": expected a config.json, got a file of more than 16 MiB");
}

TEST_F(ModelFiles, MissingBuiltInsAreTheEnvironmentsFault) {
  const auto names = list_models(folder_ / "nowhere");
  ASSERT_FALSE(names);
  EXPECT_EQ(names.error().fault, Fault::environment);
  EXPECT_THAT(names.error().message(),
              StartsWith((folder_ / "nowhere").string() + ": cannot list the built-in models"));
}

}  // namespace
}  // namespace mfsdp
