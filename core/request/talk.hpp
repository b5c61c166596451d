// What is to be said of a request beside its result. Who asks says where it goes.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace mfsdp {

/// Each may be null: then nobody hears it.
struct Talk {
  std::function<void(const std::string&)> note;
  std::function<void(const std::string&)> warn;
};

/// Lines of a tool on its stderr. `err` outlives the result, and so do the characters of `tool`.
[[nodiscard]] Talk talk_on(std::ostream& err, std::string_view tool);

}  // namespace mfsdp
