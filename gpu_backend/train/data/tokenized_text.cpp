#include <fmt/format.h>

#include <utility>

#include "gpu_backend/train/data/mapped_file.hpp"
#include "gpu_backend/train/data/plain_text.hpp"
#include "gpu_backend/train/data/token_stream.hpp"
#include "gpu_backend/train/text/text_form.hpp"

namespace mfsdp {

Result<std::unique_ptr<Dataset>> open_tokenized_text(
    const std::vector<std::filesystem::path>& files, const DatasetSettings& settings,
    const std::string& where) {
  const TextForm& form = *settings.text;
  const std::vector<std::int32_t>& begin = form.tokenizer->begin();
  TextEncoder encoder(form.tokenizer);
  std::vector<TokenRun> runs;
  std::size_t bytes = 0;
  std::size_t count = 0;
  for (const std::filesystem::path& path : files) {
    MFSDP_LET(mapped, MappedFile::open(path, "text"));
    auto tokens = std::make_shared<std::vector<std::int32_t>>(begin);
    if (const auto encoded = encoder.encode(mapped.text(), *tokens); !encoded)
      return fail(mapped.name(), encoded.error().what);
    if (form.end) tokens->push_back(*form.end);
    tokens->shrink_to_fit();
    bytes += mapped.bytes().size();
    count += tokens->size();
    runs.push_back({.name = mapped.name(),
                    .bytes = std::as_bytes(std::span(*tokens)),
                    .type = TokenType::int32,
                    .tokens = tokens});
  }
  std::string description = fmt::format(
      "text of {} bytes{}, {} tokens, {}", bytes,
      files.size() > 1 ? fmt::format(" in {} files", files.size()) : std::string(), count, where);
  DatasetSettings stream = settings;
  if (!stream.document_end) stream.document_end = form.end;
  return make_token_stream(std::move(runs), stream, where, std::move(description));
}

}  // namespace mfsdp
