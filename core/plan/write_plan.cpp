#include <fmt/format.h>

#include <algorithm>

#include "core/base/json_text.hpp"
#include "core/plan/plan_json.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <utility>

#include "core/plan/json_writer.hpp"

namespace mfsdp {
namespace {

/// Written only through JsonWriter, which reads every field; `fields` needs it mutable because the
/// same description also reads.
std::string write(const Program& program, bool with_meta) {
  std::string text;
  text.reserve(1 << 20);
  JsonWriter(text, with_meta).put_object(const_cast<Program&>(program));
  return text;
}

std::string hash_of(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

void JsonWriter::schema(std::string_view key) {
  put_key(key);
  out_ += '"';
  out_ += kPlanSchema;
  out_ += '"';
}

void JsonWriter::put(const std::string& value) {
  const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  if (plain) {
    out_ += '"';
    out_ += value;
    out_ += '"';
  } else {
    out_ += json_literal(value);
  }
}

std::string plan_hash(const Program& program) { return hash_of(write(program, false)); }

std::string to_canonical_json(const Program& program) {
  Program stamped = program;
  stamped.meta.stored_hash = plan_hash(program);
  return write(stamped, true);
}

}  // namespace mfsdp
