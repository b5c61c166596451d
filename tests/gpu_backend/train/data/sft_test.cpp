// JSONL for supervised fine-tuning: what is learned, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "gpu_backend/train/data/byte_tokens.hpp"
#include "tests/gpu_backend/train/data/token_files.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::read_sample;
using test::ScratchFolder;
using test::Tokens;
using test::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int32_t kNo = kIgnoreIndex;

TEST(Sft, PromptAndPaddingCarryNoLoss) {
  const ScratchFolder folder;
  write_file(folder / "a.jsonl", "{\"prompt\": \"hi\", \"response\": \"yo\"}\n");
  const auto data = open_dataset(folder / "a.jsonl", {.vocab = 264, .seq_len = 8});
  ASSERT_TRUE(data) << data.error().message();
  ASSERT_EQ((*data)->samples(), 1);
  const auto sample = read_sample(**data, 0, 8).value();
  EXPECT_THAT(sample.tokens,
              ElementsAre(kBeginToken, 'h', 'i', 'y', 'o', kEndToken, kPadToken, kPadToken));
  EXPECT_THAT(sample.labels, ElementsAre(kNo, kNo, 'y', 'o', kEndToken, kNo, kNo, kNo));
  EXPECT_EQ((*data)->describe(), "1 samples of prompt and response");
  EXPECT_NEAR((*data)->unigram_entropy().value(), std::log(3.0), 1e-12);  // y, o, end
}

TEST(Sft, ChatsLearnWhatTheAssistantSays) {
  const ScratchFolder folder;
  write_file(folder / "a.jsonl", R"({"messages": [{"role": "user", "content": "a"},)"
                                 R"( {"role": "assistant", "content": "b"}], "id": 7})");
  const auto data = open_dataset(folder / "a.jsonl", {.vocab = 264, .seq_len = 19});
  ASSERT_TRUE(data) << data.error().message();
  const auto sample = read_sample(**data, 0, 19).value();
  Tokens tokens{kBeginToken, 'u', 's', 'e', 'r', '\n', 'a', kEndToken};
  for (const char c : std::string("assistant\nb")) tokens.push_back(c);
  EXPECT_EQ(sample.tokens, tokens);
  Tokens labels(19, kNo);
  labels[17] = 'b';
  labels[18] = kEndToken;
  EXPECT_EQ(sample.labels, labels);
}

TEST(Sft, CutsLongSamplesAndLeavesOutThoseWithoutRoomForAnAnswer) {
  const ScratchFolder folder;
  write_file(folder / "a.jsonl",
             "{\"prompt\": \"ab\", \"response\": \"cdef\"}\n"
             "\n"
             "{\"prompt\": \"abcdef\", \"response\": \"g\"}\r\n"
             "{\"prompt\": \"\", \"response\": \"\"}");
  const auto data = open_dataset(folder / "a.jsonl", {.vocab = 264, .seq_len = 4});
  ASSERT_TRUE(data) << data.error().message();
  ASSERT_EQ((*data)->samples(), 2);
  const auto cut = read_sample(**data, 0, 4).value();
  EXPECT_THAT(cut.tokens, ElementsAre(kBeginToken, 'a', 'b', 'c'));
  EXPECT_THAT(cut.labels, ElementsAre(kNo, kNo, 'c', 'd'));
  const auto empty = read_sample(**data, 1, 4).value();
  EXPECT_THAT(empty.labels, ElementsAre(kEndToken, kNo, kNo, kNo));
  EXPECT_EQ((*data)->describe(),
            "2 samples of prompt and response; 1 cut to 4 tokens; 1 left out, their prompts fill "
            "4 tokens");
}

TEST(Sft, ReadsTheFilesOfAFolderInOrder) {
  const ScratchFolder folder;
  write_file(folder / "2.jsonl", R"({"prompt": "c", "response": "d"})");
  write_file(folder / "1.jsonl", R"({"prompt": "a", "response": "b"})");
  const auto data = open_dataset(folder.path(), {.vocab = 264, .seq_len = 3});
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_THAT(read_sample(**data, 0, 3).value().tokens, ElementsAre(kBeginToken, 'a', 'b'));
  EXPECT_THAT(read_sample(**data, 1, 3).value().tokens, ElementsAre(kBeginToken, 'c', 'd'));
}

