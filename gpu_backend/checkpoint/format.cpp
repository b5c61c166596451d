#include "gpu_backend/checkpoint/format.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "core/formats/json_fields.hpp"
#include "reports/record/result_json.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;
using Written = nlohmann::ordered_json;

constexpr std::int64_t kMostElements = std::int64_t{1} << 56;  ///< their bytes must fit into 63
                                                               ///< bits
constexpr std::int64_t kMostPiece = std::int64_t{1} << 24;     ///< elements
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;

std::string text_of(const Written& json, int indent) {
  return json.dump(indent, ' ', false, Written::error_handler_t::replace);
}

// End of a manifest. The checksum covers all bytes before the comma.
constexpr std::string_view kSealBegin = ",\n \"checksum\": \"";
constexpr std::string_view kSealEnd = "\"\n}\n";
constexpr std::size_t kSealDigits = 16;
constexpr std::size_t kSeal = kSealBegin.size() + kSealDigits + kSealEnd.size();

std::uint64_t checksum_of_text(std::string_view text) {
  return checksum_of(std::as_bytes(std::span(text)));
}

/// `json`: an object in the format of text_of() with an indent of 1.
std::string sealed(std::string json) {
  constexpr std::size_t kBrace = 2;  // the brace and the newline before it
  json.resize(json.size() - kBrace);
  const std::string checksum = checksum_text(checksum_of_text(json));
  return json.append(kSealBegin).append(checksum).append(kSealEnd);
}

/// Checks that the last bytes are those that sealed() wrote.
Result<void> check_seal(std::string_view text, const std::string& where) {
  const std::string_view end = text.substr(text.size() - std::min(text.size(), kSeal));
  if (!end.starts_with(kSealBegin) || !end.ends_with(kSealEnd))
    return fail(where,
                "expected its checksum and nothing else at the end: bytes were lost, "
                "changed or added");
  const std::string_view written = end.substr(kSealBegin.size(), kSealDigits);
  const std::string found = checksum_text(checksum_of_text(text.substr(0, text.size() - kSeal)));
  if (written == found) return {};
  return fail(where, fmt::format("expected checksum {}, as at its end, got {}: it is not as it "
                                 "was written",
                                 json_excerpt(written), found));
}

bool has_schema(const Json& json, std::string_view schema) {
  if (!json.is_object()) return false;
  const auto found = json.find("schema");
  return found != json.end() && found->is_string() &&
         found->get_ref<const std::string&>() == schema;
}

/// 16 hexadecimal digits.
Result<std::uint64_t> checksum_value(const Json& value, const std::string& where) {
  constexpr std::size_t kDigits = 16;
  constexpr int kBase = 16;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    std::uint64_t number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number, kBase);
    if (text.size() == kDigits && read.ec == std::errc() && read.ptr == text.data() + text.size())
      return number;
  }
  return fail(where, "expected 16 hexadecimal digits, got " + json_excerpt(value));
}

Result<std::uint64_t> checksum_field(const Json& object, std::string_view key,
                                     const std::string& where) {
  MFSDP_LET(field, any_field(object, key, where));
  return checksum_value(*field, fmt::format("{}.{}", where, key));
}

Result<void> check_schema(const Json& json, std::string_view schema, const std::string& where) {
  if (!json.is_object()) return fail(where, "expected a JSON object");
  MFSDP_LET(found, text_field(json, "schema", where));
  if (found == schema) return {};
  return fail(where + ".schema",
              fmt::format("expected \"{}\", got {}", schema, json_excerpt(found)));
}

template <class Enum>
Result<Enum> name_field(const Json& object, const char* key, const std::string& where) {
  MFSDP_LET(text, text_field(object, key, where));
  if (const auto value = parse<Enum>(text)) return *value;
  return fail(fmt::format("{}.{}", where, key),
              fmt::format("expected {}, got {}", name_list<Enum>(), json_excerpt(text)));
}

bool is_floating(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::fp16 || dtype == DType::fp32 ||
         dtype == DType::fp64;
}

