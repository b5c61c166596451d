// Data that is wrong: one line that says where and what was expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/gpu_backend/train/data/token_files.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::counting;
using test::megatron_fields;
using test::refusal;
using test::ScratchFolder;
using test::write_file;
using ::testing::HasSubstr;

const DatasetSettings kSettings{.vocab = 264, .seq_len = 4};

TEST(HostileData, PathsThatHoldNothing) {
  const ScratchFolder folder;
  const std::string name = folder.path().string();
  EXPECT_EQ(refusal(folder / "missing", kSettings),
            name + "/missing: cannot be opened: No such file or directory");
  EXPECT_EQ(refusal(folder.path(), kSettings),
            name + ": expected a folder of .txt, .jsonl or .bin files, it has none");
  write_file(folder / "empty.txt", "");
  EXPECT_EQ(refusal(folder / "empty.txt", kSettings),
            name + "/empty.txt: expected text or tokens, got an empty file");
  write_file(folder / "empty.bin", "");
  EXPECT_EQ(refusal(folder / "empty.bin", kSettings),
            name + "/empty.bin: expected tokens of llm.c, got an empty file");
  std::filesystem::create_directory(folder / "folder.jsonl");
  write_file(folder / "folder.jsonl" / "x", "y");
  EXPECT_EQ(refusal(folder / "folder.jsonl", kSettings),
            name + "/folder.jsonl: expected a folder of .txt, .jsonl or .bin files, it has none");
  ASSERT_EQ(::mkfifo((folder / "pipe.txt").c_str(), 0600), 0);
  EXPECT_EQ(
      refusal(folder / "pipe.txt", kSettings),
      name +
          "/pipe.txt: expected text or tokens, got a pipe: what is read in any order has to be "
          "a file");
}

TEST(HostileData, FoldersOfMoreThanOneFormat) {
  const ScratchFolder folder;
  write_file(folder / "a.txt", "text enough");
  write_file(folder / "b.bin", test::llmc_version_1(counting(9)));
  EXPECT_EQ(refusal(folder.path(), kSettings),
            folder.path().string() + ": expected files of one format, got a.txt and b.bin");
}

TEST(HostileData, WhatMayNotBeRead) {
  const ScratchFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  write_file(folder / "a.txt", "text enough");
  std::filesystem::create_directory(folder / "closed");
  std::filesystem::permissions(folder / "a.txt", std::filesystem::perms::none);
  std::filesystem::permissions(folder / "closed", std::filesystem::perms::none);
  const auto is_denied = [&](const std::filesystem::path& path) {
    return refusal(path, kSettings).ends_with("Permission denied");
  };
  const pid_t child = test::start_child([&] {
    test::become_ordinary_user();
    return is_denied(folder / "a.txt") && is_denied(folder / "closed") ? 0 : 1;
  });
  EXPECT_EQ(test::wait_for(child), 0);
}

TEST(HostileData, TooShortForOneSample) {
  const ScratchFolder folder;
  write_file(folder / "a.txt", "four");
  EXPECT_EQ(refusal(folder / "a.txt", kSettings),
            (folder / "a.txt").string() +
                ": expected more than 4 tokens, one sample and the token after it, got 4");
}

TEST(HostileData, AVocabularyWithoutPlaceForBytes) {
  const ScratchFolder folder;
  write_file(folder / "a.txt", "text enough");
  const std::string expected =
      ": is text, which needs a model with a vocabulary of at least 259 (256 bytes, begin, end, "
      "padding); this model's has 258";
  EXPECT_EQ(refusal(folder / "a.txt", {.vocab = 258, .seq_len = 4}),
            (folder / "a.txt").string() + expected);
  write_file(folder / "a.jsonl", R"({"prompt": "a", "response": "b"})");
  EXPECT_EQ(refusal(folder / "a.jsonl", {.vocab = 258, .seq_len = 4}),
            (folder / "a.jsonl").string() + expected);
}