/// What is said of a second line, after the file's name.
std::string line_refusal(const std::string& line) {
  const ScratchFolder folder;
  write_file(folder / "a.jsonl", "{\"prompt\": \"a\", \"response\": \"b\"}\n" + line + "\n");
  const std::string said = test::refusal(folder / "a.jsonl", {.vocab = 264, .seq_len = 8});
  const std::string name = (folder / "a.jsonl").string();
  EXPECT_TRUE(said.starts_with(name)) << said;
  return said.substr(std::min(said.size(), name.size()));
}

TEST(Sft, WrongLinesAreNamed) {
  EXPECT_THAT(line_refusal("{\"prompt\": "), HasSubstr(":2:12: "));
  EXPECT_EQ(line_refusal("[1]"), ":2: expected an object, got [1]");
  EXPECT_EQ(line_refusal("{\"txt\": \"a\"}"),
            ":2: expected a key \"messages\", \"conversations\", \"prompt\", \"instruction\", "
            "\"text\" or \"input_ids\"");
  EXPECT_EQ(line_refusal("{\"prompt\": \"a\"}"), ":2: expected a key \"response\"");
  EXPECT_EQ(line_refusal("{\"prompt\": 7, \"response\": \"b\"}"),
            ":2: expected a string under \"prompt\", got 7");
  EXPECT_EQ(line_refusal("{\"messages\": {}}"), ":2: expected a list under \"messages\", got {}");
  EXPECT_EQ(line_refusal("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}"),
            ":2: expected a message whose role is \"assistant\", and whose weight is not 0");
  EXPECT_EQ(line_refusal("{\"messages\": [3]}"), ":2: messages[0]: expected an object, got 3");
  EXPECT_EQ(line_refusal("{\"messages\": [{\"role\": \"user\"}]}"),
            ":2: messages[0]: expected a key \"content\"");
}

TEST(Sft, ALineHasABound) {
  EXPECT_EQ(line_refusal("{\"text\": \"" + std::string(std::size_t{16} << 20, 'x') + "\"}"),
            ":2: a line of 16777228 bytes: expected at most 16 MiB");  // 2^24 and 12 around them
}

TEST(Sft, BytesThatAreNotUtf8AreRefusedInOneShortLine) {
  const std::string bad = line_refusal("{\"prompt\": \"a\xff\", \"response\": \"b\"}");
  EXPECT_THAT(bad, HasSubstr(":2:14: "));
  EXPECT_THAT(bad, HasSubstr("UTF-8"));
  EXPECT_THAT(line_refusal(R"({"prompt": "\ud800", "response": "b"})"), HasSubstr(":2:"));
  const std::string late =
      line_refusal("{\"prompt\": \"" + std::string(100'000, 'x') + "\xff\", \"response\": \"b\"}");
  EXPECT_THAT(late, HasSubstr(":2:100013: "));
  EXPECT_LT(late.size(), 400);
}

TEST(Sft, ADataSetWithoutAnAnswerIsRefused) {
  const ScratchFolder folder;
  write_file(folder / "a.jsonl", " \n\n");
  EXPECT_EQ(test::refusal(folder / "a.jsonl", {.vocab = 264, .seq_len = 4}),
            (folder / "a.jsonl").string() +
                ": expected a line whose response begins within 4 tokens; 0 samples of prompt and "
                "response");
}

RC_GTEST_PROP(SftProperty, GivesBackWhatWasWritten, ()) {
  const auto text = rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127));
  const std::string prompt = *text;
  const std::string response = *text;
  const ScratchFolder folder;
  write_file(folder / "a.jsonl", nlohmann::json{{"prompt", prompt}, {"response", response}}.dump());
  const std::size_t seq_len = prompt.size() + response.size() + 1;
  const auto data = open_dataset(folder / "a.jsonl",
                                 {.vocab = 264, .seq_len = static_cast<std::int64_t>(seq_len)});
  RC_ASSERT(data.has_value());
  const auto sample = read_sample(**data, 0, seq_len).value();
  Tokens expected{kBeginToken};
  expected.insert(expected.end(), prompt.begin(), prompt.end());
  expected.insert(expected.end(), response.begin(), response.end());
  RC_ASSERT(sample.tokens == expected);
  for (std::size_t i = 0; i < seq_len; ++i) {
    const std::int32_t next = i + 1 < seq_len ? expected[i + 1] : kEndToken;
    RC_ASSERT(sample.labels[i] == (i < prompt.size() ? kIgnoreIndex : next));
  }
}

}  // namespace
}  // namespace mfsdp
