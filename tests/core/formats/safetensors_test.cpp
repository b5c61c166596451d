#include "core/formats/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <limits>

namespace mfsdp {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// Length, header, and `data` bytes of data.
std::string file(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data, 'x');
}

std::string error_of(const std::string& whole) {
  const auto parsed = parse_safetensors(bytes_of(whole), "f");
  return parsed ? "none" : parsed.error().message();
}

/// The error of a file with this one tensor, and 8 bytes of data.
std::string error_of_tensor(const std::string& fields) {
  return error_of(file("{\"a\":" + fields + "}", 8));
}

TEST(Safetensors, FindsTensorsInTheOrderOfTheirData) {
  const std::string whole = file(R"({"__metadata__":{"format":"pt"},)"
                                 R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[4,12]},)"
                                 R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                                 R"("c":{"dtype":"I64","shape":[3,0],"data_offsets":[4,4]},)"
                                 R"("d":{"dtype":"U8","shape":[],"data_offsets":[12,13]}}  )",
                                 13);
  const auto parsed = parse_safetensors(bytes_of(whole), "f");
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(parsed->tensors.size(), 4U);
  const char* data = whole.data() + whole.size() - 13;
  const std::vector<std::string> names{"b", "c", "a", "d"};
  const std::vector<std::ptrdiff_t> begins{0, 4, 4, 12};
  const std::vector<std::size_t> sizes{4, 0, 8, 1};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(parsed->tensors[i].name, names[i]);
    EXPECT_EQ(reinterpret_cast<const char*>(parsed->tensors[i].data.data()), data + begins[i]);
    EXPECT_EQ(parsed->tensors[i].data.size(), sizes[i]);
  }
  EXPECT_EQ(parsed->tensors[2].shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(parsed->tensors[2].dtype, "F32");
}

TEST(Safetensors, AFileWithoutTensorsIsOne) { EXPECT_EQ(error_of(file("{}", 0)), "none"); }

TEST(Safetensors, RefusesHeadersThatAreNone) {
  EXPECT_EQ(error_of("1234567"), "f: expected safetensors, got a file of 7 bytes");
  EXPECT_EQ(error_of(file("{}", 0).substr(0, 9)),
            "f: expected a safetensors header of 2 bytes, the file ends 1 bytes after its length");
  EXPECT_EQ(error_of(std::string(8, '\xff')),
            "f: expected a safetensors header of at most 100000000 bytes, its length is "
            "18446744073709551615");
  EXPECT_EQ(error_of(file("", 3)), "f: expected a safetensors header, which begins with {");
  EXPECT_EQ(error_of(file(" {}", 0)), "f: expected a safetensors header, which begins with {");
  EXPECT_EQ(error_of(file("[]", 0)), "f: expected a safetensors header, which begins with {");
  EXPECT_THAT(error_of(file("{\"a\":", 0)), HasSubstr("f, header:1:"));
  EXPECT_THAT(error_of(file(R"({"a":1,"a":1})", 0)),
              HasSubstr("key \"a\" appears twice in one object"));
}

TEST(Safetensors, RefusesWrongFields) {
  EXPECT_EQ(error_of_tensor("3"), "f, tensor a: expected an object, got 3");
  EXPECT_EQ(error_of_tensor("{}"),
            "f, tensor a, dtype: expected a dtype such as \"BF16\", got nothing");
  EXPECT_EQ(error_of_tensor(R"({"dtype":"float"})"),
            "f, tensor a, dtype: expected a dtype such as \"BF16\", got \"float\"");
  EXPECT_EQ(error_of_tensor(R"({"dtype":"F32"})"),
            "f, tensor a, shape: expected a list of integers from 0, got nothing");
  EXPECT_EQ(error_of_tensor(R"({"dtype":"F32","shape":[-1]})"),
            "f, tensor a, shape: expected a list of integers from 0, got [-1]");
  EXPECT_EQ(error_of_tensor(R"({"dtype":"F32","shape":[2.0]})"),
            "f, tensor a, shape: expected a list of integers from 0, got [2.0]");
  EXPECT_EQ(error_of_tensor(R"({"dtype":"F32","shape":[9223372036854775808]})"),
            "f, tensor a, shape: expected a list of integers from 0, got [9223372036854775808]");
  EXPECT_EQ(error_of_tensor(R"({"dtype":"F32","shape":[4294967296,4294967296]})"),
            "f, tensor a, shape: expected fewer than 2^63 elements, got [4294967296,4294967296]");
  EXPECT_EQ(error_of_tensor(R"({"dtype":"F32","shape":[4611686018427387904]})"),
            "f, tensor a, shape: expected fewer than 2^63 bytes, got [4611686018427387904]");
  EXPECT_EQ(error_of_tensor(R"({"dtype":"F4","shape":[3]})"),
            "f, tensor a, shape: expected whole bytes of F4, got [3]");
  EXPECT_EQ(error_of(file(R"({"__metadata__":{"a":1}})", 0)),
            "f, __metadata__: expected an object of strings, got 1");
  EXPECT_EQ(error_of(file(R"({"__metadata__":[]})", 0)),
            "f, __metadata__: expected an object of strings, got []");
}

