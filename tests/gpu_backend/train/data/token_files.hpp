// Token files as other programs write them, made here byte by byte, and what tests read of a data
// set.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gpu_backend/train/data/dataset.hpp"

namespace mfsdp::test {

using Tokens = std::vector<std::int32_t>;

template <class T>
void put(std::string& bytes, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes.append(raw, sizeof(T));
}

/// 256 int32, then the tokens as `Stored`.
template <class Stored>
std::string llmc_file(std::int32_t magic, std::int32_t version, const Tokens& tokens) {
  std::string bytes;
  put<std::int32_t>(bytes, magic);
  put<std::int32_t>(bytes, version);
  put<std::int32_t>(bytes, static_cast<std::int32_t>(tokens.size()));
  bytes.resize(1024, '\0');
  for (const std::int32_t token : tokens) put(bytes, static_cast<Stored>(token));
  return bytes;
}
inline std::string llmc_version_1(const Tokens& tokens) {
  return llmc_file<std::uint16_t>(20240520, 1, tokens);
}
inline std::string llmc_version_7(const Tokens& tokens) {
  return llmc_file<std::uint32_t>(20240801, 7, tokens);
}

/// What goes into an index of Megatron; tests put wrong values into a right one.
struct MegatronFields {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t type = 4;
  std::uint64_t sequences = 0;
  std::uint64_t end_count = 0;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> ends;
};

/// Of sequences that lie one after the other, each a document.
inline MegatronFields megatron_fields(const std::vector<std::int32_t>& lengths, std::uint8_t type,
                                      std::int64_t token_bytes) {
  MegatronFields fields;
  fields.type = type;
  fields.lengths = lengths;
  fields.ends = {0};
  std::int64_t offset = 0;
  for (const std::int32_t length : lengths) {
    fields.offsets.push_back(offset);
    offset += length * token_bytes;
    fields.ends.push_back(std::ssize(fields.offsets));
  }
  fields.sequences = lengths.size();
  fields.end_count = fields.ends.size();
  return fields;
}

inline std::string megatron_index(const MegatronFields& fields) {
  std::string bytes = fields.magic;
  put(bytes, fields.version);
  put(bytes, fields.type);
  put(bytes, fields.sequences);
  put(bytes, fields.end_count);
  for (const std::int32_t length : fields.lengths) put(bytes, length);
  for (const std::int64_t offset : fields.offsets) put(bytes, offset);
  for (const std::int64_t end : fields.ends) put(bytes, end);
  return bytes;
}

template <class Stored>
std::string raw_tokens(const Tokens& tokens) {
  std::string bytes;
  for (const std::int32_t token : tokens) put(bytes, static_cast<Stored>(token));
  return bytes;
}

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// 0, 1, 2, ...
inline Tokens counting(std::size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

struct Sample {
  Tokens tokens;
  Tokens labels;
  Tokens positions;  ///< in documents
};

inline Result<Sample> read_sample(const Dataset& dataset, std::int64_t index, std::size_t seq_len) {
  Sample sample{Tokens(seq_len), Tokens(seq_len), counting(seq_len)};
  MFSDP_TRY(dataset.read(
      index, {.tokens = sample.tokens, .labels = sample.labels, .positions = sample.positions}));
  return sample;
}

/// The one line that opening says.
inline std::string refusal(const std::filesystem::path& path, const DatasetSettings& settings) {
  const auto opened = open_dataset(path, settings);
  if (opened) return "no error: " + (*opened)->describe();
  EXPECT_EQ(opened.error().fault, Fault::input) << opened.error().message();
  EXPECT_EQ(opened.error().message().find('\n'), std::string::npos);
  return opened.error().message();
}

}  // namespace mfsdp::test
