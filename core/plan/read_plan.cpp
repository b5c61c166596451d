// Reads a program from JSON text by the description in describe.hpp; errors name their place.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/excerpt.hpp"
#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "core/plan/check.hpp"
#include "core/plan/describe.hpp"
#include "core/plan/exact_sums.hpp"
#include "core/plan/job.hpp"
#include "core/plan/plan_json.hpp"

namespace mfsdp {
namespace {

/// After the first error all reads are no-ops; error() returns it.
class JsonReader {
 public:
  explicit JsonReader(const nlohmann::json& root) : node_(&root) {}

  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

  void operator()(std::string_view key, auto& value) {
    if (error_) return;
    ++fields_seen_;
    const auto found = node_->find(key);
    if (found == node_->end()) return refuse(key, "missing");
    get_at(key, *found, value);
  }

  template <class T>
  void sparse(std::string_view key, T& value) {
    if (error_) return;
    if constexpr (std::is_same_v<T, describe::Signed>)
      value.value = 0;
    else
      value = T{};
    const auto found = node_->find(key);
    if (found == node_->end()) return;
    ++fields_seen_;
    get_at(key, *found, value);
  }

  void meta(std::string_view key, Meta& value) { sparse(key, value); }
  void schema(std::string_view key);

  /// Recognises another kind of JSON, before an error about its first missing field.
  void check_schema() {
    if (node_->is_object()) schema("schema");
    fields_seen_ = 0;
  }

  void get_object(auto& value) {
    if (error_) return;
    if (!node_->is_object()) return expected("an object");
    const std::size_t outer_fields = fields_seen_;
    fields_seen_ = 0;
    describe::fields(*this, value);
    if (!error_ && fields_seen_ != node_->size()) refuse_unknown(value);
    fields_seen_ = outer_fields;
  }

 private:
  /// Collects the keys of a struct, to name an unknown key.
  struct KeyCollector {
    std::vector<std::string_view> keys;
    void operator()(std::string_view key, auto& /*value*/) { keys.push_back(key); }
    void sparse(std::string_view key, auto& /*value*/) { keys.push_back(key); }
    void meta(std::string_view key, Meta& /*value*/) { keys.push_back(key); }
    void schema(std::string_view key) { keys.push_back(key); }
  };

  void refuse_unknown(auto& value) {
    KeyCollector known;
    describe::fields(known, value);
    for (const auto& [key, unused] : node_->items())
      if (std::ranges::find(known.keys, key) == known.keys.end())
        return refuse(excerpt(key), "unknown key");
  }

  void get_at(std::string_view key, const nlohmann::json& child, auto& value) {
    const auto* const outer = node_;
    const std::size_t length = path_.size();
    if (!path_.empty()) path_ += '.';
    path_ += key;
    node_ = &child;
    get(value);
    node_ = outer;
    path_.resize(length);
  }

  void refuse(std::string_view key, std::string what);
  void expected(std::string_view what);
  std::int64_t integer(std::int64_t low, std::int64_t high);

