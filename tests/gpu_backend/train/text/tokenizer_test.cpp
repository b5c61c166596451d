// Byte-level BPE on small vocabularies by hand, against a slow version, and what is refused.
#include "gpu_backend/train/text/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "gpu_backend/train/text/byte_alphabet.hpp"
#include "gpu_backend/train/text/normal_form.hpp"
#include "gpu_backend/train/text/pattern_text.hpp"
#include "gpu_backend/train/text/utf8.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Ids 0 to 255 are bytes; merges make 256 and on.
Json small_tokenizer(const std::vector<std::pair<std::string, std::string>>& merges) {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte)
    vocab[byte_character(static_cast<unsigned char>(byte))] = byte;
  Json list = Json::array();
  for (const auto& [left, right] : merges) {
    if (!vocab.contains(left + right)) vocab[left + right] = vocab.size();
    list.push_back(left + " " + right);
  }
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}}}};
}

Json added_token(int id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

std::shared_ptr<const Tokenizer> parsed(const Json& json) {
  auto made = Tokenizer::parse(json.dump(), "t.json");
  EXPECT_TRUE(made) << made.error().message();
  return *made;
}

std::vector<std::int32_t> encoded(const std::shared_ptr<const Tokenizer>& tokenizer,
                                  std::string_view text) {
  std::vector<std::int32_t> ids;
  const auto outcome = TextEncoder(tokenizer).encode(text, ids);
  EXPECT_TRUE(outcome) << outcome.error().message();
  return ids;
}

std::string refusal(const Json& json) {
  const auto made = Tokenizer::parse(json.dump(), "t.json");
  return made ? "accepted" : made.error().message();
}

// ---- by hand ------------------------------------------------------------------------------------

TEST(ByteAlphabet, IsABijectionOfBytes) {
  EXPECT_EQ(byte_character(' '), "\u0120");
  EXPECT_EQ(byte_character('\n'), "\u010a");
  EXPECT_EQ(byte_character('a'), "a");
  EXPECT_EQ(byte_character(0xAD), "\u0143");  // the last that is not printable
  for (int byte = 0; byte < 256; ++byte) {
    const auto character = byte_character(static_cast<unsigned char>(byte));
    EXPECT_EQ(bytes_of_token(character), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(bytes_of_token("a b"), std::nullopt);  // a space stands for no byte
}

TEST(Bpe, MergesTheLowestRankFirstAndOfEqualsTheLeftmost) {
  // 256 "ab", 257 "bc", 258 "abc"
  const auto tokenizer = parsed(small_tokenizer({{"b", "c"}, {"a", "b"}, {"a", "bc"}}));
  EXPECT_THAT(encoded(tokenizer, "abc"), ElementsAre(258));  // bc, then a + bc
  EXPECT_THAT(encoded(tokenizer, "ab"), ElementsAre(257));
  EXPECT_THAT(encoded(tokenizer, "abab"), ElementsAre(257, 257));
  const auto doubled = parsed(small_tokenizer({{"a", "a"}}));
  EXPECT_THAT(encoded(doubled, "aaaaa"), ElementsAre(256, 256, 'a'));
}

TEST(Bpe, TakesAWholeWordWhereMergesAreIgnored) {
  Json json = small_tokenizer({{"a", "b"}});
  json["model"]["vocab"]["xyz"] = 257;  // no merge leads there
  EXPECT_THAT(encoded(parsed(json), "xyz"), ElementsAre('x', 'y', 'z'));
  json["model"]["ignore_merges"] = true;
  EXPECT_THAT(encoded(parsed(json), "xyz"), ElementsAre(257));
  EXPECT_THAT(encoded(parsed(json), "xyz ab"), ElementsAre(257, ' ', 256));
}

TEST(Bpe, MergesMayBePairs) {
  Json json = small_tokenizer({{"a", "b"}});
  json["model"]["merges"] = Json::array({Json::array({"a", "b"})});
  EXPECT_THAT(encoded(parsed(json), "cab"), ElementsAre('c', 256));
}

TEST(Words, NeverMergeAcrossABoundary) {
  // "o w" is a merge, but " world" is a word of its own.
  const auto tokenizer = parsed(small_tokenizer({{"o", "\u0120"}, {"\u0120", "w"}}));
  EXPECT_THAT(encoded(tokenizer, "o w"), ElementsAre('o', 257));
  // Two blanks before a word: the first is a word, the second belongs to the next.
  EXPECT_THAT(encoded(tokenizer, "o  w"), ElementsAre('o', ' ', 257));
}

TEST(AddedTokens, StandInTextAndTheLongestWins) {
  Json json = small_tokenizer({});
  json["added_tokens"] = Json::array({added_token(256, "<a>"), added_token(300, "<a><b>")});
  const auto tokenizer = parsed(json);
  EXPECT_EQ(tokenizer->size(), 301);
  EXPECT_THAT(encoded(tokenizer, "x<a>y<a><b><a"), ElementsAre('x', 256, 'y', 300, '<', 'a'));
  EXPECT_EQ(tokenizer->find("<a><b>"), 300);
  EXPECT_EQ(tokenizer->decode(std::vector{int{'x'}, 300}).value(), "x<a><b>");
  EXPECT_EQ(tokenizer->decode(std::vector{int{'x'}, 300}, true).value(), "x");
  EXPECT_EQ(tokenizer->decode(std::vector{270}).error().message(),
            "t.json: expected ids of tokens, 270 is none's");
}

TEST(NormalForm, ComposesBeforeWordsAreMade) {
  EXPECT_EQ(normal_form_c("e\u0301 \u212b").value(), "\u00e9 \u00c5");
  EXPECT_EQ(normal_form_c("o\u0302\u0323").value(), "\u1ed9");       // marks in their order
  EXPECT_EQ(normal_form_c("\u1112\u1161\u11ab").value(), "\ud55c");  // Hangul
  EXPECT_EQ(normal_form_c("\u0958").value(), "\u0915\u093c");        // never composed
  EXPECT_EQ(normal_form_c(std::string_view("a\0b", 3)).value(), std::string("a\0b", 3));
  Json json = small_tokenizer({});
  EXPECT_THAT(encoded(parsed(json), "e\u0301"), ElementsAre('e', 0xCC, 0x81));
  json["normalizer"] = {{"type", "NFC"}};
  EXPECT_THAT(encoded(parsed(json), "e\u0301"), ElementsAre(0xC3, 0xA9));
}

TEST(PostProcessor, SaysWhatStandsBeforeAndAfterAText) {
  Json json = small_tokenizer({});
  json["added_tokens"] = Json::array({added_token(256, "<s>"), added_token(257, "</s>")});
  const auto special = [](const char* id) { return Json{{"SpecialToken", {{"id", id}}}}; };
  const auto entry = [](const char* id, int number) {
    return Json{{"id", id}, {"ids", {number}}, {"tokens", {id}}};
  };
  const Json text{{"Sequence", {{"id", "A"}}}};
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {special("<s>"), text, special("</s>")}},
      {"pair", Json::array()},
      {"special_tokens", {{"<s>", entry("<s>", 256)}, {"</s>", entry("</s>", 257)}}}};
  EXPECT_THAT(parsed(json)->begin(), ElementsAre(256));
  EXPECT_THAT(parsed(json)->end(), ElementsAre(257));
}

TEST(Decode, IsTheBytesOfTheText) {
  const auto tokenizer =
      Tokenizer::open(MFSDP_SOURCE_DIR "/scenarios/tokenizers/llama3_tiny").value();
  const std::string text = "Hello, \u4e16\u754c! \U0001F600\n\tif (x) 12345 caf\u00e9";
  const auto ids = encoded(tokenizer, text);
  EXPECT_LT(ids.size(), text.size());
  EXPECT_EQ(tokenizer->decode(ids).value(), text);
  EXPECT_THAT(tokenizer->begin(), ElementsAre(*tokenizer->find("<|begin_of_text|>")));
}

// ---- against a slow version ---------------------------------------------------------------------

/// Merges by looking for the best pair again and again.
std::vector<std::int32_t> slow_bpe(const std::string& word, const Json& json) {
  std::vector<std::string> parts;
  for (const char c : word) parts.push_back(byte_character(static_cast<unsigned char>(c)));
  std::map<std::string, std::size_t> rank;
  for (std::size_t i = 0; i < json["model"]["merges"].size(); ++i)
    rank[json["model"]["merges"][i].get<std::string>()] = i;
  while (true) {
    std::size_t best = rank.size();
    std::size_t place = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i)
      if (const auto found = rank.find(parts[i] + " " + parts[i + 1]);
          found != rank.end() && found->second < best) {
        best = found->second;
        place = i;
      }
    if (best == rank.size()) break;
    parts[place] += parts[place + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
  std::vector<std::int32_t> ids;
  for (const std::string& part : parts) ids.push_back(json["model"]["vocab"][part]);
  return ids;
}

RC_GTEST_PROP(BpeProperty, EqualsASlowVersion, ()) {
  const auto letter = rc::gen::element<std::string>("a", "b", "c");
  std::vector<std::string> tokens{"a", "b", "c"};
  std::vector<std::pair<std::string, std::string>> merges;
  for (int i = *rc::gen::inRange(0, 12); i > 0; --i) {
    const auto pair = std::pair(*rc::gen::elementOf(tokens), *rc::gen::elementOf(tokens));
    if (std::ranges::find(merges, pair) != merges.end()) continue;
    merges.push_back(pair);
    tokens.push_back(pair.first + pair.second);
  }
  const Json json = small_tokenizer(merges);
  const auto letters = *rc::gen::container<std::vector<std::string>>(letter);
  const std::string word = std::accumulate(letters.begin(), letters.end(), std::string());
  if (!word.empty()) RC_ASSERT(encoded(parsed(json), word) == slow_bpe(word, json));
}

// ---- what is refused ----------------------------------------------------------------------------

TEST(TokenizerJson, RefusesByNameWhatItDoesNotKnow) {
  const auto changed = [](const char* pointer, const Json& value) {
    Json json = small_tokenizer({{"a", "b"}});
    json[Json::json_pointer(pointer)] = value;
    return refusal(json);
  };
  EXPECT_EQ(changed("/model/type", "Unigram"),
            "t.json: model: \"Unigram\" is not supported, expected a BPE of bytes");
  EXPECT_EQ(changed("/model/dropout", 0.1),
            "t.json: model: \"dropout\": 0.1 is not supported, expected null");
  EXPECT_EQ(changed("/model/byte_fallback", true),
            "t.json: model: \"byte_fallback\": true is not supported, expected false");
  EXPECT_EQ(changed("/model/cache", 1), "t.json: model: \"cache\" is not supported");
  EXPECT_EQ(changed("/extra", 1), "t.json: \"extra\" is not supported");
  EXPECT_EQ(changed("/normalizer", {{"type", "NFKC"}}),
            "t.json: normalizer: \"NFKC\" is not supported, expected NFC or none");
  EXPECT_EQ(changed("/pre_tokenizer", {{"type", "Metaspace"}}),
            "t.json: pre_tokenizer: \"Metaspace\" is not supported, expected Split and ByteLevel");
  EXPECT_EQ(changed("/pre_tokenizer/add_prefix_space", true),
            "t.json: pre_tokenizer: \"add_prefix_space\": true is not supported, expected false");
  EXPECT_EQ(changed("/pre_tokenizer", nullptr),
            "t.json: pre_tokenizer: expected ByteLevel, which makes words of bytes");
  EXPECT_EQ(changed("/post_processor", {{"type", "BertProcessing"}}),
            "t.json: post_processor: \"BertProcessing\" is not supported, expected one "
            "TemplateProcessing, ByteLevel or none");
  EXPECT_EQ(changed("/decoder", {{"type", "WordPiece"}}),
            "t.json: decoder: \"WordPiece\" is not supported, expected ByteLevel");
  Json token = added_token(256, "<a>");
  token["lstrip"] = true;
  EXPECT_EQ(changed("/added_tokens", Json::array({token})),
            "t.json: added_tokens[0]: \"lstrip\": true is not supported, expected false");
  EXPECT_EQ(
      changed("/added_tokens", Json::array({added_token(65, "<a>")})),
      "t.json: added_tokens[0]: expected \"<a>\" to have the id 65 alone, the file has another");
  EXPECT_EQ(changed("/model/merges", Json::array({"ab"})),
            "t.json: model.merges[0]: expected \"a b\" or [\"a\", \"b\"], got \"ab\"");
  EXPECT_EQ(changed("/model/merges", Json::array({"a c"})),
            "t.json: model.merges[0]: expected a token of the vocabulary, \"ac\" is none");
  EXPECT_THAT(changed("/model/vocab/a", -1), HasSubstr("expected an id from 0 to"));
  Json bare = small_tokenizer({});
  bare["model"]["vocab"].erase("a");
  EXPECT_EQ(refusal(bare),
            "t.json: model.vocab: expected a token for each of the 256 bytes, 0x61 has none");
}

TEST(PatternText, KnowsWhatTwoEnginesReadAlike) {
  const auto translated = [](std::string_view pattern) {
    const auto made = pcre2_pattern(pattern, "p");
    return made ? *made : made.error().message();
  };
  EXPECT_EQ(translated(R"(\s+(?!\S)|[^\s\p{L}]+)"),
            R"([\t-\r\x{85}\p{Z}]+(?![^\t-\r\x{85}\p{Z}])|[^\t-\r\x{85}\p{Z}\p{L}]+)");
  EXPECT_EQ(translated(R"((?i:'s)|\p{N}{1,3}| ?\p{^Lu}\[)"), R"((?i:'s)|\p{N}{1,3}| ?\p{^Lu}\[)");
  EXPECT_EQ(translated(R"(\w+)"), R"(p: "\w" of the pattern "\w+" is not supported)");
  EXPECT_EQ(translated(R"(\p{Han})"), R"(p: "\p{Han}" of the pattern "\p{Han}" is not supported)");
  for (const char* other : {"a.", "^a", "a$", "(?<n>a)", "(*SKIP)", "[a&&b]", "[[:alpha:]]",
                            "[\\S]", "\\b", "\\1", "a{2}+", "a{,2}", "[a", "\\", "\\p{L", "(?P>x)"})
    EXPECT_THAT(translated(other), HasSubstr("is not supported")) << other;
}

TEST(TextEncoder, NamesTheByteThatIsNoUtf8) {
  const auto tokenizer = parsed(small_tokenizer({}));
  std::vector<std::int32_t> ids;
  EXPECT_EQ(TextEncoder(tokenizer).encode("ab\xFF", ids).error().message(),
            "text: expected UTF-8, byte 2 (0xff) is none");
  EXPECT_EQ(first_not_utf8("\xC0\x80"), 0U);          // overlong
  EXPECT_EQ(first_not_utf8("a\xED\xA0\x80"), 1U);     // a surrogate
  EXPECT_EQ(first_not_utf8("\xF4\x90\x80\x80"), 0U);  // above U+10FFFF
  EXPECT_EQ(first_not_utf8("a\xE4\xB8"), 1U);         // cut off
  EXPECT_EQ(first_not_utf8("\xF4\x8F\xBF\xBF\xEE\x80\x80"), std::nullopt);
}

}  // namespace
}  // namespace mfsdp