TEST(Safetensors, RefusesDataThatIsNotTheTensors) {
  const auto offsets = [](const std::string& place) {
    return error_of_tensor(R"({"dtype":"F32","shape":[2],"data_offsets":)" + place + "}");
  };
  EXPECT_EQ(offsets("[0,8]"), "none");
  for (const std::string place : {"[0,9]", "[8,0]", "[0]", "[0,4,8]", "[-8,0]", "\"0,8\"", "null",
                                  "[18446744073709551608,18446744073709551615]"})
    EXPECT_EQ(offsets(place),
              "f, tensor a, data_offsets: expected begin and end inside the data of 8 bytes, got " +
                  (place == "null"     ? std::string("nothing")
                   : place.size() > 40 ? place.substr(0, 40) + "..."
                                       : place));
  EXPECT_EQ(offsets("[0,4]"),
            "f, tensor a, data_offsets: expected 8 bytes, as F32 of shape [2] has, got [0,4]");
}

TEST(Safetensors, RefusesOverlapsAndHoles) {
  const auto two = [](const std::string& a, const std::string& b, std::size_t data) {
    return error_of(file(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
                             R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}",
                         data));
  };
  EXPECT_EQ(two("[0,4]", "[4,8]", 8), "none");
  EXPECT_EQ(two("[0,4]", "[2,6]", 8),
            "f, tensor b, data_offsets: expected data that begins at 4, where other tensors end, "
            "got 2");
  EXPECT_EQ(two("[0,4]", "[0,4]", 4),
            "f, tensor b, data_offsets: expected data that begins at 4, where other tensors end, "
            "got 0");
  EXPECT_EQ(two("[5,9]", "[0,4]", 9),
            "f, tensor a, data_offsets: expected data that begins at 4, where other tensors end, "
            "got 5");
  EXPECT_EQ(two("[1,5]", "[5,9]", 9),
            "f, tensor a, data_offsets: expected data that begins at 0, where other tensors end, "
            "got 1");
  EXPECT_EQ(two("[0,4]", "[4,8]", 11), "f: expected 8 bytes of data, as its tensors have, got 11");
}

TEST(Safetensors, NamesInErrorsFitOnALine) {
  const std::string name(300, 'n');
  const std::string error = error_of(file(R"({"x\n)" + name + R"(":3})", 0));
  EXPECT_EQ(error, R"(f, tensor x\n)" + std::string(98, 'n') + "...: expected an object, got 3");
}

TEST(Safetensors, HeadersThatAreWrittenAreRead) {
  const std::vector<TensorShape> tensors{{.name = "q\"", .dtype = DType::bf16, .shape = {3, 1}},
                                         {.name = "s", .dtype = DType::fp64, .shape = {}},
                                         {.name = "b", .dtype = DType::fp16, .shape = {5}}};
  const std::string header = safetensors_header(tensors, {{"format", "pt"}, {"k", "v"}});
  EXPECT_EQ(header.size() % 8, 0U);
  const std::string whole = header + std::string(6 + 8 + 10, 'x');
  const auto parsed = parse_safetensors(bytes_of(whole), "f");
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"k", "v"}}));
  ASSERT_EQ(parsed->tensors.size(), tensors.size());
  std::size_t at = header.size();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(parsed->tensors[i].name, tensors[i].name);
    EXPECT_EQ(parsed->tensors[i].shape, tensors[i].shape);
    EXPECT_EQ(floating_dtype(parsed->tensors[i].dtype), tensors[i].dtype);
    EXPECT_EQ(reinterpret_cast<const char*>(parsed->tensors[i].data.data()), whole.data() + at);
    EXPECT_EQ(std::ssize(parsed->tensors[i].data), tensors[i].bytes());
    at += parsed->tensors[i].data.size();
  }
}

TEST(Safetensors, OnlyFloatingDtypesAreOurs) {
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32, DType::fp64})
    EXPECT_EQ(floating_dtype(safetensors_name(dtype)), dtype);
  for (const char* other : {"I32", "F8_E4M3", "bf16", ""})
    EXPECT_EQ(floating_dtype(other), std::nullopt);
}

}  // namespace
}  // namespace mfsdp