/// What is said of a file of llm.c's with this content, after its name.
std::string llmc_refusal(const std::string& content) {
  const ScratchFolder folder;
  write_file(folder / "a.bin", content);
  const std::string said = refusal(folder / "a.bin", kSettings);
  const std::string name = (folder / "a.bin").string() + ": ";
  EXPECT_TRUE(said.starts_with(name)) << said;
  return said.substr(std::min(said.size(), name.size()));
}

TEST(HostileData, TokenFilesOfLlmc) {
  const std::string right = test::llmc_version_1(counting(9));
  EXPECT_THAT(llmc_refusal("MZ" + right), HasSubstr("expected a token file of llm.c (magic"));
  EXPECT_THAT(llmc_refusal("MZ"), HasSubstr("expected a token file of llm.c (magic"));
  EXPECT_EQ(llmc_refusal(right.substr(0, 1000)),
            "expected a header of 1024 bytes, got a file of 1000");
  EXPECT_EQ(llmc_refusal(right.substr(0, 1025)),
            "expected 1042 bytes for the 9 tokens of its header, got 1025");  // 1024 + 9 * 2
  EXPECT_EQ(llmc_refusal(right + "x"),
            "expected 1042 bytes for the 9 tokens of its header, got 1043");
  EXPECT_EQ(llmc_refusal(test::llmc_file<std::uint16_t>(20240520, 7, counting(9))),
            "expected version 1 with magic 20240520, got version 7");
  EXPECT_EQ(llmc_refusal(test::llmc_file<std::uint16_t>(20240520, 1, {})),
            "expected a number of tokens in the header, got 0");
  std::string counts = right;
  counts.replace(8, 4, "\xff\xff\xff\xff");
  EXPECT_EQ(llmc_refusal(counts), "expected a number of tokens in the header, got -1");
  counts.replace(8, 4, "\xff\xff\xff\x7f");
  EXPECT_EQ(llmc_refusal(counts),  // 1024 + 2 (2^31 - 1)
            "expected 4294968318 bytes for the 2147483647 tokens of its header, got 1042");
}

TEST(HostileData, ShardsOfTwoVersions) {
  const ScratchFolder folder;
  write_file(folder / "a.bin", test::llmc_version_1(counting(9)));
  write_file(folder / "b.bin", test::llmc_version_7(counting(9)));
  EXPECT_EQ(
      refusal(folder.path(), kSettings),
      (folder / "b.bin").string() + ": is of another version than " + (folder / "a.bin").string());
}

/// What is said of an index beside a .bin of 9 int32 tokens, after its name.
std::string megatron_refusal(const std::string& index) {
  const ScratchFolder folder;
  write_file(folder / "a.idx", index);
  write_file(folder / "a.bin", test::raw_tokens<std::int32_t>(counting(9)));
  const std::string said = refusal(folder / "a.bin", kSettings);
  const std::string name = (folder / "a.idx").string();
  EXPECT_TRUE(said.starts_with(name)) << said;
  return said.substr(std::min(said.size(), name.size()));
}

TEST(HostileData, HeadersOfMegatron) {
  const auto right = megatron_fields({4, 5}, 4, 4);
  const auto with = [&](auto change) {
    auto fields = right;
    change(fields);
    return megatron_refusal(test::megatron_index(fields));
  };
  EXPECT_EQ(with([](auto& fields) { fields.magic = "TNTIDX\0\0\0"; }),
            ": expected an index of Megatron (MMIDIDX)");
  EXPECT_EQ(megatron_refusal(test::megatron_index(right).substr(0, 20)),
            ": expected a header of 34 bytes, got a file of 20");
  EXPECT_EQ(with([](auto& fields) { fields.version = 2; }), ": expected version 1, got 2");
  for (const int type : {0, 6, 7, 9, 255})
    EXPECT_EQ(with([&](auto& fields) { fields.type = static_cast<std::uint8_t>(type); }),
              ": expected tokens of an integer type (1 to 5 or 8), got " + std::to_string(type));
  // 2 sequences of 12 bytes and 3 ends of 8: 48 bytes after the header.
  EXPECT_EQ(with([](auto& fields) { fields.sequences = 0; }),
            ": its header tells of 0 sequences and 3 document ends; 48 bytes follow it");
  EXPECT_EQ(with([](auto& fields) { fields.sequences = UINT64_MAX / 12 + 1; }),
            ": its header tells of 1537228672809129302 sequences and 3 document ends; 48 bytes "
            "follow it");
  EXPECT_EQ(with([](auto& fields) { fields.end_count = UINT64_MAX; }),
            ": its header tells of 2 sequences and 18446744073709551615 document ends; 48 bytes "
            "follow it");
  EXPECT_EQ(with([](auto& fields) { fields.sequences = 3; }),  // 34 + 3 * 12 + 3 * 8
            ": expected 94 bytes for 3 sequences and 3 document ends, got 82");
  EXPECT_EQ(megatron_refusal(test::megatron_index(right) + "x"),
            ": expected 82 bytes for 2 sequences and 3 document ends, got 83");
}

