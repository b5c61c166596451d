// Every form of a line by bytes and by tokenizers: tokens and labels by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "gpu_backend/train/data/byte_tokens.hpp"
#include "gpu_backend/train/data/mixture.hpp"
#include "gpu_backend/train/data/pack.hpp"
#include "gpu_backend/train/data/sft_line.hpp"
#include "gpu_backend/train/text/text_form.hpp"
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

const std::string kTokenizers = MFSDP_SOURCE_DIR "/scenarios/tokenizers/";

std::shared_ptr<const TextForm> form_of(const std::string& name,
                                        std::optional<ChatTemplate> chat = std::nullopt) {
  auto form = open_text_form(kTokenizers + name, chat);
  EXPECT_TRUE(form) << form.error().message();
  return std::make_shared<const TextForm>(std::move(*form));
}

/// A line as text in which what is learned stands between «and», token by token: a token that does
/// not learn ends it. Of tokens that are parts of characters this would be no UTF-8.
std::string masked(const LineEncoder& encoder, const TextForm* form, const std::string& line) {
  const auto sequence = encoder.encode(line, "f", 1);
  if (!sequence) return sequence.error().message();
  std::string text;
  bool inside = false;
  for (std::size_t i = 0; i < sequence->tokens.size(); ++i) {
    const std::int32_t token = sequence->tokens[i];
    if (sequence->learned[i] != inside) text += inside ? "\u00bb" : "\u00ab";
    inside = sequence->learned[i];
    if (form != nullptr)
      text += form->tokenizer->decode({&token, 1}).value();
    else if (token < 256)
      text += static_cast<char>(token);
    else
      text += token == kBeginToken ? "<begin>" : "<end>";
  }
  return inside ? text + "\u00bb" : text;
}

struct MaskRow {
  const char* line;
  const char* bytes;
  const char* chatml;
  const char* llama3;
};

// What is learned, by hand, of each form of a chat.
const std::array<MaskRow, 9> kMaskTable{{
    {R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
         {"role": "assistant", "content": "A"}, {"role": "user", "content": "V"},
         {"role": "assistant", "content": "B"}]})",
     "<begin>system\nS<end>user\nU<end>assistant\n«A<end>»user\nV<end>assistant\n«B<end>»",
     "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
     "«A<|im_end|>»\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n«B<|im_end|>»\n",
     "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n«A<|eot_id|>»"
     "<|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n«B<|eot_id|>»"},
    // Contents that are null, a list of parts, or have white space around them.
    {R"({"messages": [{"role": "user", "content": null},
         {"role": "assistant", "content": [{"type": "text", "text": " A\n"}, "B "]}]})",
     "<begin>user\n<end>assistant\n« A\nB <end>»",
     "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n« A\nB <|im_end|>»\n",
     "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n«A\nB<|eot_id|>»"},
    // An assistant's turn of weight 0.
    {R"({"messages": [{"role": "assistant", "content": "A", "weight": 0},
         {"role": "user", "content": "U"}, {"role": "assistant", "content": "B", "weight": 1}]})",
     "<begin>assistant\nA<end>user\nU<end>assistant\n«B<end>»",
     "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
     "«B<|im_end|>»\n",
     "<|begin_of_text|><|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n«B<|eot_id|>»"},
    {R"({"conversations": [{"from": "human", "value": "U"}, {"from": "gpt", "value": "A"}],
         "system": "S"})",
     "<begin>system\nS<end>user\nU<end>assistant\n«A<end>»",
     "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
     "«A<|im_end|>»\n",
     "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n«A<|eot_id|>»"},
    {R"({"instruction": "I", "input": "N", "output": "O"})",
     "<begin>user\nI\nN<end>assistant\n«O<end>»",
     "<|im_start|>user\nI\nN<|im_end|>\n<|im_start|>assistant\n«O<|im_end|>»\n",
     "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nI\nN<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n«O<|eot_id|>»"},
    // Of a prompt's messages none is learned, of the completion's the assistant's.
    {R"({"prompt": [{"role": "assistant", "content": "P"}, {"role": "user", "content": "U"}],
         "completion": [{"role": "assistant", "content": "A"}]})",
     "<begin>assistant\nP<end>user\nU<end>assistant\n«A<end>»",
     "<|im_start|>assistant\nP<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
     "«A<|im_end|>»\n",
     "<|begin_of_text|><|start_header_id|>assistant<|end_header_id|>\n\nP<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n«A<|eot_id|>»"},
    {R"({"prompt": "P", "completion": "C"})", "<begin>P«C<end>»", "P«C<|im_end|>»",
     "<|begin_of_text|>P«C<|end_of_text|>»"},
    {R"({"prompt": null, "response": ["C", "D"]})", "<begin>«CD<end>»", "«CD<|im_end|>»",
     "<|begin_of_text|>«CD<|end_of_text|>»"},
    {R"({"text": "T"})", "<begin>«T<end>»", "«T<|im_end|>»", "<|begin_of_text|>«T<|end_of_text|>»"},
}};

