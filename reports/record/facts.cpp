#include "reports/record/facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace mfsdp {
namespace {

using FactJson = nlohmann::ordered_json;

FactJson json_of_fact(const FactValue& value) {
  const auto* real = std::get_if<double>(&value);
  if (real != nullptr && !std::isfinite(*real)) return nullptr;
  return std::visit([](const auto& each) { return FactJson(each); }, value);
}

/// False where the JSON is no fact's value.
bool read_value(const FactJson& json, FactValue& value) {
  if (json.is_boolean()) return value = json.get<bool>(), true;
  if (json.is_number_float()) return value = json.get<double>(), true;
  if (json.is_string()) return value = json.get<std::string>(), true;
  const bool fits = json.is_number_integer() &&
                    (!json.is_number_unsigned() ||
                     json.get<std::uint64_t>() <=
                         static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (fits) value = json.get<std::int64_t>();
  return fits;
}

}  // namespace

const Fact* find_fact(const Facts& facts, std::string_view topic, std::string_view name) {
  const auto found = std::ranges::find_if(
      facts, [&](const Fact& fact) { return fact.topic == topic && fact.name == name; });
  return found == facts.end() ? nullptr : &*found;
}

std::vector<std::string> statements_of(const Facts& facts) {
  std::vector<std::string> statements;
  for (const char* name :
       {"engine_options", "engine_basis", "framework_options", "memory_error",
        "gradient_reductions", "power", "priced_by", "published_prices", "assumed", "failures"})
    if (const Fact* fact = find_fact(facts, "simulation", name))
      statements.push_back(fact_text(fact->value));
  return statements;
}

std::string fact_text(const FactValue& value) {
  return std::visit([](const auto& each) { return fmt::format("{}", each); }, value);
}

std::string facts_json(const Facts& facts) {
  FactJson object = FactJson::object();
  for (const Fact& fact : facts) object[fact.topic][fact.name] = json_of_fact(fact.value);
  return object.dump(-1, ' ', false, FactJson::error_handler_t::replace);
}

Result<Facts> facts_from_json(const std::string& text, const std::string& where) {
  const FactJson object = FactJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return fail(where, "expected an object of topics");
  Facts facts;
  for (const auto& [topic, names] : object.items()) {
    if (!names.is_object())
      return fail(fmt::format("{}.{}", where, topic), "expected an object of facts");
    for (const auto& [name, json] : names.items()) {
      if (json.is_null()) continue;
      Fact fact{.topic = topic, .name = name, .value = false};
      if (!read_value(json, fact.value))
        return fail(fmt::format("{}.{}.{}", where, topic, name),
                    "expected true, false, a number or text");
      facts.push_back(std::move(fact));
    }
  }
  return facts;
}

}  // namespace mfsdp
