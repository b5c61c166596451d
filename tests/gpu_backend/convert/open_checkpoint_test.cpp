#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "gpu_backend/convert/checkpoint.hpp"
#include "gpu_backend/convert/data_file.hpp"
#include "gpu_backend/convert/readers.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

const fs::path kData = fs::path(MFSDP_SOURCE_DIR) / "tests/gpu_backend/convert/data";

/// A tensor of bfloat16 as numbers.
std::vector<float> values_of(const Checkpoint& read, const std::string& name) {
  const CheckpointTensor* tensor = read.find(name);
  if (tensor == nullptr) return {};
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(tensor->elements()));
  TensorReader reader(read);
  EXPECT_TRUE(reader.read(*tensor, 0, std::as_writable_bytes(std::span(bits))));
  std::vector<float> values;
  for (const std::uint16_t one : bits)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(one) << 16U));
  return values;
}

std::vector<float> zero_to_fourteen() {
  std::vector<float> values(15);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

TEST(OpenCheckpoint, DcpOfPyTorch) {
  const auto read = open_checkpoint(kData / "dcp");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->format, CheckpointFormat::dcp);
  EXPECT_TRUE(read->problems.empty());
  ASSERT_EQ(read->tensors.size(), 4U);
  EXPECT_EQ(read->objects.size(), 4U);
  const CheckpointTensor* weight = read->find("model.a.w");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->type->torch, "bfloat16");
  EXPECT_THAT(weight->shape, ElementsAre(5, 3));
  EXPECT_EQ(weight->boxes.size(), 2U);
  EXPECT_EQ(values_of(*read, "model.a.w"), zero_to_fourteen());
  EXPECT_TRUE(read->find("optim.state.a.w.step")->shape.empty());
  EXPECT_TRUE(read->step);
}

TEST(OpenCheckpoint, DcpOfSafetensors) {
  const auto read = open_checkpoint(kData / "dcp_safetensors");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->format, CheckpointFormat::dcp);
  EXPECT_EQ(values_of(*read, "a.w"), zero_to_fourteen());
  EXPECT_THAT(read->find("r")->shape, ElementsAre(3));
}

TEST(OpenCheckpoint, FilesOfTensors) {
  // The first item of a file of DCP is an archive of its own.
  const test::ScratchFolder folder;
  fs::copy(kData / "dcp/__0_0.distcp", folder.path() / "a.pt");
  fs::resize_file(folder.path() / "a.pt", 1577);
  const auto read = open_checkpoint(folder.path() / "a.pt");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->format, CheckpointFormat::torch);
  EXPECT_THAT(values_of(*read, "tensor"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(OpenCheckpoint, ProblemsAreNamed) {
  const test::ScratchFolder folder;
  const fs::path copy = folder.path() / "c";
  fs::copy(kData / "dcp", copy);
  fs::resize_file(copy / "__1_0.distcp", 9000);
  auto read = open_checkpoint(copy);
  ASSERT_TRUE(read) << read.error().message();
  ASSERT_EQ(read->problems.size(), 2U);
  EXPECT_THAT(read->problems[0].message(), HasSubstr("expected 1577 bytes from byte 8198"));
  fs::remove(copy / "__1_0.distcp");
  read = open_checkpoint(copy);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_THAT(read->problems[0].message(), HasSubstr("__1_0.distcp: is missing"));
  fs::remove(copy / ".metadata");
  read = open_checkpoint(copy);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message(), HasSubstr("the save is partial"));
  read = open_checkpoint(folder.path() / "none");
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message(), HasSubstr("does not exist"));
}

TEST(DcpMetadata, HostileBytes) {
  std::ifstream in(kData / "dcp/.metadata", std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  const auto error_of = [](const std::string& bytes) {
    const auto read = read_dcp_metadata(bytes, "f");
    return read ? "" : read.error().message();
  };
  EXPECT_EQ(error_of(good), "");
  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string bytes = good;
    bytes.replace(bytes.find(from), from.size(), to);
    return error_of(bytes);
  };
  EXPECT_THAT(replaced("__0_0.distcp", "../../etc/pw"), HasSubstr("in the checkpoint's folder"));
  EXPECT_THAT(replaced("pathlib", "subproc"), HasSubstr("names subproc.PosixPath"));
  EXPECT_THAT(replaced("bfloat16", "bfloat17"), HasSubstr("which no checkpoint needs"));
  for (std::size_t size = 0; size < good.size(); size += 7)
    EXPECT_NE(error_of(good.substr(0, size)), "");
}

TEST(BoxesOfInterval, CoverItInOrder) {
  // Rows of 3: elements 2 to 12 are the end of row 0, rows 1 to 3, and the beginning of row 4.
  const auto boxes = boxes_of_interval({5, 3}, 2, 13);
  ASSERT_EQ(boxes.size(), 3U);
  EXPECT_EQ(boxes[0], (TensorBox{.offsets = {0, 2}, .sizes = {1, 1}}));
  EXPECT_EQ(boxes[1], (TensorBox{.offsets = {1, 0}, .sizes = {3, 3}}));
  EXPECT_EQ(boxes[2], (TensorBox{.offsets = {4, 0}, .sizes = {1, 1}}));
  EXPECT_EQ(boxes_of_interval({}, 0, 1).size(), 1U);
  EXPECT_TRUE(boxes_of_interval({0, 4}, 0, 0).empty());
}

TEST(TensorReader, PartsOfManyBoxes) {
  const auto read = open_checkpoint(kData / "dcp");
  ASSERT_TRUE(read);
  TensorReader reader(*read);
  const CheckpointTensor* weight = read->find("model.a.w");
  for (std::int64_t begin = 0; begin < 15; ++begin)
    for (std::int64_t end = begin; end <= 15; ++end) {
      std::vector<std::uint16_t> bits(static_cast<std::size_t>(end - begin));
      ASSERT_TRUE(reader.read(*weight, begin, std::as_writable_bytes(std::span(bits))));
      for (std::size_t i = 0; i < bits.size(); ++i)
        EXPECT_EQ(std::bit_cast<float>(static_cast<std::uint32_t>(bits[i]) << 16U),
                  static_cast<float>(begin) + static_cast<float>(i));
    }
}

}  // namespace
}  // namespace mfsdp
