#include "core/formats/object_pickle.hpp"

#include <limits>
#include <utility>

namespace mfsdp {

ObjectPickle::ObjectPickle(int protocol) : protocol_(protocol) {
  bytes_ += '\x80';
  bytes_ += static_cast<char>(protocol);
}

void ObjectPickle::number(std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xffU);
}

void ObjectPickle::none() { bytes_ += 'N'; }

void ObjectPickle::truth(bool value) { bytes_ += value ? '\x88' : '\x89'; }

void ObjectPickle::integer(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  if (value >= 0 && value < 0x100) {
    bytes_ += 'K';
    number(bits, 1);
  } else if (value >= 0 && value < 0x10000) {
    bytes_ += 'M';
    number(bits, 2);
  } else if (value >= std::numeric_limits<std::int32_t>::min() &&
             value <= std::numeric_limits<std::int32_t>::max()) {
    bytes_ += 'J';
    number(bits, 4);
  } else {
    bytes_ += "\x8a\x08";
    number(bits, 8);
  }
}

bool ObjectPickle::recall(const std::string& key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) return false;
  const bool is_short = found->second < 0x100;
  bytes_ += is_short ? 'h' : 'j';
  number(found->second, is_short ? 1 : 4);
  return true;
}

void ObjectPickle::remember(const std::string& key) {
  const auto index = static_cast<std::uint32_t>(memo_.size());
  memo_.emplace(key, index);
  const bool is_short = index < 0x100;
  bytes_ += is_short ? 'q' : 'r';
  number(index, is_short ? 1 : 4);
}

void ObjectPickle::text(std::string_view value) {
  const std::string key = "t" + std::string(value);
  if (recall(key)) return;
  bytes_ += 'X';
  number(value.size(), 4);
  bytes_ += value;
  remember(key);
}

void ObjectPickle::name(std::string_view module, std::string_view name) {
  const std::string key = "n" + std::string(module) + "." + std::string(name);
  if (recall(key)) return;
  if (protocol_ < 4) {
    bytes_ += 'c';
    bytes_ += std::string(module) + '\n' + std::string(name) + '\n';
  } else {
    text(module);
    text(name);
    bytes_ += '\x93';
  }
  remember(key);
}

void ObjectPickle::mark() { bytes_ += '('; }
void ObjectPickle::tuple() { bytes_ += 't'; }

void ObjectPickle::integers(std::span<const std::int64_t> values) {
  mark();
  for (const std::int64_t value : values) integer(value);
  tuple();
}

void ObjectPickle::list() { bytes_ += ']'; }
void ObjectPickle::append() { bytes_ += 'e'; }
void ObjectPickle::dict() { bytes_ += '}'; }
void ObjectPickle::set_items() { bytes_ += 'u'; }
void ObjectPickle::call() { bytes_ += 'R'; }
void ObjectPickle::object() { bytes_ += ")\x81"; }
void ObjectPickle::build() { bytes_ += 'b'; }
void ObjectPickle::persistent_id() { bytes_ += 'Q'; }

std::string ObjectPickle::finish() {
  bytes_ += '.';
  return std::move(bytes_);
}

}  // namespace mfsdp
