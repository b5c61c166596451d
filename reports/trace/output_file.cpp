#include "reports/trace/output_file.hpp"

#include <zlib.h>

#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/base/atomic_file.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 16;  ///< bytes
constexpr int kGzip = 16;                             ///< zlib: added to the window's bits
constexpr int kMemoryLevel = 8;                       ///< zlib's default

/// One gzip stream.
class Deflate {
 public:
  Deflate() {
    if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzip, kMemoryLevel,
                     Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc();
  }
  Deflate(const Deflate&) = delete;
  Deflate& operator=(const Deflate&) = delete;
  ~Deflate() { deflateEnd(&stream_); }

  /// Compresses `text` into `file`; `last` ends the stream.
  Result<void> write(AtomicFile& file, std::string& text, bool last) {
    stream_.next_in = reinterpret_cast<Bytef*>(text.data());
    stream_.avail_in = static_cast<uInt>(text.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(block_.data());
      stream_.avail_out = static_cast<uInt>(block_.size());
      deflate(&stream_, last ? Z_FINISH : Z_NO_FLUSH);
      MFSDP_TRY(file.write({block_.data(), block_.size() - stream_.avail_out}));
    } while (stream_.avail_out == 0);
    return {};
  }

 private:
  z_stream stream_{};
  std::vector<char> block_ = std::vector<char>(kBlock);
};

}  // namespace

struct OutputFile::State {
  State(AtomicFile opened, bool compress)
      : file(std::move(opened)), deflate(compress ? std::make_unique<Deflate>() : nullptr) {
    pending.reserve(2 * kBlock);
  }

  AtomicFile file;
  std::unique_ptr<Deflate> deflate;  ///< null: plain text
  std::string pending;
  Result<void> outcome;

  void flush(bool last) {
    if (outcome) outcome = deflate ? deflate->write(file, pending, last) : file.write(pending);
    pending.clear();
  }
};

Result<OutputFile> OutputFile::create(const std::filesystem::path& path) {
  MFSDP_LET(file, AtomicFile::create(path));
  return OutputFile(std::make_unique<State>(std::move(file), path.extension() == ".gz"));
}

OutputFile::OutputFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
OutputFile::OutputFile(OutputFile&&) noexcept = default;
OutputFile& OutputFile::operator=(OutputFile&&) noexcept = default;
OutputFile::~OutputFile() = default;

void OutputFile::write(std::string_view text) {
  state_->pending += text;
  if (state_->pending.size() >= kBlock) state_->flush(/*last=*/false);
}

Result<void> OutputFile::commit() {
  state_->flush(/*last=*/true);
  MFSDP_TRY(state_->outcome);
  return state_->file.commit();
}

}  // namespace mfsdp
