#include "core/formats/trace_source.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <new>
#include <utility>

#include "core/base/text.hpp"

namespace mfsdp::traces {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 18;                ///< bytes
constexpr std::uint64_t kMostForOneValue = std::uint64_t{1} << 24;  ///< bytes
constexpr int kGzip = 16;  ///< zlib: added to the window's bits

}  // namespace

/// Unpacks consecutive gzip members, as `cat a.gz b.gz` writes.
struct TraceSource::Inflate {
  Inflate() {
    if (inflateInit2(&stream, MAX_WBITS + kGzip) != Z_OK) throw std::bad_alloc();
  }
  Inflate(const Inflate&) = delete;
  Inflate& operator=(const Inflate&) = delete;
  ~Inflate() { inflateEnd(&stream); }

  z_stream stream{};
  bool between_members = false;
};

TraceSource::TraceSource() : raw_(kBlock) {}
TraceSource::~TraceSource() = default;

Result<std::unique_ptr<TraceSource>> TraceSource::open(const std::filesystem::path& path) {
  const std::string where = printable(path.string());
  auto file = InputFile::open(path, "a trace of PyTorch's profiler (.json or .json.gz)");
  if (!file) return fail(where, file.error().what, file.error().fault);
  std::unique_ptr<TraceSource> source(new TraceSource);
  source->where_ = where;
  source->file_.emplace(std::move(*file));
  return source;
}

std::unique_ptr<TraceSource> TraceSource::of(std::string_view bytes, std::string where) {
  std::unique_ptr<TraceSource> source(new TraceSource);
  source->where_ = std::move(where);
  source->memory_ = bytes;
  return source;
}

void TraceSource::refuse(std::string what, Fault fault) {
  if (!error_) error_ = Error{where_, std::move(what), fault};
}

std::size_t TraceSource::read_raw() {
  std::size_t count = 0;
  if (file_) {
    const auto read = file_->read(raw_);
    if (!read)
      refuse(fmt::format("after byte {}: {}", raw_read_, read.error().what), read.error().fault);
    count = read.value_or(0);
  } else {
    count = std::min(raw_.size(), memory_.size());
    std::copy_n(memory_.data(), count, raw_.data());
    memory_.remove_prefix(count);
  }
  raw_read_ += count;
  return count;
}

std::size_t TraceSource::fill() {
  if (inflate_) return fill_unpacked();
  const std::size_t count = read_raw();
  const bool is_first = !std::exchange(started_, true);
  if (is_first) {
    kind_ = file_kind({raw_.data(), count});
    if (auto stand_in = not_the_file_itself({raw_.data(), count})) {
      refuse(std::move(*stand_in));
      return 0;
    }
  }
  if (is_first && count >= 2 && raw_[0] == '\x1f' && raw_[1] == '\x8b') {
    inflate_ = std::make_unique<Inflate>();
    inflate_->stream.next_in = reinterpret_cast<Bytef*>(raw_.data());
    inflate_->stream.avail_in = static_cast<uInt>(count);
    text_.resize(kBlock);
    return fill_unpacked();
  }
  setg(raw_.data(), raw_.data(), raw_.data() + count);
  return count;
}

std::size_t TraceSource::fill_unpacked() {
  z_stream& stream = inflate_->stream;
  stream.next_out = reinterpret_cast<Bytef*>(text_.data());
  stream.avail_out = static_cast<uInt>(text_.size());
  while (stream.avail_out == text_.size()) {
    if (stream.avail_in == 0) {
      const std::size_t count = read_raw();
      if (count == 0) {
        if (!inflate_->between_members)
          refuse(fmt::format("the gzip data ends too early, after byte {}", raw_read_));
        return 0;
      }
      stream.next_in = reinterpret_cast<Bytef*>(raw_.data());
      stream.avail_in = static_cast<uInt>(count);
    }
    if (std::exchange(inflate_->between_members, false)) inflateReset(&stream);
    const int outcome = inflate(&stream, Z_NO_FLUSH);
    if (outcome == Z_STREAM_END) {
      inflate_->between_members = true;
    } else if (outcome != Z_OK && outcome != Z_BUF_ERROR) {
      refuse(fmt::format("the gzip data is damaged near byte {}: {}", raw_read_ - stream.avail_in,
                         stream.msg != nullptr ? stream.msg : "no reason given"));
      return 0;
    }
  }
  const std::size_t count = text_.size() - stream.avail_out;
  setg(text_.data(), text_.data(), text_.data() + count);
  return count;
}

TraceSource::int_type TraceSource::underflow() {
  if (error_) return traits_type::eof();
  if (delivered_ - mark_ > kMostForOneValue) {
    refuse(fmt::format("byte {}: one value takes more than {} MiB", mark_, kMostForOneValue >> 20));
    return traits_type::eof();
  }
  const std::size_t count = fill();
  if (count == 0) {
    setg(nullptr, nullptr, nullptr);
    return traits_type::eof();
  }
  delivered_ += count;
  return traits_type::to_int_type(*gptr());
}

}  // namespace mfsdp::traces
