// The error that a function returns when its input is wrong.
#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace mfsdp {

/// The cause of an error. It decides the exit code: input 2, environment 3.
enum class Fault { input, environment };

/// One line: where (file, place, field) and what was expected there. Where there are several
/// reasons, `also` has the others, one line each.
struct Error {
  std::string where;
  std::string what;
  Fault fault = Fault::input;
  std::vector<Error> also = {};

  /// The first reason alone.
  [[nodiscard]] std::string message() const { return where.empty() ? what : where + ": " + what; }
  friend bool operator==(const Error&, const Error&) = default;
};

template <class T>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(std::string where, std::string what,
                                                Fault fault = Fault::input) {
  return tl::unexpected<Error>(Error{std::move(where), std::move(what), fault});
}

/// Collects errors, so that one refusal names all its reasons.
class Reasons {
 public:
  /// Keeps the errors of an outcome. Returns false if there are any.
  template <class T>
  bool add(const Result<T>& outcome) {
    if (!outcome) add(outcome.error());
    return outcome.has_value();
  }
  void add(tl::unexpected<Error> error) { add(std::move(error.value())); }
  void add(Error error) {
    std::vector<Error> also = std::move(error.also);
    error.also.clear();
    if (!error_)
      error_ = std::move(error);
    else
      error_->also.push_back(std::move(error));
    for (Error& one : also) error_->also.push_back(std::move(one));
  }
  [[nodiscard]] bool empty() const { return !error_; }
  /// All reasons as one error; success where there is none.
  [[nodiscard]] Result<void> verdict() const {
    if (error_) return tl::unexpected<Error>(*error_);
    return {};
  }

 private:
  std::optional<Error> error_;
};

}  // namespace mfsdp

/// Returns from the calling function with the error of `expression`, if it has one.
#define MFSDP_TRY(expression)                                                  \
  do {                                                                         \
    if (auto mfsdp_outcome = (expression); !mfsdp_outcome)                     \
      return tl::unexpected<::mfsdp::Error>(std::move(mfsdp_outcome.error())); \
  } while (false)

/// Declares `name` as the value of `expression`, or returns its error.
#define MFSDP_LET(name, expression)                                                              \
  auto name##_outcome = (expression);                                                            \
  if (!name##_outcome) return tl::unexpected<::mfsdp::Error>(std::move(name##_outcome.error())); \
  auto& name = *name##_outcome

/// Gives `place` the value of `expression`, or returns its error.
#define MFSDP_SET(place, expression)                                                             \
  do {                                                                                           \
    auto mfsdp_outcome = (expression);                                                           \
    if (!mfsdp_outcome) return tl::unexpected<::mfsdp::Error>(std::move(mfsdp_outcome.error())); \
    place = std::move(*mfsdp_outcome);                                                           \
  } while (false)
