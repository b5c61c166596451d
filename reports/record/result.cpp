#include "reports/record/result.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "core/plan/config_fields.hpp"
#include "reports/record/result_fields.hpp"
#include "reports/record/result_json.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::ordered_json;  // keys stay in the order of the documented schema

/// A number where a decimal stands for the fraction exactly, else "num/den".
Json exact(const Rational& rational) {
  if (rational.den == 1) return rational.num;
  if (const auto decimal = exact_double(rational)) return *decimal;
  return flag_text(rational);
}

/// Writes the fields of one object (result_fields.hpp). Unknown figures are null.
class ResultWriter {
 public:
  static constexpr bool kIsJson = true;

  explicit ResultWriter(const FigureSet& absent) : absent_(absent) {}

  // Written values have no range.
  void operator()(std::string_view key, const auto& value, auto... /*range*/) {
    object_[std::string(key)] = json_of(value);
  }
  template <class T, class... Range>
  void sparse(std::string_view key, const T& value, Range... /*range*/) {
    if (value != T{}) (*this)(key, value);
  }
  template <class T>
    requires Described<T>
  void sparse(std::string_view key, const std::optional<T>& value) {
    if (value) (*this)(key, value);
  }
  template <class T>
    requires Described<T>
  void sparse(std::string_view key, const std::vector<T>& list) {
    if (!list.empty()) (*this)(key, list);
  }
  void sparse(std::string_view key, const Rational& value) {
    if (value.num != 0) (*this)(key, value);
  }
  void later(std::string_view key, const auto& value) { (*this)(key, value); }
  void figure(ResultFigure figure, const auto& value, auto... /*range*/) {
    (*this)(to_string(figure), absent_.has(figure) ? Json() : json_of(value));
  }
  void real(std::string_view key, double value) { (*this)(key, value); }
  void known(std::string_view key, Nanos value, bool is_known) {
    (*this)(key, is_known ? Json(value.value) : Json());
  }
  void positive(std::string_view key, double value) {
    (*this)(key, value > 0 ? std::optional(value) : std::nullopt);
  }
  void decimal(std::string_view key, const Rational& value) { (*this)(key, value.value()); }
  void written(std::string_view key, const auto& value) { sparse(key, value); }
  void derived(std::string_view key, auto value) { (*this)(key, value()); }
  void object(std::string_view key, auto part) {
    ResultWriter writer(absent_);
    part(writer);
    (*this)(key, std::move(writer.object_));
  }
  void object(ResultFigure figure, auto part) {
    if (absent_.has(figure)) return (*this)(to_string(figure), Json());
    object(to_string(figure), part);
  }
  template <class T>
  void part(std::string_view /*first*/, const std::optional<T>& value) {
    if (value) result_fields(*this, *value);
  }
  [[nodiscard]] static bool includes(bool condition) { return condition; }
  [[nodiscard]] static bool lacks(std::string_view /*key*/) { return false; }

  [[nodiscard]] Json take() { return std::move(object_); }

 private:
  template <class T>
  [[nodiscard]] Json json_of(const T& value) const {
    if constexpr (Described<T>) {
      ResultWriter writer(absent_);
      result_fields(writer, value);
      return writer.take();
    } else if constexpr (std::is_enum_v<T>) {
      return to_string(value);
    } else {
      return value;
    }
  }
  /// JSON has no infinities and no not-a-number.
  [[nodiscard]] static Json json_of(double value) {
    return std::isfinite(value) ? Json(value) : Json();
  }
  [[nodiscard]] static Json json_of(const Rational& value) { return exact(value); }
  [[nodiscard]] static Json json_of(const RecomputePolicy& policy) { return flag_text(policy); }
  // Not static: clang would find it as good as the first template.
  template <class Dimension>
  [[nodiscard]] Json json_of(const Quantity<Dimension>& value) const {
    return value.value;
  }
  template <class T>
  [[nodiscard]] Json json_of(const std::optional<T>& value) const {
    return value ? json_of(*value) : Json();
  }
  template <class T>
  [[nodiscard]] Json json_of(const std::vector<T>& values) const {
    Json list = Json::array();
    for (const T& value : values) list.push_back(json_of(value));
    return list;
  }

