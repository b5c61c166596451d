#include "core/model/hf_fields.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/json_text.hpp"

namespace mfsdp {

HfFields::HfFields(const Json& object, const std::string& where, std::string prefix,
                   AskedFields* asked)
    : object_(object), where_(where), prefix_(std::move(prefix)), asked_(asked) {}

void HfFields::know(std::initializer_list<const char*> names) const {
  if (asked_ == nullptr) return;
  for (const char* name : names) asked_->add(prefix_ + name);
}

void HfFields::know_all() const {
  for (const auto& [name, value] : object_.items()) know({name.c_str()});
}

bool HfFields::contains(const char* name) const {
  know({name});
  return object_.contains(name);
}

const HfFields::Json* HfFields::find(const char* name) const {
  know({name});
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

tl::unexpected<Error> HfFields::wrong(std::string_view name, std::string_view expected) const {
  const auto at = object_.find(name);
  return fail(where_, fmt::format("{}: expected {}, got {}", named(name), expected,
                                  at == object_.end() ? "nothing" : json_excerpt(*at)));
}

std::string HfFields::named(std::string_view name) const { return prefix_ + std::string(name); }

Result<void> HfFields::integer(const char* name, std::int64_t most, std::int64_t& value) const {
  return integer_between(1, most, name, value);
}

Result<void> HfFields::integer_between(std::int64_t least, std::int64_t most, const char* name,
                                       std::int64_t& value) const {
  const Json* field = find(name);
  if (field == nullptr) return {};
  const auto out_of_range = [&] {
    return wrong(name, fmt::format("an integer from {} to {}", least, most));
  };
  if (!field->is_number_integer()) return out_of_range();
  // Above 2^63 only the unsigned reading is right; a negative one is not unsigned.
  if (field->is_number_unsigned() ? field->get<std::uint64_t>() > static_cast<std::uint64_t>(most)
                                  : field->get<std::int64_t>() > most)
    return out_of_range();
  if (field->get<std::int64_t>() < least) return out_of_range();
  value = field->get<std::int64_t>();
  return {};
}

Result<void> HfFields::stated(const char* name, std::string_view expected) const {
  return contains(name) ? Result<void>{} : wrong(name, expected);
}

Result<void> HfFields::required_integer(const char* name, std::int64_t most,
                                        std::int64_t& value) const {
  if (find(name) == nullptr) return wrong(name, fmt::format("an integer from 1 to {}", most));
  return integer(name, most, value);
}

Result<void> HfFields::number(const char* name, Rational& value) const {
  const Json* field = find(name);
  if (field == nullptr) return {};
  constexpr std::string_view kExpected = "a positive number of at most 18 digits";
  if (!field->is_number()) return wrong(name, kExpected);
  const Result<Rational> exact = field->is_number_float()
                                     ? rational_from_double(field->get<double>(), name)
                                     : parse_rational(field->dump(), name);
  if (!exact || exact->num <= 0) return wrong(name, kExpected);
  value = *exact;
  return {};
}

Result<void> HfFields::required_number(const char* name, Rational& value) const {
  if (find(name) == nullptr) return wrong(name, "a number");
  return number(name, value);
}

Result<void> HfFields::boolean(const char* name, bool& value) const {
  const Json* field = find(name);
  if (field == nullptr) return {};
  if (!field->is_boolean()) return wrong(name, "true or false");
  value = field->get<bool>();
  return {};
}

Result<void> HfFields::off(const char* name, std::string_view what) const {
  bool on = false;
  MFSDP_TRY(boolean(name, on));
  if (on) return wrong(name, fmt::format("false ({} are not supported)", what));
  return {};
}

Result<std::optional<HfFields>> HfFields::object(const char* name) const {
  const Json* field = find(name);
  if (field == nullptr) return std::optional<HfFields>{};
  if (!field->is_object()) return wrong(name, "an object or null");
  if (asked_ != nullptr) asked_->add_object(prefix_ + name);
  return std::optional<HfFields>(std::in_place, *field, where_, prefix_ + name + ".", asked_);
}

}  // namespace mfsdp
