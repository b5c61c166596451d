#include "sim/allocator/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <vector>

namespace mfsdp {
namespace {

/// Splits at commas outside brackets.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    if (i > begin) parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<std::int64_t> mebibytes(std::string_view value, std::int64_t least, const std::string& at) {
  constexpr std::int64_t most = std::int64_t{1} << 30;  // 2^50 bytes
  const auto number = number_of<std::int64_t>(value);
  if (!number || *number < least || *number > most)
    return fail(at, fmt::format("expected {} to {} MiB, got {}", least, most, value));
  return *number * AllocatorSettings::kMebibyte;
}

Result<std::int64_t> divisions_of(std::string_view value, const std::string& at) {
  const auto number = number_of<std::int64_t>(value);
  if (!number || *number < 0 || *number > 1024 ||
      (*number > 0 && !std::has_single_bit(static_cast<std::uint64_t>(*number))))
    return fail(at, fmt::format("expected a power of two, got {}", value));
  return *number;
}

/// One number for all sizes, or [256:1,512:2,>:8]: each from a size in MiB up to the next one.
Result<void> set_divisions(AllocatorSettings& settings, std::string_view value,
                           const std::string& at) {
  auto& all = settings.power2_divisions;
  if (!value.starts_with('[')) {
    MFSDP_LET(divisions, divisions_of(value, at));
    all.fill(divisions);
    return {};
  }
  if (!value.ends_with(']')) return fail(at, "expected a list in [ and ]");
  std::size_t from = 0;
  for (const std::string_view part : parts_of(value.substr(1, value.size() - 2))) {
    const std::size_t colon = part.find(':');
    if (colon == std::string_view::npos)
      return fail(at, fmt::format("expected MiB:N, got {}", part));
    MFSDP_LET(divisions, divisions_of(trimmed(part.substr(colon + 1)), at));
    const std::string_view size = trimmed(part.substr(0, colon));
    std::size_t bucket = all.size();
    if (size != ">") {
      const auto mib = number_of<std::uint64_t>(size);
      if (!mib || !std::has_single_bit(*mib))
        return fail(at, fmt::format("expected a power of two in MiB, got {}", size));
      bucket = std::min(static_cast<std::size_t>(std::countr_zero(*mib)), all.size() - 1) + 1;
    }
    std::fill(all.begin() + static_cast<std::ptrdiff_t>(std::min(from, bucket)),
              all.begin() + static_cast<std::ptrdiff_t>(bucket), divisions);
    from = bucket;
  }
  return {};
}

Result<bool> truth(std::string_view value, const std::string& at) {
  if (value != "True" && value != "False")
    return fail(at, fmt::format("expected True or False, got {}", value));
  return value == "True";
}

Result<void> set(AllocatorSettings& settings, std::string_view name, std::string_view value,
                 const std::string& at) {
  constexpr std::int64_t kLeastSplit = 21;  // more than 20 MiB, the largest shared segment
  if (name == "max_split_size_mb") {
    MFSDP_LET(size, mebibytes(value, kLeastSplit, at));
    settings.max_split_size = size;
  } else if (name == "max_non_split_rounding_mb") {
    MFSDP_LET(size, mebibytes(value, kLeastSplit, at));
    settings.max_non_split_rounding = size;
  } else if (name == "garbage_collection_threshold") {
    const auto part = number_of<double>(value);
    if (!part || !(*part > 0 && *part < 1))
      return fail(at, fmt::format("expected a number between 0 and 1, got {}", value));
    settings.garbage_collection_threshold = *part;
  } else if (name == "roundup_power2_divisions") {
    return set_divisions(settings, value, at);
  } else if (name == "expandable_segments") {
    MFSDP_LET(expandable, truth(value, at));
    settings.expandable_segments = expandable;
  } else if (name == "backend") {
    if (value != "native") return fail(at, fmt::format("expected native, got {}", value));
  } else if (!name.starts_with("pinned_") && name != "release_lock_on_cudamalloc" &&
             name != "release_lock_on_hipmalloc" && name != "graph_capture_record_stream_reuse") {
    return fail(at, "is not a setting that the allocator model supports");
  }
  return {};
}

}  // namespace

Result<AllocatorSettings> parse_allocator_settings(std::string_view text,
                                                   const std::string& where) {
  AllocatorSettings settings;
  for (const std::string_view part : parts_of(text)) {
    const std::size_t colon = part.find(':');
    const std::string_view name = trimmed(part.substr(0, colon));
    if (colon == std::string_view::npos)
      return fail(where, fmt::format("expected name:value, got {}", part));
    MFSDP_TRY(
        set(settings, name, trimmed(part.substr(colon + 1)), fmt::format("{}: {}", where, name)));
  }
  return settings;
}

}  // namespace mfsdp
