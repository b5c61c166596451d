// Every reader recognises a file of another kind and names it.
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "core/base/parse_json.hpp"
#include "core/base/toml_fields.hpp"
#include "core/formats/kineto.hpp"
#include "core/formats/read_events.hpp"
#include "core/formats/read_pickle.hpp"
#include "core/formats/safetensors.hpp"

namespace mfsdp {
namespace {

using namespace std::string_view_literals;

template <class Value>
std::string message_of(const Result<Value>& result) {
  return result ? std::string("none") : result.error().message();
}

struct Reader {
  std::string_view own;  ///< a file that it takes
  std::string (*error)(std::string_view bytes);
};

constexpr std::array kReaders{
    Reader{R"({"a": 1})",
           [](std::string_view bytes) { return message_of(parse_json(bytes, "f")); }},
    Reader{"a = 1\n",
           [](std::string_view bytes) { return message_of(TomlFields::parse(bytes, "f")); }},
    Reader{"\x80\x04N."sv,
           [](std::string_view bytes) { return message_of(read_pickle(bytes, "f")); }},
    Reader{"\x02\0\0\0\0\0\0\0{}"sv,
           [](std::string_view bytes) {
             return message_of(parse_safetensors(std::as_bytes(std::span(bytes)), "f"));
           }},
    Reader{R"({"traceEvents": []})",
           [](std::string_view bytes) { return message_of(traces::parse_kineto(bytes, "f", {})); }},
    Reader{"", [](std::string_view bytes) { return message_of(read_events(bytes, "f")); }}};

TEST(StandIns, AreNamedByEveryReader) {
  for (const Reader& reader : kReaders) {
    EXPECT_EQ(reader.error(reader.own), "none");
    EXPECT_EQ(reader.error("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"),
              "f: is a Git LFS pointer, not the file itself; fetch it with git lfs pull");
    EXPECT_EQ(reader.error("<!DOCTYPE html>\n<html>\n"),
              "f: is a web page (HTML), not the file itself; download the raw file");
    const std::string zip = reader.error("PK\x03\x04\x14\0\0\0\0\0\0\0"sv);
    EXPECT_TRUE(zip.starts_with("f: expected ")) << zip;
    EXPECT_TRUE(zip.ends_with(", got a zip file (torch.save writes those, too)")) << zip;
  }
}

TEST(StandIns, TablesOfTomlMayBeginAsListsOfJsonDo) {
  EXPECT_TRUE(TomlFields::parse("[\"a name\"]\nb = 1\n", "f"));
  EXPECT_EQ(message_of(TomlFields::parse(R"({"a": 1})", "f")), "f: expected TOML, got JSON");
}

}  // namespace
}  // namespace mfsdp