TEST(Formats, LearnWhatTheTableSays) {
  const auto qwen = form_of("qwen3_tiny");
  const auto llama = form_of("llama3_tiny");
  const LineEncoder by_bytes;
  const LineEncoder by_qwen(qwen);
  const LineEncoder by_llama(llama);
  for (const MaskRow& row : kMaskTable) {
    EXPECT_EQ(masked(by_bytes, nullptr, row.line), row.bytes) << row.line;
    EXPECT_EQ(masked(by_qwen, qwen.get(), row.line), row.chatml) << row.line;
    EXPECT_EQ(masked(by_llama, llama.get(), row.line), row.llama3) << row.line;
  }
}

TEST(Formats, TokensOfAChatAreThoseOfItsParts) {
  const auto form = form_of("qwen3_tiny");
  const auto sequence = LineEncoder(form).encode(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
      "f", 1);
  ASSERT_TRUE(sequence);
  const auto id = [&](const char* token) { return form->tokenizer->find(token).value(); };
  const std::int32_t newline = id("\u010a");
  std::vector<std::int32_t> user;
  std::vector<std::int32_t> assistant;
  TextEncoder encoder(form->tokenizer);
  ASSERT_TRUE(encoder.encode("user", user) && encoder.encode("assistant", assistant));
  Tokens expected{id("<|im_start|>")};
  expected.insert(expected.end(), user.begin(), user.end());
  expected.insert(expected.end(),
                  {newline, id("a"), id("<|im_end|>"), newline, id("<|im_start|>")});
  expected.insert(expected.end(), assistant.begin(), assistant.end());
  expected.insert(expected.end(), {newline, id("b"), id("<|im_end|>"), newline});
  EXPECT_EQ(sequence->tokens, expected);
}

TEST(Formats, TokensAreTakenAsTheyAre) {
  const ScratchFolder folder;
  write_file(folder / "a.jsonl",
             "{\"input_ids\": [5, 6, 7, 8], \"labels\": [-100, -100, 7, 8]}\n"
             "{\"input_ids\": [1, 2, 3, 3], \"attention_mask\": [1, 1, 1, 0]}\n");
  const auto data = open_dataset(folder / "a.jsonl", {.vocab = 9, .seq_len = 5});
  ASSERT_TRUE(data) << data.error().message();
  const auto masked_by_labels = read_sample(**data, 0, 5).value();
  EXPECT_THAT(masked_by_labels.tokens, ElementsAre(5, 6, 7, 8, 0));
  EXPECT_THAT(masked_by_labels.labels, ElementsAre(-100, 7, 8, -100, -100));
  const auto all = read_sample(**data, 1, 5).value();
  EXPECT_THAT(all.tokens, ElementsAre(1, 2, 3, 0, 0));
  EXPECT_THAT(all.labels, ElementsAre(2, 3, -100, -100, -100));
  EXPECT_EQ((*data)->describe(), "2 samples of tokens");
}

