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
void write(const Program& program, bool with_meta, std::function<void(std::string_view)> take) {
  TextStream stream(std::move(take));
  JsonWriter(stream, with_meta).put_object(const_cast<Program&>(program));
  stream.flush();
}

}  // namespace

void JsonWriter::schema(std::string_view key) {
  put_key(key);
  put_plain(kPlanSchema);
}

void JsonWriter::put(const std::string& value) {
  const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  if (plain)
    put_plain(value);
  else
    out_.put(json_literal(value));
}

std::string plan_hash(const Program& program) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_128bits_reset(&state);
  write(program, false,
        [&](std::string_view text) { XXH3_128bits_update(&state, text.data(), text.size()); });
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string to_canonical_json(const Program& program) {
  Program stamped = program;
  stamped.meta.stored_hash = plan_hash(program);
  std::string json;
  write(stamped, true, [&](std::string_view text) { json += text; });
  return json;
}

}  // namespace mfsdp
