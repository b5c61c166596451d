// Cells of a comparison. Internal to this folder.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "reports/compare/compare.hpp"

namespace mfsdp {

[[nodiscard]] inline ComparedCell text_cell(std::string text) {
  return {.text = text.empty() ? "-" : std::move(text), .figure = std::nullopt};
}

[[nodiscard]] inline ComparedCell figure_cell(MeasureUnit unit,
                                              const std::optional<Figure>& figure) {
  return {.text = figure ? human_text(unit, *figure) : "-", .figure = figure};
}

}  // namespace mfsdp
