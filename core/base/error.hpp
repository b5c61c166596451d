// What a function returns when its input can be wrong.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace mfsdp {

/// Whose fault it is. Decides the exit code: input 2, environment 3.
enum class Fault { input, environment };

/// One clear line: where (file, place, field) and what was expected there.
struct Error {
  std::string where;
  std::string what;
  Fault fault = Fault::input;

  [[nodiscard]] std::string message() const { return where.empty() ? what : where + ": " + what; }
  friend bool operator==(const Error&, const Error&) = default;
};

template <class T>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(std::string where, std::string what,
                                                Fault fault = Fault::input) {
  return tl::unexpected<Error>(Error{std::move(where), std::move(what), fault});
}

}  // namespace mfsdp

/// Leaves the calling function with the error of `expression`, if it has one.
#define MFSDP_TRY(expression)                                                  \
  do {                                                                         \
    if (auto mfsdp_outcome = (expression); !mfsdp_outcome)                     \
      return tl::unexpected<::mfsdp::Error>(std::move(mfsdp_outcome.error())); \
  } while (false)

/// Declares `name` as the value of `expression`, or leaves with its error.
#define MFSDP_LET(name, expression)                                                              \
  auto name##_outcome = (expression);                                                            \
  if (!name##_outcome) return tl::unexpected<::mfsdp::Error>(std::move(name##_outcome.error())); \
  auto& name = *name##_outcome
