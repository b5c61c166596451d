#include "core/plan/field_names.hpp"

#include <algorithm>
#include <string_view>

#include "core/plan/config_fields.hpp"

namespace mfsdp {
namespace {

/// Empty if the flag sets no field.
std::string_view field_of(std::string_view flag) {
  if (flag == "--gpus") return "mesh";
  if (flag == "--model") return "model";
  const auto* field = std::ranges::find(kConfigFields, flag, &ConfigField::flag);
  return field == kConfigFields.end() ? std::string_view() : field->name;
}

bool is_of_flag(char character) {
  return character == '-' || (character >= 'a' && character <= 'z') ||
         (character >= '0' && character <= '9');
}

std::string without_flags(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t begin = std::min(text.find("--"), text.size());
    out += text.substr(0, begin);
    text.remove_prefix(begin);
    const auto end =
        static_cast<std::size_t>(std::ranges::find_if_not(text, is_of_flag) - text.begin());
    const std::string_view field = field_of(text.substr(0, end));
    out += field.empty() ? text.substr(0, end) : field;
    text.remove_prefix(end);
  }
  return out;
}

}  // namespace

Error named_by_field(const Error& error) {
  return {.where = "config." + without_flags(error.where),
          .what = without_flags(error.what),
          .fault = error.fault};
}

}  // namespace mfsdp