Result<StateEntry> read_entry(const Json& json, const std::string& where, std::int64_t piece) {
  if (!json.is_object()) return fail(where, "expected an object, got " + json_excerpt(json));
  StateEntry entry;
  auto& [begin, end] = entry.elements;
  MFSDP_SET(entry.parameter, text_field(json, "parameter", where));
  MFSDP_SET(entry.kind, text_field(json, "kind", where));
  MFSDP_SET(entry.dtype, name_field<DType>(json, "dtype", where));
  MFSDP_SET(begin, integer_field(json, "begin", where, {.most = kMostElements}));
  MFSDP_SET(end, integer_field(json, "end", where, {.most = kMostElements}));
  MFSDP_SET(entry.offset, integer_field(json, "offset", where));
  MFSDP_LET(checksums, list_field(json, "checksums", where));
  if (!is_floating(entry.dtype) && entry.dtype != DType::uint8)
    return fail(where + ".dtype", fmt::format("expected bf16, fp16, fp32, fp64 or uint8, got {}",
                                              to_string(entry.dtype)));
  if (begin >= end)
    return fail(where + ".end", fmt::format("expected more than begin, {}, got {}", begin, end));
  const std::int64_t pieces = pieces_of(entry.elements, piece);
  if (std::ssize(*checksums) != pieces)
    return fail(where + ".checksums",
                fmt::format("expected {}, got {}", pieces, checksums->size()));
  for (const Json& value : *checksums) {
    MFSDP_LET(checksum, checksum_value(value, where + ".checksums"));
    entry.checksums.push_back(checksum);
  }
  return entry;
}

Result<SavedFile> read_file_entry(const Json& json, const std::string& where) {
  if (!json.is_object()) return fail(where, "expected an object, got " + json_excerpt(json));
  SavedFile file;
  MFSDP_SET(file.name, text_field(json, "name", where));
  MFSDP_SET(file.bytes, integer_field(json, "bytes", where));
  MFSDP_SET(file.checksum, checksum_field(json, "checksum", where));
  const std::filesystem::path path(file.name);
  if (path.empty() || path != path.filename() || file.name == "." || file.name == "..")
    return fail(where + ".name",
                "expected the name of a file in this folder, got " + json_excerpt(file.name));
  return file;
}

RunHead head_of(const RunIdentity& run) {
  RunHead result;
  result.model_name = run.model_name;
  result.parameters = run.parameters;
  result.config = run.config;
  return result;
}

Result<std::optional<LossScaleState>> read_loss_scale(const Json& json, const std::string& where) {
  if (!json.contains("loss_scale")) return std::nullopt;
  const std::string place = where + ".loss_scale";
  MFSDP_LET(object, object_field(json, "loss_scale", where));
  MFSDP_LET(scale, number_field(*object, "scale", place));
  MFSDP_LET(good_steps, integer_field(*object, "good_steps", place, {.most = 1 << 24}));
  if (!(scale > 0 && scale <= std::numeric_limits<float>::max()))
    return fail(place + ".scale", fmt::format("expected a number above 0, got {}", scale));
  return LossScaleState{.scale = static_cast<float>(scale),
                        .good_steps = static_cast<float>(good_steps)};
}

/// Bits of floats: eight hexadecimal digits each.
constexpr std::size_t kDigitsOfFloat = 8;

std::string text_of_floats(const std::vector<float>& numbers) {
  std::string text;
  text.reserve(numbers.size() * kDigitsOfFloat);
  for (const float number : numbers)
    fmt::format_to(std::back_inserter(text), "{:08x}", std::bit_cast<std::uint32_t>(number));
  return text;
}

Result<std::vector<float>> read_amax_history(const Json& json, const std::string& where) {
  std::vector<float> numbers;
  if (!json.contains("amax_history")) return numbers;
  MFSDP_LET(text, text_field(json, "amax_history", where));
  const std::string place = where + ".amax_history";
  if (text.size() % kDigitsOfFloat != 0)
    return fail(place, fmt::format("expected {} hexadecimal digits for each number, got {} in all",
                                   kDigitsOfFloat, text.size()));
  for (std::size_t at = 0; at < text.size(); at += kDigitsOfFloat) {
    std::uint32_t bits = 0;
    const char* const end = text.data() + at + kDigitsOfFloat;
    if (const auto read = std::from_chars(text.data() + at, end, bits, 16);
        read.ec != std::errc() || read.ptr != end)
      return fail(place, fmt::format("expected hexadecimal digits at character {}", at));
    numbers.push_back(std::bit_cast<float>(bits));
  }
  return numbers;
}

Written json_of(const LossScaleState& state) {
  return {{"scale", state.scale}, {"good_steps", static_cast<std::int64_t>(state.good_steps)}};
}

Result<TrainPosition> read_position(const Json& json, const std::string& where) {
  TrainPosition position;
  MFSDP_SET(position.step, integer_field(json, "step", where, {.most = kMostSteps}));
  MFSDP_SET(position.samples, integer_field(json, "samples", where, {.most = kMostElements}));
  MFSDP_SET(position.tokens, integer_field(json, "tokens", where, {.most = kMostElements}));
  MFSDP_SET(position.loss_scale, read_loss_scale(json, where));
  MFSDP_SET(position.amax_history, read_amax_history(json, where));
  return position;
}

