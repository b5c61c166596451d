// Flows of the model's steps (model.hpp), by what is done to them.
#pragma once

#include <string>
#include <utility>

#include "verify/checker/model.hpp"

namespace mfsdp::checker {

/// "-mid" is of the owner before, "+input" of the next.
inline Named named(const std::string& text) {
  if (text.starts_with('-')) return {text.substr(1), -1};
  if (text.starts_with('+')) return {text.substr(1), 1};
  return {text, 0};
}

inline Flow reads(std::string role, std::string dtype, Shape shape, const std::string& value,
                  Int column = 0) {
  return {.role = std::move(role),
          .access = "read",
          .dtype = std::move(dtype),
          .shape = std::move(shape),
          .reads = named(value),
          .column = column};
}
inline Flow makes(std::string role, std::string dtype, Shape shape, const std::string& value) {
  return {.role = std::move(role),
          .access = "write",
          .dtype = std::move(dtype),
          .shape = std::move(shape),
          .makes = named(value)};
}
/// One value over another.
inline Flow turns(std::string role, std::string dtype, Shape shape, const std::string& from,
                  const std::string& to, std::string access = "read_write") {
  return {.role = std::move(role),
          .access = std::move(access),
          .dtype = std::move(dtype),
          .shape = std::move(shape),
          .reads = named(from),
          .makes = named(to)};
}
inline Flow scratch(std::string role, std::string dtype, Shape shape) {
  return {.role = std::move(role),
          .access = "scratch",
          .dtype = std::move(dtype),
          .shape = std::move(shape)};
}
/// Heads of tokens, side by side in rows.
inline Flow in_rows(Flow flow, Int row, Int column = 0) {
  flow.row = row;
  flow.column = column;
  return flow;
}

}  // namespace mfsdp::checker
