#include "gpu_backend/train/data/llmc_tokens.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "gpu_backend/train/data/token_stream.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kLlmcHeaderBytes = 256 * sizeof(std::int32_t);

struct Version {
  std::int32_t magic;
  std::int32_t version;
  TokenType type;
};
constexpr std::array<Version, 2> kVersions{
    Version{.magic = 20240520, .version = 1, .type = TokenType::uint16},
    Version{.magic = 20240801, .version = 7, .type = TokenType::uint32}};

/// Field `index` of the header.
std::int32_t field(std::span<const std::byte> file, std::size_t index) {
  std::int32_t value = 0;
  std::memcpy(&value, file.data() + index * sizeof(value), sizeof(value));
  return value;
}

const Version* find_version(std::span<const std::byte> file) {
  if (file.size() < sizeof(std::int32_t)) return nullptr;
  for (const Version& version : kVersions)
    if (field(file, 0) == version.magic) return &version;
  return nullptr;
}

}  // namespace

bool is_llmc_tokens(std::span<const std::byte> file) { return find_version(file) != nullptr; }

Result<TokenRun> parse_llmc_tokens(std::span<const std::byte> file, const std::string& name) {
  const Version* version = find_version(file);
  if (version == nullptr)
    return fail(name,
                "expected a token file of llm.c (magic 20240520 or 20240801) or, with its "
                ".idx beside it, of Megatron");
  if (file.size() < kLlmcHeaderBytes)
    return fail(name, fmt::format("expected a header of {} bytes, got a file of {}",
                                  kLlmcHeaderBytes, file.size()));
  if (field(file, 1) != version->version)
    return fail(name, fmt::format("expected version {} with magic {}, got version {}",
                                  version->version, version->magic, field(file, 1)));
  const std::int64_t count = field(file, 2);
  if (count < 1)
    return fail(name, fmt::format("expected a number of tokens in the header, got {}", count));
  const auto expected = kLlmcHeaderBytes + static_cast<std::size_t>(count * size_of(version->type));
  if (file.size() != expected)
    return fail(name, fmt::format("expected {} bytes for the {} tokens of its header, got {}",
                                  expected, count, file.size()));
  return TokenRun{.name = name, .bytes = file.subspan(kLlmcHeaderBytes), .type = version->type};
}

Result<std::unique_ptr<Dataset>> open_llmc_tokens(const std::vector<std::filesystem::path>& files,
                                                  const DatasetSettings& settings,
                                                  const std::string& where) {
  std::vector<TokenRun> runs;
  std::int64_t tokens = 0;
  for (const std::filesystem::path& path : files) {
    MFSDP_LET(mapped, MappedFile::open(path, "tokens of llm.c"));
    const auto file = std::make_shared<const MappedFile>(std::move(mapped));
    MFSDP_LET(run, parse_llmc_tokens(file->bytes(), file->name()));
    run.file = file;
    tokens += run.count();
    if (!runs.empty() && runs.front().type != run.type)
      return fail(run.name, "is of another version than " + runs.front().name);
    runs.push_back(std::move(run));
  }
  std::string description = fmt::format(
      "{} tokens of llm.c{}, {}", tokens,
      files.size() > 1 ? fmt::format(" in {} files", files.size()) : std::string(), where);
  return make_token_stream(std::move(runs), settings, where, std::move(description));
}

}  // namespace mfsdp
