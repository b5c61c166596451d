#include "reports/trace/pickle.hpp"

#include <utility>

namespace mfsdp {
namespace {

// Opcodes, by the names that Python's pickletools gives them.
constexpr std::string_view kProtocol4 = "\x80\x04";
constexpr char kEmptyDict = '}';
constexpr char kEmptyList = ']';
constexpr char kSetItem = 's';
constexpr char kAppend = 'a';
constexpr char kTuple2 = '\x86';
constexpr char kNewTrue = '\x88';
constexpr char kNewFalse = '\x89';
constexpr char kBinInt1 = 'K';
constexpr char kBinInt = 'J';
constexpr char kLong1 = '\x8a';
constexpr char kShortBinUnicode = '\x8c';
constexpr char kBinUnicode = 'X';
constexpr char kMemoize = '\x94';
constexpr char kBinGet = 'h';
constexpr char kLongBinGet = 'j';
constexpr char kStop = '.';

constexpr std::uint64_t kByte = 256;

}  // namespace

PickleWriter::PickleWriter() : out_(kProtocol4) {}

void PickleWriter::little_endian(std::uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out_ += static_cast<char>(number % kByte);
    number /= kByte;
  }
}

void PickleWriter::dict() { out_ += kEmptyDict; }
void PickleWriter::list() { out_ += kEmptyList; }
void PickleWriter::set() { out_ += kSetItem; }
void PickleWriter::append() { out_ += kAppend; }
void PickleWriter::pair() { out_ += kTuple2; }
void PickleWriter::boolean(bool is_true) { out_ += is_true ? kNewTrue : kNewFalse; }

void PickleWriter::text(std::string_view utf8) {
  const auto [known, is_new] = memo_.emplace(utf8, static_cast<std::uint32_t>(memo_.size()));
  if (!is_new) {
    const bool is_short = known->second < kByte;
    out_ += is_short ? kBinGet : kLongBinGet;
    return little_endian(known->second, is_short ? 1 : 4);
  }
  const bool is_short = utf8.size() < kByte;
  out_ += is_short ? kShortBinUnicode : kBinUnicode;
  little_endian(utf8.size(), is_short ? 1 : 4);
  out_ += utf8;
  out_ += kMemoize;
}

void PickleWriter::integer(std::int64_t number) {
  if (number >= 0 && number < static_cast<std::int64_t>(kByte)) {
    out_ += kBinInt1;
    return little_endian(static_cast<std::uint64_t>(number), 1);
  }
  if (std::in_range<std::int32_t>(number)) {
    out_ += kBinInt;
    return little_endian(static_cast<std::uint64_t>(number), 4);
  }
  out_ += kLong1;
  out_ += '\x08';
  little_endian(static_cast<std::uint64_t>(number), 8);
}

std::string PickleWriter::finish() {
  out_ += kStop;
  return std::move(out_);
}

}  // namespace mfsdp
