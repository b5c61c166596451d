// Ids of 10,000 lines of mixed scripts, against those of Hugging Face's tokenizers: golden_ids.py.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_backend/train/data/random_bits.hpp"
#include "gpu_backend/train/text/tokenizer.hpp"
#include "gpu_backend/train/text/utf8.hpp"
#include "tests/support/samples.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kLines = 10'000;

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::string kGoldenFolder = MFSDP_SOURCE_DIR "/tests/gpu_backend/train/text/";

/// As make_line in golden_ids.py.
std::string golden_line(std::uint64_t number, const nlohmann::json& pieces) {
  std::uint64_t counter = number << 16U;
  const auto draw = [&](std::uint64_t below) { return mix_bits(counter++) % below; };
  std::string text;
  for (std::uint64_t left = 1 + draw(8); left > 0; --left) {
    const nlohmann::json& piece = pieces[draw(pieces.size())];
    if (piece.is_array()) {
      text += piece[draw(piece.size())].get<std::string>();
      continue;
    }
    const auto first = piece["first"].get<std::uint64_t>();
    const auto least = piece["least"].get<std::uint64_t>();
    const std::uint64_t count = least + draw(piece["most"].get<std::uint64_t>() - least + 1);
    for (std::uint64_t i = 0; i < count; ++i)
      append_utf8(text, static_cast<std::uint32_t>(
                            first + draw(piece["last"].get<std::uint64_t>() - first + 1)));
  }
  return text;
}

std::uint32_t crc_of(const void* data, std::size_t size) {
  return static_cast<std::uint32_t>(
      crc32(0, static_cast<const unsigned char*>(data), static_cast<unsigned>(size)));
}

/// The file's columns: of the lines themselves, then of each tokenizer's ids.
std::vector<std::uint32_t> golden_column(std::size_t column) {
  const std::string all = read_whole(kGoldenFolder + "golden_ids.bin");
  EXPECT_EQ(all.size(), 4 * kLines * sizeof(std::uint32_t));
  std::vector<std::uint32_t> values(kLines);
  std::memcpy(values.data(), all.data() + column * kLines * sizeof(std::uint32_t),
              kLines * sizeof(std::uint32_t));
  return values;
}

class GoldenIds : public testing::TestWithParam<std::pair<const char*, std::size_t>> {};

TEST_P(GoldenIds, AreThoseOfHuggingFace) {
  const auto& [name, column] = GetParam();
  const auto pieces = nlohmann::json::parse(read_whole(kGoldenFolder + "golden_lines.json"));
  const auto tokenizer =
      Tokenizer::open(fmt::format("{}/scenarios/tokenizers/{}", MFSDP_SOURCE_DIR, name));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  const std::vector<std::uint32_t> texts = golden_column(0);
  const std::vector<std::uint32_t> expected = golden_column(column);
  TextEncoder encoder(*tokenizer);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kLines && wrong < 5; i += test::kOneCase ? 100 : 1) {
    const std::string line = golden_line(i, pieces);
    ASSERT_EQ(crc_of(line.data(), line.size()), texts[i]) << "line " << i << " is another";
    std::vector<std::int32_t> ids;
    const auto encoded = encoder.encode(line, ids);
    ASSERT_TRUE(encoded) << encoded.error().message();
    if (crc_of(ids.data(), ids.size() * sizeof(ids[0])) != expected[i]) {
      ++wrong;
      ADD_FAILURE() << "line " << i << ": " << nlohmann::json(line).dump(-1, ' ', true)
                    << " became " << nlohmann::json(ids).dump();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenIds,
                         testing::Values(std::pair("gpt2_tiny", 1), std::pair("llama3_tiny", 2),
                                         std::pair("qwen3_tiny", 3)),
                         [](const auto& one) { return std::string(one.param.first); });

}  // namespace
}  // namespace mfsdp
