#include "gpu_backend/weights/hf_export.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "gpu_backend/weights/hf_weights.hpp"
#include "gpu_backend/weights/temporary_folder.hpp"
#include "tests/gpu_backend/train/rank_memory.hpp"
#include "tests/gpu_backend/weights/hf_files.hpp"
#include "tests/support/idle_backend.hpp"

namespace mfsdp {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Memory of one rank, of a run that may fail on any.
class RankBackend final : public test::IdleBackend {
 public:
  RankBackend(std::atomic<bool>& failed, bool fails) : failed_(failed), fails_(fails) {}
  Result<void> download(const std::byte* device, std::span<std::byte> to) override {
    if (!fails_) return IdleBackend::download(device, to);
    failed_ = true;
    return fail("rank", "fails", Fault::environment);
  }
  Result<void> synchronise() override {
    if (failed_ && !fails_) return fail("another rank", "failed", Fault::environment);
    return {};
  }

 private:
  std::atomic<bool>& failed_;
  bool fails_;
};

/// Every rank begins with the source's weights and exports them; the outcome of each.
std::vector<Result<void>> write_all(const Program& program, const WeightSource& source,
                                    const HfExport& exported,
                                    std::optional<std::int64_t> failing = {}) {
  const std::int64_t ranks = program.config.mesh.world_size();
  SharedHostGather gather(ranks);
  std::atomic<bool> failed = false;
  std::vector<Result<void>> outcomes(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        test::RankMemory memory(program);
        const auto bytes = memory.bytes();
        const auto parameters = find_parameters(program, bytes, rank).value();
        RankBackend backend(failed, rank == failing);
        Result<void>& outcome = outcomes[static_cast<std::size_t>(rank)];
        outcome = clear_state(backend, program, bytes);
        if (outcome) outcome = fill_initial_weights(backend, parameters, source);
        if (outcome) outcome = exported.write(rank, backend, parameters, gather);
      });
  }
  return outcomes;
}

void export_to(const std::filesystem::path& folder, const PlanConfig& config,
               const WeightSource& source, std::int64_t shard_bytes = kHfShardBytes) {
  const Program program = build_program(config, {}).value();
  const auto exported = HfExport::prepare(program, folder, shard_bytes);
  ASSERT_TRUE(exported) << exported.error().message();
  for (const auto& outcome : write_all(program, source, *exported))
    ASSERT_TRUE(outcome) << outcome.error().message();
}

/// The values that a rank alone would have begun with, as the checkpoint's own tensors.
/// In the tensor's own order: of one matrix, or of each expert's.
std::vector<double> transposed(const HfTensor& tensor, const std::vector<double>& values) {
  const auto inputs = tensor.shape[tensor.shape.size() - 2];
  const auto matrix = inputs * tensor.shape.back();
  std::vector<double> made;
  for (auto at = values.begin(); at != values.end(); at += matrix)
    for (const double value : test::transposed({at, at + matrix}, inputs)) made.push_back(value);
  return made;
}

std::vector<test::FileTensor> random_tensors(const Program& program, DType dtype) {
  const HfTensors tensors = HfTensors::of(program).value();
  std::vector<test::FileTensor> all(tensors.all().size());
  for (const Group& group : program.groups)
    for (const PlacedParameter& parameter : group.parameters)
      for (std::size_t t = 0; t < all.size(); ++t) {
        const HfTensor& tensor = tensors.all()[t];
        if (tensor.parameter != parameter.name) continue;
        std::vector<double> values(static_cast<std::size_t>(tensor.elements.size()));
        EXPECT_TRUE(RandomWeights(2, 5).read(parameter, tensor.elements.begin, values));
        if (tensor.transposed) values = transposed(tensor, values);
        all[t] = {.shape = {.name = tensor.name, .dtype = dtype, .shape = tensor.shape},
                  .bytes = test::encode(dtype, values)};
      }
  return all;
}