  void get(std::int64_t& value) { value = integer(0, std::numeric_limits<std::int64_t>::max()); }
  void get(describe::Number& value) {
    using Limits = std::numeric_limits<std::int64_t>;
    if (node_->is_object()) {
      get_object(value.value);
      if (!error_ && value.value.den < 2) refuse("den", "expected at least 2, or an integer");
    } else {
      value.value = {.num = integer(Limits::min(), Limits::max())};
    }
  }
  void get(describe::Signed& value) {
    using Limits = std::numeric_limits<std::int64_t>;
    value.value = integer(Limits::min(), Limits::max());
  }
  /// Only one attribute of kernels may be negative: the exponent of a grid.
  void get(Attribute& value) {
    get_object(value);
    if (value.value.num < 0 && value.name != exact_attribute::grid_exponent)
      refuse("value", fmt::format("expected an integer from 0, got {}", value.value.num));
  }
  void get(bool& value);
  void get(std::string& value);
  template <class Dimension>
  void get(Quantity<Dimension>& value) {
    get(value.value);
  }
  template <class Kind>
  void get(Id<Kind>& value) {
    constexpr std::int64_t kLargestId = std::numeric_limits<std::uint32_t>::max();
    value = Id<Kind>(static_cast<std::size_t>(integer(0, kLargestId)));
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void get(Enum& value) {
    std::string name;
    get(name);
    if (error_) return;
    if (const auto known = parse<Enum>(name)) {
      value = *known;
    } else {
      expected(name_list<Enum>());
    }
  }
  template <class T>
  void get(std::optional<T>& value) {
    get(value.emplace());
  }
  template <class T>
  void get(std::vector<T>& values) {
    if (!node_->is_array()) return expected("an array");
    const auto* const outer = node_;
    const std::size_t length = path_.size();
    values.clear();
    values.reserve(outer->size());
    for (std::size_t i = 0; i < outer->size() && !error_; ++i) {
      path_.resize(length);
      path_ += fmt::format("[{}]", i);
      node_ = &(*outer)[i];
      get(values.emplace_back());
    }
    node_ = outer;
    path_.resize(length);
  }
  void get(OpBody& body);
  template <std::size_t Index>
  bool get_alternative(std::string_view kind, const nlohmann::json& child, OpBody& body);
  template <class T>
    requires requires(JsonReader& io, T& value) { describe::fields(io, value); }
  void get(T& value) {
    get_object(value);
  }

  const nlohmann::json* node_;
  std::string path_;
  std::size_t fields_seen_ = 0;
  std::optional<Error> error_;
};

void JsonReader::refuse(std::string_view key, std::string what) {
  if (!error_)
    error_ =
        Error{path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key), std::move(what)};
}

void JsonReader::expected(std::string_view what) {
  if (error_) return;
  error_ = Error{path_, fmt::format("expected {}, got {}", what, json_excerpt(*node_))};
}

std::int64_t JsonReader::integer(std::int64_t low, std::int64_t high) {
  if (error_) return 0;
  if (low < 0 && node_->is_number_integer() && !node_->is_number_unsigned())
    return node_->get<std::int64_t>();
  if (node_->is_number_unsigned()) {
    const auto value = node_->get<std::uint64_t>();
    if (std::cmp_greater_equal(value, low) && std::cmp_less_equal(value, high))
      return static_cast<std::int64_t>(value);
  }
  expected(fmt::format("an integer from {} to {}", low, high));
  return 0;
}

void JsonReader::get(bool& value) {
  if (!node_->is_boolean()) return expected("true or false");
  value = node_->get<bool>();
}

void JsonReader::get(std::string& value) {
  if (!node_->is_string()) return expected("a string");
  value = node_->get<std::string>();
}

void JsonReader::schema(std::string_view key) {
  if (!error_ && node_->find(key) == node_->end())
    return refuse(key, "is missing: expected a plan, as --plan-out writes it");
  std::string schema;
  (*this)(key, schema);
  if (error_ || schema == kPlanSchema) return;
  refuse(key, fmt::format("expected \"{}\", got \"{}\"{}", kPlanSchema, excerpt(schema),
                          schema == kFirstPlanSchema
                              ? ", which older versions wrote: build the plan again from its flags"
                              : ""));
}

template <std::size_t Index>
bool JsonReader::get_alternative(std::string_view kind, const nlohmann::json& child, OpBody& body) {
  if (Names<OpKind>::values[Index] != kind) return false;
  get_at(kind, child, body.emplace<Index>());
  return true;
}

void JsonReader::get(OpBody& body) {
  if (!node_->is_object() || node_->size() != 1)
    return expected("an object with the op's kind as its one key");
  const auto entry = node_->items().begin();
  const bool known = [&]<std::size_t... Indices>(std::index_sequence<Indices...>) {
    return (get_alternative<Indices>(entry.key(), entry.value(), body) || ...);
  }(std::make_index_sequence<std::variant_size_v<OpBody>>{});
  if (!known) expected("one of the kinds " + name_list<OpKind>());
}

/// The programs of a file's classes, each with its own lists.
Result<Job> job_of(PlanFile file) {
  const bool shares = std::ranges::all_of(file.classes, [](const ClassEntry& entry) {
    return entry.pools.empty() && entry.buffers.empty() && entry.plans.empty();
  });
  Job job;
  if (shares) {
    for (ClassEntry& entry : file.classes)
      file.common.classes.push_back(std::move(entry.rank_class));
    job.programs.push_back(std::move(file.common));
    return job;
  }
  if (!file.common.pools.empty() || !file.common.buffers.empty() || !file.common.plans.empty())
    return fail("classes",
                "expected no pools, buffers and plans at the top besides those of classes");
  for (std::size_t c = 0; c < file.classes.size(); ++c) {
    ClassEntry& entry = file.classes[c];
    if (entry.plans.empty()) return fail(fmt::format("classes[{}].plans", c), "missing");
    Program& program = job.programs.emplace_back(file.common);
    program.classes = {std::move(entry.rank_class)};
    program.pools = std::move(entry.pools);
    program.buffers = std::move(entry.buffers);
    program.plans = std::move(entry.plans);
  }
  return job;
}

Result<Program> of_one_class(Job job, const std::string& where) {
  if (job.programs.size() == 1) return std::move(job.programs[0]);
  return fail(where, fmt::format("expected one class of ranks, got {}", job.programs.size()));
}

}  // namespace

Result<Job> unchecked_job_from_json(std::string_view text, const std::string& where) {
  MFSDP_LET(document, parse_json(text, where));
  PlanFile file;
  JsonReader reader(document);
  reader.check_schema();
  reader.get_object(file);
  if (const auto& error = reader.error())
    return fail(error->where.empty() ? where : fmt::format("{}: {}", where, error->where),
                error->what);
  auto job = job_of(std::move(file));
  if (!job) return fail(fmt::format("{}: {}", where, job.error().where), job.error().what);
  return job;
}

Result<Job> job_from_json(std::string_view text, const std::string& where) {
  MFSDP_LET(job, unchecked_job_from_json(text, where));
  if (auto checked = check_structure(job); !checked)
    return fail(fmt::format("{}: {}", where, checked.error().where), checked.error().what);
  return std::move(job);
}

Result<Program> unchecked_program_from_json(std::string_view text, const std::string& where) {
  MFSDP_LET(job, unchecked_job_from_json(text, where));
  return of_one_class(std::move(job), where);
}

Result<Program> program_from_json(std::string_view text, const std::string& where) {
  MFSDP_LET(job, job_from_json(text, where));
  auto only = only_program(std::move(job));
  if (!only) return fail(fmt::format("{}: {}", where, only.error().where), only.error().what);
  return only;
}

}  // namespace mfsdp
