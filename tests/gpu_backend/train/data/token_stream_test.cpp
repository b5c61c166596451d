// Token files of llm.c and Megatron, and text, as samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <cmath>
#include <fstream>

#include "tests/gpu_backend/train/data/token_files.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::counting;
using test::read_sample;
using test::ScratchFolder;
using test::Tokens;
using test::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TokenStream, CutsTextIntoSamplesWithTheNextByteAsLabel) {
  const ScratchFolder folder;
  write_file(folder / "a.txt", "abcdefgh");
  const auto data = open_dataset(folder / "a.txt", {.vocab = 264, .seq_len = 3});
  ASSERT_TRUE(data) << data.error().message();
  // 8 bytes: samples abc and def have successors for all tokens, gh is left over.
  EXPECT_EQ((*data)->samples(), 2);
  const auto sample = read_sample(**data, 1, 3).value();
  EXPECT_THAT(sample.tokens, ElementsAre('d', 'e', 'f'));
  EXPECT_THAT(sample.labels, ElementsAre('e', 'f', 'g'));
  EXPECT_EQ((*data)->describe(), "text of 8 bytes, " + (folder / "a.txt").string());
  // Eight bytes, each once.
  EXPECT_NEAR((*data)->unigram_entropy().value(), std::log(8.0), 1e-12);
}

TEST(TokenStream, JoinsTheTextsOfAFolderInOrderWithAnEndBetween) {
  const ScratchFolder folder;
  write_file(folder / "b.txt", "xyz");
  write_file(folder / "a.txt", "ab");
  write_file(folder / "notes.md", "not a part");
  const auto data = open_dataset(folder.path(), {.vocab = 259, .seq_len = 5});
  ASSERT_TRUE(data) << data.error().message();
  const auto sample = read_sample(**data, 0, 5).value();
  EXPECT_THAT(sample.tokens, ElementsAre('a', 'b', 257, 'x', 'y'));
  EXPECT_THAT(sample.labels, ElementsAre('b', 257, 'x', 'y', 'z'));
  EXPECT_EQ((*data)->describe(), "text of 5 bytes in 2 files, " + folder.path().string());
}

/// A sample begins a document, whatever it is cut out of; the end is the document's last token.
TEST(TokenStream, DocumentsEndWithTheirToken) {
  const ScratchFolder folder;
  write_file(folder / "a.txt", "ab;c;;defg");
  DatasetSettings settings{.vocab = 259, .seq_len = 4, .masks = true, .document_end = ';'};
  const auto data = open_dataset(folder / "a.txt", settings);
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_THAT(read_sample(**data, 0, 4).value().positions, ElementsAre(0, 1, 2, 0));  // a b ; c
  EXPECT_THAT(read_sample(**data, 1, 4).value().positions, ElementsAre(0, 0, 0, 1));  // ; ; d e
  // Texts of a folder end with a token of their own.
  write_file(folder / "b.txt", "xyz");
  settings.document_end.reset();
  settings.seq_len = 13;
  const auto both = open_dataset(folder.path(), settings);
  ASSERT_TRUE(both) << both.error().message();
  EXPECT_THAT(read_sample(**both, 0, 13).value().positions,
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1));
}

TEST(TokenStream, TokenFilesSayNotWhereDocumentsEnd) {
  const ScratchFolder folder;
  write_file(folder / "a.bin", test::llmc_version_7(counting(9)));
  DatasetSettings settings{.vocab = 264, .seq_len = 4, .masks = true};
  EXPECT_THAT(test::refusal(folder / "a.bin", settings),
              HasSubstr("a.bin: does not say where documents end, between which attention is "
                        "masked: --document-end names the token"));
  settings.document_end = 2;
  const auto data = open_dataset(folder / "a.bin", settings);
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_THAT(read_sample(**data, 0, 4).value().positions, ElementsAre(0, 1, 2, 0));
}

TEST(TokenStream, TakesBytesThatAreNotUtf8AndSaysSo) {
  const ScratchFolder folder;
  write_file(folder / "a.txt", "\xff\xfe plain");
  const auto data = open_dataset(folder / "a.txt", {.vocab = 264, .seq_len = 2});
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_THAT(read_sample(**data, 0, 2).value().tokens, ElementsAre(0xFF, 0xFE));
  EXPECT_THAT((*data)->describe(), HasSubstr("(not UTF-8)"));
}

TEST(TokenStream, ACharacterAcrossTheEndOfTheLookIsNoFault) {
  const ScratchFolder folder;
  // Bytes 2^24 - 2 to 2^24 are the Euro sign.
  write_file(folder / "a.txt", std::string((1U << 24U) - 2, 'a') + "\xE2\x82\xAC");
  const auto data = open_dataset(folder / "a.txt", {.vocab = 264, .seq_len = 2});
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_THAT((*data)->describe(), ::testing::Not(HasSubstr("UTF-8")));
}