/// Every strategy and mesh, uneven shards, tied weights, frozen parts, all dtypes.
std::vector<PlanConfig> various() {
  std::vector<PlanConfig> configs;
  for (const auto strategy :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params})
    for (const std::int64_t ranks : {1, 3}) configs.push_back(test::small_model(ranks, strategy));
  for (const auto outer : {Strategy::no_shard, Strategy::optim}) {
    configs.push_back(test::small_model());
    configs.back().mesh = data_parallel_mesh(2, 2);
    configs.back().outer_strategy = outer;
  }
  configs.push_back(test::small_model(2));
  configs.back().model.tied_embeddings = true;
  configs.back().model.qkv_bias = true;
  configs.push_back(test::small_model(2));
  configs.back().frozen = {"mlp", "embed_tokens"};
  configs.back().model.qk_norm = true;
  for (const DType dtype : {DType::fp16, DType::fp32}) {
    configs.push_back(test::small_model(2));
    configs.back().param_dtype = dtype;
  }
  configs.push_back(test::small_gpt2(3));
  configs.push_back(test::small_model(3));
  test::make_family(configs.back().model, Family::olmo2);
  configs.back().model.qk_norm = true;
  configs.push_back(test::small_model(3));
  test::make_family(configs.back().model, Family::mixtral);
  configs.back().model.normalised_routing = true;
  configs.push_back(test::small_model(3));
  test::make_family(configs.back().model, Family::gpt_oss);
  configs.push_back(test::small_model(2));
  test::make_family(configs.back().model, Family::deepseek);
  configs.back().model.sigmoid_routing = configs.back().model.normalised_routing = true;
  configs.back().model.rms_norm_eps = {1, 1'000'000};
  configs.push_back(test::small_model(2));
  test::add_experts(configs.back().model, 3, 2, {0});
  configs.back().model.qk_norm = true;
  return configs;
}

TEST(HfExport, HoldsTheComputeWeightsOfEveryStrategyAndMesh) {
  for (const PlanConfig& config : various()) {
    const test::ScratchFolder folder;
    const Program program = build_program(config, {}).value();
    export_to(folder / "out", config, RandomWeights(2, 5));
    EXPECT_EQ(folder.file_count(), 1U);
    ASSERT_EQ(test::content(folder / "out").size(), 2U);  // config.json and one file
    const std::string file = test::read_file(folder / "out" / "model.safetensors");
    const auto parsed = parse_safetensors(std::as_bytes(std::span(file)), "f");
    ASSERT_TRUE(parsed) << parsed.error().message();
    EXPECT_EQ(parsed->metadata.at("format"), "pt");
    const auto expected = random_tensors(program, config.param_dtype);
    ASSERT_EQ(parsed->tensors.size(), expected.size());
    for (std::size_t t = 0; t < expected.size(); ++t) {
      EXPECT_EQ(parsed->tensors[t].name, expected[t].shape.name);
      EXPECT_EQ(parsed->tensors[t].shape, expected[t].shape.shape);
      EXPECT_EQ(parsed->tensors[t].dtype, safetensors_name(config.param_dtype));
      const auto* data = reinterpret_cast<const char*>(parsed->tensors[t].data.data());
      EXPECT_TRUE(std::string(data, parsed->tensors[t].data.size()) == expected[t].bytes)
          << to_string(config.strategy) << " " << expected[t].shape.name;
    }
  }
}

/// Wherever it was exported from and begun with: every file, to the bit.
TEST(HfExport, OfWeightsFromAnExportIsThatExport) {
  const test::ScratchFolder folder;
  constexpr std::int64_t kShard = 2'000;
  export_to(folder / "first", test::small_model(3), RandomWeights(2, 5), kShard);
  const auto first = test::content(folder / "first");
  EXPECT_GT(first.size(), 5U);
  for (PlanConfig config : various()) {
    if (config.model != test::small_model().model || config.param_dtype != DType::bf16) continue;
    const Program program = build_program(config, {}).value();
    const auto weights = HfWeights::open(folder / "first", program);
    ASSERT_TRUE(weights) << weights.error().message();
    export_to(folder / "again", config, *weights, kShard);
    EXPECT_TRUE(test::content(folder / "again") == first) << to_string(config.strategy);
  }
}

/// Phi-3's class: fused tensors, a window, and its name, out and in.
TEST(HfExport, OfPhi3IsInItsLayout) {
  const test::ScratchFolder folder;
  PlanConfig config = test::small_model(3);
  config.model.fused_weights = true;
  config.model.sliding_window = 8;
  config.model.sliding_layers = {0, 1};
  config.model.rotary_dim = 2;
  export_to(folder / "first", config, RandomWeights(2, 5), 1'000'000);
  const auto first = test::content(folder / "first");
  EXPECT_NE(first.at("config.json").find("Phi3ForCausalLM"), std::string::npos);
  const std::string& weights_file = first.at("model.safetensors");
  for (const char* name :
       {"model.layers.1.self_attn.qkv_proj.weight", "model.layers.1.mlp.gate_up_proj.weight"})
    EXPECT_NE(weights_file.find(name), std::string::npos) << name;
  for (const char* name : {"q_proj", "gate_proj"})
    EXPECT_EQ(weights_file.find(std::string(".") + name), std::string::npos) << name;
  const Program program = build_program(config, {}).value();
  const auto weights = HfWeights::open(folder / "first", program);
  ASSERT_TRUE(weights) << weights.error().message();
  export_to(folder / "again", config, *weights, 1'000'000);
  EXPECT_TRUE(test::content(folder / "again") == first);
}

