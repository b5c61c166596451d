#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/text.hpp"
#include "gpu_backend/train/data/dataset.hpp"
#include "gpu_backend/train/data/llmc_tokens.hpp"
#include "gpu_backend/train/data/mapped_file.hpp"
#include "gpu_backend/train/data/megatron_tokens.hpp"
#include "gpu_backend/train/data/plain_text.hpp"
#include "gpu_backend/train/data/sft_jsonl.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

enum class Format { text, llmc, megatron, jsonl };

/// Files of one data set.
struct Found {
  Format format = Format::text;
  std::vector<fs::path> files;  ///< of Megatron, the .bin files
};

fs::path with_extension(fs::path path, const char* extension) {
  return path.replace_extension(extension);
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Whether a file begins as a page of HTML does. Servers send such a page in place of a file that they lack.
bool is_web_page(std::span<const std::byte> bytes) {
  std::string start;
  for (const std::byte byte : bytes.first(std::min<std::size_t>(bytes.size(), 64)))
    start += static_cast<char>(std::tolower(std::to_integer<unsigned char>(byte)));
  start.erase(0, start.find_first_not_of(" \t\r\n"));
  return start.starts_with("<!doctype html") || start.starts_with("<html");
}

/// A single file, by its name and, where that says nothing, by its first bytes.
Result<Found> find_by_file(const fs::path& path) {
  const fs::path extension = path.extension();
  if (extension == ".idx") return Found{Format::megatron, {with_extension(path, ".bin")}};
  if (extension == ".jsonl") return Found{Format::jsonl, {path}};
  if (extension == ".bin")
    return Found{is_there(with_extension(path, ".idx")) ? Format::megatron : Format::llmc, {path}};
  // PREFIX for PREFIX.bin and PREFIX.idx, as Megatron-LM's own --data-path; it may contain dots.
  fs::path prefixed = path;
  prefixed += ".idx";
  if (!is_there(path) && is_there(prefixed))
    return Found{Format::megatron, {with_extension(prefixed, ".bin")}};
  MFSDP_LET(file, MappedFile::open(path, "text or tokens"));
  if (is_megatron_index(file.bytes()))
    return fail(file.name(), "is an index of Megatron: expected its name to end in .idx");
  if (is_web_page(file.bytes()))
    return fail(
        file.name(),
        "is a page of HTML: expected text or tokens; a server may have sent the page in place of "
        "the file");
  return Found{is_llmc_tokens(file.bytes()) ? Format::llmc : Format::text, {path}};
}

/// The files of a folder, without those below it, sorted by name.
Result<std::vector<fs::path>> list_folder(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (!at->path().filename().string().starts_with('.')) files.push_back(at->path());
  if (error) return fail(folder.string(), "cannot be listed: " + error.message());
  std::ranges::sort(files);
  return files;
}

Result<Found> find_in_folder(const fs::path& folder) {
  MFSDP_LET(listed, list_folder(folder));
  std::vector<Found> found;
  for (const fs::path& file : listed) {
    const fs::path extension = file.extension();
    if (extension != ".txt" && extension != ".jsonl" && extension != ".bin") continue;
    Format format = Format::text;
    if (extension == ".jsonl") format = Format::jsonl;
    if (extension == ".bin")
      format = is_there(with_extension(file, ".idx")) ? Format::megatron : Format::llmc;
    if (!found.empty() && found.front().format != format)
      return fail(folder.string(),
                  fmt::format("expected files of one format, got {} and {}",
                              printable(found.front().files.front().filename().string()),
                              printable(file.filename().string())));
    if (found.empty()) found.push_back({format, {}});
    found.front().files.push_back(file);
  }
  if (found.empty())
    return fail(folder.string(), "expected a folder of .txt, .jsonl or .bin files, it has none");
  return found.front();
}

Result<Found> find_data(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? find_in_folder(path) : find_by_file(path);
}

}  // namespace

Result<bool> holds_text(const fs::path& path) {
  MFSDP_LET(found, find_data(path));
  return found.format == Format::text || found.format == Format::jsonl;
}

Result<std::unique_ptr<Dataset>> open_dataset(const fs::path& path,
                                              const DatasetSettings& settings) {
  MFSDP_LET(found, find_data(path));
  const std::string where = path.string();
  switch (found.format) {
    case Format::text:
      return settings.text ? open_tokenized_text(found.files, settings, where)
                           : open_byte_text(found.files, settings, where);
    case Format::llmc: return open_llmc_tokens(found.files, settings, where);
    case Format::megatron: return open_megatron_tokens(found.files, settings, where);
    case Format::jsonl: return open_sft_jsonl(found.files, settings, where);
  }
  return fail(where, "is of no known format");
}

}  // namespace mfsdp