/// A step reads samples, and samples have tokens. The run must have read exactly what its
/// configuration reads in its number of steps.
Result<void> check_position(const Manifest& manifest, const std::string& where) {
  const TrainPosition& now = manifest.position;
  const TrainPosition& began = manifest.began;
  const auto check_sum = [&](const char* field, std::int64_t sum, std::int64_t before,
                             Int128 per_step, const std::string& what) -> Result<void> {
    if (Int128{now.step - began.step} * per_step == Int128{sum} - before) return {};
    return fail(fmt::format("{}.{}", where, field),
                fmt::format("expected {} and {} steps of {}, got {}", before, now.step - began.step,
                            what, sum));
  };
  if (began.step > now.step)
    return fail(where + ".began.step",
                fmt::format("expected at most step, {}, got {}", now.step, began.step));
  for (const TrainPosition* position : {&began, &now})
    if (position->samples < position->step || position->tokens < position->samples ||
        (position->step == 0 && position->tokens > 0))
      return fail(where, fmt::format("{} steps cannot have read {} samples of {} tokens",
                                     position->step, position->samples, position->tokens));
  const PlanConfig& config = manifest.run.config;
  MFSDP_TRY(check_sum("samples", now.samples, began.samples, config.global_batch(),
                      fmt::format("{} samples", config.global_batch())));
  return check_sum("tokens", now.tokens, began.tokens,
                   Int128{config.global_batch()} * config.seq_len,
                   fmt::format("{} x {} tokens", config.global_batch(), config.seq_len));
}

Result<OptimizerSettings> read_optimizer(const Json& json, const std::string& where) {
  OptimizerSettings settings;
  MFSDP_SET(settings.beta1, number_field(json, "beta1", where));
  MFSDP_SET(settings.beta2, number_field(json, "beta2", where));
  MFSDP_SET(settings.epsilon, number_field(json, "epsilon", where));
  MFSDP_SET(settings.weight_decay, number_field(json, "weight_decay", where));
  if (json.contains("momentum"))  // only of Muon
    MFSDP_SET(settings.momentum, number_field(json, "momentum", where));
  return settings;
}

Result<DataIdentity> read_data(const Json& json, const std::string& where) {
  DataIdentity data;
  MFSDP_SET(data.description, text_field(json, "description", where));
  MFSDP_SET(data.samples, integer_field(json, "samples", where, {.most = kMostElements}));
  MFSDP_SET(data.fingerprint, checksum_field(json, "fingerprint", where));
  return data;
}

/// Bounds the values so that multiplications of them fit into 63 bits. Nothing else of an earlier
/// run's configuration is used.
Result<void> check_config(const PlanConfig& config, const std::string& where) try {
  if (const auto valid = validate(config); !valid) return fail(where, valid.error().message());
  static_cast<void>(config_json(config));
  return {};
} catch (const OverflowError& error) {
  return fail(where, error.what());
}

Result<RunIdentity> read_run(const Json& json, const std::string& where) {
  RunIdentity run;
  MFSDP_LET(model, object_field(json, "model", where));
  MFSDP_LET(config, object_field(json, "config", where));
  MFSDP_LET(optimizer, object_field(json, "optimizer", where));
  MFSDP_LET(data, object_field(json, "data", where));
  MFSDP_SET(run.model_name, text_field(*model, "name", where + ".model"));
  MFSDP_SET(run.parameters,
            integer_field(*model, "parameters", where + ".model", {.most = kMostElements}));
  MFSDP_SET(run.config,
            config_from_json(model->dump(-1, ' ', true), config->dump(-1, ' ', true), where));
  MFSDP_TRY(check_config(run.config, where + ".config"));
  MFSDP_SET(run.optimizer, read_optimizer(*optimizer, where + ".optimizer"));
  MFSDP_SET(run.data, read_data(*data, where + ".data"));
  MFSDP_SET(run.seed, unsigned_field(json, "seed", where));
  MFSDP_SET(run.plan_hash, text_field(json, "plan_hash", where));
  MFSDP_SET(run.run_id, text_field(json, "run_id", where));
  return run;
}

}  // namespace

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string checksum_text(std::uint64_t checksum) { return fmt::format("{:016x}", checksum); }

std::int64_t pieces_of(const Interval& elements, std::int64_t piece_elements) {
  return ceil_div(elements.size(), piece_elements);
}

std::int64_t bytes_of(const StateEntry& entry) {
  return entry.elements.size() * size_of(entry.dtype);
}

