#include "core/formats/trace_source.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <istream>
#include <iterator>

#include "tests/support/gzip.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp::traces {
namespace {

using test::gzipped;
using ::testing::HasSubstr;

/// Text that gzip cannot make much smaller than a block.
std::string long_text() {
  std::string text;
  std::uint32_t state = 1;
  for (int i = 0; i < 1'500'000; ++i) {
    state = state * 1664525U + 1013904223U;
    text += static_cast<char>('a' + (state >> 24) % 26);
  }
  return text;
}

std::string drained(TraceSource& source) {
  std::istream in(&source);
  std::string text;
  for (char c = 0; in.get(c);) {
    text += c;
    source.mark();
  }
  return text;
}

std::string drained(std::string_view bytes) {
  const auto source = TraceSource::of(bytes, "t");
  const std::string text = drained(*source);
  EXPECT_FALSE(source->error()) << source->error()->message();
  EXPECT_EQ(source->position(), text.size());
  return text;
}

std::string source_error_of(std::string_view bytes) {
  const auto source = TraceSource::of(bytes, "t");
  (void)drained(*source);
  return source->error() ? source->error()->message() : "";
}

TEST(TraceSource, HandsOutPlainAndGzipAlike) {
  const std::string text = long_text();
  EXPECT_EQ(drained(text), text);
  EXPECT_EQ(drained(gzipped(text)), text);
  EXPECT_EQ(drained(gzipped("one ") + gzipped("two")), "one two");
  EXPECT_EQ(drained(""), "");
  EXPECT_EQ(drained(gzipped("")), "");
}

TEST(TraceSource, ReadsFiles) {
  const test::ScratchFolder folder;
  const auto path = folder.path() / "t.json.gz";
  std::ofstream(path, std::ios::binary) << gzipped("hello");
  auto source = TraceSource::open(path);
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_EQ(drained(**source), "hello");

  EXPECT_THAT(TraceSource::open(folder.path() / "none").error().message(),
              HasSubstr("none: cannot be opened: No such file"));
  EXPECT_THAT(TraceSource::open(folder.path()).error().message(), HasSubstr("got a directory"));
}

TEST(TraceSource, ReadsPipes) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  const std::string bytes = gzipped("hello");
  ASSERT_EQ(::write(writer.number(), bytes.data(), bytes.size()), std::ssize(bytes));
  writer.close();
  const auto source = TraceSource::open(fmt::format("/dev/fd/{}", reader.number()));
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_EQ(drained(**source), "hello");
}

TEST(TraceSource, SaysWhereGzipEndsOrBreaks) {
  const std::string good = gzipped(long_text());
  for (const std::size_t size : {std::size_t{3}, std::size_t{18}, good.size() / 2, good.size() - 1})
    EXPECT_EQ(source_error_of(good.substr(0, size)),
              "t: the gzip data ends too early, after byte " + std::to_string(size));
  std::string damaged = good;
  for (std::size_t i = 0; i < 40; ++i) damaged[damaged.size() / 2 + i] = '\xff';
  EXPECT_THAT(source_error_of(damaged), HasSubstr("t: the gzip data is damaged near byte "));
  EXPECT_THAT(source_error_of(gzipped("x") + "rubbish"), HasSubstr("damaged"));
}

TEST(TraceSource, BoundsOneValue) {
  const std::string endless(std::size_t{20} << 20, 'a');
  const auto source = TraceSource::of(endless, "t");
  std::istream in(source.get());
  in.ignore(static_cast<std::streamsize>(endless.size()));
  ASSERT_TRUE(source->error());
  EXPECT_EQ(source->error()->message(), "t: byte 0: one value takes more than 16 MiB");
}

}  // namespace
}  // namespace mfsdp::traces
