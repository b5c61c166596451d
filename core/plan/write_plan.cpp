#include <fmt/format.h>

#include <algorithm>

#include "core/base/json_text.hpp"
#include "core/plan/job.hpp"
#include "core/plan/plan_json.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <utility>

#include "core/plan/json_writer.hpp"

namespace mfsdp {
namespace {

/// JsonWriter only reads every field; `fields` takes a mutable object because the same description
/// also serves reading.
template <class File>
void write(const File& file, bool with_meta, std::function<void(std::string_view)> take) {
  TextStream stream(std::move(take));
  JsonWriter(stream, with_meta).put_object(const_cast<File&>(file));
  stream.flush();
}

std::string hash_of(const auto& file) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_128bits_reset(&state);
  write(file, false,
        [&](std::string_view text) { XXH3_128bits_update(&state, text.data(), text.size()); });
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string text_of(const auto& file) {
  std::string json;
  write(file, true, [&](std::string_view text) { json += text; });
  return json;
}

/// A file of several classes.
PlanFile file_of(const Job& job) {
  PlanFile file{.common = job.programs[0], .classes = {}};
  file.common.pools.clear();
  file.common.buffers.clear();
  file.common.plans.clear();
  for (const Program& program : job.programs)
    file.classes.push_back({.rank_class = program.classes.at(0),
                            .pools = program.pools,
                            .buffers = program.buffers,
                            .plans = program.plans});
  return file;
}

}  // namespace

void JsonWriter::schema(std::string_view key) {
  put_key(key);
  put_plain(kPlanSchema);
}

void JsonWriter::put(const std::string& value) {
  const bool plain = std::ranges::all_of(
      value, [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; });
  if (plain)
    put_plain(value);
  else
    out_.put(json_literal(value));
}

std::string plan_hash(const Program& program) { return hash_of(program); }

std::string plan_hash(const Job& job) {
  return job.programs.size() == 1 ? hash_of(job.programs[0]) : hash_of(file_of(job));
}

std::string to_canonical_json(const Program& program) {
  Program stamped = program;
  stamped.meta.stored_hash = plan_hash(program);
  return text_of(stamped);
}

std::string to_canonical_json(const Job& job) {
  if (job.programs.size() == 1) return to_canonical_json(job.programs[0]);
  PlanFile stamped = file_of(job);
  stamped.common.meta.stored_hash = hash_of(stamped);
  return text_of(stamped);
}

}  // namespace mfsdp