std::string to_json(const StateHeader& header) {
  Written entries = Written::array();
  for (const StateEntry& entry : header.entries) {
    Written checksums = Written::array();
    for (const std::uint64_t checksum : entry.checksums)
      checksums.push_back(checksum_text(checksum));
    entries.push_back({{"parameter", entry.parameter},
                       {"kind", entry.kind},
                       {"dtype", to_string(entry.dtype)},
                       {"begin", entry.elements.begin},
                       {"end", entry.elements.end},
                       {"offset", entry.offset},
                       {"checksums", std::move(checksums)}});
  }
  return text_of({{"schema", kStateSchema},
                  {"step", header.step},
                  {"rank", header.rank},
                  {"piece_elements", header.piece_elements},
                  {"entries", std::move(entries)}},
                 -1);
}

Result<StateHeader> state_header_from_json(std::string_view text, const std::string& where) {
  MFSDP_LET(json, parse_json(text, where));
  const std::string at = where + ": header";
  MFSDP_TRY(check_schema(json, kStateSchema, at));
  StateHeader header;
  MFSDP_SET(header.step, integer_field(json, "step", at, {.most = kMostSteps}));
  MFSDP_SET(header.rank, integer_field(json, "rank", at));
  MFSDP_SET(header.piece_elements, integer_field(json, "piece_elements", at, {.most = kMostPiece}));
  MFSDP_LET(entries, list_field(json, "entries", at));
  if (header.piece_elements == 0) return fail(at + ".piece_elements", "expected more than 0");
  std::int64_t end = 0;
  for (std::size_t i = 0; i < entries->size(); ++i) {
    const std::string place = fmt::format("{}.entries[{}]", at, i);
    MFSDP_LET(entry, read_entry((*entries)[i], place, header.piece_elements));
    if (entry.offset != end)
      return fail(place + ".offset", fmt::format("expected {}, where the entry before ends, got {}",
                                                 end, entry.offset));
    if (__builtin_add_overflow(end, bytes_of(entry), &end))
      return fail(place + ".end", "the entries' bytes are no 63-bit number");
    header.entries.push_back(std::move(entry));
  }
  return header;
}

namespace {

Written optimizer_json(const RunIdentity& run) {
  Written json{{"beta1", run.optimizer.beta1},
               {"beta2", run.optimizer.beta2},
               {"epsilon", run.optimizer.epsilon},
               {"weight_decay", run.optimizer.weight_decay}};
  if (orthogonalises(run.config.optimizer)) json["momentum"] = run.optimizer.momentum;
  return json;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  const RunIdentity& run = manifest.run;
  Written files = Written::array();
  for (const SavedFile& file : manifest.files)
    files.push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"checksum", checksum_text(file.checksum)}});
  Written json{{"schema", kCheckpointSchema},
               {"step", manifest.position.step},
               {"samples", manifest.position.samples},
               {"tokens", manifest.position.tokens},
               {"began",
                {{"step", manifest.began.step},
                 {"samples", manifest.began.samples},
                 {"tokens", manifest.began.tokens}}},
               {"run_id", run.run_id},
               {"plan_hash", run.plan_hash},
               {"world_size", run.config.mesh.world_size()},
               {"seed", run.seed},
               {"data",
                {{"description", run.data.description},
                 {"samples", run.data.samples},
                 {"fingerprint", checksum_text(run.data.fingerprint)}}},
               {"model", Written::parse(model_json(head_of(run)))},
               {"optimizer", optimizer_json(run)},
               {"config", Written::parse(config_json(run.config))},
               {"files", std::move(files)}};
  if (manifest.position.loss_scale) json["loss_scale"] = json_of(*manifest.position.loss_scale);
  if (!manifest.position.amax_history.empty())
    json["amax_history"] = text_of_floats(manifest.position.amax_history);
  return sealed(text_of(json, 1));
}

Result<Manifest> manifest_from_json(std::string_view text, const std::string& where) {
  MFSDP_LET(json, parse_json(text, where));
  const bool is_old = has_schema(json, kOldCheckpointSchema);
  if (!is_old) {
    MFSDP_TRY(check_schema(json, kCheckpointSchema, where));
    MFSDP_TRY(check_seal(text, where));
  }
  Manifest manifest;
  manifest.has_checksum = !is_old;
  MFSDP_SET(manifest.position, read_position(json, where));
  manifest.began = manifest.position;
  if (!is_old) {
    MFSDP_LET(object, object_field(json, "began", where));
    MFSDP_SET(manifest.began, read_position(*object, where + ".began"));
  }
  MFSDP_SET(manifest.run, read_run(json, where));
  MFSDP_LET(files, list_field(json, "files", where));
  MFSDP_TRY(check_position(manifest, where));
  for (std::size_t i = 0; i < files->size(); ++i) {
    MFSDP_LET(file, read_file_entry((*files)[i], fmt::format("{}.files[{}]", where, i)));
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

}  // namespace mfsdp