TEST(HfExport, SplitsTensorsByTheirBytes) {
  const test::ScratchFolder folder;
  // bf16: embedding and head 720 bytes each; a block 24 + 384 + 192 + 192 + 384 + 24 + 3 * 480
  // = 2,640; the last norm 24: 6,744 in all. 2,200 hold the embedding and a block up to its gate
  // (720 + 24 + 384 + 192 + 192 + 384 + 24 = 1,920); another 480 would be too much.
  export_to(folder / "out", test::small_model(), RandomWeights(2, 5), 2'200);
  const auto files = test::content(folder / "out");
  const auto index = nlohmann::json::parse(files.at("model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 6'744);
  const auto& map = index["weight_map"];
  EXPECT_EQ(map.size(), 21U);
  EXPECT_EQ(map["model.embed_tokens.weight"], "model-00001-of-00004.safetensors");
  EXPECT_EQ(map["model.layers.0.post_attention_layernorm.weight"],
            "model-00001-of-00004.safetensors");
  EXPECT_EQ(map["model.layers.0.mlp.gate_proj.weight"], "model-00002-of-00004.safetensors");
  EXPECT_EQ(map["lm_head.weight"], "model-00004-of-00004.safetensors");
  EXPECT_EQ(files.size(), 6U);  // four shards, index, config.json
  for (const auto& [name, bytes] : files)
    if (name.ends_with(".safetensors")) {
      EXPECT_TRUE(parse_safetensors(std::as_bytes(std::span(bytes)), name));
    }
}

TEST(HfExport, AFailureOnAnyRankLeavesWhatWasThere) {
  const Program program = build_program(test::small_model(3), {}).value();
  for (const bool earlier : {false, true})
    for (const std::int64_t failing : {0, 2}) {
      const test::ScratchFolder folder;
      if (earlier) export_to(folder / "out", test::small_model(2), RandomWeights(2, 6));
      const auto before = earlier ? test::content(folder / "out") : decltype(test::content("")){};
      const auto exported = HfExport::prepare(program, folder / "out").value();
      const auto outcomes = write_all(program, RandomWeights(2, 5), exported, failing);
      for (std::int64_t rank = 0; rank < 3; ++rank)
        EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].error().message(),
                  rank == failing ? "rank: fails" : "another rank: failed");
      EXPECT_EQ(folder.file_count(), earlier ? 1U : 0U);
      if (earlier) {
        EXPECT_TRUE(test::content(folder / "out") == before);
      }
    }
}

TEST(HfExport, ReplacesNothingButAnEarlierExport) {
  const Program program = build_program(test::small_model(2), {}).value();
  const test::ScratchFolder folder;
  const auto refused = [&](const std::string& name) {
    const auto exported = HfExport::prepare(program, folder / name);
    return exported ? "none" : exported.error().message();
  };
  const std::string full =
      ": is neither empty nor an earlier export; name another folder to export to";
  EXPECT_EQ(refused("out"), "none");
  std::filesystem::create_directory(folder / "out");
  EXPECT_EQ(refused("out"), "none");
  EXPECT_EQ(refused("out/"), "none");
  export_to(folder / "out", test::small_model(2), RandomWeights(2, 5));
  EXPECT_EQ(refused("out"), "none");
  test::write_file(folder / "out" / "tokenizer.json", "{}");
  EXPECT_EQ(refused("out"), (folder / "out").string() + full);
  // A foreign checkpoint: the same names, but not written by mfsdp.
  test::write_checkpoint(folder / "other", program, test::tensors_of(program, DType::bf16));
  EXPECT_EQ(refused("other"), (folder / "other").string() + full);
  test::write_file(folder / "file", "");
  EXPECT_EQ(refused("file"),
            (folder / "file").string() +
                ": expected a folder or nothing at the export's place, found a file");
  EXPECT_EQ(folder.file_count(), 3U);
}

TEST(HfExport, AFolderThatCannotBeMadeIsTheEnvironmentsFault) {
  const Program program = build_program(test::small_model(1), {}).value();
  const test::ScratchFolder folder;
  test::write_file(folder / "file", "");
  const auto impossible = HfExport::prepare(program, folder / "file" / "out");
  ASSERT_FALSE(impossible);
  EXPECT_EQ(impossible.error().fault, Fault::environment);
  EXPECT_EQ(impossible.error().message(),
            (folder / "file" / "out").string() + ": cannot be made: Not a directory");
}

TEST(HfExport, MakesTheFoldersAboveIt) {
  const test::ScratchFolder folder;
  export_to(folder / "a" / "b" / "out", test::small_model(1), RandomWeights(2, 5));
  EXPECT_TRUE(std::filesystem::exists(folder / "a" / "b" / "out" / "model.safetensors"));
}

/// A process is killed between its first file and its last, which another one then sees.
TEST(HfExport, WhatAKilledOneLeftIsRemovedByTheNextAndByNoOther) {
  const Program program = build_program(test::small_model(1), {}).value();
  const test::ScratchFolder folder;
  const auto left_behind = [&] {
    const auto child = test::start_child([&] {
      auto left = TemporaryFolder::beside(folder / "out", "out").value();
      test::write_file(left.path() / "model.safetensors", "half of it");
      ::kill(::getpid(), SIGKILL);
      return 0;
    });
    EXPECT_EQ(test::wait_for(child), 1000 + SIGKILL);
    return TemporaryFolder::name(folder / "out", child, 0);
  };
  const auto stale = left_behind();
  ASSERT_TRUE(std::filesystem::exists(stale));
  EXPECT_TRUE(HfExport::prepare(program, folder / "other")->leftovers().removed.empty());
  ASSERT_TRUE(std::filesystem::exists(stale));
  const auto next = HfExport::prepare(program, folder / "out");
  EXPECT_EQ(next->leftovers().removed, std::vector{stale});
  EXPECT_EQ(folder.file_count(), 0U);
  // One that is being written stays, and is not spoken of.
  const auto running = TemporaryFolder::beside(folder / "out", "out").value();
  const auto beside = HfExport::prepare(program, folder / "out");
  EXPECT_TRUE(beside->leftovers().removed.empty());
  EXPECT_TRUE(beside->leftovers().left.empty());
  EXPECT_TRUE(std::filesystem::exists(running.path()));
}

TEST(HfExport, WhatMayNotBeALeftoverIsNamedAndStays) {
  const Program program = build_program(test::small_model(1), {}).value();
  const test::ScratchFolder folder;
  for (const char* name : {"out.tmp.1.0", "out.tmp.1.1.old", "out.tmp.notes"})
    std::filesystem::create_directory(folder / name);
  test::write_file(folder / "out.tmp.1.0" / "notes.txt", "mine");
  // The earlier export, of a process that was killed between two renames.
  test::write_file(folder / "out.tmp.1.1.old" / "config.json", "{}");
  const auto exported = HfExport::prepare(program, folder / "out");
  ASSERT_TRUE(exported);
  EXPECT_TRUE(exported->leftovers().removed.empty());
  EXPECT_EQ(exported->leftovers().left,
            (std::vector{folder / "out.tmp.1.0", folder / "out.tmp.1.1.old"}));
  EXPECT_EQ(folder.file_count(), 3U);
}

TEST(HfExport, AnExportLargerThanItsDiskIsRefused) {
  PlanConfig config = test::small_model(1);
  config.model.vocab = 2'000'000'000;
  config.model.hidden = 1'000'000;  // two tables of 2e15 bf16: 8e15 bytes
  const Program program = build_program(config, {}).value();
  const test::ScratchFolder folder;
  const auto exported = HfExport::prepare(program, folder / "out");
  ASSERT_FALSE(exported);
  EXPECT_EQ(exported.error().fault, Fault::environment);
  EXPECT_THAT(exported.error().message(),
              StartsWith((folder / "out").string() + ": the export takes 8000"));
  EXPECT_EQ(folder.file_count(), 0U);
}

TEST(HfExport, AnExportThatHasNoPlaceAnyMoreIsKept) {
  const Program program = build_program(test::small_model(1), {}).value();
  const test::ScratchFolder folder;
  const auto exported = HfExport::prepare(program, folder / "out").value();
  std::filesystem::create_directory(folder / "out");
  test::write_file(folder / "out" / "notes.txt", "mine");
  const auto outcome = write_all(program, RandomWeights(2, 5), exported).front();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().fault, Fault::environment);
  const std::string start =
      (folder / "out").string() + ": has come to hold other files; the export is in ";
  EXPECT_THAT(outcome.error().message(), StartsWith(start));
  const std::filesystem::path kept = outcome.error().message().substr(start.size());
  EXPECT_TRUE(HfWeights::open(kept, program));
  EXPECT_EQ(test::read_file(folder / "out" / "notes.txt"), "mine");
}

TEST(HfExport, AFullDiskLeavesNothing) {
  const Program program = build_program(test::small_model(1), {}).value();
  const test::ScratchFolder folder;
  const auto child = test::start_child([&] {
    const auto exported = HfExport::prepare(program, folder / "out").value();
    test::limit_file_size(8'000);  // config.json fits, the weights do not
    const auto outcome = write_all(program, RandomWeights(2, 5), exported).front();
    if (outcome || outcome.error().fault != Fault::environment) return 1;
    return outcome.error().message() == (folder / "out" / "model.safetensors").string() +
                                            ": cannot be written: File too large"
               ? 0
               : 2;
  });
  EXPECT_EQ(test::wait_for(child), 0);
  EXPECT_EQ(folder.file_count(), 0U);
}

}  // namespace
}  // namespace mfsdp
