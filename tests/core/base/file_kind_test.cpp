#include "core/base/file_kind.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace mfsdp {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

TEST(FileKind, IsToldByTheFirstBytes) {
  constexpr std::array<std::pair<std::string_view, FileKind>, 24> kFiles{{
      {kPointer, FileKind::git_lfs_pointer},
      {"version https://hawser.github.com/spec/v1\n", FileKind::git_lfs_pointer},
      {"\x1f\x8b\x08\0"sv, FileKind::gzip},
      {"PK\x03\x04\x14", FileKind::zip},
      {"\xfd\x37zXZ\0\0"sv, FileKind::xz},
      {"%PDF-1.7\n", FileKind::pdf},
      {"\x80\x04\x95\x10", FileKind::pickle},
      {"\x80\x02}q", FileKind::pickle},
      {"\x10\0\0\0\0\0\0\0{\"a\": {}}"sv, FileKind::safetensors},
      {"\x80\x02\0\0\0\0\0\0{\"a\": {}}"sv, FileKind::safetensors},  // a header of 640 bytes
      // The first record of PyTorch's SummaryWriter: 24 bytes, their checksum, wall_time.
      {"\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09\0\0"sv, FileKind::tensorboard_events},
      {"SQLite format 3\0\x10"sv, FileKind::sqlite},
      {"<!DOCTYPE html>\n<html lang=\"en\">", FileKind::web_page},
      {"\n <HTML><head>", FileKind::web_page},
      {"<?xml version=\"1.0\"?>", FileKind::xml},
      {"\xEF\xBB\xBF{\"a\": 1}", FileKind::json},
      {" [1, 2]", FileKind::json},
      {"[[1, 2]]", FileKind::json},
      {"[{\"ph\": \"X\"}]", FileKind::json},
      {"[[runs]]\nname = \"x\"\n", FileKind::text},
      {"[gpu]\nname = \"x\"\n", FileKind::text},
      {"step,loss\n1,2\n", FileKind::text},
      {"version https://example.org\n", FileKind::text},
      {"\n\n", FileKind::text},
  }};
  for (const auto& [bytes, kind] : kFiles) EXPECT_EQ(file_kind(bytes), kind) << bytes;
}

TEST(FileKind, IsNotGuessedOfOtherBytes) {
  EXPECT_EQ(file_kind(""), std::nullopt);
  EXPECT_EQ(file_kind("\xff\xfe\x01"), std::nullopt);
  EXPECT_EQ(file_kind("a\0b"sv), std::nullopt);
  EXPECT_EQ(file_kind("\x10\0\0\0\0\0\0\0x"sv), std::nullopt);
}

/// "é" has two bytes: cut between them the rest is still text.
TEST(FileKind, TextMayBeCutInsideACharacter) {
  EXPECT_EQ(file_kind(std::string(511, 'a') + "\xc3\xa9"), FileKind::text);
  EXPECT_EQ(file_kind("\xc3"), std::nullopt);
}

TEST(FileKind, SaysOfAStandInHowToGetTheFile) {
  EXPECT_EQ(not_the_file_itself(kPointer),
            "is a Git LFS pointer, not the file itself; fetch it with git lfs pull");
  EXPECT_EQ(not_the_file_itself("<html>"),
            "is a web page (HTML), not the file itself; download the raw file");
  EXPECT_EQ(git_lfs_pointer(kPointer), not_the_file_itself(kPointer));
  EXPECT_EQ(git_lfs_pointer("<html>"), std::nullopt);
  EXPECT_EQ(not_the_file_itself("{}"), std::nullopt);
  EXPECT_EQ(not_the_file_itself("\x1f\x8b\x08"), std::nullopt);
}

TEST(FileKind, NamesWhatWasFoundInPlaceOfWhatWasExpected) {
  const auto message = [](std::string_view bytes) {
    return expected_other_kind(bytes, FileKind::pickle, "a pickle");
  };
  EXPECT_EQ(message("\x1f\x8b\x08"), "expected a pickle, got a gzip file");
  EXPECT_EQ(message("{}"), "expected a pickle, got JSON");
  EXPECT_EQ(message(kPointer), not_the_file_itself(kPointer));
  // A reader's own message is better here.
  EXPECT_EQ(message("\x80\x04\x95\x10"), std::nullopt);
  EXPECT_EQ(message("text"), std::nullopt);
  EXPECT_EQ(message("\xff"), std::nullopt);
}

}  // namespace
}  // namespace mfsdp