TEST(Formats, LongDocumentsBecomePieces) {
  const ScratchFolder folder;
  write_file(folder / "a.jsonl", R"({"text": "abcdefg"})");  // begin, 7 bytes, end: 9 tokens
  const auto data = open_dataset(folder / "a.jsonl", {.vocab = 264, .seq_len = 4});
  ASSERT_TRUE(data) << data.error().message();
  ASSERT_EQ((*data)->samples(), 2);
  EXPECT_THAT(read_sample(**data, 0, 4).value().tokens, ElementsAre(kBeginToken, 'a', 'b', 'c'));
  EXPECT_THAT(read_sample(**data, 0, 4).value().labels, ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_THAT(read_sample(**data, 1, 4).value().tokens, ElementsAre('d', 'e', 'f', 'g'));
  EXPECT_THAT(read_sample(**data, 1, 4).value().labels, ElementsAre('e', 'f', 'g', kEndToken));
  EXPECT_EQ((*data)->describe(), "1 documents; 1 longer than 4 tokens, in pieces");
}

TEST(Formats, PackingPutsSeveralLinesInOneSampleWithoutLossBetweenThem) {
  const ScratchFolder folder;
  write_file(folder / "a.jsonl",
             "{\"text\": \"abcd\"}\n{\"text\": \"x\"}\n{\"prompt\": \"p\", \"response\": \"q\"}\n");
  const auto data = open_dataset(folder / "a.jsonl", {.vocab = 264, .seq_len = 8, .packs = true});
  ASSERT_TRUE(data) << data.error().message();
  // 6, 3 and 4 tokens: the longest stands alone, as 6 + 3 > 8; the others share a sample.
  ASSERT_EQ((*data)->samples(), 2);
  const auto shared = read_sample(**data, 1, 8).value();
  EXPECT_THAT(shared.tokens, ElementsAre(kBeginToken, 'x', kEndToken, kBeginToken, 'p', 'q',
                                         kEndToken, kPadToken));
  EXPECT_THAT(shared.labels, ElementsAre('x', kEndToken, -100, -100, 'q', kEndToken, -100, -100));
  // Padding is a document of its own.
  EXPECT_THAT(shared.positions, ElementsAre(0, 1, 2, 0, 1, 2, 3, 0));
  EXPECT_THAT(read_sample(**data, 0, 8).value().positions, ElementsAre(0, 1, 2, 3, 4, 5, 0, 1));
  EXPECT_EQ((*data)->describe(),
            "1 samples of prompt and response, 2 documents; packed into 2 sequences, attention is "
            "masked between them");
}

RC_GTEST_PROP(PackProperty, KeepsEveryPieceOnceAndWithinTheCapacity, ()) {
  const std::int64_t capacity = *rc::gen::inRange(1, 40);
  const auto lengths = *rc::gen::container<std::vector<std::int64_t>>(
      rc::gen::inRange<std::int64_t>(1, capacity + 1));
  std::multiset<std::uint32_t> seen;
  std::int64_t half_empty = 0;
  for (const auto& sequence : pack(lengths, capacity)) {
    std::int64_t sum = 0;
    for (const std::uint32_t piece : sequence) {
      sum += lengths[piece];
      seen.insert(piece);
    }
    RC_ASSERT(sum >= 1 && sum <= capacity);
    if (2 * sum <= capacity) ++half_empty;
  }
  RC_ASSERT(seen.size() == lengths.size());
  RC_ASSERT(std::set(seen.begin(), seen.end()).size() == lengths.size());
  RC_ASSERT(half_empty <= 1);  // two of them would have been one
}

TEST(Formats, WrongLinesSayWhatWasExpected) {
  const auto said = [](const std::string& line) {
    const auto sequence = LineEncoder().encode(line, "f.jsonl", 3);
    return sequence ? "accepted" : sequence.error().message();
  };
  EXPECT_EQ(
      said(R"({"conversations": [{"from": "robot", "value": "a"}]})"),
      "f.jsonl:3: conversations[0]: expected \"human\", \"gpt\", \"system\" or \"tool\" under "
      "\"from\", got \"robot\"");
  EXPECT_EQ(said(R"({"messages": [{"role": "assistant", "content": [{"type": "image_url"}]}]})"),
            "f.jsonl:3: messages[0]: expected strings or parts of type \"text\" in the list under "
            "\"content\", got "
            "{\"type\":\"image_url\"}");
  EXPECT_EQ(said(R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]})"),
            "f.jsonl:3: messages[0]: \"tool_calls\" is not supported");
  EXPECT_EQ(said(R"({"messages": [{"role": "assistant", "content": "a", "weight": 0.5}]})"),
            "f.jsonl:3: messages[0]: expected 0 or 1 under \"weight\", got 0.5");
  EXPECT_EQ(said(R"({"prompt": "a", "completion": null})"),
            "f.jsonl:3: expected a string under \"completion\", got null");
  EXPECT_EQ(said(R"({"prompt": [{"role": "user", "content": "a"}], "completion": "b"})"),
            "f.jsonl:3: expected a list of messages under \"completion\", as under \"prompt\"");
  EXPECT_EQ(said(R"({"instruction": "a"})"), "f.jsonl:3: expected a key \"output\"");
  EXPECT_EQ(said(R"({"instruction": "a", "output": "b", "history": [["c", "d"]]})"),
            "f.jsonl:3: \"history\" is not supported");
  EXPECT_EQ(said(R"({"text": null})"), "f.jsonl:3: expected a string under \"text\", got null");
  EXPECT_EQ(said(R"({"input_ids": [1, -2]})"),
            "f.jsonl:3: expected integers from 0 on under \"input_ids\", got -2");
  EXPECT_EQ(said(R"({"input_ids": [1, 2], "labels": [1]})"),
            "f.jsonl:3: expected 2 labels, one a token, got 1");
  EXPECT_EQ(said(R"({"input_ids": [1, 2], "labels": [1, 3]})"),
            "f.jsonl:3: expected labels[1] to be 2, its token, or -100, got 3");
  EXPECT_EQ(said(R"({"input_ids": [1, 2], "attention_mask": [0, 1]})"),
            "f.jsonl:3: expected 2 integers under \"attention_mask\": 1, and 0 for padding at the "
            "end");
  const auto gpt2 = form_of("gpt2_tiny");
  const auto chat = LineEncoder(gpt2).encode(
      R"({"messages": [{"role": "assistant", "content": "a"}]})", "f.jsonl", 3);
  ASSERT_FALSE(chat);
  EXPECT_EQ(chat.error().message(),
            "f.jsonl:3: " + kTokenizers +
                "gpt2_tiny/tokenizer.json has no chat template, and the tokens of none: expected "
                "--chat-template chatml or llama3, or no chats");
}