TEST(TokenStream, ReadsBothVersionsOfLlmc) {
  const ScratchFolder folder;
  write_file(folder / "one.bin", test::llmc_version_1({1, 65535, 3, 4}));
  write_file(folder / "seven.bin", test::llmc_version_7({1, 128255, 3, 4}));
  const auto one = open_dataset(folder / "one.bin", {.vocab = 65536, .seq_len = 3});
  const auto seven = open_dataset(folder / "seven.bin", {.vocab = 128256, .seq_len = 3});
  ASSERT_TRUE(one) << one.error().message();
  ASSERT_TRUE(seven) << seven.error().message();
  EXPECT_THAT(read_sample(**one, 0, 3).value().labels, ElementsAre(65535, 3, 4));
  EXPECT_THAT(read_sample(**seven, 0, 3).value().labels, ElementsAre(128255, 3, 4));
  EXPECT_EQ((*one)->describe(), "4 tokens of llm.c, " + (folder / "one.bin").string());
}

TEST(TokenStream, ReadsMegatronByAnyOfItsNames) {
  const ScratchFolder folder;
  write_file(folder / "web.v1.idx", test::megatron_index(test::megatron_fields({3, 0, 4}, 8, 2)));
  write_file(folder / "web.v1.bin", test::raw_tokens<std::uint16_t>(counting(7)));
  for (const char* name : {"web.v1", "web.v1.bin", "web.v1.idx"}) {
    const auto data = open_dataset(folder / name, {.vocab = 7, .seq_len = 2});
    ASSERT_TRUE(data) << data.error().message();
    EXPECT_EQ((*data)->samples(), 3);
    EXPECT_THAT(read_sample(**data, 2, 2).value().labels, ElementsAre(5, 6));
    EXPECT_EQ((*data)->describe(),
              "7 tokens of Megatron in 3 documents, " + (folder / name).string());
  }
  const auto all = open_dataset(folder.path(), {.vocab = 7, .seq_len = 6});
  ASSERT_TRUE(all) << all.error().message();
}

/// Writes `tokens` in random pieces and in one of the formats.
void write_pieces(const ScratchFolder& folder, const Tokens& tokens, int format) {
  std::size_t first = 0;
  for (int shard = 0; first < tokens.size(); ++shard) {
    const auto count = *rc::gen::inRange<std::size_t>(1, tokens.size() - first + 1);
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(first);
    const Tokens piece(begin, begin + static_cast<std::ptrdiff_t>(count));
    const std::string name = std::to_string(1000 + shard);
    if (format == 0) write_file(folder / (name + ".bin"), test::llmc_version_1(piece));
    if (format == 1) write_file(folder / (name + ".bin"), test::llmc_version_7(piece));
    if (format >= 2) {
      const auto all = static_cast<std::int32_t>(piece.size());
      const auto split = *rc::gen::inRange<std::int32_t>(0, all);
      const std::vector<std::int32_t> lengths{split, all - split};
      const bool wide = format == 3;
      write_file(folder / (name + ".idx"),
                 test::megatron_index(test::megatron_fields(lengths, wide ? 5 : 4, wide ? 8 : 4)));
      write_file(folder / (name + ".bin"), wide ? test::raw_tokens<std::int64_t>(piece)
                                                : test::raw_tokens<std::int32_t>(piece));
    }
    first += count;
  }
}

RC_GTEST_PROP(TokenStreamProperty, GivesBackWhatWasWritten, ()) {
  const auto vocab = *rc::gen::inRange(1, 60000);
  const auto tokens = *rc::gen::suchThat(rc::gen::container<Tokens>(rc::gen::inRange(0, vocab)),
                                         [](const Tokens& made) { return made.size() >= 2; });
  const auto seq_len = *rc::gen::inRange<std::int64_t>(1, std::ssize(tokens));
  const ScratchFolder folder;
  write_pieces(folder, tokens, *rc::gen::inRange(0, 4));
  const auto data = open_dataset(folder.path(), {.vocab = vocab, .seq_len = seq_len});
  RC_ASSERT(data.has_value());
  RC_ASSERT((*data)->samples() == (std::ssize(tokens) - 1) / seq_len);
  for (std::int64_t i = 0; i < (*data)->samples(); ++i) {
    const auto sample = read_sample(**data, i, static_cast<std::size_t>(seq_len)).value();
    const auto begin = tokens.begin() + i * seq_len;
    RC_ASSERT(sample.tokens == Tokens(begin, begin + seq_len));
    RC_ASSERT(sample.labels == Tokens(begin + 1, begin + seq_len + 1));
  }
}

TEST(TokenStream, ATokenOutsideTheVocabularyIsNamed) {
  const ScratchFolder folder;
  write_file(folder / "a.bin", test::llmc_version_1({1, 2, 264}));
  EXPECT_EQ(test::refusal(folder / "a.bin", {.vocab = 264, .seq_len = 2}),
            (folder / "a.bin").string() +
                ", token 2: expected a token of the model's vocabulary, 0 to 263, got 264");
  write_file(folder / "b.idx", test::megatron_index(test::megatron_fields({3}, 4, 4)));
  write_file(folder / "b.bin", test::raw_tokens<std::int32_t>({5, -1, 5}));
  EXPECT_THAT(test::refusal(folder / "b.bin", {.vocab = 264, .seq_len = 2}),
              HasSubstr("b.bin, token 1: expected a token of the model's vocabulary, 0 to 263, "
                        "got -1"));
}