  const FigureSet& absent_;
  Json object_ = Json::object();
};

void model_fields(ResultWriter& write, const RunHead& run) {
  write("name", run.model_name);
  write.figure(ResultFigure::parameters, run.parameters);
}

Json model_object(const RunHead& run) {
  const FigureSet none{};
  ResultWriter write(none);
  model_fields(write, run);
  shape_fields(write, run.config.model, run.parameters);
  return write.take();
}

Json config_object(const PlanConfig& config) {
  const FigureSet none{};
  ResultWriter write(none);
  // In the schema these two stand before the mesh.
  write("strategy", "");
  write("outer_strategy", "");
  for_each_field(config, [&](const ConfigField& field, const auto& value) {
    if constexpr (std::is_same_v<decltype(value), const Mesh&>) {
      write("dp_outer", value.size(Axis::dp_outer));
      write("dp_shard", value.size(Axis::dp_shard));
      for (const Axis axis : kOtherDenseAxes)
        if (value.size(axis) > 1) write(to_string(axis), value.size(axis));
    } else {
      write(field.name, value);
    }
    if (field.name == "microbatches") write("global_batch", config.global_batch());
  });
  return write.take();
}

Json result_object(const RunResult& result) {
  const Predicted* const predicted = result.predicted();
  const Predicted none{};  // every result has every key
  const Predicted& known = predicted != nullptr ? *predicted : none;
  ResultWriter write(result.absent);
  write("schema", kResultSchema);
  head_fields(write, static_cast<const RunFigures&>(result));
  write.object("model", [&](ResultWriter& model) {
    model_fields(model, result);
    if (!result.absent.has(ResultFigure::model))
      shape_fields(model, result.config.model, result.parameters);
  });
  write("cluster", result.cluster);
  write("config", result.absent.has(ResultFigure::config) ? Json() : config_object(result.config));
  write("engine", result.engine);
  write("calibration", known.calibration);
  write("cost_model_version", known.cost_model_version);
  write.figure(ResultFigure::plan, result.plan);
  write.object("memory",
               [&](ResultWriter& memory) { memory_fields(memory, result.memory, known); });
  write.object("time", [&](ResultWriter& time) { time_fields(time, result.time, known); });
  write("traffic", result.traffic);
  write("facts", Json::parse(facts_json(result.facts)));
  write("source", result.source());
  if (predicted != nullptr) result_fields(write, *predicted);
  if (const Measured* measured = result.measured()) {
    write("status", result.status);
    result_fields(write, *measured);
  }
  return write.take();
}

std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

constexpr int kOneLine = -1;  // nlohmann's word for it

}  // namespace

RunResult::RunResult(RunFigures figures, std::variant<Predicted, Measured> part)
    : RunFigures(std::move(figures)), part_(std::move(part)) {}

RunResult::RunResult(PredictedRun run)
    : RunResult(static_cast<RunFigures&&>(run), static_cast<Predicted&&>(run)) {}

RunResult::RunResult(MeasuredRun run)
    : RunResult(static_cast<RunFigures&&>(run), static_cast<Measured&&>(run)) {}

const std::vector<ClassReport>& RunResult::classes() const {
  return std::visit(
      [](const auto& part) -> const std::vector<ClassReport>& { return part.classes; }, part_);
}

std::string_view RunResult::source() const {
  return predicted() != nullptr ? "simulated" : "measured";
}

std::string to_json(const RunResult& result) { return text_of(result_object(result), 2) + "\n"; }

std::string to_json_line(const RunResult& result) {
  return text_of(result_object(result), kOneLine);
}

std::string routing_json(const RoutingReport& routing) {
  const FigureSet none{};
  ResultWriter write(none);
  result_fields(write, routing);
  return write.take().dump();
}

std::string model_json(const RunHead& result) { return text_of(model_object(result), kOneLine); }

std::string config_json(const PlanConfig& config) {
  return text_of(config_object(config), kOneLine);
}

}  // namespace mfsdp