TEST(HostileData, SequencesOfMegatron) {
  const auto right = megatron_fields({4, 5}, 4, 4);
  const auto with = [&](auto change) {
    auto fields = right;
    change(fields);
    return megatron_refusal(test::megatron_index(fields));
  };
  EXPECT_EQ(with([](auto& fields) { fields.lengths[1] = -5; }),
            ", sequence 1: expected a length of at most 5, where the .bin ends, got -5");
  EXPECT_EQ(with([](auto& fields) { fields.lengths[1] = 6; }),
            ", sequence 1: expected a length of at most 5, where the .bin ends, got 6");
  EXPECT_EQ(with([](auto& fields) { fields.lengths[1] = 4; }),
            ": expected a .bin of 32 bytes for its 8 tokens, got 36");
  EXPECT_EQ(with([](auto& fields) { fields.offsets[1] = 1 << 20; }),
            ", sequence 1: expected it at byte 16 of the .bin, after the one before, got 1048576");
  EXPECT_EQ(with([](auto& fields) { fields.offsets[0] = -4; }),
            ", sequence 0: expected it at byte 0 of the .bin, after the one before, got -4");
  EXPECT_EQ(with([](auto& fields) { fields.ends[0] = 1; }),
            ", document end 0: expected 0 to 0, got 1");
  EXPECT_EQ(with([](auto& fields) { fields.ends[1] = 3; }),
            ", document end 1: expected 0 to 2, got 3");
  EXPECT_EQ(with([](auto& fields) { std::swap(fields.ends[1], fields.ends[2]); }),
            ", document end 2: expected 2 to 2, got 1");
  // As 8-byte tokens the .bin of 36 bytes has four and a half.
  EXPECT_EQ(megatron_refusal(test::megatron_index(megatron_fields({4}, 5, 8))),
            ": expected a .bin of 32 bytes for its 4 tokens, got 36");
}

TEST(HostileData, HalvesOfMegatron) {
  const ScratchFolder folder;
  write_file(folder / "a.idx", test::megatron_index(megatron_fields({4, 5}, 4, 4)));
  EXPECT_EQ(refusal(folder / "a", kSettings),
            (folder / "a.bin").string() + ": cannot be opened: No such file or directory");
  std::filesystem::rename(folder / "a.idx", folder / "renamed");
  EXPECT_EQ(refusal(folder / "renamed", kSettings),
            (folder / "renamed").string() +
                ": is an index of Megatron: expected its name to end in .idx");
}

TEST(HostileData, APageThatAServerSentInPlaceOfTheFile) {
  const ScratchFolder folder;
  for (const char* page : {"<!DOCTYPE html>\n<html>", " \n<HTML lang=en>"}) {
    write_file(folder / "data.txt", page);
    EXPECT_EQ(refusal(folder / "data.txt", kSettings),
              (folder / "data.txt").string() +
                  ": is a page of HTML: expected text or tokens; a server may have sent the page "
                  "in place of the file");
  }
}

}  // namespace
}  // namespace mfsdp