TEST(Formats, TokensOutsideTheVocabularyAreNamed) {
  const ScratchFolder folder;
  write_file(folder / "a.jsonl", "\n{\"input_ids\": [1, 9]}\n");
  EXPECT_EQ(test::refusal(folder / "a.jsonl", {.vocab = 9, .seq_len = 4}),
            (folder / "a.jsonl").string() +
                ":2: expected a token of the model's vocabulary, 0 to 8, got 9");
}

TEST(Formats, TextByATokenizerIsOneStream) {
  const ScratchFolder folder;
  const auto form = form_of("llama3_tiny");
  write_file(folder / "1.txt", "Hello world");
  write_file(folder / "2.txt", "x");
  Tokens stream = form->tokenizer->begin();
  TextEncoder encoder(form->tokenizer);
  ASSERT_TRUE(encoder.encode("Hello world", stream));
  stream.push_back(*form->end);
  stream.push_back(form->tokenizer->begin().front());
  ASSERT_TRUE(encoder.encode("x", stream));
  const auto length = static_cast<std::int64_t>(stream.size());  // and the end of the second
  const auto data = open_dataset(folder.path(), {.vocab = 2000, .seq_len = length, .text = form});
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_EQ(read_sample(**data, 0, stream.size()).value().tokens, stream);
  EXPECT_THAT((*data)->describe(), HasSubstr("text of 12 bytes in 2 files, "));
  write_file(folder / "2.txt", "ab\xFF");
  EXPECT_EQ(test::refusal(folder.path(), {.vocab = 2000, .seq_len = 4, .text = form}),
            (folder / "2.txt").string() + ": expected UTF-8, byte 2 (0xff) is none");
}

// ---- what stands beside tokenizer.json
// ------------------------------------------------------------

TEST(TextForm, TakesTheChatTemplateOfItsFolderWhereItIsKnown) {
  EXPECT_EQ(form_of("qwen3_tiny")->chat, ChatTemplate::chatml);
  EXPECT_EQ(form_of("llama3_tiny")->chat, ChatTemplate::llama3);
  EXPECT_EQ(form_of("gpt2_tiny")->chat, std::nullopt);
  EXPECT_EQ(name_of_chat_template("{{ '[INST] ' + m + ' [/INST]' }}"),
            "Mistral's or Llama 2's, with [INST]");
  EXPECT_EQ(name_of_chat_template("{{ x }}"), "unknown");

  const ScratchFolder folder;
  std::filesystem::copy_file(kTokenizers + "gpt2_tiny/tokenizer.json", folder / "tokenizer.json");
  write_file(folder / "tokenizer_config.json",
             R"({"eos_token": {"content": "<|endoftext|>"}, "chat_template": "<start_of_turn>"})");
  const auto gemma = open_text_form(folder.path(), std::nullopt);
  ASSERT_TRUE(gemma) << gemma.error().message();
  EXPECT_EQ(gemma->no_chat, "the chat template of " + (folder / "tokenizer_config.json").string() +
                                " is Gemma's, with <start_of_turn>, which is not built in");
  EXPECT_EQ(open_text_form(folder.path(), ChatTemplate::chatml).error().message(),
            (folder / "tokenizer.json").string() +
                ": has no token <|im_start|>, which the chat template chatml writes");
  write_file(folder / "tokenizer_config.json", R"({"eos_token": "</s>"})");
  EXPECT_EQ(open_text_form(folder.path(), std::nullopt).error().message(),
            (folder / "tokenizer_config.json").string() + ": expected a token of " +
                (folder / "tokenizer.json").string() + " under \"eos_token\", got \"</s>\"");
}

