#include "core/formats/torch_archive.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "core/formats/object_pickle.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string whole_of(const ZipFrame& frame, std::string_view payload = {}) {
  return frame.before + std::string(payload) + frame.after;
}

std::string archive_error(const std::string& bytes) {
  const auto source = memory_source(std::as_bytes(std::span(bytes)), "f");
  const auto read = read_torch_archive(source, {.offset = 0, .size = bytes.size()});
  return read ? "" : read.error().message();
}

/// An archive with this pickle and a storage of 8 bytes.
std::string archive_of(const std::string& pickle) {
  return whole_of(
      frame_stored_zip(std::array<ZipContent, 3>{{{.name = "archive/data.pkl", .content = pickle},
                                                  {.name = "archive/data/0", .content = "12345678"},
                                                  {.name = "archive/version", .content = "3\n"}}}));
}

TEST(TorchArchive, ReadsWhatItWrites) {
  for (const char* name : {"bfloat16", "float32", "int64", "float8_e4m3fn"}) {
    const ElementType& type = *type_of_torch(name);
    const std::string payload(static_cast<std::size_t>(6 * bytes_of(type)), 'x');
    const std::string bytes = "junk" + whole_of(frame_torch_tensor(type, {2, 3}), payload);
    const auto source = memory_source(std::as_bytes(std::span(bytes)), "f");
    const auto read = read_torch_archive(source, {.offset = 4, .size = bytes.size() - 4});
    ASSERT_TRUE(read) << read.error().message();
    ASSERT_EQ(read->tensors.size(), 1U);
    const TorchTensor& tensor = read->tensors.front();
    EXPECT_EQ(tensor.type, &type);
    EXPECT_THAT(tensor.shape, ElementsAre(2, 3));
    EXPECT_EQ(bytes.substr(tensor.bytes.offset, tensor.bytes.size), payload);
    EXPECT_EQ((tensor.bytes.offset - 4) % 64, 0U);
  }
}

TEST(TorchArchive, RunsNothing) {
  ObjectPickle pickle(2);
  pickle.name("os", "system");
  pickle.mark();
  pickle.text("touch /tmp/owned");
  pickle.tuple();
  pickle.call();
  EXPECT_THAT(archive_error(archive_of(pickle.finish())), HasSubstr("names os.system"));
}

TEST(TorchArchive, HostilePickles) {
  // A list in itself, and one that doubles forty times.
  EXPECT_THAT(archive_error(archive_of("\x80\x02]q\x01(h\x01"
                                       "e.")),
              HasSubstr("nested deeper than 64"));
  std::string doubling = "\x80\x02]q";
  doubling += '\0';
  for (int i = 0; i < 40; ++i)
    doubling += std::string("]q") + static_cast<char>(i + 1) + "(h" + static_cast<char>(i) + "h" +
                static_cast<char>(i) + "e";
  // Only the last list stays on the stack.
  std::string last = "(" + doubling.substr(2) + "lq\x7f" + "0h" + static_cast<char>(40) + ".";
  EXPECT_THAT(archive_error(archive_of("\x80\x02" + last)), HasSubstr("too many values"));
}

TEST(StoredZip, RefusesWhatIsNoPlainArchive) {
  const std::string good = archive_of("\x80\x02N.");
  EXPECT_EQ(archive_error(good), "");
  EXPECT_THAT(archive_error(good.substr(0, good.size() - 1)), HasSubstr("archive of torch.save"));
  EXPECT_THAT(archive_error(""), HasSubstr("expected an archive"));

  const auto changed = [&](std::size_t at, char value) {
    std::string bytes = good;
    bytes[at] = value;
    return archive_error(bytes);
  };
  const std::size_t entry = good.find("PK\x01\x02");
  EXPECT_THAT(changed(entry + 10, 8), HasSubstr("compressed or encrypted"));
  EXPECT_THAT(changed(entry + 20, 100), HasSubstr("two sizes"));
  const std::size_t second = good.find("PK\x01\x02", entry + 1);
  std::string overlapping = good;
  overlapping.replace(second + 42, 4, good, entry + 42, 4);  // the place of the first
  EXPECT_THAT(archive_error(overlapping), HasSubstr("in each other's bytes"));
  std::string outside = good;
  const std::size_t name = outside.find("archive/data/0", entry);
  outside.replace(name, 14, "../../etc/pass");
  EXPECT_THAT(archive_error(outside), HasSubstr("named ../../etc/pass"));
  std::string huge = good;
  huge.replace(huge.find("PK\x06\x06") + 40, 8, "\xff\xff\xff\xff\xff\xff\xff\x7f");
  EXPECT_THAT(archive_error(huge), HasSubstr("directory of"));
}

}  // namespace
}  // namespace mfsdp