TEST(TokenStream, ATokenBeyondTheFirstLookIsRefusedWhenRead) {
  const ScratchFolder folder;
  Tokens tokens((std::size_t{1} << 24U) + 65536 + 1, 1);
  tokens.back() = 9;  // the label of the last of 257 samples
  write_file(folder / "a.bin", test::llmc_version_1(tokens));
  const auto data = open_dataset(folder / "a.bin", {.vocab = 9, .seq_len = 65536});
  ASSERT_TRUE(data) << data.error().message();
  ASSERT_EQ((*data)->samples(), 257);
  ASSERT_TRUE(read_sample(**data, 255, 65536));
  const auto last = read_sample(**data, 256, 65536);
  ASSERT_FALSE(last);
  EXPECT_THAT(last.error().message(), HasSubstr("a.bin, token 16842752: "));  // 2^24 + 65536
}

TEST(TokenStream, AFileThatShrinksOrGrowsIsAnErrorAndNoCrash) {
  const ScratchFolder folder;
  write_file(folder / "a.txt", std::string(100'000, 'x'));
  const auto data = open_dataset(folder / "a.txt", {.vocab = 264, .seq_len = 1000});
  ASSERT_TRUE(data) << data.error().message();
  std::filesystem::resize_file(folder / "a.txt", 10);
  const auto after = read_sample(**data, 98, 1000);
  ASSERT_FALSE(after);
  EXPECT_EQ(
      after.error().message(),
      (folder / "a.txt").string() + ": changed while it was read: it had 100000 bytes, now 10");
}

TEST(TokenStream, ANewDateIsNoChangeAndOtherBytesAre) {
  const ScratchFolder folder;
  for (const std::size_t bytes : {std::size_t{100'000}, std::size_t{3} << 20}) {
    const std::string text(bytes, 'x');
    write_file(folder / "a.txt", text);
    const auto data = open_dataset(folder / "a.txt", {.vocab = 264, .seq_len = 1000});
    ASSERT_TRUE(data) << data.error().message();
    const auto later = std::filesystem::file_time_type::clock::now() + std::chrono::hours(1);
    std::filesystem::last_write_time(folder / "a.txt", later);
    EXPECT_TRUE(read_sample(**data, 7, 1000)) << bytes;

    std::fstream file(folder / "a.txt", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file << 'y' << std::flush;
    std::filesystem::last_write_time(folder / "a.txt", later + std::chrono::hours(1));
    const auto after = read_sample(**data, 7, 1000);
    ASSERT_FALSE(after) << bytes;
    EXPECT_EQ(after.error().message(),
              (folder / "a.txt").string() +
                  ": changed while it was read: other bytes of the same number");
  }
}

TEST(TokenStream, AFileThatIsReplacedIsReadAsItWas) {
  const ScratchFolder folder;
  write_file(folder / "a.txt", "abcdef");
  const auto data = open_dataset(folder / "a.txt", {.vocab = 264, .seq_len = 2});
  ASSERT_TRUE(data) << data.error().message();
  write_file(folder / "new", "x");
  std::filesystem::rename(folder / "new", folder / "a.txt");
  EXPECT_THAT(read_sample(**data, 1, 2).value().tokens, ElementsAre('c', 'd'));
}

TEST(SyntheticDataset, IsAFunctionOfSeedAndIndexInTheVocabulary) {
  const DatasetSettings settings{.vocab = 50, .seq_len = 64};
  const auto data = synthetic_dataset(7, settings);
  const auto again = synthetic_dataset(7, settings);
  const auto other = synthetic_dataset(8, settings);
  const auto sample = read_sample(*data, 3, 64).value();
  EXPECT_EQ(sample.tokens, read_sample(*again, 3, 64).value().tokens);
  EXPECT_NE(sample.tokens, read_sample(*other, 3, 64).value().tokens);
  EXPECT_NE(sample.tokens, read_sample(*data, 4, 64).value().tokens);
  EXPECT_THAT(sample.tokens,
              ::testing::Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(50))));
  EXPECT_EQ(Tokens(sample.tokens.begin() + 1, sample.tokens.end()),
            Tokens(sample.labels.begin(), sample.labels.end() - 1));
  EXPECT_EQ(sample.positions, read_sample(*again, 3, 64).value().positions);
  EXPECT_EQ(sample.positions.front(), 0);
  // About four of 64 / 4 tokens.
  EXPECT_GT(std::ranges::count(sample.positions, 0), 1);
  EXPECT_LT(std::ranges::count(sample.positions, 0), 16);
  EXPECT_FALSE(data->unigram_entropy());
}

TEST(TokenStream, TheProjectsTextHasTheEntropyThatItsReadmeStates) {
  const auto data =
      open_dataset(std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios/texts/jargon.txt",
                   {.vocab = 264, .seq_len = 128});
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_THAT((*data)->describe(), HasSubstr("text of 435101 bytes"));
  EXPECT_NEAR((*data)->unigram_entropy().value(), 3.2987, 5e-5);
}

}  // namespace
}  // namespace mfsdp