// ---- mixtures -----------------------------------------------------------------------------------

/// Sample i is the token `first` + i.
class Numbered final : public Dataset {
 public:
  Numbered(std::int32_t first, std::int64_t samples) : first_(first), samples_(samples) {}
  [[nodiscard]] std::string describe() const override { return "numbers"; }
  [[nodiscard]] std::int64_t samples() const override { return samples_; }
  [[nodiscard]] Result<void> read(std::int64_t index, const SampleSpans& out) const override {
    const auto& [tokens, labels, positions] = out;
    tokens[0] = labels[0] = first_ + static_cast<std::int32_t>(index);
    return {};
  }
  [[nodiscard]] std::optional<double> unigram_entropy() const override { return std::nullopt; }

 private:
  std::int32_t first_;
  std::int64_t samples_;
};

std::unique_ptr<Dataset> numbers_mixed(double first_weight, double second_weight) {
  std::vector<MixturePart> parts;
  parts.push_back({std::make_unique<Numbered>(0, 7), first_weight, "a"});
  parts.push_back({std::make_unique<Numbered>(1000, 300), second_weight, "b"});
  return mix(std::move(parts)).value();
}

std::int32_t token_at(const Dataset& data, std::uint64_t seed, std::int64_t n) {
  std::int32_t token = 0;
  std::int32_t label = 0;
  EXPECT_TRUE(data.read_in_order(seed, n, {.tokens = {&token, 1}, .labels = {&label, 1}}));
  return token;
}

TEST(Mixture, KeepsItsWeightsInEveryThousandAndThePartsTheirEpochs) {
  const auto data = numbers_mixed(0.7, 0.3);
  EXPECT_EQ(data->samples(), 307);
  EXPECT_EQ(data->describe(), "a mixture of 2; 70.0 % a: numbers; 30.0 % b: numbers");
  std::map<std::int32_t, int> seen;
  for (std::int64_t n = 0; n < 1000; ++n) ++seen[token_at(*data, 5, n)];
  // 700 of the first part's 7 samples, 300 of the second's 300: 100 epochs and one.
  for (std::int32_t token = 0; token < 7; ++token) EXPECT_EQ(seen[token], 100);
  for (std::int32_t token = 1000; token < 1300; ++token) EXPECT_EQ(seen[token], 1);
  // Its own order for each seed and round.
  const auto first_of = [&](std::uint64_t seed, std::int64_t round) {
    std::vector<bool> is_second;
    for (std::int64_t n = 0; n < 50; ++n)
      is_second.push_back(token_at(*data, seed, 1000 * round + n) >= 1000);
    return is_second;
  };
  EXPECT_EQ(first_of(5, 0), first_of(5, 0));
  EXPECT_NE(first_of(5, 0), first_of(6, 0));
  EXPECT_NE(first_of(5, 0), first_of(5, 1));
}

TEST(Mixture, RoundsWeightsToAThousandth) {
  EXPECT_EQ(numbers_mixed(2, 1)->order(), "667 333 ");  // 666.67 and 333.33
  std::vector<MixturePart> parts;
  parts.push_back({std::make_unique<Numbered>(0, 7), 1, "a"});
  parts.push_back({std::make_unique<Numbered>(9, 7), 1e-4, "b"});
  EXPECT_EQ(mix(std::move(parts)).error().message(),
            "b: expected a weight of at least a thousandth of all, got 0.0001");
}

}  // namespace
}  // namespace mfsdp
